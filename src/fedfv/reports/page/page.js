function drawAll() {
  document.querySelectorAll(".swatch").forEach((each) => { each.style.background = colour(data.rows[each.dataset.row]); });
  document.querySelectorAll("#legend button").forEach((each) => { each.style.borderColor = colour(data.rows[each.dataset.row]); });
  drawCurves(); drawClients(); drawPair(); fillAgainst(); drawLens(); drawReported(); fillClients(); drawDefences();
}

function makeLegend() {
  data.rows.forEach((row, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = row.label;
    button.dataset.row = i;
    if (row.quiet) hidden.add(i);
    button.setAttribute("aria-pressed", String(!hidden.has(i)));
    button.addEventListener("click", () => {
      if (!hidden.delete(i)) hidden.add(i);
      button.setAttribute("aria-pressed", String(!hidden.has(i)));
      drawCurves(); drawClients(); fillClients();
    });
    byId("legend").append(button);
  });
}

// Turns the sort order of a heading and returns whether it is now ascending; `upFirst` makes the first press ascending.
function turned(heads, head, upFirst) {
  const before = head.getAttribute("aria-sort");
  const up = before === "descending" || (upFirst && before !== "ascending");
  heads.forEach((each) => each.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  return up;
}

function makeTable() {
  const table = byId("runs"), heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, i) => head.firstElementChild.addEventListener("click", () => {
    const up = turned(heads, head, i === 0);
    const value = (row) => row.cells[i].dataset.value;
    const order = (a, b) => (i === 0 ? value(a).localeCompare(value(b)) : value(a) - value(b));
    body.append(...[...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a))));
  }));
}

// Shows a hint above a table that is wider than the page.
function watchWidth(region) {
  const hint = region.previousElementSibling;
  const update = () => { hint.hidden = region.scrollWidth <= region.clientWidth + 1; };
  new ResizeObserver(update).observe(region);
  new ResizeObserver(update).observe(region.firstElementChild);
}

function choices(select, labels, chosen, changed) {
  if (!select) return;
  labels.forEach((label, i) => select.add(new Option(label, i, false, i === chosen)));
  select.addEventListener("change", changed);
}

makeLegend();
makeTable();
makePair();
makeClients();
makeReported();
choices(byId("against-run"), data.against.map((run) => run.label), 0, () => { againstTable.limit = STEP; fillAgainst(); });
choices(byId("lens-run"), data.lens.map((run) => run.label), 0, () => { byId("lens-round").value = 0; offerRules(); drawLens(); });
byId("lens-round")?.addEventListener("input", drawLens);
offerRules();
byId("lens-what-if")?.addEventListener("change", drawLens);
choices(byId("defence-run"), data.defences.map((run) => run.label), 0, () => { defenceTable.limit = STEP; drawDefences(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
document.querySelectorAll(".scroll").forEach(watchWidth);
drawAll();
document.documentElement.dataset.ready = "yes";
