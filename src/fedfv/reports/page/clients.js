// The clients from worst to best in the first drawn run; clients that this run does not have come last.
function worstToBest(rows) {
  const [first, ...others] = rows;
  const ranked = first.each.clients.map((client, i) => [client, first.each.mean[i]]).sort((a, b) => worseFirst * (a[1] - b[1])).map(([client]) => client);
  return [...new Set([...ranked, ...others.flatMap((row) => row.each.clients)])];
}

// Whether a client lies in a row, in words; the empty text if it never does.
function lying(row, client) {
  const seeds = (row.each.liars ?? []).filter((liars) => liars.includes(client)).length;
  if (seeds === 0) return "";
  return seeds === row.seeds.length ? "lies" : `lies with ${seeds} of ${row.seeds.length} seeds`;
}

function bars(row, alike) {
  return {
    type: "bar", name: row.label, x: row.each.clients.map((client) => clientName(row, client)), y: row.clients.y,
    error_y: { type: "data", array: row.clients.spread, color: css("--faint"), thickness: 1 },
    ...(row.each.liars ? { text: row.each.clients.map((client) => (lying(row, client) ? SIGNS.lied : "")), textposition: "outside", cliponaxis: false } : {}),
    marker: { color: colour(row), pattern: { shape: ["", "/", ".", "x", "\\", "+"][alike % 6], fgcolor: css("--ground"), fillmode: "overlay", solidity: 0.3 } },
    hovertemplate: `%{x}: %{y:${numberFormat}}<extra>%{fullData.name}</extra>`,
  };
}

function drawClients() {
  const rows = shown(), named = data.named && rows.length > 0, attacked = rows.some((row) => row.each.liars);
  byId("clients-note").textContent = named
    ? `Test ${data.score.name} of each client, from worst to best of ${rows[0].label}. Bars are means over seeds; error bars are standard deviations over seeds.${attacked ? ` ${SIGNS.lied} marks a client that lies with some seed.` : ""}`
    : `Test ${data.score.name} of the clients from worst to best, sorted separately for each run. A flat line means that all clients have the same ${data.score.name}.${attacked ? " Clients that lie are left out." : ""}`;
  const alike = (row) => rows.filter((other) => other.colour === row.colour).indexOf(row);
  const traces = rows.flatMap((row) => named
    ? [bars(row, alike(row))]
    : line(row, row.clients.x, row.clients.y, row.clients.spread, { hovertemplate: `%{y:${numberFormat}}, with %{x:.1f} % of the clients worse<extra>%{fullData.name}</extra>` }));
  const xaxis = named
    ? { type: "category", categoryorder: "array", categoryarray: worstToBest(rows).map((client) => clientName(rows[0], client)) }
    : { title: { text: "clients in per cent, from worst to best" } };
  draw("clients", traces, { barmode: "group", caption: "", xaxis, yaxis: { title: { text: data.score.title } } },
    `${capital(data.score.name)} of the clients: ` + rows.map((row) => `${row.label} from ${number(Math.min(...row.clients.y))} to ${number(Math.max(...row.clients.y))}`).join(", "));
}

// The difference of two runs for each client, paired by seed, so that effects of the split and of the initial model cancel.
// A client is paired in the seeds in which it lies in neither run; without values for each seed, only if it never lies.
function differences(first, second) {
  const seeds = first.seeds.filter((seed) => second.seeds.includes(seed));
  const place = new Map(second.each.clients.map((client, i) => [client, i]));
  const lies = (row, seed, client) => row.each.liars?.[row.seeds.indexOf(seed)].includes(client);
  const clients = [];
  let left = 0;
  first.each.clients.forEach((client, i) => {
    if (!place.has(client)) return;
    const honest = seeds.filter((seed) => !lies(first, seed, client) && !lies(second, seed, client));
    const parts = first.each.by_seed && second.each.by_seed
      ? honest.map((seed) => first.each.by_seed[first.seeds.indexOf(seed)][i] - second.each.by_seed[second.seeds.indexOf(seed)][place.get(client)])
      : honest.length === seeds.length ? [first.each.mean[i] - second.each.mean[place.get(client)]] : [];
    if (honest.length < seeds.length) left += 1;
    if (parts.length) clients.push({ client, value: parts.reduce((a, b) => a + b, 0) / parts.length });
  });
  return { seeds: seeds.length, left, clients: clients.sort((a, b) => a.value - b.value) };
}

const REASONS = {
  data: "were measured on different clients or test data",
  settings: "have different settings for data or partition, and their records do not say whether the test data are the same",
  seeds: "have no seed in common",
  means: "have different seeds, and with so many clients this page contains only means over seeds",
  clients: "have no client in common",
  liars: "have no client in common that is honest in both",
};

function drawPair() {
  if (!byId("pair")) return;
  const [i, j] = ["pair-first", "pair-second"].map((id) => Number(byId(id).value));
  const first = data.rows[i], second = data.rows[j];
  const { seeds, left, clients } = differences(first, second);
  const why = first.apart[j] ?? (clients.length > 0 ? null : left > 0 ? "liars" : "clients");
  if (why) {
    byId("pair-note").textContent = `${first.label} and ${second.label} ${REASONS[why]}, so they cannot be paired.`;
    draw("pair", [], { caption: "", xaxis: { visible: false }, yaxis: { visible: false } }, "Nothing to compare");
    return;
  }
  const values = clients.map(({ value }) => value);
  const points = data.score.points ? ` ${data.score.points}` : "", difference = data.score.points ? `difference in ${data.score.points}` : "difference";
  const better = values.filter((v) => worseFirst * v > 0).length, worse = values.filter((v) => worseFirst * v < 0).length;
  byId("pair-note").textContent = `${first.label} serves ${better} of ${values.length} clients better than ${second.label} and ${worse} worse, paired by client over ${seeds} seed${seeds > 1 ? "s" : ""}${left ? ", without clients that lie" : ""}. The differences are from ${number(values[0])} to ${number(values.at(-1))}${points}.`;
  const colours = values.map((v) => (worseFirst * v < 0 ? css("--conflict") : css("--agree")));
  const trace = values.length <= 400
    ? { type: "bar", x: clients.map(({ client }) => clientName(first, client)), y: values, marker: { color: colours }, hovertemplate: `%{x}: %{y:+${numberFormat}}<extra></extra>` }
    : { type: "histogram", x: values, nbinsx: 80, marker: { color: css("--agree") }, hovertemplate: "%{x}: %{y} clients<extra></extra>" };
  const many = values.length > 40;
  draw("pair", [trace], { caption: "", xaxis: values.length > 400 ? { title: { text: difference } } : { type: "category", showticklabels: !many, title: { text: many ? "clients" : "" } }, yaxis: { title: { text: values.length > 400 ? "clients" : difference } } },
    byId("pair-note").textContent);
}

// Marks the rows of the second menu that cannot be paired with the first choice.
function markPair() {
  const first = Number(byId("pair-first").value);
  [...byId("pair-second").options].forEach((option, i) => {
    option.text = data.rows[i].label + (data.rows[first].apart[i] ? " (not comparable)" : "");
  });
}

function makePair() {
  if (!byId("pair")) return;
  const labels = data.rows.map((row) => row.label);
  choices(byId("pair-first"), labels, data.pair[0], () => { markPair(); drawPair(); });
  choices(byId("pair-second"), labels, data.pair[1], drawPair);
  markPair();
}

const clientTable = longTable("client", { column: 2, up: worseFirst > 0 }, () => fillClients());  // the worst client first

// One line for each client of the chosen rows: its name, its number of test examples, and its score in each run.
function clientLines(rows) {
  const lines = new Map();
  rows.forEach((row, k) => row.each.clients.forEach((client, i) => {
    const line = lines.get(client) ?? { client, name: clientName(row, client), low: Infinity, high: 0, values: Array(rows.length).fill(null) };
    const [low, high] = [data.sizes[row.sizes][i]].flat();
    line.low = Math.min(line.low, low);
    line.high = Math.max(line.high, high ?? low);
    line.values[k] = row.each.mean[i];
    lines.set(client, line);
  }));
  return [...lines.values()];
}

function fillClients() {
  const members = data.tables[byId("client-runs").value || 0].filter((i) => !hidden.has(i));
  const rows = members.map((i) => data.rows[i]);
  const filter = byId("client-filter").value.trim().toLowerCase();
  const all = clientLines(rows);
  const matching = all.filter((line) => line.name.toLowerCase().includes(filter));
  const drawn = fillTable(clientTable, ["client", "test examples", ...rows.map((row) => row.label)], matching.map((line) => ({
    cells: [
      { text: line.name, key: line.name },
      { text: line.low === line.high ? line.low : `${line.low} to ${line.high}`, key: line.low },
      ...line.values.map((value, k) => ({ text: value === null ? "\u2013" : number(value), key: value, note: lying(rows[k], line.client) })),
    ],
  })));
  const rest = matching.length - drawn;
  byId("client-count").textContent = rows.length === 0 ? "All of these runs are hidden."
    : `${drawn} of ${all.length} clients are shown` + (filter ? `; ${matching.length} match the filter` : "") + (rest ? `; ${rest} more follow.` : ".");
}

function makeClients() {
  const names = data.tables.map((members) => members.map((i) => data.rows[i].label).join("; "));
  choices(byId("client-runs"), names, 0, () => { clientTable.limit = STEP; fillClients(); });
  byId("client-runs").parentElement.hidden = names.length === 1;
  byId("client-filter").addEventListener("input", () => { clientTable.limit = STEP; fillClients(); });
}
