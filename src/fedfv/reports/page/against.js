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
  const name = (client) => clientName(data.rows[run.row], client);
  const all = run.payers.map(payer);
  const losing = all.filter((one) => one.against > 0);
  const often = all.filter(loses);
  const titles = [
    "client",
    "works against",
    "mean cosine",
    "replies",
    ...(run.network ? ["errors and odd replies", "silent"] : []),
  ];
  const drawn = fillTable(
    againstTable,
    titles,
    all.map((one) => ({
      wrong: loses(one),
      cells: [
        { text: name(one.client), key: name(one.client), note: loses(one) ? "loses in most rounds" : "" },
        { text: one.rounds ? `${one.against} of ${one.rounds}` : "\u2013", key: badness(one) },
        { text: one.cosine === null ? "\u2013" : one.cosine.toFixed(3), key: one.cosine },
        ...[one.replies, ...(run.network ? [one.faults, one.silent] : [])].map((count) => ({
          text: count,
          key: count,
        })),
      ],
    })),
  );
  const parts = [`${times(run.rounds, "round")} under the lens.`];
  if (run.rounds > 0) {
    parts.push(
      losing.length
        ? `The steps worked against ${
          times(losing.length, "client")
        } in some round, and against ${often.length} in most of their rounds (of at least three).`
        : "No step worked against the update of a client.",
    );
  }
  parts.push(
    `${drawn} of ${times(run.clients, "client")} ${
      drawn === 1 ? "is" : "are"
    } shown. Clients with few rounds are sorted as if they had one more of each kind.`,
  );
  byId("against-note").textContent = parts.join(" ");
}

export function makeAgainst() {
  choices(byId("against-run"), data.against.map((run) => run.label), 0, () => {
    againstTable.limit = STEP;
    fillAgainst();
  });
}
