"use strict";
// Sorting and filtering of tables that stand whole in the page. A column is sorted by its cells' data-value, else by
// their text; what has no value comes last either way.
(() => {
  const key = (cell, number) => {
    let raw = cell.dataset.value ?? cell.textContent.trim();
    if (number) raw = raw.replace(/\u2212/g, "-").replace(/(\d),(?=\d{3})/g, "$1").replace(/^[^\d.+-]*([+-]?[\d.]+(?:e[+-]?\d+)?)?.*$/s, "$1");
    if (raw === "" || raw === "\u2013") return null;
    return Number.isNaN(Number(raw)) ? raw : Number(raw);
  };
  // The cells of rows by column: one that spans rows or columns stands in each of its places.
  const grid = (rows) => {
    const lines = rows.map(() => []);
    rows.forEach((row, y) => {
      for (const cell of row.cells) {
        let x = 0;
        while (lines[y][x]) x++;
        for (let i = 0; i < cell.colSpan; i++)
          for (let j = 0; j < cell.rowSpan && y + j < rows.length; j++) lines[y + j][x + i] = cell;
      }
    });
    return lines;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });

  // The direction that a click on a header gives: numbers start with the greatest, words with the first.
  const nextOrder = (header) => {
    const now = header.getAttribute("aria-sort");
    const first = header.classList.contains("num") ? "descending" : "ascending";
    const second = first === "descending" ? "ascending" : "descending";
    const next = now === first ? second : first;
    for (const column of header.closest("thead").querySelectorAll("th")) column.removeAttribute("aria-sort");
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

  for (const table of document.querySelectorAll(".scroll > table")) {
    const columns = grid([...table.tHead.rows]).at(-1);
    if ([...table.tBodies].every((body) => body.rows.length < 2)) continue;
    for (const header of new Set(columns)) {
      if (header.tagName !== "TH" || header.colSpan > 1 || header.querySelector("button")) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
    }
    // Rows are sorted within their group; a cell that spans several is repeated in each, or its rows would lose it.
    const spread = (body) => {
      const lines = grid([...body.rows]);
      lines.forEach((cells, y) => body.rows[y].replaceChildren(...cells.map((cell) => {
        const copy = cell.cloneNode(true);
        copy.rowSpan = 1;
        return copy;
      })));
    };
    const rows = () => [...table.tBodies].flatMap((body) => [...body.rows]);
    if (rows().length >= 12) {
      const box = document.createElement("input");
      const label = document.createElement("label");
      const line = document.createElement("div");
      box.type = "search";
      box.placeholder = "words of a row";
      label.append("Filter", box);
      line.className = "controls";
      line.append(label);
      table.parentElement.before(line);
      box.addEventListener("input", () => {
        for (const body of table.tBodies) if (body.querySelector("[rowspan]")) spread(body);
        const words = box.value.toLowerCase().split(/\s+/);
        for (const row of rows()) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
      });
    }
    sortable(table, (header, order) => {
      const column = columns.indexOf(header);
      for (const body of table.tBodies) {
        if (body.querySelector("[rowspan]")) spread(body);
        body.append(...inOrder([...body.rows], (row) => key(row.cells[column], header.classList.contains("num")), order));
      }
    });
  }

  // A shadow at the side to which a wide table goes on.
  for (const box of document.querySelectorAll(".scroll")) {
    const mark = () => {
      box.classList.toggle("more-left", box.scrollLeft > 1);
      box.classList.toggle("more-right", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    };
    box.addEventListener("scroll", mark, { passive: true });
    new ResizeObserver(mark).observe(box);
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
