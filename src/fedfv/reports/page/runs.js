import { byId, data, number, numberFormat } from "./basics.js";
import { draw, line, titled } from "./draw.js";
import { turned } from "./table.js";

export const hidden = new Set();

// The rows to draw: those that are not hidden, and whose clients have scores.
export const shown = () => data.rows.filter((row, i) => !hidden.has(i) && row.curve.rounds.length > 0);

export function drawCurves() {
  for (const [key, title] of [["mean", "mean over clients"], ["std", "standard deviation over clients"]]) {
    const traces = shown().flatMap((row) =>
      line(row, row.curve.rounds, row.curve[key], row.curve[key + "_spread"], {
        hovertemplate: `%{y:${numberFormat}} after %{x} rounds<extra>%{fullData.name}</extra>`,
      })
    );
    const ends = shown().map((row) => `${row.label} ends at ${number(row.curve[key].at(-1))}`);
    const axes = { xaxis: titled("rounds"), yaxis: titled(data.score.title) };
    draw(`curve-${key}`, traces, { caption: title, ...axes }, `${title} against rounds: ${ends.join(", ")}`);
  }
}

const STROKES = ["", "6 4", "2 3", "6 3 2 3", "11 4", "11 3 2 3"]; // the dashes of Plotly, for a sample in the legend

// A short line like that of the row in the figures.
function sample(row) {
  const svg = (kind, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, String(value)));
    return made;
  };
  const picture = svg("svg", { width: 28, height: 8, "aria-hidden": true });
  picture.append(svg("line", { x1: 0, x2: 28, y1: 4, y2: 4, "stroke-dasharray": STROKES[row.dash] }));
  return picture;
}

// A button for each row, which hides and shows it; `changed` draws what shows the rows.
export function makeLegend(changed) {
  data.rows.forEach((row, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(sample(row), row.label);
    button.style.setProperty("--row", `var(--c${row.colour})`);
    if (row.quiet) hidden.add(i);
    button.setAttribute("aria-pressed", String(!hidden.has(i)));
    button.addEventListener("click", () => {
      if (!hidden.delete(i)) hidden.add(i);
      button.setAttribute("aria-pressed", String(!hidden.has(i)));
      changed();
    });
    byId("legend").append(button);
  });
}

export function makeTable() {
  const table = byId("runs");
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, i) =>
    head.firstElementChild.addEventListener("click", () => {
      const up = turned(heads, head, { upFirst: i === 0 });
      const value = (row) => row.cells[i].dataset.value;
      const order = (a, b) => (i === 0 ? value(a).localeCompare(value(b)) : value(a) - value(b));
      body.append(...[...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a))));
    })
  );
}
