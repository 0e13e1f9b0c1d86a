"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dashes = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const colour = (row) => css(`--c${row.colour}`);
const translucent = (hex, share) => hex + Math.round(255 * share).toString(16).padStart(2, "0");
const hidden = new Set();
const number = (value) => value.toFixed(data.score.digits);
const numberFormat = `.${data.score.digits}f`;  // in Plotly's notation
const worseFirst = data.score.lower_is_better ? -1 : 1;  // the sign with which a sort begins with the worst
const capital = (text) => text[0].toUpperCase() + text.slice(1);

// The display name of a client; each row has the names of its own federation.
const clientName = (row, client) => data.rosters[row.roster][client] ?? `client ${client}`;

// What a client may have done, or what defences may do to one: a sign for figures.
const SIGNS = { lied: "\u2020", clipped: "\u2702\ufe0e", capped: "\u25be", demoted: "\u2193", dropped: "\u2715" };

// The names of the first clients of a list.
const some = (clients, name) => clients.slice(0, 8).map(name).join(", ") + (clients.length > 8 ? " ..." : "");

// Draws a figure in the colours of the page, which follow the reader's light or dark mode.
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

// The rows to draw: those that are not hidden, and whose clients have scores.
const shown = () => data.rows.filter((row, i) => !hidden.has(i) && row.curve.rounds.length > 0);

function drawCurves() {
  for (const [id, key, title] of [["curve-mean", "mean", "mean over clients"], ["curve-std", "std", "standard deviation over clients"]]) {
    const traces = shown().flatMap((row) => line(row, row.curve.rounds, row.curve[key], row.curve[key + "_spread"], { hovertemplate: `%{y:${numberFormat}} after %{x} rounds<extra>%{fullData.name}</extra>` }));
    draw(id, traces, { caption: title, xaxis: { title: { text: "rounds" } }, yaxis: { title: { text: data.score.title } } },
      `${title} against rounds: ` + shown().map((row) => `${row.label} ends at ${number(row.curve[key].at(-1))}`).join(", "));
  }
}
