// What alerts say: which episodes go on, where they lie on the axis of steps, and what is known without any. Plain data only.

export const GOING = ["firing", "pending", "clearing"]; // states of episodes that have not ended

/** The step of an episode's last breach, as `rlship alerts` says it; what comes after it is calm. Null while it fires. */
export function endOf(episode) {
  if (episode.state === "firing" || episode.state === "pending") return null;
  return episode.last?.step ?? episode.ended?.step ?? null;
}

/** Where episodes lie on the axis of steps; those that fire reach to the last step. */
export function bands(episodes, last) {
  return episodes
    .map((episode) => ({ from: episode.first?.step, to: endOf(episode) ?? last, rule: episode.rule }))
    .filter((band) => Number.isFinite(band.from));
}

/** How many steps the rules have looked at, and how many rules compare with more earlier steps than that. */
export function judged(needs, steps) {
  return { steps, rules: needs.length, early: steps ? needs.filter((need) => need > steps).length : 0 };
}
