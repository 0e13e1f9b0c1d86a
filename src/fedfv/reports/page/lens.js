import { byId, capital, choices, clientName, css, data, SIGNS, some } from "./basics.js";
import { draw } from "./draw.js";
import { insteadOf, offerRules, whatIf, whatIfOverTime } from "./whatif.js";

// The symmetric matrix of cosines, from the entries above its diagonal, row by row.
function square(upper, size) {
  const matrix = Array.from({ length: size }, () => Array(size).fill(1));
  let next = 0;
  for (let i = 0; i < size; i++) for (let j = i + 1; j < size; j++) matrix[i][j] = matrix[j][i] = upper[next++];
  return matrix;
}

export function drawLens() {
  if (!byId("lens-run")) return;
  const run = data.lens[byId("lens-run").value];
  const name = (client) => clientName(data.rows[run.row], client);
  const slider = byId("lens-round");
  slider.max = run.looks.length - 1;
  const look = run.looks[slider.value];
  byId("lens-at").textContent = `${look.round} of ${run.looks.at(-1).round}`;
  slider.setAttribute("aria-valuetext", `round ${look.round}`);
  const at = {
    type: "line",
    x0: look.round,
    x1: look.round,
    y0: 0,
    y1: 1,
    yref: "paper",
    line: { color: css("--faint"), width: 1, dash: "dot" },
  };
  const rounds = run.looks.map((each) => each.round);
  const series = (values, title, shade, dash) => ({
    x: rounds,
    y: values,
    name: title,
    mode: "lines",
    line: { color: shade, dash, width: 2 },
    hovertemplate: "%{y:.0f} %, round %{x}<extra>%{fullData.name}</extra>",
  });
  draw("lens-time", [
    series(run.looks.map((each) => 100 * each.conflicting), "pairs of updates that conflict", css("--faint"), "dot"),
    series(
      run.looks.map((each) => 100 * each.against_mean),
      "clients that the plain mean works against",
      css("--conflict"),
      "dash",
    ),
    series(run.looks.map((each) => 100 * each.against), "clients that the step works against", css("--agree"), "solid"),
    ...whatIfOverTime(run, series),
  ], {
    caption: "conflicts over time",
    showlegend: true,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    shapes: [at],
    xaxis: { title: { text: "rounds" } },
    yaxis: { title: { text: "per cent" }, rangemode: "tozero" },
  }, "Share of conflicting pairs and of clients that the step works against, over rounds");
  const labels = look.shown.map(name);
  const ticks = { showticklabels: labels.length <= 32, type: "category" };
  draw("lens-cosines", [{
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
  }], {
    caption: `cosines of the updates of round ${look.round}`,
    xaxis: { ...ticks, title: { text: look.losses ? "from the smallest loss to the largest" : "clients" } },
    yaxis: { ...ticks, autorange: "reversed" },
  }, `Cosines of the updates of round ${look.round}: ${(100 * look.conflicting).toFixed(0)} % of the pairs conflict`);
  const place = new Map(look.clients.map((client, i) => [client, i]));
  const positions = look.shown.map((client) => place.get(client));
  const pays = (cosines, title, symbol, shade) => ({
    type: "scatter",
    mode: "markers",
    name: title,
    x: positions.map((i) => cosines[i]),
    y: labels,
    marker: { symbol, size: 9, color: shade, line: { width: 1.5, color: shade } },
    customdata: positions.map((i) => details(look, i)),
    hovertemplate: "%{y}: %{x:.3f}<br>%{customdata}<extra>%{fullData.name}</extra>",
  });
  const other = insteadOf(look);
  const aside = other ? other.after : look.before; // the points that are drawn beside those of the step
  const moves = positions.map((i, k) => ({
    type: "line",
    y0: k,
    y1: k,
    x0: aside[i],
    x1: look.after[i],
    line: { color: css("--faint"), width: 1 },
  }));
  const beside = other
    ? pays(aside, `with ${other.rule}`, "diamond-open", css("--c3"))
    : pays(aside, "with the plain mean", "circle-open", css("--conflict"));
  draw(
    "lens-pays",
    [beside, { ...pays(look.after, "with the step", "circle", css("--agree")), ...signsOf(look, aside) }],
    {
      caption: `${other ? "who would pay" : "who pays"}: cosine of each update`,
      showlegend: true,
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
      shapes: moves,
      xaxis: { range: [-1.05, 1.05], title: { text: "left of 0: the client pays" }, zerolinewidth: 2 },
      yaxis: { ...ticks, autorange: "reversed" },
    },
    `Cosine of each update of round ${look.round} with ${
      other ? `the step of ${other.rule}` : "the plain mean"
    } and with the step`,
  );
  byId("lens-note").textContent = summary(look, name);
  byId("lens-instead").textContent = whatIf(look, name);
  const external = run.looks.filter((each) => each.external?.length);
  byId("lens-external").parentElement.hidden = external.length === 0;
  if (external.length) {
    const points = external.flatMap((each) =>
      each.external.map(([past, clients, share]) => ({ round: each.round, past, clients, share }))
    );
    draw("lens-external", [{
      type: "scatter",
      mode: "markers",
      x: points.map((p) => p.round),
      y: points.map((p) => 100 * p.share),
      marker: { color: css("--c3"), size: points.map((p) => 6 + 2 * Math.sqrt(p.clients.length)), opacity: 0.7 },
      text: points.map((p) => `update of round ${p.past}: ${some(p.clients, name)}`),
      hovertemplate: "%{text}<br>%{y:.1f} % of the direction removed<extra></extra>",
    }], {
      caption: "external conflicts: conflicts with the last updates of absent clients",
      shapes: [at],
      xaxis: { title: { text: "rounds" } },
      yaxis: { title: { text: "per cent of the direction" }, rangemode: "tozero" },
    }, "Share of the direction removed for absent clients, over rounds");
  }
}

function details(look, i) {
  const parts = [
    ...(look.losses ? [`loss ${look.losses[i].toPrecision(3)}`] : []),
    `length ${look.lengths[i].toPrecision(3)}`,
  ];
  if (look.projected && !look.dropped?.includes(look.clients[i])) {
    parts.push(
      look.kept.includes(look.clients[i])
        ? "update kept unchanged"
        : `projected: ${(100 * look.projected[i]).toFixed(0)} % of its length changed`,
    );
  }
  const marks = signed(look).filter(([mark]) => look[mark].includes(look.clients[i])).map(([mark]) => mark);
  if (look.standing) parts.push(`standing ${look.standing[i]}`);
  return [...parts, ...marks].join(", ");
}

// The signs that occur in a round, each with what it stands for.
const signed = (look) => Object.entries(SIGNS).filter(([mark]) => look[mark]);
// The signs of the clients beside their points, on the side away from the other point if there is room, else above.
function signsOf(look, aside) {
  if (signed(look).length === 0) return {};
  const positions = look.shown.map((client) => look.clients.indexOf(client));
  const side = (
    i,
  ) => (look.after[i] >= aside[i]
    ? (look.after[i] < 0.8 ? "middle right" : "top center")
    : (look.after[i] > -0.8 ? "middle left" : "top center"));
  return {
    mode: "markers+text",
    text: look.shown.map((client) =>
      signed(look).filter(([mark]) => look[mark].includes(client)).map(([, sign]) => sign).join(" ")
    ),
    textposition: positions.map(side),
  };
}

// What the defences did in a round, and who lied, in words.
function defences(look, name) {
  const standing = (client) => (look.standing ? ` (standing ${look.standing[look.clients.indexOf(client)]})` : "");
  const parts = signed(look).map(([mark, sign]) =>
    `${capital(mark)} ${sign}: ${
      some(look[mark], (client) => name(client) + (mark === "demoted" || mark === "dropped" ? standing(client) : ""))
    }.`
  );
  if (look.skipped) {
    parts.push(
      `The round was skipped, so the model did not change: ${
        look.dropped?.length === look.clients.length ? "every reply was dropped" : "the direction was absurdly long"
      }.`,
    );
  }
  return parts;
}

function summary(look, name) {
  const parts = [
    `Round ${look.round}: ${look.clients.length} clients replied, ${
      (100 * look.conflicting).toFixed(0)
    } % of the pairs conflict.`,
  ];
  parts.push(
    `The plain mean would work against ${
      Math.round(look.against_mean * look.clients.length)
    } of them; the step works against ${
      Math.round(look.against * look.clients.length)
    }. The cosine of the step with the plain mean is ${look.turned.toFixed(3)}.`,
  );
  if (look.projected) {
    const shares = look.projected.filter((share, i) => share > 0 && !look.dropped?.includes(look.clients[i]));
    const changed = shares.length;
    parts.push(
      `${look.kept.length ? some(look.kept, name) : "No clients"} kept ${
        look.kept.length === 1 ? "its update" : "their updates"
      }; ${changed} ${changed === 1 ? "update was" : "updates were"} projected${
        look.clipped ? " or clipped" : ""
      }, which changed up to ${(100 * Math.max(0, ...shares)).toFixed(0)} % of ${
        changed === 1 ? "its" : "their"
      } length.`,
    );
  }
  if (look.clients.length > look.shown.length) {
    parts.push(
      `${look.shown.length} clients are drawn, spread evenly${
        look.losses ? " from the smallest loss to the largest" : ""
      }.`,
    );
  }
  return [...parts, ...defences(look, name)].join(" ");
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
