import { byId, choices, clientName, data, number, worseFirst } from "./basics.js";
import { lying } from "./clients.js";
import { hidden } from "./runs.js";
import { fillTable, longTable, STEP } from "./table.js";

// The worst client comes first.
const clientTable = longTable("client", { column: 2, up: worseFirst > 0 }, () => fillClients());

// One line for each client of the chosen rows: its name, its number of test examples, and its score in each run.
function clientLines(rows) {
  const lines = new Map();
  const empty = (row, client) => ({
    client,
    name: clientName(row, client),
    low: Infinity,
    high: 0,
    values: Array(rows.length).fill(null),
  });
  rows.forEach((row, k) =>
    row.each.clients.forEach((client, i) => {
      const line = lines.get(client) ?? empty(row, client);
      const [low, high] = [data.sizes[row.sizes][i]].flat();
      line.low = Math.min(line.low, low);
      line.high = Math.max(line.high, high ?? low);
      line.values[k] = row.each.mean[i];
      lines.set(client, line);
    })
  );
  return [...lines.values()];
}

const cellsOf = (rows, line) => [
  { text: line.name, key: line.name },
  { text: line.low === line.high ? line.low : `${line.low} to ${line.high}`, key: line.low },
  ...line.values.map((value, k) => ({
    text: value === null ? "\u2013" : number(value),
    key: value,
    note: lying(rows[k], line.client),
  })),
];

export function fillClients() {
  const rows = data.tables[byId("client-runs").value || 0].filter((i) => !hidden.has(i)).map((i) => data.rows[i]);
  const filter = byId("client-filter").value.trim().toLowerCase();
  const all = clientLines(rows);
  const matching = all.filter((line) => line.name.toLowerCase().includes(filter));
  const titles = ["client", "test examples", ...rows.map((row) => row.label)];
  const drawn = fillTable(clientTable, titles, matching.map((line) => ({ cells: cellsOf(rows, line) })));
  const rest = matching.length - drawn;
  byId("client-count").textContent = rows.length === 0
    ? "All of these runs are hidden."
    : `${drawn} of ${all.length} clients are shown` + (filter ? `; ${matching.length} match the filter` : "") +
      (rest ? `; ${rest} more follow.` : ".");
}

function startAgain() {
  clientTable.limit = STEP;
  fillClients();
}

export function makeClients() {
  const names = data.tables.map((members) => members.map((i) => data.rows[i].label).join("; "));
  choices(byId("client-runs"), names, 0, startAgain);
  byId("client-runs").parentElement.hidden = names.length === 1;
  byId("client-filter").addEventListener("input", startAgain);
}
