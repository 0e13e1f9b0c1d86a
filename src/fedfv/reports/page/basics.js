/** @type {(id: string) => any} */
export const byId = (id) => document.getElementById(id);
export const data = JSON.parse(byId("data").textContent);
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const number = (value) => value.toFixed(data.score.digits);
export const numberFormat = `.${data.score.digits}f`; // in Plotly's notation
export const worseFirst = data.score.lower_is_better ? -1 : 1; // the sign with which a sort begins with the worst
export const capital = (text) => text[0].toUpperCase() + text.slice(1);
export const times = (count, thing) => `${count} ${thing}${count === 1 ? "" : "s"}`;

// The display name of a client; each row has the names of its own federation.
export const clientName = (row, client) => data.rosters[row.roster][client] ?? `client ${client}`;

// What a client may have done, or what defences may do to one: a sign for figures.
export const SIGNS = {
  lied: "\u2020",
  clipped: "\u2702\ufe0e",
  capped: "\u25be",
  demoted: "\u2193",
  dropped: "\u2715",
};

// A list in words, such as "a, b and c".
export const list = (words) => words.length < 2 ? words.join() : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;

// The names of the first clients of a list.
export const some = (clients, name) =>
  clients.length > 8
    ? `${clients.slice(0, 7).map(name).join(", ")} and ${clients.length - 7} others`
    : list(clients.map(name));

export function choices(select, labels, chosen, changed) {
  if (!select) return;
  labels.forEach((label, i) => select.add(new Option(label, i, false, i === chosen)));
  select.addEventListener("change", changed);
}
