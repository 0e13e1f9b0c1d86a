import { byId, capital, css, data, some } from "./basics.js";

// What the chosen rule would have done in a round; undefined if no rule is chosen, or the round was not compared with it.
export const insteadOf = (look) => look.what_if?.find((each) => each.rule === byId("lens-what-if").value);
const worksAgainst = (step) => step.after.filter((cosine) => cosine < 0).length;

// The choice of another rule: those that some recorded round of the run was compared with.
export function offerRules() {
  const select = byId("lens-what-if");
  if (!select) return;
  const before = select.value;
  const rules = [
    ...new Set(
      data.lens[byId("lens-run").value].looks.flatMap((look) => (look.what_if ?? []).map((each) => each.rule)),
    ),
  ];
  select.replaceChildren(new Option("the same", ""), ...rules.map((rule) => new Option(rule, rule)));
  select.value = rules.includes(before) ? before : "";
  select.parentElement.hidden = rules.length === 0;
}

// The share of the clients that the chosen rule would work against in each round, as a further line over the rounds.
export function whatIfOverTime(run, series) {
  const rule = byId("lens-what-if").value;
  if (!rule) return [];
  const shares = run.looks.map(insteadOf).map((
    other,
  ) => (other ? (100 * worksAgainst(other)) / other.after.length : null));
  return [series(shares, `with ${rule}`, css("--c3"), "dashdot")];
}

// Who would pay, gain and lose with the chosen rule, in words.
export function whatIf(look, name) {
  const rule = byId("lens-what-if").value;
  const other = insteadOf(look);
  if (!rule) return "";
  if (!other) return `What ${rule} would have done in round ${look.round} is not recorded.`;
  const those = (test) => look.clients.filter((_, i) => test(other.after[i], look.after[i]));
  const pay = those((then, now) => then < 0 && now >= 0);
  const spared = those((then, now) => then >= 0 && now < 0);
  const parts = [
    `With ${rule}, the step of round ${look.round} would work against ${
      worksAgainst(other)
    } of ${look.clients.length} clients; the step that was taken works against ${worksAgainst(look)}.`,
  ];
  if (pay.length) parts.push(`${capital(some(pay, name))} would pay instead.`);
  if (spared.length) parts.push(`${capital(some(spared, name))} would no longer pay.`);
  const gains = other.after.map((cosine, i) => cosine - look.after[i]);
  const change = (gain, verb) => {
    const i = gains.indexOf(gain);
    return `${capital(name(look.clients[i]))} would ${verb} most (a cosine of ${
      other.after[i].toFixed(3)
    } in place of ${look.after[i].toFixed(3)}).`;
  };
  const most = Math.max(...gains);
  const least = Math.min(...gains);
  const digit = 0.0005; // smaller changes are not visible
  if (most > digit) parts.push(change(most, "gain"));
  if (least < -digit) parts.push(change(least, "lose"));
  if (most <= digit && least >= -digit) parts.push("Each client would be served in the same way.");
  parts.push(
    `The cosine of that step with the plain mean is ${other.turned.toFixed(3)}${
      look.direction > 0
        ? `, and its length is ${
          (other.direction / look.direction).toPrecision(3)
        } times that of the step that was taken`
        : ""
    }.`,
  );
  parts.push(
    `${rule} starts here as in its first round, from the model and the updates of this run, without a memory of earlier rounds.`,
  );
  return parts.join(" ");
}
