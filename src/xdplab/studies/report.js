"use strict";
/* Sorts a table by the column whose head is pressed: by numbers where cells have them, else by words. */
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), table = head.closest("table"), body = table.tBodies[0];
    const column = [...head.parentNode.children].indexOf(head);
    const down = head.getAttribute("aria-sort") === "ascending";
    const key = (row) => {
      const cell = row.cells[column], value = cell.dataset.number;
      return value === "" || value === undefined ? cell.textContent : Number(value);
    };
    const before = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (typeof x === "number" && typeof y === "number") return x - y;
      return typeof x === typeof y ? String(x).localeCompare(String(y)) : typeof x === "number" ? -1 : 1;
    };
    const rows = [...body.rows].sort((a, b) => (down ? -before(a, b) : before(a, b)));
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  });
}
/* Hides or shows the series whose entry in a figure's legend is pressed. */
for (const svg of document.querySelectorAll("figure svg")) {
  for (const entry of svg.querySelectorAll("g[data-legend]")) {
    const all = (kind) => svg.querySelectorAll(`[data-${kind}="${entry.dataset.legend}"]`);
    const [first] = all("legend");
    const press = () => {
      const off = first.getAttribute("aria-pressed") === "true";
      for (const shape of all("series")) shape.classList.toggle("hidden", off);
      for (const one of all("legend")) one.classList.toggle("off", off);
      first.setAttribute("aria-pressed", String(!off));
    };
    entry.addEventListener("click", press);
    entry.setAttribute("role", "button");
    if (entry !== first) continue;
    entry.setAttribute("aria-pressed", "true");
    entry.setAttribute("tabindex", "0");
    entry.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      press();
    });
  }
}
