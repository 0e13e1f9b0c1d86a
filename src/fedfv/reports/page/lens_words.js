import { capital, list, SIGNS, some, times } from "./basics.js";

// The signs that occur in a round, each with what it stands for.
export const signed = (look) => Object.entries(SIGNS).filter(([mark]) => look[mark]);

const inPerCent = (share) => `${(100 * share).toFixed(0)} %`;

// A round in words.
export function summary(look, name) {
  const drawn = look.clients.length > look.shown.length;
  const spread = look.losses ? ", evenly spread from the smallest loss to the largest" : ", evenly spread";
  return [
    `Round ${look.round}: ${times(look.clients.length, "client")} replied.`,
    drawn ? `${look.shown.length} of them are drawn${spread}.` : "",
    pairs(look, drawn),
    payers(look),
    `The cosine of the step with the plain mean is ${look.turned.toFixed(3)}.`,
    ...(look.projected ? changes(look, name) : []),
    ...defences(look, name),
  ].filter(Boolean).join(" ");
}

function pairs(look, drawn) {
  if (look.cosines.length === 0) return "";
  const conflicts = look.cosines.filter((cosine) => cosine < 0).length;
  const pairs = `${times(look.cosines.length, "pair")} of ${drawn ? "these" : "their"} updates`;
  return `${conflicts} of ${pairs} conflict${look.cosines.length === 1 ? "s" : ""} (${inPerCent(look.conflicting)}).`;
}

function payers(look) {
  const many = (share) => share > 0 ? times(Math.round(share * look.clients.length), "client") : "no client";
  const mean = `The plain mean of the updates would work against ${many(look.against_mean)}`;
  return `${mean}; the step works against ${many(look.against)}.`;
}

// Which updates the rule used as they were, and how far it changed the others.
function changes(look, name) {
  const shares = look.projected.filter((share, i) => share > 0 && !look.dropped?.includes(look.clients[i]));
  const parts = look.kept.length ? [`Used unchanged: ${some(look.kept, name)}.`] : ["No update was used unchanged."];
  if (shares.length === 0) return parts;
  const how = look.clipped ? "Changed to avoid conflicts, or shortened" : "Changed to avoid conflicts";
  const of = `${inPerCent(Math.max(...shares))} of ${shares.length === 1 ? "its" : "their"} length`;
  return [...parts, `${how}: ${times(shares.length, "update")}, by up to ${of}.`];
}

// What the defences did in a round, and who lied.
function defences(look, name) {
  const judged = ["demoted", "dropped"];
  const standing = (client) => (look.standing ? ` (standing ${look.standing[look.clients.indexOf(client)]})` : "");
  const parts = signed(look).map(([mark, sign]) => {
    const names = some(look[mark], (client) => name(client) + (judged.includes(mark) ? standing(client) : ""));
    return `${capital(mark)} ${sign}: ${names}.`;
  });
  if (!look.skipped) return parts;
  const empty = look.dropped?.length === look.clients.length;
  const why = empty ? "every reply was dropped" : "the direction was absurdly long";
  return [...parts, `The round was skipped, so the model did not change: ${why}.`];
}

// One client of a round, for the text at its point.
export function details(look, i) {
  const client = look.clients[i];
  return [
    look.losses ? `loss ${look.losses[i].toPrecision(3)}` : "",
    `length of the update ${look.lengths[i].toPrecision(3)}`,
    look.projected && !look.dropped?.includes(client) ? change(look, i) : "",
    look.standing ? `standing ${look.standing[i]}` : "",
    list(signed(look).filter(([mark]) => look[mark].includes(client)).map(([mark]) => mark)),
  ].filter(Boolean).join(", ");
}

const change = (look, i) =>
  look.kept.includes(look.clients[i]) ? "used unchanged" : `changed by ${inPerCent(look.projected[i])} of its length`;
