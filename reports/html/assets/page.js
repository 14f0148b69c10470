"use strict";
// Sorting and copying of tables; the page reads well without it.
(function () {
  function valueOf(row, column) {
    const cell = row.cells[column];
    if (cell.dataset.v === undefined) return cell.textContent;
    return cell.dataset.v === "" ? null : Number(cell.dataset.v);
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }

  // Unknown values stay last in either direction; equal ones keep their order.
  function sortBy(table, column, descending) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => ({ row, value: valueOf(row, column) }));
    rows.sort((x, y) => {
      if (x.value === null || y.value === null) return (x.value === null) - (y.value === null);
      return descending ? compare(y.value, x.value) : compare(x.value, y.value);
    });
    body.append(...rows.map((entry) => entry.row));
  }

  function onHeading(heading) {
    const table = heading.closest("table");
    const descending = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    sortBy(table, heading.cellIndex, descending);
  }

  // Numbers are copied in full, not as they are shown.
  function tableAsTsv(table) {
    const text = (cell) => (cell.dataset.v ? cell.dataset.v : cell.textContent.trim());
    return Array.from(table.rows, (row) => Array.from(row.cells, text).join("\t")).join("\n") + "\n";
  }

  // The clipboard needs a permission that a page opened from a file may lack; then the old way.
  async function copyText(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch (refused) {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const copied = document.execCommand("copy");
      area.remove();
      return copied;
    }
  }

  async function onCopy(button) {
    const copied = await copyText(tableAsTsv(button.closest("table")));
    const before = button.textContent;
    button.textContent = copied ? "Copied" : "Copying was refused";
    setTimeout(() => { button.textContent = before; }, 1500);
  }

  for (const heading of document.querySelectorAll("table.sortable th")) {
    heading.addEventListener("click", () => onHeading(heading));
  }
  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", () => onCopy(button));
  }
  window.addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details")) each.open = true;
  });
})();
