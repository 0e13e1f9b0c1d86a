// The clients from worst to best in the first drawn run; clients that this run does not have come last.
function worstToBest(rows) {
  const [first, ...others] = rows;
  const ranked = first.each.clients.map((client, i) => [client, first.each.mean[i]]).sort((a, b) => worseFirst * (a[1] - b[1])).map(([client]) => client);
  return [...new Set([...ranked, ...others.flatMap((row) => row.each.clients)])];
}

function bars(row, alike) {
  return {
    type: "bar", name: row.label, x: row.each.clients.map((client) => clientName(row, client)), y: row.clients.y,
    error_y: { type: "data", array: row.clients.spread, color: css("--faint"), thickness: 1 },
    marker: { color: colour(row), pattern: { shape: ["", "/", ".", "x", "\\", "+"][alike % 6], fgcolor: css("--ground"), fillmode: "overlay", solidity: 0.3 } },
    hovertemplate: `%{x}: %{y:${numberFormat}}<extra>%{fullData.name}</extra>`,
  };
}

function drawClients() {
  const rows = shown(), named = data.named && rows.length > 0;
  byId("clients-note").textContent = named
    ? `Test ${data.score.name} of each client, from worst to best of ${rows[0].label}. Bars are means over seeds; error bars are standard deviations over seeds.`
    : `Test ${data.score.name} of the clients from worst to best, sorted separately for each run. A flat line means that all clients have the same ${data.score.name}.`;
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
function differences(first, second) {
  const seeds = first.seeds.filter((seed) => second.seeds.includes(seed));
  const place = new Map(second.each.clients.map((client, i) => [client, i]));
  const clients = [];
  first.each.clients.forEach((client, i) => {
    if (!place.has(client)) return;
    const parts = first.each.by_seed && second.each.by_seed
      ? seeds.map((seed) => first.each.by_seed[first.seeds.indexOf(seed)][i] - second.each.by_seed[second.seeds.indexOf(seed)][place.get(client)])
      : [first.each.mean[i] - second.each.mean[place.get(client)]];
    clients.push({ client, value: parts.reduce((a, b) => a + b, 0) / parts.length });
  });
  return { seeds: seeds.length, clients: clients.sort((a, b) => a.value - b.value) };
}

const REASONS = {
  data: "were measured on different clients or test data",
  settings: "have different settings for data or partition, and their records do not say whether the test data are the same",
  seeds: "have no seed in common",
  means: "have different seeds, and with so many clients this page contains only means over seeds",
  clients: "have no client in common",
};

function drawPair() {
  if (!byId("pair")) return;
  const [i, j] = ["pair-first", "pair-second"].map((id) => Number(byId(id).value));
  const first = data.rows[i], second = data.rows[j];
  const { seeds, clients } = differences(first, second);
  const why = first.apart[j] ?? (clients.length === 0 ? "clients" : null);
  if (why) {
    byId("pair-note").textContent = `${first.label} and ${second.label} ${REASONS[why]}, so they cannot be paired.`;
    draw("pair", [], { caption: "", xaxis: { visible: false }, yaxis: { visible: false } }, "Nothing to compare");
    return;
  }
  const values = clients.map(({ value }) => value);
  const points = data.score.points ? ` ${data.score.points}` : "", difference = data.score.points ? `difference in ${data.score.points}` : "difference";
  const better = values.filter((v) => worseFirst * v > 0).length, worse = values.filter((v) => worseFirst * v < 0).length;
  byId("pair-note").textContent = `${first.label} serves ${better} of ${values.length} clients better than ${second.label} and ${worse} worse, paired by client over ${seeds} seed${seeds > 1 ? "s" : ""}. The differences are from ${number(values[0])} to ${number(values.at(-1))}${points}.`;
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

const STEP = 50;  // clients that are added to the table at a time
const table = { sort: { column: 2, up: worseFirst > 0 }, limit: STEP };  // the worst client first

// One line for each client of the chosen rows: its name, its number of test examples, and its score in each run.
function clientLines(rows) {
  const lines = new Map();
  rows.forEach((row, k) => row.each.clients.forEach((client, i) => {
    const line = lines.get(client) ?? { name: clientName(row, client), low: Infinity, high: 0, values: Array(rows.length).fill(null) };
    const [low, high] = [data.sizes[row.sizes][i]].flat();
    line.low = Math.min(line.low, low);
    line.high = Math.max(line.high, high ?? low);
    line.values[k] = row.each.mean[i];
    lines.set(client, line);
  }));
  return [...lines.values()];
}

function clientOrder({ column, up }) {
  const natural = new Intl.Collator("en", { numeric: true });
  const key = (line) => (column === 1 ? line.low : line.values[column - 2]);
  return (a, b) => {
    if (column > 1 && (key(a) === null || key(b) === null)) return (key(a) === null) - (key(b) === null);
    const sign = up ? 1 : -1;
    return sign * (column === 0 ? natural.compare(a.name, b.name) : key(a) - key(b)) || natural.compare(a.name, b.name);
  };
}

function cell(kind, text) {
  const made = document.createElement(kind);
  made.textContent = text;
  return made;
}

function clientHeads(titles) {
  const line = byId("client-table").tHead.rows[0];
  line.replaceChildren(...titles.map((title, i) => {
    const head = document.createElement("th"), button = cell("button", title);
    head.scope = "col";
    button.type = "button";
    if (i === table.sort.column) head.setAttribute("aria-sort", table.sort.up ? "ascending" : "descending");
    button.addEventListener("click", () => {
      table.sort = { column: i, up: turned([...line.cells], head, true) };
      fillClients();
      byId("client-table").tHead.rows[0].cells[i].firstElementChild.focus();
    });
    head.append(button);
    return head;
  }));
}

function fillClients() {
  const members = data.tables[byId("client-runs").value || 0].filter((i) => !hidden.has(i));
  const rows = members.map((i) => data.rows[i]);
  if (table.sort.column > rows.length + 1) table.sort = { column: 0, up: true };
  clientHeads(["client", "test examples", ...rows.map((row) => row.label)]);
  const filter = byId("client-filter").value.trim().toLowerCase();
  const all = clientLines(rows);
  const matching = all.filter((line) => line.name.toLowerCase().includes(filter)).sort(clientOrder(table.sort));
  const drawn = matching.slice(0, table.limit);
  byId("client-table").tBodies[0].replaceChildren(...drawn.map((line) => {
    const made = document.createElement("tr"), head = cell("th", line.name);
    head.scope = "row";
    made.append(head, cell("td", line.low === line.high ? line.low : `${line.low} to ${line.high}`), ...line.values.map((value) => cell("td", value === null ? "\u2013" : number(value))));
    return made;
  }));
  const rest = matching.length - drawn.length;
  byId("client-count").textContent = rows.length === 0 ? "All of these runs are hidden."
    : `${drawn.length} of ${all.length} clients are shown` + (filter ? `; ${matching.length} match the filter` : "") + (rest ? `; ${rest} more follow.` : ".");
  byId("client-more").hidden = rest === 0;
}

function makeClients() {
  const names = data.tables.map((members) => members.map((i) => data.rows[i].label).join("; "));
  choices(byId("client-runs"), names, 0, () => { table.limit = STEP; fillClients(); });
  byId("client-runs").parentElement.hidden = names.length === 1;
  byId("client-filter").addEventListener("input", () => { table.limit = STEP; fillClients(); });
  byId("client-more").addEventListener("click", () => { table.limit += STEP; fillClients(); });
}
