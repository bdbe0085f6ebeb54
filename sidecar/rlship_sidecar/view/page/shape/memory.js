// Memory of ranks as lines: the median between the least and the greatest rank, the worst rank, and fragmentation.

/** Lines of an answer to /ranks: steps, median, least, greatest, and the values of the chosen rank, else of the worst. */
export function memoryLines(said, values, clock, chosen) {
  const { grid } = said;
  const x = grid.axis === "step" ? grid.x : grid.x.map((t) => clock.step(t));
  const wanted = said.ranks.indexOf(chosen);
  const worst = said.only >= 0 ? said.only : wanted < 0 ? worstRank(said) : wanted;
  const columns = said.mean?.columns ?? x.length;
  // The server gives one rank's values, an exported file those of all ranks.
  const row = said.only >= 0 ? 0 : worst;
  const own = worst < 0 ? x.map(() => null) : x.map((_, at) => finite(values[row * columns + at]));
  return { x, median: said.median, low: said.low, high: said.high, own, worst };
}

/** The rank that has the greatest value of all; -1 without any value. */
export function worstRank(said) {
  let best = -1;
  said.high.forEach((value, at) => {
    if (value !== null && said.high_rank[at] >= 0 && (best < 0 || value > said.high[best])) best = at;
  });
  return best < 0 ? -1 : said.high_rank[best];
}

function finite(value) {
  return Number.isNaN(value) || value === undefined ? null : value;
}

/** (reserved - allocated) / reserved of two lines that have the same steps; null where one lacks. */
export function fragmentation(allocated, reserved) {
  const other = new Map(allocated.x.map((x, at) => [x, allocated.median[at]]));
  return reserved.x.map((x, at) => {
    const [whole, used] = [reserved.median[at], other.get(x)];
    return whole > 0 && used !== null && used !== undefined ? (whole - used) / whole : null;
  });
}

/** The metrics of memory by actor: {actor, shown}, without those that only limit others. */
export function memoryGroups(metrics) {
  const limits = new Set(metrics.map((metric) => metric.limit));
  const groups = new Map();
  for (const metric of metrics) {
    if (limits.has(metric.id)) continue;
    if (!groups.has(metric.actor)) groups.set(metric.actor, { actor: metric.actor, shown: [] });
    groups.get(metric.actor).shown.push(metric);
  }
  return [...groups.values()];
}
