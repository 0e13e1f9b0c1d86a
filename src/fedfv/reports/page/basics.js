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

// The names of the first clients of a list.
export const some = (clients, name) => clients.slice(0, 8).map(name).join(", ") + (clients.length > 8 ? " ..." : "");

export function choices(select, labels, chosen, changed) {
  if (!select) return;
  labels.forEach((label, i) => select.add(new Option(label, i, false, i === chosen)));
  select.addEventListener("change", changed);
}
