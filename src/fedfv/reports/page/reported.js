import { byId, choices, clientName, css, data, times } from "./basics.js";
import { draw } from "./draw.js";

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
  const name = (client) => clientName(data.rows[run.row], client);
  const { name: title, rounds, values } = run.curves.find((each) => each.name === byId("reported-name").value);
  const reported = run.drawn.map((client, i) => ({ client, y: values[i], place: i })).filter(({ y }) =>
    y.some((value) => value !== null)
  );
  const traces = reported.map(({ client, y, place }) => ({
    x: rounds,
    y,
    name: name(client),
    mode: "lines+markers",
    connectgaps: true,
    showlegend: place < COLOURED,
    line: {
      color: place < COLOURED ? css(`--c${place}`) : css("--faint"),
      width: place < COLOURED ? 2 : 1,
      dash: place < COLOURED ? "solid" : "dot",
    },
    marker: { size: rounds.length > 60 ? 0 : 5 },
    hovertemplate: "%{y}, round %{x}<extra>%{fullData.name}</extra>",
  }));
  draw("reported", traces.reverse(), {
    caption: title,
    showlegend: true,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "reversed" },
    xaxis: { title: { text: "rounds" } },
    yaxis: { title: { text: title } },
  }, `${title} of ${reported.length} clients over rounds`);
  byId("reported-note").textContent = `${times(reported.length, "client")} of ${run.clients} reported this number` +
    (run.clients > run.drawn.length ? `; ${run.drawn.length} are drawn` : "") +
    ". In colour are those against which the steps work most, if that is known.";
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
