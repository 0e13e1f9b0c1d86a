import { byId, choices, clientName, data, times } from "./basics.js";
import { fillTable, longTable, STEP } from "./table.js";

// The client that loses most comes first.
const againstTable = longTable("against", { column: 1, up: false }, () => fillAgainst());

// A line of the table as an object; the page embeds it as a list.
function payer([client, rounds, against, cosine, replies, faults, silent]) {
  return { client, rounds, against, cosine, replies, faults, silent };
}

// The share of the rounds in which the step worked against a client, after one more round of each kind: a client with few
// rounds is neither the first nor the last.
const badness = ({ rounds, against }) => (rounds ? (against + 1) / (rounds + 2) : null);
const loses = ({ rounds, against }) => rounds >= 3 && 2 * against > rounds;

export function fillAgainst() {
  if (!byId("against-run")) return;
  const run = data.against[byId("against-run").value];
  const payers = run.payers.map(payer);
  const faults = run.network ? ["errors and odd replies", "silent"] : [];
  const titles = ["client", "rounds against it", "mean cosine", "replies", ...faults];
  const drawn = fillTable(againstTable, titles, payers.map((one) => lineOf(run, one)));
  const shown = `${drawn} of ${times(run.clients, "client")} ${drawn === 1 ? "is" : "are"} shown.`;
  byId("against-note").textContent = `${times(run.rounds, "round")} recorded. ${against(payers)} ${shown}`;
}

function lineOf(run, one) {
  const name = clientName(data.rows[run.row], one.client);
  return {
    wrong: loses(one),
    cells: [
      { text: name, key: name, note: loses(one) ? "loses in most rounds" : "" },
      { text: one.rounds ? `${one.against} of ${one.rounds}` : "\u2013", key: badness(one) },
      { text: one.cosine === null ? "\u2013" : one.cosine.toFixed(3), key: one.cosine },
      ...[one.replies, ...(run.network ? [one.faults, one.silent] : [])].map((count) => ({ text: count, key: count })),
    ],
  };
}

// Against how many clients the steps worked, in words.
function against(payers) {
  if (payers.every((one) => one.rounds === 0)) return "";
  const some = payers.filter((one) => one.against > 0).length;
  const most = payers.filter(loses).length;
  if (some === 0) return "No step worked against the update of a client.";
  const often = most ? times(most, "client") : "none";
  return `The steps worked against ${
    times(some, "client")
  } in some round, and against ${often} in most rounds (of at least three).`;
}

export function makeAgainst() {
  choices(byId("against-run"), data.against.map((run) => run.label), 0, () => {
    againstTable.limit = STEP;
    fillAgainst();
  });
}
