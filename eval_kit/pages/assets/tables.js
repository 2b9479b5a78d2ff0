"use strict";
// Sorting and filtering of tables that stand whole in the page. A column is sorted by its cells' data-value, else by
// their text; what has no value comes last either way.
(() => {
  const key = (cell) => {
    const raw = cell.dataset.value ?? cell.textContent.trim();
    if (raw === "") return null;
    return Number.isNaN(Number(raw)) ? raw : Number(raw);
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });

  // The direction that a click on a header gives: numbers start with the greatest, words with the first.
  const nextOrder = (header) => {
    const now = header.getAttribute("aria-sort");
    const first = header.classList.contains("num") ? "descending" : "ascending";
    const second = first === "descending" ? "ascending" : "descending";
    const next = now === first ? second : first;
    for (const column of header.parentElement.children) column.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", next);
    return next;
  };
  window.inOrder = (rows, keyOf, order) => {
    const sign = order === "descending" ? -1 : 1;
    return rows
      .map((row) => [keyOf(row), row])
      .sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : sign * compare(a, b)))
      .map(([, row]) => row);
  };

  // Calls sort when a header's button is pressed, and at once for the column that is marked as sorted.
  window.sortable = (box, sort) => {
    for (const button of box.querySelectorAll("thead button")) {
      const header = button.closest("th");
      button.addEventListener("click", () => sort(header, nextOrder(header)));
    }
    const initial = box.querySelector("th[aria-sort]");
    if (initial) sort(initial, initial.getAttribute("aria-sort"));
  };

  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const body = table.tBodies[0];
    sortable(table, (header, order) => {
      const column = [...header.parentElement.children].indexOf(header);
      body.append(...inOrder([...body.rows], (row) => key(row.cells[column]), order));
    });
  }

  // Legend buttons show and hide a system in every picture of their figure.
  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      for (const series of button.closest("figure").querySelectorAll(".series")) {
        if (series.dataset.system === button.dataset.system) series.classList.toggle("off", !on);
      }
    });
  }
})();
