import { byId, capital, choices, clientName, css, data, number, numberFormat, SIGNS, worseFirst } from "./basics.js";
import { colour, draw, line } from "./draw.js";
import { hidden, shown } from "./runs.js";
import { fillTable, longTable, STEP } from "./table.js";

// The worst client comes first.
const clientTable = longTable("client", { column: 2, up: worseFirst > 0 }, () => fillClients());

// The clients from worst to best in the first drawn run; clients that this run does not have come last.
function worstToBest(rows) {
  const [first, ...others] = rows;
  const ranked = first.each.clients.map((client, i) => [client, first.each.mean[i]]).sort((a, b) =>
    worseFirst * (a[1] - b[1])
  ).map(([client]) => client);
  return [...new Set([...ranked, ...others.flatMap((row) => row.each.clients)])];
}

// Whether a client lies in a row, in words; the empty text if it never does.
function lying(row, client) {
  const seeds = (row.each.liars ?? []).filter((liars) => liars.includes(client)).length;
  if (seeds === 0) return "";
  return seeds === row.seeds.length ? "lies" : `lies with ${seeds} of ${row.seeds.length} seeds`;
}

function bars(row, alike) {
  return {
    type: "bar",
    name: row.label,
    x: row.each.clients.map((client) => clientName(row, client)),
    y: row.clients.y,
    error_y: { type: "data", array: row.clients.spread, color: css("--faint"), thickness: 1 },
    ...(row.each.liars
      ? {
        text: row.each.clients.map((client) => (lying(row, client) ? SIGNS.lied : "")),
        textposition: "outside",
        cliponaxis: false,
      }
      : {}),
    marker: {
      color: colour(row),
      pattern: {
        shape: ["", "/", ".", "x", "\\", "+"][alike % 6],
        fgcolor: css("--ground"),
        fillmode: "overlay",
        solidity: 0.3,
      },
    },
    hovertemplate: `%{x}: %{y:${numberFormat}}<extra>%{fullData.name}</extra>`,
  };
}

export function drawClients() {
  const rows = shown();
  const named = data.named && rows.length > 0;
  const attacked = rows.some((row) => row.each.liars);
  byId("clients-note").textContent = named
    ? `Test ${data.score.name} of each client, from worst to best of ${
      rows[0].label
    }. Bars are means over seeds; error bars are standard deviations over seeds.${
      attacked ? ` ${SIGNS.lied} marks a client that lies with some seed.` : ""
    }`
    : `Test ${data.score.name} of the clients from worst to best, sorted separately for each run. A flat line means that all clients have the same ${data.score.name}.${
      attacked ? " Clients that lie are left out." : ""
    }`;
  const alike = (row) => rows.filter((other) => other.colour === row.colour).indexOf(row);
  const traces = rows.flatMap((row) =>
    named ? [bars(row, alike(row))] : line(row, row.clients.x, row.clients.y, row.clients.spread, {
      hovertemplate: `%{y:${numberFormat}}, with %{x:.1f} % of the clients worse<extra>%{fullData.name}</extra>`,
    })
  );
  const xaxis = named
    ? {
      type: "category",
      categoryorder: "array",
      categoryarray: worstToBest(rows).map((client) => clientName(rows[0], client)),
    }
    : { title: { text: "clients in per cent, from worst to best" } };
  draw(
    "clients",
    traces,
    { barmode: "group", caption: "", xaxis, yaxis: { title: { text: data.score.title } } },
    `${capital(data.score.name)} of the clients: ` +
      rows.map((row) =>
        `${row.label} from ${number(Math.min(...row.clients.y))} to ${number(Math.max(...row.clients.y))}`
      ).join(", "),
  );
}

// One line for each client of the chosen rows: its name, its number of test examples, and its score in each run.
function clientLines(rows) {
  const lines = new Map();
  rows.forEach((row, k) =>
    row.each.clients.forEach((client, i) => {
      const line = lines.get(client) ??
        { client, name: clientName(row, client), low: Infinity, high: 0, values: Array(rows.length).fill(null) };
      const [low, high] = [data.sizes[row.sizes][i]].flat();
      line.low = Math.min(line.low, low);
      line.high = Math.max(line.high, high ?? low);
      line.values[k] = row.each.mean[i];
      lines.set(client, line);
    })
  );
  return [...lines.values()];
}

export function fillClients() {
  const members = data.tables[byId("client-runs").value || 0].filter((i) => !hidden.has(i));
  const rows = members.map((i) => data.rows[i]);
  const filter = byId("client-filter").value.trim().toLowerCase();
  const all = clientLines(rows);
  const matching = all.filter((line) => line.name.toLowerCase().includes(filter));
  const drawn = fillTable(
    clientTable,
    ["client", "test examples", ...rows.map((row) => row.label)],
    matching.map((line) => ({
      cells: [
        { text: line.name, key: line.name },
        { text: line.low === line.high ? line.low : `${line.low} to ${line.high}`, key: line.low },
        ...line.values.map((value, k) => ({
          text: value === null ? "\u2013" : number(value),
          key: value,
          note: lying(rows[k], line.client),
        })),
      ],
    })),
  );
  const rest = matching.length - drawn;
  byId("client-count").textContent = rows.length === 0
    ? "All of these runs are hidden."
    : `${drawn} of ${all.length} clients are shown` + (filter ? `; ${matching.length} match the filter` : "") +
      (rest ? `; ${rest} more follow.` : ".");
}

export function makeClients() {
  const names = data.tables.map((members) => members.map((i) => data.rows[i].label).join("; "));
  choices(byId("client-runs"), names, 0, () => {
    clientTable.limit = STEP;
    fillClients();
  });
  byId("client-runs").parentElement.hidden = names.length === 1;
  byId("client-filter").addEventListener("input", () => {
    clientTable.limit = STEP;
    fillClients();
  });
}
