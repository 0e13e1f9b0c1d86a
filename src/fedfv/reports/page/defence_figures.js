import { byId, clientName, css, data, list, SIGNS, times } from "./basics.js";
import { draw, legendAbove, titled, translucent } from "./draw.js";

const SYMBOLS = {
  lied: "circle-open",
  clipped: "triangle-down-open",
  capped: "square-open",
  demoted: "diamond",
  dropped: "x",
};
const ORDER = ["other", "accused", "liar"]; // the liars on top

export const ofRun = (run) => (client) => clientName(data.rows[run.row], client);

function kindOf(run, client) {
  if (run.liars.includes(client)) return "liar";
  const accused = run.events.demoted.concat(run.events.dropped).some(([each]) => each === client);
  return accused ? "accused" : "other";
}

const kindsOf = (run) => ({
  liar: { title: "lies", shade: css("--conflict"), dash: "dash", width: 2 },
  accused: { title: `${run.known ? "honest, " : ""}demoted or dropped`, shade: css("--c3"), dash: "solid", width: 2 },
  other: { title: run.known ? "honest" : "others", shade: css("--faint"), dash: "dot", width: 1 },
});

// The standing of each client, as steps from reply to reply, with a mark where the client was demoted or dropped.
export function drawStanding(run) {
  byId("defence-standing").parentElement.hidden = !run.judged;
  byId("defence-why").hidden = !run.judged;
  if (!run.judged) return;
  const kinds = kindsOf(run);
  const judged = Object.fromEntries(
    ["dropped", "demoted"].map((mark) => [mark, new Set(run.events[mark].map(String))]),
  );
  const drawn = run.drawn.map((client, i) => ({ client, curve: run.curves[i], kind: kindOf(run, client) }));
  drawn.sort((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind));
  const of = (kind) => drawn.filter((each) => each.kind === kind);
  const traces = drawn.map((each) => ({
    ...standingOf(run, each, kinds, judged),
    showlegend: each === of(each.kind)[0],
  }));
  const present = ["liar", "accused", "other"].filter((kind) => of(kind).length > 0);
  draw(
    "defence-standing",
    traces,
    {
      caption: "standing of the clients",
      ...legendAbove,
      ...thresholds(run),
      xaxis: titled("rounds"),
      yaxis: titled("standing"),
    },
    `Standing of ${drawn.length} clients over rounds: ${
      present.map((kind) => `${of(kind).length} ${kinds[kind].title}`).join(", ")
    }`,
  );
  byId("defence-why").textContent = why(run);
}

// One client; `judged` has for each mark the clients and the rounds in which they got it.
function standingOf(run, { client, curve: [rounds, standing], kind }, kinds, judged) {
  const { title, shade, dash, width } = kinds[kind];
  const marks = rounds.map((round) => Object.keys(judged).find((mark) => judged[mark].has(String([client, round]))));
  const words = [ofRun(run)(client), ...(run.liars.includes(client) ? ["lies"] : [])];
  return {
    x: rounds,
    y: standing,
    name: title,
    legendgroup: kind,
    mode: "lines+markers",
    line: { color: shade, dash, width, shape: "hv" },
    marker: {
      color: shade,
      symbol: marks.map((mark) => SYMBOLS[mark] ?? "circle"),
      size: marks.map((mark) => (mark ? 7 : 0)),
    },
    text: marks.map((mark) => [...words, ...(mark ? [mark] : [])].join(", ")),
    hovertemplate: "%{text}: %{y}, round %{x}<extra></extra>",
  };
}

// Lines at the thresholds that the settings name, with their meaning.
function thresholds(run) {
  const values = run.thresholds ?? [];
  const line = { color: css("--text"), width: 1, dash: "dash" };
  return {
    shapes: values.map((value) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value, line })),
    annotations: values.map((value, i) => ({
      xref: "paper",
      x: 1,
      xanchor: "right",
      y: value,
      yanchor: ["bottom", "top"][i],
      showarrow: false,
      bgcolor: translucent(css("--ground"), 0.7),
      text: `${["demoted", "dropped"][i]} below ${value}`,
    })),
  };
}

// At which standings clients are demoted and dropped: what the settings say, or else what the records show.
function why(run) {
  const highest = Object.entries(run.highest).map(([mark, value]) =>
    `the highest standing of a ${mark} client was ${value}`
  );
  const parts = ["A diamond marks a demoted client, a cross a dropped one."];
  if (run.thresholds) {
    const [demote, drop] = run.thresholds;
    parts.push(`The settings demote a client with a standing below ${demote}, and drop one below ${drop}.`);
  } else if (highest.length) parts.push(`The settings name no thresholds; in this run, ${list(highest)}.`);
  if (run.replied > run.drawn.length) {
    parts.push(
      `The figures show ${run.drawn.length} of ${run.replied} clients: first those that lie, then those that were demoted or dropped.`,
    );
  }
  return parts.join(" ");
}

// Who lied, and what the defences did to whom, round by round.
export function drawEvents(run) {
  const place = byId("defence-events");
  const label = (client) => ofRun(run)(client) + (run.liars.includes(client) ? ` ${SIGNS.lied}` : "");
  const traces = eventsOf(run, label);
  place.parentElement.hidden = traces.length === 0;
  if (traces.length === 0) return;
  const rows = [...run.drawn.map(label), ...(run.skipped.length ? ["the round"] : [])];
  place.style.height = `${8 + 1.3 * rows.length}rem`;
  draw(
    "defence-events",
    traces,
    {
      caption: "what was done to whom",
      ...legendAbove,
      xaxis: titled("rounds"),
      yaxis: {
        type: "category",
        categoryorder: "array",
        categoryarray: rows,
        range: [rows.length - 0.5, -0.5],
        dtick: 1,
      },
    },
    `Rounds in which something was done: ${
      traces.map(({ name, x }) => `${name} ${times(x.length, "time")}`).join(", ")
    }`,
  );
}

function eventsOf(run, label) {
  const shades = { lied: "--conflict", clipped: "--c0", capped: "--c4", demoted: "--c3", dropped: "--text" };
  const series = (title, rounds, labels, symbol, size, shade) => ({
    type: "scatter",
    mode: "markers",
    name: title,
    x: rounds,
    y: labels,
    marker: { symbol, size, color: shade, line: { width: 1.5, color: shade } },
    hovertemplate: `%{y}: ${title} in round %{x}<extra></extra>`,
  });
  const traces = Object.entries(run.events).filter(([, events]) => events.length).map(([mark, events]) => {
    const labels = events.map(([client]) => label(client));
    const size = mark === "lied" ? 13 : 7;
    return series(mark, events.map(([, round]) => round), labels, SYMBOLS[mark], size, css(shades[mark]));
  });
  if (run.skipped.length === 0) return traces;
  const labels = run.skipped.map(() => "the round");
  return [...traces, series("skipped", run.skipped, labels, "line-ns", 11, css("--text"))];
}
