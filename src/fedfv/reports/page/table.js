import { byId } from "./basics.js";

export const STEP = 50; // lines that are added to a long table at a time

function cell(kind, text, note) {
  const made = document.createElement(kind);
  made.textContent = text;
  if (note) {
    const small = document.createElement("small");
    small.textContent = note;
    made.append(small);
  }
  return made;
}

// Turns the sort order of a heading and returns whether it is now ascending; `upFirst` makes the first press ascending.
export function turned(heads, head, { upFirst }) {
  const before = head.getAttribute("aria-sort");
  const up = before === "descending" || (upFirst && before !== "ascending");
  heads.forEach((each) => each.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  return up;
}

// Shows a hint above a table that is wider than the page.
export function watchWidth(region) {
  const hint = region.previousElementSibling;
  const update = () => {
    hint.hidden = region.scrollWidth <= region.clientWidth + 1;
  };
  new ResizeObserver(update).observe(region);
  new ResizeObserver(update).observe(region.firstElementChild);
}

// A table that is sorted by its headings and grows by some lines at a time; `fill` draws it again, with `fillTable`.
export function longTable(name, sort, fill) {
  const table = { name, sort, limit: STEP, fill };
  byId(`${name}-more`)?.addEventListener("click", () => {
    table.limit += STEP;
    fill();
  });
  return table;
}

// Draws the headings and the first lines, and returns how many lines are drawn. A line has a text and a key to sort by for
// each column, and perhaps a note; lines without a key come last.
export function fillTable(table, titles, lines) {
  if (table.sort.column >= titles.length) table.sort = { column: 0, up: true };
  const place = byId(`${table.name}-table`);
  drawHeads(table, place.tHead.rows[0], titles);
  const drawn = [...lines].sort(lineOrder(table.sort)).slice(0, table.limit);
  place.tBodies[0].replaceChildren(...drawn.map((line) => {
    const made = document.createElement("tr");
    const [name, ...cells] = line.cells;
    const head = cell("th", name.text, name.note);
    head.scope = "row";
    if (line.wrong) made.className = "wrong";
    made.append(head, ...cells.map(({ text, note }) => cell("td", text, note)));
    return made;
  }));
  byId(`${table.name}-more`).hidden = drawn.length === lines.length;
  return drawn.length;
}

function lineOrder({ column, up }) {
  const natural = new Intl.Collator("en", { numeric: true }).compare;
  const key = (line, i) => line.cells[i].key;
  return (a, b) => {
    const [first, second] = [key(a, column), key(b, column)];
    if (first === null || second === null) {
      return Number(first === null) - Number(second === null) || natural(key(a, 0), key(b, 0));
    }
    const difference = typeof first === "string" ? natural(first, second) : first - second;
    return (up ? 1 : -1) * difference || natural(key(a, 0), key(b, 0));
  };
}

function drawHeads(table, line, titles) {
  line.replaceChildren(...titles.map((title, i) => {
    const head = document.createElement("th");
    const button = cell("button", title);
    head.scope = "col";
    button.type = "button";
    if (i === table.sort.column) head.setAttribute("aria-sort", table.sort.up ? "ascending" : "descending");
    button.addEventListener("click", () => {
      table.sort = { column: i, up: turned([...line.cells], head, { upFirst: true }) };
      table.fill();
      line.cells[i].firstElementChild.focus();
    });
    head.append(button);
    return head;
  }));
}
