import { byId, capital, clientName, css, data, number, numberFormat, SIGNS, worseFirst } from "./basics.js";
import { colour, draw, line, titled } from "./draw.js";
import { shown } from "./runs.js";

const SHAPES = ["", "/", ".", "x", "\\", "+"]; // patterns of bars with one colour

// Whether a client lies in a row, in words; the empty text if it never does.
export function lying(row, client) {
  const seeds = (row.each.liars ?? []).filter((liars) => liars.includes(client)).length;
  if (seeds === 0) return "";
  return seeds === row.seeds.length ? "lies" : `lies with ${seeds} of ${row.seeds.length} seeds`;
}

// The clients from worst to best in the first drawn run; clients that this run does not have come last.
function worstToBest(rows) {
  const [first, ...others] = rows;
  const scored = first.each.clients.map((client, i) => [client, first.each.mean[i]]);
  const ranked = scored.sort((a, b) => worseFirst * (a[1] - b[1])).map(([client]) => client);
  return [...new Set([...ranked, ...others.flatMap((row) => row.each.clients)])];
}

export function drawClients() {
  const rows = shown();
  const named = data.named && rows.length > 0;
  byId("clients-note").textContent = named ? aboutBars(rows) : aboutLines(rows);
  const ends = rows.map(({ label, clients }) =>
    `${label} from ${number(Math.min(...clients.y))} to ${number(Math.max(...clients.y))}`
  );
  draw("clients", named ? barsOf(rows) : linesOf(rows), {
    barmode: "group",
    caption: `test ${data.score.name} of the clients`,
    xaxis: named ? barAxis(rows) : titled("clients in per cent, from worst to best"),
    yaxis: titled(data.score.title),
  }, `${capital(data.score.name)} of the clients: ${ends.join(", ")}`);
}

function aboutBars(rows) {
  const parts = [`Test ${data.score.name} of each client, from worst to best of ${rows[0].label}.`];
  if (rows.some((row) => row.seeds.length > 1)) {
    parts.push("Bars are means over seeds; the thin lines are standard deviations over seeds.");
  }
  if (rows.some((row) => row.each.liars)) parts.push(`${SIGNS.lied} marks a client that lies with some seed.`);
  return parts.join(" ");
}

function aboutLines(rows) {
  const { name } = data.score;
  const parts = [
    `Test ${name} of the clients from worst to best, sorted separately for each run.`,
    `A flat line means that all clients have the same ${name}.`,
  ];
  if (rows.some((row) => row.each.liars)) parts.push("Clients that lie are left out.");
  return parts.join(" ");
}

const barAxis = (rows) => ({
  type: "category",
  categoryorder: "array",
  categoryarray: worstToBest(rows).map((client) => clientName(rows[0], client)),
});

function barsOf(rows) {
  const alike = (row) => rows.filter((other) => other.colour === row.colour).indexOf(row);
  return rows.map((row) => ({
    type: "bar",
    name: row.label,
    x: row.each.clients.map((client) => clientName(row, client)),
    y: row.clients.y,
    ...(row.seeds.length > 1
      ? { "error_y": { type: "data", array: row.clients.spread, color: css("--faint"), thickness: 1 } }
      : {}),
    ...(row.each.liars ? signsOf(row) : {}),
    marker: {
      color: colour(row),
      pattern: { shape: SHAPES[alike(row) % 6], fgcolor: css("--ground"), fillmode: "overlay", solidity: 0.3 },
    },
    hovertemplate: `%{x}: %{y:${numberFormat}}<extra>%{fullData.name}</extra>`,
  }));
}

const signsOf = (row) => ({
  text: row.each.clients.map((client) => (lying(row, client) ? SIGNS.lied : "")),
  textposition: "outside",
  cliponaxis: false,
});

function linesOf(rows) {
  const hovertemplate = `%{y:${numberFormat}}, with %{x:.1f} % of the clients worse<extra>%{fullData.name}</extra>`;
  return rows.flatMap((row) => line(row, row.clients.x, row.clients.y, row.clients.spread, { hovertemplate }));
}
