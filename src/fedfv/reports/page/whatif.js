import { byId, capital, css, data, some } from "./basics.js";

const VISIBLE = 0.0005; // smaller changes of a cosine are not visible

// What the chosen rule would have done in a round; undefined if no rule is chosen, or the round was not compared with it.
export const insteadOf = (look) => look.what_if?.find((each) => each.rule === byId("lens-what-if").value);
const worksAgainst = (step) => step.after.filter((cosine) => cosine < 0).length;

// The choice of another rule: those that some recorded round of the run was compared with.
export function offerRules() {
  const select = byId("lens-what-if");
  if (!select) return;
  const before = select.value;
  const { looks } = data.lens[byId("lens-run").value];
  const rules = [...new Set(looks.flatMap((look) => (look.what_if ?? []).map((each) => each.rule)))];
  select.replaceChildren(new Option("the same", ""), ...rules.map((rule) => new Option(rule, rule)));
  select.value = rules.includes(before) ? before : "";
  select.parentElement.hidden = rules.length === 0;
}

// The share of the clients that the chosen rule would work against in each round, as a further line over the rounds.
export function whatIfOverTime(run, series) {
  const rule = byId("lens-what-if").value;
  if (!rule) return [];
  const share = (other) => (other ? (100 * worksAgainst(other)) / other.after.length : null);
  return [series(run.looks.map(insteadOf).map(share), `with ${rule}`, css("--c3"), "dashdot")];
}

// Who would pay, gain and lose with the chosen rule, in words.
export function whatIf(look, name) {
  const rule = byId("lens-what-if").value;
  const other = insteadOf(look);
  if (!rule) return "";
  if (!other) return `What ${rule} would have done in round ${look.round} is not recorded.`;
  return [
    `With ${rule}, the step of round ${look.round} would work against`,
    `${worksAgainst(other)} of ${look.clients.length} clients; the step that was taken works against ${
      worksAgainst(look)
    }.`,
    ...payers(look, other, name),
    ...changes(look, other, name),
    `The cosine of that step with the plain mean is ${other.turned.toFixed(3)}${relativeLength(look, other)}.`,
    `${rule} starts here as in its first round, from the model and the updates of this run, without a memory of earlier rounds.`,
  ].join(" ");
}

function payers(look, other, name) {
  const those = (test) => some(look.clients.filter((_, i) => test(other.after[i] < 0, look.after[i] < 0)), name);
  const pay = those((then, now) => then && !now);
  const spared = those((then, now) => !then && now);
  return [
    ...(pay ? [`${capital(pay)} would pay instead.`] : []),
    ...(spared ? [`${capital(spared)} would no longer pay.`] : []),
  ];
}

function changes(look, other, name) {
  const gains = other.after.map((cosine, i) => cosine - look.after[i]);
  const change = (gain, verb) => {
    const i = gains.indexOf(gain);
    const cosines = `a cosine of ${other.after[i].toFixed(3)} in place of ${look.after[i].toFixed(3)}`;
    return `${capital(name(look.clients[i]))} would ${verb} most (${cosines}).`;
  };
  const most = Math.max(...gains);
  const least = Math.min(...gains);
  if (Math.max(most, -least) <= VISIBLE) return ["Each client would be served in the same way."];
  return [...(most > VISIBLE ? [change(most, "gain")] : []), ...(least < -VISIBLE ? [change(least, "lose")] : [])];
}

function relativeLength(look, other) {
  if (look.direction === 0) return "";
  return `, and its length is ${
    (other.direction / look.direction).toPrecision(3)
  } times that of the step that was taken`;
}
