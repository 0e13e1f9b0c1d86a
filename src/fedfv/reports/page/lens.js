import { byId, choices, clientName, css, data, some } from "./basics.js";
import { draw, legendAbove, titled } from "./draw.js";
import { details, signed, summary } from "./lens_words.js";
import { insteadOf, offerRules, whatIf, whatIfOverTime } from "./whatif.js";

const LABELLED = 32; // clients whose names fit beside a figure

export function drawLens() {
  if (!byId("lens-run")) return;
  const run = data.lens[byId("lens-run").value];
  const name = (client) => clientName(data.rows[run.row], client);
  const slider = byId("lens-round");
  slider.max = run.looks.length - 1;
  const look = run.looks[slider.value];
  byId("lens-at").textContent = `${look.round} of ${run.looks.at(-1).round}`;
  slider.setAttribute("aria-valuetext", `round ${look.round}`);
  drawTime(run, look);
  drawCosines(look, name);
  drawPays(look, name);
  drawExternal(run, look, name);
  byId("lens-note").textContent = summary(look, name);
  byId("lens-instead").textContent = whatIf(look, name);
}

// A line where the chosen round is.
const cursor = (look) => ({
  type: "line",
  x0: look.round,
  x1: look.round,
  y0: 0,
  y1: 1,
  yref: "paper",
  line: { color: css("--faint"), width: 1, dash: "dot" },
});

function drawTime(run, look) {
  const rounds = run.looks.map((each) => each.round);
  const series = (values, title, shade, dash) => ({
    x: rounds,
    y: values,
    name: title,
    mode: "lines",
    line: { color: shade, dash, width: 2 },
    hovertemplate: "%{y:.0f} %, round %{x}<extra>%{fullData.name}</extra>",
  });
  const shares = (key) => run.looks.map((each) => 100 * each[key]);
  const traces = [
    series(shares("conflicting"), "pairs of updates that conflict", css("--faint"), "dot"),
    series(shares("against_mean"), "clients that the plain mean would work against", css("--conflict"), "dash"),
    series(shares("against"), "clients that the step works against", css("--agree"), "solid"),
    ...whatIfOverTime(run, series),
  ];
  const layout = { xaxis: titled("rounds"), yaxis: titled("per cent", { rangemode: "tozero" }) };
  draw(
    "lens-time",
    traces,
    { caption: "conflicts over the recorded rounds", ...legendAbove, shapes: [cursor(look)], ...layout },
    "Share of conflicting pairs and of clients that the step works against, over rounds",
  );
}

// The symmetric matrix of cosines, from the entries above its diagonal, row by row.
function square(upper, size) {
  const matrix = Array.from({ length: size }, () => Array(size).fill(1));
  let next = 0;
  for (let i = 0; i < size; i++) for (let j = i + 1; j < size; j++) matrix[i][j] = matrix[j][i] = upper[next++];
  return matrix;
}

const ticksFor = (labels) => ({
  showticklabels: labels.length <= LABELLED,
  type: "category",
  ...(labels.length > 12 ? { tickfont: { size: 10 } } : {}),
});

function drawCosines(look, name) {
  const labels = look.shown.map(name);
  const ticks = ticksFor(labels);
  const heatmap = {
    type: "heatmap",
    x: labels,
    y: labels,
    z: square(look.cosines, labels.length),
    zmin: -1,
    zmax: 1,
    xgap: 1,
    ygap: 1,
    colorscale: [[0, css("--conflict")], [0.5, css("--neutral")], [1, css("--agree")]],
    colorbar: { title: { text: "cosine" }, thickness: 12 },
    hovertemplate: "%{x} and %{y}: %{z:.3f}<extra></extra>",
  };
  const order = look.losses ? "from the smallest loss to the largest" : "clients";
  draw("lens-cosines", [heatmap], {
    caption: `cosines of the updates of round ${look.round}`,
    xaxis: { ...ticks, ...titled(order) },
    yaxis: { ...ticks, dtick: 1, autorange: "reversed" },
  }, `Cosines of the updates of round ${look.round}: ${(100 * look.conflicting).toFixed(0)} % of the pairs conflict`);
}

function drawPays(look, name) {
  const labels = look.shown.map(name);
  const place = new Map(look.clients.map((client, i) => [client, i]));
  const positions = look.shown.map((client) => place.get(client));
  const other = insteadOf(look);
  const aside = other ? other.after : look.before; // the points that are drawn beside those of the step
  const points = (cosines, title, symbol, shade) => ({
    type: "scatter",
    mode: "markers",
    name: title,
    x: positions.map((i) => cosines[i]),
    y: labels,
    marker: { symbol, size: 9, color: shade, line: { width: 1.5, color: shade } },
    customdata: positions.map((i) => details(look, i)),
    hovertemplate: "%{y}: %{x:.3f}<br>%{customdata}<extra>%{fullData.name}</extra>",
  });
  const beside = other
    ? points(aside, `with ${other.rule}`, "diamond-open", css("--c3"))
    : points(aside, "with the plain mean", "circle-open", css("--conflict"));
  const step = { ...points(look.after, "with the step", "circle", css("--agree")), ...signsOf(look, aside) };
  const line = { color: css("--faint"), width: 1 };
  const moves = positions.map((i, k) => ({ type: "line", y0: k, y1: k, x0: aside[i], x1: look.after[i], line }));
  draw(
    "lens-pays",
    [beside, step],
    {
      caption: `who ${other ? "would pay" : "pays"} in round ${look.round}: cosine of each update`,
      ...legendAbove,
      shapes: moves,
      xaxis: titled("left of 0: the client pays", { range: [-1.05, 1.05], zerolinewidth: 2 }),
      yaxis: { ...ticksFor(labels), dtick: 1, autorange: "reversed" },
    },
    `Cosine of each update of round ${look.round} with ${
      other ? `the step of ${other.rule}` : "the plain mean"
    } and with the step`,
  );
}

// The signs of the clients beside their points, on the side away from the other point if there is room, else above.
function signsOf(look, aside) {
  if (signed(look).length === 0) return {};
  const right = (i) => (look.after[i] < 0.8 ? "middle right" : "top center");
  const left = (i) => (look.after[i] > -0.8 ? "middle left" : "top center");
  const marksOf = (client) => signed(look).filter(([mark]) => look[mark].includes(client)).map(([, sign]) => sign);
  const positions = look.shown.map((client) => look.clients.indexOf(client));
  return {
    mode: "markers+text",
    text: look.shown.map((client) => marksOf(client).join(" ")),
    textposition: positions.map((i) => (look.after[i] >= aside[i] ? right(i) : left(i))),
  };
}

function drawExternal(run, look, name) {
  const points = run.looks.flatMap((each) =>
    (each.external ?? []).map(([past, clients, share]) => ({ round: each.round, past, clients, share }))
  );
  byId("lens-external").parentElement.hidden = points.length === 0;
  if (points.length === 0) return;
  const trace = {
    type: "scatter",
    mode: "markers",
    x: points.map((point) => point.round),
    y: points.map((point) => 100 * point.share),
    marker: { color: css("--c3"), size: points.map((point) => 6 + 2 * Math.sqrt(point.clients.length)), opacity: 0.7 },
    text: points.map((point) => `update of round ${point.past}: ${some(point.clients, name)}`),
    hovertemplate: "%{text}<br>%{y:.1f} % of the step removed<extra></extra>",
  };
  draw("lens-external", [trace], {
    caption: "external conflicts: what was removed from the step for absent clients",
    shapes: [cursor(look)],
    xaxis: titled("rounds"),
    yaxis: titled("per cent of the step", { rangemode: "tozero" }),
  }, "Share of the step removed for absent clients, over rounds");
}

export function makeLens() {
  choices(byId("lens-run"), data.lens.map((run) => run.label), 0, () => {
    byId("lens-round").value = 0;
    offerRules();
    drawLens();
  });
  byId("lens-round")?.addEventListener("input", drawLens);
  byId("lens-what-if")?.addEventListener("change", drawLens);
  offerRules();
}
