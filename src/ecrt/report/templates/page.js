"use strict";
document.documentElement.classList.add("js");

const keyOf = (cell) => (cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value));

function compare(a, b, direction) {
  if (typeof a === "number" && typeof b === "number") {
    // What has no number stays at the end, whichever way the table is sorted.
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return direction * (a - b);
  }
  return direction * String(a).localeCompare(String(b), undefined, { numeric: true });
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => compare(keyOf(a.cells[column]), keyOf(b.cells[column]), up ? 1 : -1));
      table.tBodies[0].append(...rows);
    });
  });
}

for (const input of document.querySelectorAll("input[type=search]")) {
  const rows = [...document.getElementById(input.dataset.table).tBodies[0].rows];
  const output = input.closest(".search").querySelector("output");
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const name = row.cells[0].textContent + " " + row.cells[0].title;
      row.hidden = !name.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    output.textContent = wanted ? `${shown} of ${rows.length}` : "";
  });
}

let folded = [];
window.addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details[data-print]:not([open])")];
  folded.forEach((fold) => { fold.open = true; });
});
window.addEventListener("afterprint", () => folded.forEach((fold) => { fold.open = false; }));
