import { byId, choices, clientName, css, data, number, numberFormat, times, worseFirst } from "./basics.js";
import { draw, titled } from "./draw.js";

const MOST_BARS = 400; // more clients are drawn as a histogram

// The difference of two runs for each client, paired by seed, so that effects of the split and of the initial model cancel.
// A client is paired in the seeds in which it lies in neither run; without values for each seed, only if it never lies.
function differences(first, second) {
  const seeds = first.seeds.filter((seed) => second.seeds.includes(seed));
  const place = new Map(second.each.clients.map((client, i) => [client, i]));
  const lies = (row, seed, client) => row.each.liars?.[row.seeds.indexOf(seed)].includes(client);
  const clients = [];
  let left = 0;
  first.each.clients.forEach((client, i) => {
    if (!place.has(client)) return;
    const honest = seeds.filter((seed) => !lies(first, seed, client) && !lies(second, seed, client));
    const parts = first.each.by_seed && second.each.by_seed
      ? honest.map((seed) =>
        first.each.by_seed[first.seeds.indexOf(seed)][i] -
        second.each.by_seed[second.seeds.indexOf(seed)][place.get(client)]
      )
      : honest.length === seeds.length
      ? [first.each.mean[i] - second.each.mean[place.get(client)]]
      : [];
    if (honest.length < seeds.length) left += 1;
    if (parts.length) clients.push({ client, value: parts.reduce((a, b) => a + b, 0) / parts.length });
  });
  return { seeds: seeds.length, left, clients: clients.sort((a, b) => a.value - b.value) };
}

const REASONS = {
  data: "were measured on different clients or test data",
  settings:
    "have different settings for data or partition, and their records do not say whether the test data are the same",
  seeds: "have no seed in common",
  means: "have different seeds, and with so many clients this page contains only means over seeds",
  clients: "have no client in common",
  liars: "have no client in common that is honest in both",
};

export function drawPair() {
  if (!byId("pair")) return;
  const [i, j] = ["pair-first", "pair-second"].map((id) => Number(byId(id).value));
  const first = data.rows[i];
  const second = data.rows[j];
  const { seeds, left, clients } = differences(first, second);
  const why = first.apart[j] ?? (clients.length > 0 ? null : left > 0 ? "liars" : "clients");
  if (why) {
    byId("pair-note").textContent = `${first.label} and ${second.label} ${REASONS[why]}, so they cannot be paired.`;
    draw("pair", [], { caption: "", xaxis: { visible: false }, yaxis: { visible: false } }, "Nothing to compare");
    return;
  }
  byId("pair-note").textContent = inWords(first, second, clients.map(({ value }) => value), seeds, left);
  drawDifferences(first, clients);
}

function inWords(first, second, values, seeds, left) {
  const better = values.filter((value) => worseFirst * value > 0).length;
  const worse = values.filter((value) => worseFirst * value < 0).length;
  const unit = data.score.points ? ` ${data.score.points}` : "";
  return [
    `${first.label} serves ${better} of ${values.length} clients better than ${second.label} and ${worse} worse,`,
    `paired by client over ${times(seeds, "seed")}${left ? ", without clients that lie" : ""}.`,
    `The differences are from ${number(values[0])} to ${number(values.at(-1))}${unit}.`,
  ].join(" ");
}

function drawDifferences(first, clients) {
  const difference = data.score.points ? `difference in ${data.score.points}` : "difference";
  const values = clients.map(({ value }) => value);
  const labelled = values.length <= 40;
  const bars = {
    type: "bar",
    x: clients.map(({ client }) => clientName(first, client)),
    y: values,
    marker: { color: values.map((value) => css(worseFirst * value < 0 ? "--conflict" : "--agree")) },
    hovertemplate: `%{x}: %{y:+${numberFormat}}<extra></extra>`,
  };
  const histogram = {
    type: "histogram",
    x: values,
    nbinsx: 80,
    marker: { color: css("--agree") },
    hovertemplate: "%{x}: %{y} clients<extra></extra>",
  };
  const barAxes = {
    xaxis: { type: "category", showticklabels: labelled, ...titled(labelled ? "" : "clients") },
    yaxis: titled(difference),
  };
  const [trace, axes] = values.length <= MOST_BARS
    ? [bars, barAxes]
    : [histogram, { xaxis: titled(difference), yaxis: titled("clients") }];
  draw("pair", [trace], { caption: `${difference}, first run minus second`, ...axes }, byId("pair-note").textContent);
}

// Marks the rows of the second menu that cannot be paired with the first choice.
function markPair() {
  const first = Number(byId("pair-first").value);
  [...byId("pair-second").options].forEach((option, i) => {
    option.text = data.rows[i].label + (data.rows[first].apart[i] ? " (not comparable)" : "");
  });
}

export function makePair() {
  if (!byId("pair")) return;
  const labels = data.rows.map((row) => row.label);
  choices(byId("pair-first"), labels, data.pair[0], () => {
    markPair();
    drawPair();
  });
  choices(byId("pair-second"), labels, data.pair[1], drawPair);
  markPair();
}
