"use strict";
// The per-query explorers: rows live in the page as JSON and are put on it some at a time.
document.querySelectorAll(".explorer").forEach((box) => {
  const data = JSON.parse(box.querySelector("script").textContent);
  const { groups, systems, parts, queries, cutoffs, reach, columns } = data;
  const STEP = 100;
  const body = box.querySelector("tbody");
  const status = box.querySelector("[role=status]");
  const more = box.querySelector(".more");
  const [group, system, part, search] = ["group", "system", "part", "search"].map((name) => box.querySelector(`[name=${name}]`));
  const rows = data.rows.map((values) => {
    const row = Object.fromEntries(columns.map((name, i) => [name, values[i]]));
    const [id, text] = queries[row.query];
    return { ...row, id, text, query: text || id, loss: row.in - row.out, part: parts[row.part], system: systems[row.system] };
  });
  let order = rows;
  let matching = [];
  let shown = 0;

  const addCell = (line, text, kind = "num") => {
    const cell = line.insertCell();
    cell.className = kind;
    cell.append(text);
    return cell;
  };
  const addMarked = (parent, text, sought) => {
    const at = sought ? text.toLowerCase().indexOf(sought) : -1;
    if (at < 0) return parent.append(text);
    const mark = document.createElement("mark");
    mark.textContent = text.slice(at, at + sought.length);
    parent.append(text.slice(0, at), mark, text.slice(at + sought.length));
  };
  const bar = (value) => {
    const width = Math.min(1, Math.abs(value) / reach) * 46;
    return `<svg class="lossbar" viewBox="0 0 96 14" aria-hidden="true">
      <rect class="bar ${value < 0 ? "gain" : "harm"}" x="${value < 0 ? 48 - width : 48}" y="3" width="${width}" height="8"/>
      <line class="zero" x1="48" x2="48" y1="0" y2="14"/></svg>`;
  };
  const rank = (value, row) => (value === null ? "" : value === 0 ? (cutoffs[row.group] ? `> ${cutoffs[row.group]}` : "none") : String(value));
  const signed = (value) => (value < 0 ? "\u2212" : "") + Math.abs(value).toFixed(3);

  const show = (count) => {
    const sought = search.value.trim().toLowerCase();
    for (const row of matching.slice(shown, shown + count)) {
      const line = body.insertRow();
      const query = addCell(line, "", "query");
      addMarked(query, row.text, sought);
      const id = query.appendChild(document.createElement("span"));
      id.className = "id";
      addMarked(id, row.id, sought);
      if (columns.includes("wording")) addMarked(addCell(line, "", "wording"), row.wording, sought);
      addCell(line, signed(row.loss), "num withbar").insertAdjacentHTML("beforeend", bar(row.loss));
      addCell(line, row.in.toFixed(3));
      addCell(line, row.out.toFixed(3));
      addCell(line, rank(row.in_rank, row));
      addCell(line, rank(row.out_rank, row));
      if (columns.includes("r")) addCell(line, row.r === null ? "" : row.r.toPrecision(4).replace("-", "\u2212"));
      addCell(line, row.part, "");
      addCell(line, row.system, "");
    }
    shown = Math.min(matching.length, shown + count);
    const left = matching.length - shown;
    more.hidden = left === 0;
    more.textContent = `Show ${Math.min(STEP, left)} more`;
    status.textContent = matching.length
      ? `Showing ${shown.toLocaleString("en")} of ${matching.length.toLocaleString("en")} rows`
      : "No query matches; try a shorter search or another filter.";
  };
  const filter = () => {
    const sought = search.value.trim().toLowerCase();
    matching = order.filter(
      (row) =>
        row.group === Number(group.value) &&
        (system.value === "" || row.system === system.value) &&
        (part.value === "" || row.part === part.value) &&
        [row.id, row.text, row.wording ?? ""].some((text) => text.toLowerCase().includes(sought)),
    );
    body.replaceChildren();
    shown = 0;
    show(STEP);
  };
  const offer = (select, names) => select.replaceChildren(new Option("all", ""), ...names.map((name) => new Option(name, name)));
  const offerParts = () => {
    const ofGroup = new Set(rows.filter((row) => row.group === Number(group.value)).map((row) => row.part));
    offer(part, parts.filter((name) => ofGroup.has(name)));
  };
  groups.forEach((name, i) => group.add(new Option(name, i)));
  offer(system, systems);
  group.addEventListener("change", () => {
    offerParts();
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
  box.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());
  offerParts();
  sortable(box, (header, direction) => {
    const key = header.dataset.key;
    order = inOrder(rows, (row) => (key.endsWith("_rank") && row[key] === 0 ? Infinity : row[key]), direction);
    filter();
  });
});
