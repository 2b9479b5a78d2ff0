"use strict";
// The per-query explorer: rows live in the page as JSON and are put on it some at a time.
(() => {
  const box = document.getElementById("explorer");
  if (!box) return;
  const { groups, systems, parts, queries, rows, cutoffs, reach } = JSON.parse(document.getElementById("rows").textContent);
  const [GROUP, SYSTEM, PART, QUERY, IN, OUT, IN_RANK, OUT_RANK, R] = Array(9).keys();
  const STEP = 100;
  const body = box.querySelector("tbody");
  const status = box.querySelector("[role=status]");
  const more = box.querySelector(".more");
  const [group, system, part, search] = ["group", "system", "part", "search"].map((name) => box.querySelector(`[name=${name}]`));
  const loss = (row) => row[IN] - row[OUT];
  const keys = {
    query: (row) => queries[row[QUERY]][1] || queries[row[QUERY]][0],
    loss,
    in: (row) => row[IN],
    out: (row) => row[OUT],
    in_rank: (row) => (row[IN_RANK] === 0 ? Infinity : row[IN_RANK]),
    out_rank: (row) => (row[OUT_RANK] === 0 ? Infinity : row[OUT_RANK]),
    r: (row) => row[R],
    part: (row) => parts[row[PART]],
    system: (row) => systems[row[SYSTEM]],
  };
  let order = rows;
  let found = [];
  let shown = 0;

  const cell = (row, text, kind = "num") => {
    const made = row.insertCell();
    made.className = kind;
    made.textContent = text;
    return made;
  };
  const marked = (into, text, wanted) => {
    const at = wanted ? text.toLowerCase().indexOf(wanted) : -1;
    if (at < 0) return into.append(text);
    const mark = document.createElement("mark");
    mark.textContent = text.slice(at, at + wanted.length);
    into.append(text.slice(0, at), mark, text.slice(at + wanted.length));
  };
  const bar = (value) => {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("class", "lossbar");
    svg.setAttribute("viewBox", "0 0 96 14");
    svg.setAttribute("aria-hidden", "true");
    const add = (name, attributes) => {
      const made = document.createElementNS(space, name);
      for (const [key, one] of Object.entries(attributes)) made.setAttribute(key, one);
      svg.append(made);
    };
    const width = Math.min(1, Math.abs(value) / reach) * 46;
    add("rect", { x: value < 0 ? 48 - width : 48, y: 3, width, height: 8, class: value < 0 ? "bar gain" : "bar harm" });
    add("line", { x1: 48, x2: 48, y1: 0, y2: 14, class: "zero" });
    return svg;
  };
  const rank = (value, row) => (value === null ? "" : value === 0 ? `> ${cutoffs[row[GROUP]]}` : String(value));
  const signed = (value) => (value < 0 ? "\u2212" : "") + Math.abs(value).toFixed(3);

  const show = (count) => {
    const wanted = search.value.trim().toLowerCase();
    for (const row of found.slice(shown, shown + count)) {
      const made = body.insertRow();
      const [id, text] = queries[row[QUERY]];
      const query = cell(made, "", "query");
      marked(query, text, wanted);
      const number = document.createElement("span");
      number.className = "id";
      marked(number, id, wanted);
      query.append(number);
      cell(made, signed(loss(row)), "num withbar").append(bar(loss(row)));
      cell(made, row[IN].toFixed(3));
      cell(made, row[OUT].toFixed(3));
      cell(made, rank(row[IN_RANK], row));
      cell(made, rank(row[OUT_RANK], row));
      if (box.dataset.r) cell(made, row[R] === null ? "" : row[R].toPrecision(4).replace("-", "\u2212"));
      cell(made, parts[row[PART]], "");
      cell(made, systems[row[SYSTEM]], "");
    }
    shown = Math.min(found.length, shown + count);
    const left = found.length - shown;
    more.hidden = left === 0;
    more.textContent = `Show ${Math.min(STEP, left)} more`;
    status.textContent = found.length
      ? `Showing ${shown.toLocaleString("en")} of ${found.length.toLocaleString("en")} rows`
      : "No query matches; try a shorter search or another filter.";
  };
  const filter = () => {
    const wanted = search.value.trim().toLowerCase();
    const matches = queries.map(([id, text]) => !wanted || id.includes(wanted) || text.toLowerCase().includes(wanted));
    found = order.filter(
      (row) =>
        row[GROUP] === Number(group.value) &&
        (system.value === "" || row[SYSTEM] === Number(system.value)) &&
        (part.value === "" || row[PART] === Number(part.value)) &&
        matches[row[QUERY]],
    );
    body.replaceChildren();
    shown = 0;
    show(STEP);
  };
  const offer = () => {
    const here = new Set(rows.filter((row) => row[GROUP] === Number(group.value)).map((row) => row[PART]));
    part.replaceChildren(new Option("all", ""), ...[...here].sort((a, b) => a - b).map((one) => new Option(parts[one], one)));
  };
  const sort = (header, direction) => {
    order = inOrder(rows, keys[header.dataset.key], direction);
    filter();
  };

  groups.forEach((name, place) => group.add(new Option(name, place)));
  system.add(new Option("all", ""));
  systems.forEach((name, place) => system.add(new Option(name, place)));
  group.addEventListener("change", () => {
    offer();
    filter();
  });
  system.addEventListener("change", filter);
  part.addEventListener("change", filter);
  search.addEventListener("input", filter);
  more.addEventListener("click", () => {
    const first = shown;
    show(STEP);
    body.rows[first].tabIndex = -1;
    body.rows[first].focus();
  });
  for (const button of box.querySelectorAll("thead button")) {
    const header = button.closest("th");
    button.addEventListener("click", () => sort(header, nextOrder(header)));
  }
  box.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());
  offer();
  const initial = box.querySelector("th[aria-sort]");
  sort(initial, initial.getAttribute("aria-sort"));
})();
