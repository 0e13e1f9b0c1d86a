import { fillAgainst, makeAgainst } from "./against.js";
import { fillClients, makeClients } from "./client_table.js";
import { drawClients } from "./clients.js";
import { drawDefences, makeDefences } from "./defences.js";
import { drawLens, makeLens } from "./lens.js";
import { drawPair, makePair } from "./pair.js";
import { watchPrinting } from "./printing.js";
import { drawReported, makeReported } from "./reported.js";
import { drawCurves, makeLegend, makeTable } from "./runs.js";
import { watchWidth } from "./table.js";

function drawAll() {
  drawCurves();
  drawClients();
  drawPair();
  fillAgainst();
  drawLens();
  drawReported();
  fillClients();
  drawDefences();
}

makeTable();
makeLegend(() => {
  drawCurves();
  drawClients();
  fillClients();
});
makeClients();
makePair();
makeDefences();
makeAgainst();
makeLens();
makeReported();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
watchPrinting(drawAll);
document.querySelectorAll(".scroll").forEach(watchWidth);
drawAll();
document.documentElement.dataset.ready = "yes";
