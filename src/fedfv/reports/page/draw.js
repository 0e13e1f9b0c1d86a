import { byId, css } from "./basics.js";

const { Plotly } = /** @type {any} */ (globalThis);
export const dashes = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
export const legendAbove = { showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 } };
export const titled = (text, more = {}) => ({ title: { text }, ...more });
export const colour = (row) => css(`--c${row.colour}`);
export const translucent = (hex, share) => hex + Math.round(255 * share).toString(16).padStart(2, "0");

// Draws a figure in the colours of the page, which follow the reader's light or dark mode. On paper, a figure has the size
// of its place at once; elsewhere it follows the size of its place.
export function draw(id, traces, layout, label) {
  const place = byId(id);
  if (!place) return;
  const { caption, ...rest } = layout;
  place.previousElementSibling.textContent = caption;
  const printing = document.documentElement.dataset.printing;
  const axis = { gridcolor: css("--line"), zerolinecolor: css("--faint"), linecolor: css("--line"), automargin: true };
  const whole = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    showlegend: false,
    hovermode: "closest",
    font: { color: css("--text"), family: "system-ui, sans-serif", size: printing ? 11 : 13 },
    margin: { l: 10, r: 10, t: 10, b: 10 },
    hoverlabel: { bgcolor: css("--panel"), font: { color: css("--text") } },
    ...(printing ? { width: place.clientWidth, height: place.clientHeight } : {}),
    ...rest,
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
  };
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  Plotly.react(place, traces, whole, { responsive: true, displaylogo: false, displayModeBar: false });
}

// Lets all figures follow the sizes of their places again.
export function fit() {
  document.querySelectorAll(".plot.js-plotly-plot").forEach((place) => {
    if (place.clientWidth > 0) Plotly.Plots.resize(place);
  });
}

export function line(row, x, y, spread, extra) {
  const band = {
    x: [...x, ...x.slice().reverse()],
    y: [...y.map((v, i) => v + spread[i]), ...y.map((v, i) => v - spread[i]).reverse()],
    fill: "toself",
    fillcolor: translucent(colour(row), 0.15),
    line: { width: 0 },
    hoverinfo: "skip",
    type: "scatter",
    mode: "lines",
  };
  const main = {
    x,
    y,
    name: row.label,
    mode: "lines",
    type: "scatter",
    line: { color: colour(row), dash: dashes[row.dash], width: 2 },
    ...extra,
  };
  return spread.some((v) => v > 0) ? [band, main] : [main];
}
