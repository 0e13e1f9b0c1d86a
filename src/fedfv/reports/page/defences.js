import { byId, capital, choices, data } from "./basics.js";
import { drawEvents, drawStanding, ofRun } from "./defence_figures.js";
import { fillTable, longTable, STEP } from "./table.js";

// The lowest standing comes first.
const defenceTable = longTable("defence", { column: 6, up: true }, () => fillDefences());

const chosen = () => data.defences[byId("defence-run").value];

// A line of the table as an object; the page embeds it as a list.
function fate([client, replies, clipped, capped, demoted, dropped, standing, lies, found]) {
  return { client, replies, clipped, capped, demoted, dropped, standing, lies, found };
}

// The verdict on a client in words, and whether the defences were wrong about it; none where liars are not known.
function verdict(run, one) {
  if (!run.known) return { text: "", wrong: false };
  if (run.liars.includes(one.client)) {
    if (one.lies === 0 || !run.judged) return { text: "", wrong: false };
    return one.found
      ? { text: `found in ${one.found} of ${one.lies} lies`, wrong: false }
      : { text: "missed", wrong: true };
  }
  return one.demoted + one.dropped > 0 ? { text: "accused falsely", wrong: true } : { text: "", wrong: false };
}

function fillDefences() {
  const run = chosen();
  const counts = ["replies", "clipped", "capped", "demoted", "dropped"];
  const titles = [
    ...["client", ...counts],
    ...(run.judged ? ["last standing"] : []),
    ...(run.known ? ["lies", "verdict"] : []),
  ];
  const keys = [...counts, ...(run.judged ? ["standing"] : []), ...(run.known ? ["lies"] : [])];
  const drawn = fillTable(defenceTable, titles, run.fates.map(fate).map((one) => lineOf(run, one, keys)));
  const rest = run.fates.length - drawn;
  const left = run.replied - run.fates.length;
  byId("defence-count").textContent =
    `${drawn} of ${run.replied} clients that replied are shown, with the numbers of their replies` +
    (rest ? `; ${rest} more follow` : "") + (left ? `; ${left} others are left out of this page` : "") + ".";
}

function lineOf(run, one, keys) {
  const name = ofRun(run)(one.client);
  const { text, wrong } = verdict(run, one);
  return {
    wrong,
    cells: [
      { text: name, key: name, note: wrong ? text : "" },
      ...keys.map((key) => ({ text: one[key] ?? "\u2013", key: one[key] })),
      ...(run.known ? [{ text, key: text }] : []),
    ],
  };
}

export function drawDefences() {
  if (!byId("defence-run")) return;
  const run = chosen();
  byId("defence-note").textContent = run.defended
    ? `${capital(run.found)}.`
    : "The records of this run name no defence.";
  drawStanding(run);
  drawEvents(run);
  fillDefences();
}

export function makeDefences() {
  choices(byId("defence-run"), data.defences.map((run) => run.label), 0, () => {
    defenceTable.limit = STEP;
    drawDefences();
  });
}
