"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dashes = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const colour = (row) => css(`--c${row.colour}`);
const translucent = (hex, share) => hex + Math.round(255 * share).toString(16).padStart(2, "0");
const percent = (share) => (100 * share).toFixed(2);
const hidden = new Set();

// Lines and axes in the colours of the page, which follow the reader's choice of light or dark.
function draw(id, traces, layout, label) {
  const place = byId(id);
  if (!place) return;
  const { caption, ...rest } = layout;
  place.previousElementSibling.textContent = caption;
  const axis = { gridcolor: css("--line"), zerolinecolor: css("--faint"), linecolor: css("--line"), automargin: true };
  const whole = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
    font: { color: css("--text"), family: "system-ui, sans-serif", size: 13 }, margin: { l: 10, r: 10, t: 10, b: 10 },
    hoverlabel: { bgcolor: css("--panel"), font: { color: css("--text") } },
    ...rest, xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
  };
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  Plotly.react(place, traces, whole, { responsive: true, displaylogo: false, displayModeBar: false });
}

function line(row, x, y, spread, extra) {
  const band = {
    x: [...x, ...x.slice().reverse()], y: [...y.map((v, i) => v + spread[i]), ...y.map((v, i) => v - spread[i]).reverse()],
    fill: "toself", fillcolor: translucent(colour(row), 0.15), line: { width: 0 }, hoverinfo: "skip", type: "scatter", mode: "lines",
  };
  const main = { x, y, name: row.label, mode: "lines", type: "scatter", line: { color: colour(row), dash: dashes[row.dash], width: 2 }, ...extra };
  return spread.some((v) => v > 0) ? [band, main] : [main];
}

const shown = () => data.rows.filter((row, i) => !hidden.has(i));

function drawCurves() {
  for (const [id, key, title] of [["curve-mean", "mean", "mean over clients"], ["curve-std", "std", "standard deviation over clients"]]) {
    const traces = shown().flatMap((row) => line(row, row.curve.rounds, row.curve[key], row.curve[key + "_spread"], { hovertemplate: "%{y:.2f} after %{x} rounds<extra>%{fullData.name}</extra>" }));
    draw(id, traces, { caption: title, xaxis: { title: { text: "rounds" } }, yaxis: { title: { text: "accuracy in per cent" } } },
      `${title} against rounds: ` + shown().map((row) => `${row.label} ends at ${row.curve[key].at(-1).toFixed(2)}`).join(", "));
  }
}

function drawClients() {
  const named = data.names.length > 0;
  byId("clients-note").textContent = named
    ? "Test accuracy of each client; bars are means over seeds, whiskers their standard deviation."
    : "Test accuracy of the clients in ascending order, for each run on its own: a flat line treats all alike.";
  const alike = (row) => shown().filter((other) => other.colour === row.colour).indexOf(row);
  const traces = shown().flatMap((row) => named
    ? [{ type: "bar", name: row.label, x: row.clients.names, y: row.clients.y, error_y: { type: "data", array: row.clients.spread, color: css("--faint"), thickness: 1 }, marker: { color: colour(row), pattern: { shape: ["", "/", ".", "x", "\\", "+"][alike(row) % 6], fgcolor: css("--ground"), fillmode: "overlay", solidity: 0.3 } }, hovertemplate: "%{y:.2f}<extra>%{fullData.name}</extra>" }]
    : line(row, row.clients.x, row.clients.y, row.clients.spread, { hovertemplate: "%{y:.2f}, with %{x:.1f} % of the clients below<extra>%{fullData.name}</extra>" }));
  draw("clients", traces, { barmode: "group", caption: "", xaxis: { title: { text: named ? "" : "clients in per cent, from worst to best" } }, yaxis: { title: { text: "accuracy in per cent" } } },
    "Accuracy of the clients: " + shown().map((row) => `${row.label} from ${Math.min(...row.clients.y).toFixed(2)} to ${Math.max(...row.clients.y).toFixed(2)}`).join(", "));
}

// Client by client and seed by seed: what splits and first models do to both drops out.
function differences(first, second) {
  const seeds = first.seeds.filter((seed) => second.seeds.includes(seed));
  const place = new Map(second.each.clients.map((client, i) => [client, i]));
  const found = [];
  first.each.clients.forEach((client, i) => {
    if (!place.has(client)) return;
    const parts = first.each.by_seed && second.each.by_seed
      ? seeds.map((seed) => first.each.by_seed[first.seeds.indexOf(seed)][i] - second.each.by_seed[second.seeds.indexOf(seed)][place.get(client)])
      : [first.each.mean[i] - second.each.mean[place.get(client)]];
    found.push({ client, value: parts.reduce((a, b) => a + b, 0) / parts.length });
  });
  return { seeds: seeds.length, found: found.sort((a, b) => a.value - b.value) };
}

function drawPair() {
  if (!byId("pair")) return;
  const first = data.rows[byId("pair-first").value], second = data.rows[byId("pair-second").value];
  const { seeds, found } = differences(first, second);
  if (seeds === 0 || found.length === 0) {
    byId("pair-note").textContent = "These two share no seed or no client, so they cannot be paired.";
    draw("pair", [], { caption: "" }, "Nothing to compare");
    return;
  }
  const values = found.map((each) => each.value);
  const better = values.filter((v) => v > 0).length, worse = values.filter((v) => v < 0).length;
  byId("pair-note").textContent = `${first.label} serves ${better} of ${values.length} clients better than ${second.label} and ${worse} worse, paired by client over ${seeds} seed${seeds > 1 ? "s" : ""}; from ${values[0].toFixed(2)} to ${values.at(-1).toFixed(2)} points.`;
  const name = (client) => data.names[client] ?? `client ${client}`;
  const colours = values.map((v) => (v < 0 ? css("--conflict") : css("--agree")));
  const trace = values.length <= 400
    ? { type: "bar", x: found.map((each) => name(each.client)), y: values, marker: { color: colours }, hovertemplate: "%{x}: %{y:+.2f}<extra></extra>" }
    : { type: "histogram", x: values, nbinsx: 80, marker: { color: css("--agree") }, hovertemplate: "%{x}: %{y} clients<extra></extra>" };
  const many = values.length > 40;
  draw("pair", [trace], { caption: "", xaxis: values.length > 400 ? { title: { text: "difference in points" } } : { type: "category", showticklabels: !many, title: { text: many ? "clients" : "" } }, yaxis: { title: { text: values.length > 400 ? "clients" : "difference in points" } } },
    byId("pair-note").textContent);
}

const name = (client) => data.names[client] ?? `client ${client}`;

// The cosines are sent as what lies above the diagonal, row by row.
function square(upper, size) {
  const matrix = Array.from({ length: size }, () => Array(size).fill(1));
  let next = 0;
  for (let i = 0; i < size; i++) for (let j = i + 1; j < size; j++) matrix[i][j] = matrix[j][i] = upper[next++];
  return matrix;
}

function drawLens() {
  if (!byId("lens-run")) return;
  const run = data.lens[byId("lens-run").value];
  const slider = byId("lens-round");
  slider.max = run.looks.length - 1;
  const look = run.looks[slider.value];
  byId("lens-at").textContent = `${look.round} of ${run.looks.at(-1).round}`;
  slider.setAttribute("aria-valuetext", `round ${look.round}`);
  const at = { type: "line", x0: look.round, x1: look.round, y0: 0, y1: 1, yref: "paper", line: { color: css("--faint"), width: 1, dash: "dot" } };
  const rounds = run.looks.map((each) => each.round);
  const series = (values, title, shade, dash) => ({ x: rounds, y: values, name: title, mode: "lines", line: { color: shade, dash, width: 2 }, hovertemplate: "%{y:.0f} %, round %{x}<extra>%{fullData.name}</extra>" });
  draw("lens-time", [
    series(run.looks.map((each) => 100 * each.conflicting), "pairs of updates that conflict", css("--faint"), "dot"),
    series(run.looks.map((each) => 100 * each.against_mean), "clients that the plain mean works against", css("--conflict"), "dash"),
    series(run.looks.map((each) => 100 * each.against), "clients that the step works against", css("--agree"), "solid"),
  ], { caption: "conflicts over time", showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, shapes: [at], xaxis: { title: { text: "rounds" } }, yaxis: { title: { text: "per cent" }, rangemode: "tozero" } },
    "Share of conflicting pairs and of clients that the step works against, over rounds");
  const labels = look.shown.map(name);
  const ticks = { showticklabels: labels.length <= 32, type: "category" };
  draw("lens-cosines", [{
    type: "heatmap", x: labels, y: labels, z: square(look.cosines, labels.length), zmin: -1, zmax: 1, xgap: 1, ygap: 1,
    colorscale: [[0, css("--conflict")], [0.5, css("--neutral")], [1, css("--agree")]], colorbar: { title: { text: "cosine" }, thickness: 12 },
    hovertemplate: "%{x} and %{y}: %{z:.3f}<extra></extra>",
  }], { caption: `cosines of the updates of round ${look.round}`, xaxis: { ...ticks, title: { text: "from the smallest loss to the largest" } }, yaxis: { ...ticks, autorange: "reversed" } },
    `Cosines of the updates of round ${look.round}: ${(100 * look.conflicting).toFixed(0)} % of the pairs conflict`);
  const place = new Map(look.clients.map((client, i) => [client, i]));
  const positions = look.shown.map((client) => place.get(client));
  const pays = (key, title, symbol, shade) => ({
    type: "scatter", mode: "markers", name: title, x: positions.map((i) => look[key][i]), y: labels,
    marker: { symbol, size: 9, color: shade, line: { width: 1.5, color: shade } },
    customdata: positions.map((i) => told(look, i)), hovertemplate: "%{y}: %{x:.3f}<br>%{customdata}<extra>%{fullData.name}</extra>",
  });
  const moves = positions.map((i, k) => ({ type: "line", y0: k, y1: k, x0: look.before[i], x1: look.after[i], line: { color: css("--faint"), width: 1 } }));
  draw("lens-pays", [pays("before", "with the plain mean", "circle-open", css("--conflict")), pays("after", "with the step", "circle", css("--agree"))],
    { caption: "who pays: cosine of each update", showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, shapes: moves, xaxis: { range: [-1.05, 1.05], title: { text: "left of 0: it works against the client" }, zerolinewidth: 2 }, yaxis: { ...ticks, autorange: "reversed" } },
    `Cosine of each update of round ${look.round} with the plain mean and with the step`);
  byId("lens-note").textContent = summary(look);
  const external = run.looks.filter((each) => each.external?.length);
  byId("lens-external").parentElement.hidden = external.length === 0;
  if (external.length) {
    const points = external.flatMap((each) => each.external.map(([past, clients, share]) => ({ round: each.round, past, clients, share })));
    draw("lens-external", [{
      type: "scatter", mode: "markers", x: points.map((p) => p.round), y: points.map((p) => 100 * p.share),
      marker: { color: css("--c3"), size: points.map((p) => 6 + 2 * Math.sqrt(p.clients.length)), opacity: 0.7 },
      text: points.map((p) => `update of round ${p.past + 1}: ${p.clients.slice(0, 8).map(name).join(", ")}${p.clients.length > 8 ? " ..." : ""}`),
      hovertemplate: "%{text}<br>%{y:.1f} % of the direction removed<extra></extra>",
    }], { caption: "external conflicts: with the last updates of absent clients", shapes: [at], xaxis: { title: { text: "rounds" } }, yaxis: { title: { text: "per cent of the direction" }, rangemode: "tozero" } },
      "Share of the direction removed for absent clients, over rounds");
  }
}

function told(look, i) {
  const parts = [`loss ${look.losses[i].toPrecision(3)}`, `length ${look.lengths[i].toPrecision(3)}`];
  if (look.projected) parts.push(look.kept.includes(look.clients[i]) ? "kept as it was" : `projected: ${(100 * look.projected[i]).toFixed(0)} % of its length changed`);
  return parts.join(", ");
}

function summary(look) {
  const parts = [`Round ${look.round}: ${look.clients.length} clients replied, ${(100 * look.conflicting).toFixed(0)} % of the pairs conflict.`];
  parts.push(`The plain mean would work against ${Math.round(look.against_mean * look.clients.length)} of them, the step works against ${Math.round(look.against * look.clients.length)}; its cosine with the plain mean is ${look.turned.toFixed(3)}.`);
  if (look.projected) {
    const changed = look.projected.filter((share) => share > 0).length;
    parts.push(`${look.kept.length ? look.kept.slice(0, 8).map(name).join(", ") + (look.kept.length > 8 ? " ..." : "") : "Nobody"} kept ${look.kept.length === 1 ? "its update" : "their updates"}; ${changed} ${changed === 1 ? "was" : "were"} projected, by up to ${(100 * Math.max(...look.projected)).toFixed(0)} % of ${changed === 1 ? "its" : "their"} length.`);
  }
  if (look.clients.length > look.shown.length) parts.push(`${look.shown.length} clients are drawn, evenly from the smallest loss to the largest.`);
  return parts.join(" ");
}

function drawAll() {
  document.querySelectorAll(".swatch").forEach((each) => { each.style.background = colour(data.rows[each.dataset.row]); });
  document.querySelectorAll("#legend button").forEach((each) => { each.style.borderColor = colour(data.rows[each.dataset.row]); });
  drawCurves(); drawClients(); drawPair(); drawLens();
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
      drawCurves(); drawClients();
    });
    byId("legend").append(button);
  });
}

function makeTable() {
  const table = byId("runs"), heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, i) => head.firstElementChild.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") === "descending" || (i === 0 && head.getAttribute("aria-sort") !== "ascending");
    heads.forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (row) => row.cells[i].dataset.value;
    const order = (a, b) => (i === 0 ? value(a).localeCompare(value(b)) : value(a) - value(b));
    body.append(...[...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a))));
  }));
}

function choices(select, labels, chosen, changed) {
  if (!select) return;
  labels.forEach((label, i) => select.add(new Option(label, i, false, i === chosen)));
  select.addEventListener("change", changed);
}

makeLegend();
makeTable();
choices(byId("pair-first"), data.rows.map((row) => row.label), data.pair[0], drawPair);
choices(byId("pair-second"), data.rows.map((row) => row.label), data.pair[1], drawPair);
choices(byId("lens-run"), data.lens.map((run) => run.label), 0, () => { byId("lens-round").value = 0; drawLens(); });
byId("lens-round")?.addEventListener("input", drawLens);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
drawAll();
document.documentElement.dataset.ready = "yes";
