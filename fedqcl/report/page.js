"use strict";
const table = document.querySelector("#runs table");
const body = table.tBodies[0];
const rows = [...body.rows];
const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

function filter() {
  const words = document.querySelector("#filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    row.hidden = !words.every((word) => texts.get(row).includes(word));
    shown += !row.hidden;
  }
  document.querySelector("#shown").textContent = `${shown} of ${rows.length}`;
}

function compare(a, b) {
  if (a === "" || b === "") return (a === "") - (b === "");
  const [x, y] = [Number(a), Number(b)];
  return isNaN(x) || isNaN(y) ? a.localeCompare(b, undefined, { numeric: true }) : x - y;
}

function sort(head) {
  const sign = head.ariaSort === "ascending" ? -1 : 1;
  for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
  head.ariaSort = sign > 0 ? "ascending" : "descending";
  const value = (row) => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent;
  const blank = (row) => value(row) === "";
  rows.sort((a, b) => (blank(a) || blank(b) ? 1 : sign) * compare(value(a), value(b)));
  body.append(...rows);
}

const configs = JSON.parse(document.querySelector("#configs").textContent);
const dialog = document.querySelector("#config");

function show(button) {
  dialog.querySelector("h3").textContent = button.textContent;
  dialog.querySelector("pre").textContent = configs[Number(button.dataset.run)] || "This run has no config.yaml.";
  dialog.showModal();
}

table.tHead.addEventListener("click", (event) => event.target.closest("button") && sort(event.target.closest("th")));
body.addEventListener("click", (event) => event.target.closest("button") && show(event.target.closest("button")));
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
document.querySelector("#filter").addEventListener("input", filter);
filter();
