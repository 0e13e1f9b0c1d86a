import { byId, choices, clientName, css, data, times } from "./basics.js";
import { draw, legendAbove, titled } from "./draw.js";

const COLOURED = 7; // clients in colour; the others are grey

function reportedRun() {
  return data.reported[byId("reported-run").value];
}

// The names of the numbers of the chosen run; the chosen name stays if the run has it.
function nameReported() {
  const select = byId("reported-name");
  const before = select.value;
  const names = reportedRun().curves.map(({ name }) => name);
  select.replaceChildren(...names.map((name) => new Option(name, name, false, name === before)));
}

export function drawReported() {
  if (!byId("reported-run")) return;
  const run = reportedRun();
  const curve = run.curves.find((each) => each.name === byId("reported-name").value);
  const known = run.drawn.map((client, i) => ({ client, y: curve.values[i], place: i }));
  const reported = known.filter(({ y }) => y.some((value) => value !== null));
  draw("reported", reported.map((each) => lineOf(run, curve.rounds, each)).reverse(), {
    caption: curve.name,
    showlegend: true,
    legend: { ...legendAbove.legend, traceorder: "reversed" },
    xaxis: titled("rounds"),
    yaxis: titled(curve.name),
  }, `${curve.name} of ${reported.length} clients over rounds`);
  const all = times(run.clients, "client");
  byId("reported-note").textContent = run.clients > run.drawn.length
    ? `${run.drawn.length} of ${all} are drawn; ${reported.length} of these reported this number.`
    : `${reported.length} of ${all} reported this number.`;
}

function lineOf(run, rounds, { client, y, place }) {
  const coloured = place < COLOURED;
  return {
    x: rounds,
    y,
    name: clientName(data.rows[run.row], client),
    mode: "lines+markers",
    connectgaps: true,
    showlegend: coloured,
    line: {
      color: css(coloured ? `--c${place}` : "--faint"),
      width: coloured ? 2 : 1,
      dash: coloured ? "solid" : "dot",
    },
    marker: { size: rounds.length > 60 ? 0 : 5 },
    hovertemplate: "%{y}, round %{x}<extra>%{fullData.name}</extra>",
  };
}

export function makeReported() {
  if (!byId("reported-run")) return;
  choices(byId("reported-run"), data.reported.map((run) => run.label), 0, () => {
    nameReported();
    drawReported();
  });
  nameReported();
  byId("reported-name").addEventListener("change", drawReported);
}
