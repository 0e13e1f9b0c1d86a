import { byId, capital, choices, clientName, css, data, SIGNS } from "./basics.js";
import { draw, translucent } from "./draw.js";
import { fillTable, longTable, STEP } from "./table.js";

const SYMBOLS = {
  lied: "circle-open",
  clipped: "triangle-down-open",
  capped: "square-open",
  demoted: "diamond",
  dropped: "x",
};
// The lowest standing comes first.
const defenceTable = longTable("defence", { column: 6, up: true }, () => fillDefences());

const chosen = () => data.defences[byId("defence-run").value];
const ofRun = (run) => (client) => clientName(data.rows[run.row], client);

// A line of the table as an object; the page embeds it as a list.
function fate([client, replies, clipped, capped, demoted, dropped, standing, lies, found]) {
  return { client, replies, clipped, capped, demoted, dropped, standing, lies, found };
}

// The verdict on a client in words, and whether the defences were wrong about it; none where liars are not known.
function verdict(run, one) {
  if (!run.known) return { text: "", wrong: false };
  if (run.liars.includes(one.client)) {
    if (one.lies === 0 || !run.judged) return { text: "", wrong: false };
    return one.found
      ? { text: `found in ${one.found} of ${one.lies} lies`, wrong: false }
      : { text: "missed", wrong: true };
  }
  return one.demoted + one.dropped > 0 ? { text: "accused falsely", wrong: true } : { text: "", wrong: false };
}

function kindOf(run, client) {
  if (run.liars.includes(client)) return "liar";
  const accused = run.events.demoted.concat(run.events.dropped).some(([each]) => each === client);
  return accused ? "accused" : "other";
}

const KINDS = () => ({
  liar: { title: "lies", shade: css("--conflict"), dash: "dash", width: 2 },
  accused: { title: "demoted or dropped", shade: css("--c3"), dash: "solid", width: 2 },
  other: { title: "others", shade: css("--faint"), dash: "dot", width: 1 },
});

// The standing of each client, as steps from reply to reply, with a mark where the client was demoted or dropped.
function drawStanding(run) {
  const place = byId("defence-standing");
  const name = ofRun(run);
  const kinds = KINDS();
  place.parentElement.hidden = !run.judged;
  byId("defence-why").hidden = !run.judged;
  if (!run.judged) return;
  if (run.known) kinds.accused.title = "honest, demoted or dropped";
  if (run.known) kinds.other.title = "honest";
  const at = Object.fromEntries(["demoted", "dropped"].map((mark) => [mark, new Set(run.events[mark].map(String))]));
  const seen = new Set();
  const order = ["other", "accused", "liar"]; // the liars on top
  const drawn = run.drawn.map((client, i) => ({ client, curve: run.curves[i], kind: kindOf(run, client) })).sort((
    a,
    b,
  ) => order.indexOf(a.kind) - order.indexOf(b.kind));
  const traces = drawn.map(({ client, curve: [rounds, standing], kind }) => {
    const { title, shade, dash, width } = kinds[kind];
    const mark = rounds.map((round) => ["dropped", "demoted"].find((each) => at[each].has(String([client, round]))));
    const first = !seen.has(kind);
    seen.add(kind);
    return {
      x: rounds,
      y: standing,
      name: title,
      legendgroup: kind,
      showlegend: first,
      mode: "lines+markers",
      line: { color: shade, dash, width, shape: "hv" },
      marker: {
        color: shade,
        symbol: mark.map((each) => SYMBOLS[each] ?? "circle"),
        size: mark.map((each) => (each ? 7 : 0)),
      },
      text: mark.map((each) => name(client) + (run.liars.includes(client) ? ", lies" : "") + (each ? `, ${each}` : "")),
      hovertemplate: "%{text}: %{y}, round %{x}<extra></extra>",
    };
  });
  const limits = (run.thresholds ?? []).map((value) => ({
    type: "line",
    xref: "paper",
    x0: 0,
    x1: 1,
    y0: value,
    y1: value,
    line: { color: css("--text"), width: 1, dash: "dash" },
  }));
  const words = (run.thresholds ?? []).map((value, i) => ({
    xref: "paper",
    x: 1,
    xanchor: "right",
    y: value,
    yanchor: ["bottom", "top"][i],
    showarrow: false,
    bgcolor: translucent(css("--ground"), 0.7),
    text: `${["demoted", "dropped"][i]} below ${value}`,
  }));
  draw(
    "defence-standing",
    traces,
    {
      caption: "standing of the clients",
      showlegend: true,
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
      shapes: limits,
      annotations: words,
      xaxis: { title: { text: "rounds" } },
      yaxis: { title: { text: "standing" } },
    },
    `Standing of ${drawn.length} clients over rounds: ` +
      ["liar", "accused", "other"].filter((kind) => seen.has(kind)).map((kind) =>
        `${drawn.filter((each) => each.kind === kind).length} ${kinds[kind].title}`
      ).join(", "),
  );
  byId("defence-why").textContent = why(run);
}

// Why clients are demoted and dropped, with the thresholds of the settings, or what the records say about them.
function why(run) {
  const parts = [
    "The standing of a client, from -1 to 1, is how far the agreement of its updates with those of the others outweighs their opposition, over all rounds so far. A client that works against the others again and again sinks, and is demoted below one threshold and dropped below a lower one (diamonds and crosses in the figure), unless so many clients are doubtful that there are camps and not liars.",
  ];
  if (run.thresholds) parts.push(`The settings say that these are ${run.thresholds[0]} and ${run.thresholds[1]}.`);
  else if (Object.keys(run.highest).length) {
    parts.push(
      `The settings do not name them; in this run, ${
        Object.entries(run.highest).map(([mark, standing]) =>
          `the highest standing of a ${mark} client was ${standing}`
        )
          .join(", and ")
      }.`,
    );
  }
  if (run.replied > run.drawn.length) {
    parts.push(
      `The figures show ${run.drawn.length} of ${run.replied} clients: first those that lie, then those that were demoted or dropped.`,
    );
  }
  return parts.join(" ");
}

// Who lied, and what the defences did to whom, round by round.
function drawEvents(run) {
  const place = byId("defence-events");
  const name = ofRun(run);
  const label = (client) => name(client) + (run.liars.includes(client) ? ` ${SIGNS.lied}` : "");
  const shades = {
    lied: css("--conflict"),
    clipped: css("--c0"),
    capped: css("--c4"),
    demoted: css("--c3"),
    dropped: css("--text"),
  };
  const series = (title, rounds, labels, symbol, size, shade) => ({
    type: "scatter",
    mode: "markers",
    name: title,
    x: rounds,
    y: labels,
    marker: { symbol, size, color: shade, line: { width: 1.5, color: shade } },
    hovertemplate: `%{y}: ${title} in round %{x}<extra></extra>`,
  });
  const traces = Object.entries(run.events).filter(([, events]) => events.length)
    .map(([mark, events]) =>
      series(
        mark,
        events.map(([, round]) => round),
        events.map(([client]) => label(client)),
        SYMBOLS[mark],
        mark === "lied" ? 13 : 7,
        shades[mark],
      )
    );
  if (run.skipped.length) {
    traces.push(series("skipped", run.skipped, run.skipped.map(() => "the round"), "line-ns", 11, css("--text")));
  }
  place.parentElement.hidden = traces.length === 0;
  if (traces.length === 0) return;
  const rows = [...run.drawn.map(label), ...(run.skipped.length ? ["the round"] : [])];
  place.style.height = `${11 + 1.3 * rows.length}rem`;
  draw("defence-events", traces, {
    caption: "what was done to whom",
    showlegend: true,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    xaxis: { title: { text: "rounds" } },
    yaxis: {
      type: "category",
      categoryorder: "array",
      categoryarray: rows,
      range: [rows.length - 0.5, -0.5],
      dtick: 1,
    },
  }, "Rounds in which clients were " + traces.map((trace) => `${trace.name}: ${trace.x.length}`).join(", "));
}

function fillDefences() {
  const run = chosen();
  const name = ofRun(run);
  const titles = [
    "client",
    "replies",
    "clipped",
    "capped",
    "demoted",
    "dropped",
    ...(run.judged ? ["last standing"] : []),
    ...(run.known ? ["lies", "verdict"] : []),
  ];
  const drawn = fillTable(
    defenceTable,
    titles,
    run.fates.map(fate).map((one) => {
      const number = (key) => ({ text: one[key] ?? "\u2013", key: one[key] });
      const { text, wrong } = verdict(run, one);
      return {
        wrong,
        cells: [
          { text: name(one.client), key: name(one.client), note: wrong ? text : "" },
          ...[
            "replies",
            "clipped",
            "capped",
            "demoted",
            "dropped",
            ...(run.judged ? ["standing"] : []),
            ...(run.known ? ["lies"] : []),
          ].map(number),
          ...(run.known ? [{ text, key: text }] : []),
        ],
      };
    }),
  );
  const rest = run.fates.length - drawn;
  const left = run.replied - run.fates.length;
  byId("defence-count").textContent =
    `${drawn} of ${run.replied} clients that replied are shown, with the numbers of their replies` +
    (rest ? `; ${rest} more follow` : "") + (left ? `; ${left} others are left out of this page` : "") + ".";
}

export function drawDefences() {
  if (!byId("defence-run")) return;
  const run = chosen();
  byId("defence-note").textContent = run.defended
    ? `${capital(run.found)}.`
    : "The records of this run name no defence.";
  drawStanding(run);
  drawEvents(run);
  fillDefences();
}

export function makeDefences() {
  choices(byId("defence-run"), data.defences.map((run) => run.label), 0, () => {
    defenceTable.limit = STEP;
    drawDefences();
  });
}
