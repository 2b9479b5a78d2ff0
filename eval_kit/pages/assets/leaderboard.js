"use strict";
// The leaderboard's filters. Test sets and measures follow from the shift; without this script all rows are shown.
(() => {
  const box = document.getElementById("leaderboard");
  const rows = [...box.querySelectorAll("tbody tr")];
  const status = box.querySelector("[role=status]");
  const by = (name) => box.querySelector(`[name=${name}]`);
  const [shift, set, measure, architecture, release, search, published] = [
    "shift", "set", "measure", "architecture", "release", "search", "published",
  ].map(by);

  const offer = (select, values) => {
    const before = select.value;
    select.replaceChildren(...[...new Set(values)].map((value) => new Option(value, value)));
    if (values.includes(before)) select.value = before;
  };
  const headers = [...box.querySelectorAll("thead th")];
  const first = headers.find((header) => header.hasAttribute("aria-sort"));
  const shown = () => rows.filter((row) => !row.hidden);
  const holds = (cell) => (cell.dataset.value ?? cell.textContent.trim()) !== "";
  const filled = (header) => {
    const cells = shown().map((row) => row.cells[headers.indexOf(header)]);
    return 2 * cells.filter(holds).length > cells.length;
  };
  // Where most shown rows have no value in the column that they are sorted by, they are sorted by one in which they do.
  const sortByFilled = () => {
    if (filled(headers.find((header) => header.hasAttribute("aria-sort")))) return;
    const numbers = headers.filter((header) => header.classList.contains("num")).reverse();
    [first, ...numbers].find(filled)?.querySelector("button").click();
  };
  // Figures are sorted from the best, whichever that is.
  const sortFromBest = (lower) => {
    const best = lower ? "ascending" : "descending";
    for (const header of headers.filter((header) => ["Out", "In", "Value"].includes(header.textContent.trim()))) {
      if (header.dataset.first === best) continue;
      header.dataset.first = best;
      if (header.hasAttribute("aria-sort") && header.getAttribute("aria-sort") !== best) header.querySelector("button").click();
    }
  };
  // Columns that say what is chosen above, or nothing of any shown row, are left out.
  const hideColumns = () => {
    const listed = shown();
    for (const [column, header] of headers.entries()) {
      const chosen = ["Test set", "Measure"].includes(header.textContent.trim());
      header.hidden = chosen || !listed.some((row) => holds(row.cells[column]));
      for (const row of listed) row.cells[column].hidden = header.hidden;
    }
  };
  const filter = () => {
    const sought = search.value.trim().toLowerCase();
    let count = 0;
    for (const row of rows) {
      const about = row.dataset;
      row.hidden = !(
        about.shift === shift.value &&
        about.set === set.value &&
        about.measure === measure.value &&
        (architecture.value === "" || about.architecture === architecture.value) &&
        (!release || about.release === "" || about.release === release.value) &&
        (!published || published.checked || !row.classList.contains("published")) &&
        (!sought || row.textContent.toLowerCase().includes(sought))
      );
      count += !row.hidden;
    }
    const lower = lowerIsBetter.has(measure.value);
    sortFromBest(lower);
    sortByFilled();
    hideColumns();
    const view = `${shift.value === set.value ? "" : `${shift.value}, `}${set.value}: ${measure.value}`;
    const systems = `${count} ${count === 1 ? "system" : "systems"} on ${view}${lower ? ", lower is better" : ""}`;
    status.textContent = count ? systems : "No system matches these filters.";
  };
  const ofShift = (name) => order.filter((row) => row.shift === shift.value).map((row) => row[name]);
  const order = rows.map((row) => ({ ...row.dataset })).sort((a, b) => a.row - b.row);  // as written
  order.sort((a, b) => a.set.localeCompare(b.set, undefined, { numeric: true }) || 0);
  order.sort((a, b) => (b.set === "mean of all") - (a.set === "mean of all"));
  const lowerIsBetter = new Set(order.filter((row) => "lower" in row).map((row) => row.measure));
  const measures = new Map();
  for (const row of rows) measures.set(row.dataset.measure, (measures.get(row.dataset.measure) ?? 0) + 1);
  const refresh = () => {
    offer(set, ofShift("set"));
    offer(measure, ofShift("measure").sort(
      (a, b) => lowerIsBetter.has(a) - lowerIsBetter.has(b) || measures.get(b) - measures.get(a)
    ));
    filter();
  };
  shift.addEventListener("change", refresh);
  for (const control of [set, measure, architecture, release, published]) control?.addEventListener("change", filter);
  search.addEventListener("input", filter);
  box.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());
  refresh();
})();
