// Spans as lines of the timeline, and as pixels. Plain data only.

const DEEPEST = 4; // spans that lie deeper are drawn on the last line of their lane

/** What a span's name says of its stage, as a colour of the palette. */
const STAGES = [
  [/wait|idle|bubble|barrier/i, "c7"], [/rollout|generat|sampl|decode|prefill/i, "c0"], [/reward|score|verif|judge/i, "c1"],
  [/log_?prob|\bref|reference|value/i, "c4"], [/checkpoint|ckpt|save/i, "c3"], [/sync|push|pull|weights|broadcast/i, "c6"],
  [/update|train|backward|forward|optim|step|actor|critic/i, "c2"],
];

const OTHERS = ["c5", "c6", "c3", "c1", "c0", "c4", "c2"];

/** The colour of each name: by its stage, and for names that say none, one after the other. */
export function stageColours(names) {
  const found = new Map();
  let next = 0;
  for (const name of names) {
    if (found.has(name)) continue;
    const known = STAGES.find(([pattern]) => pattern.test(name.slice(0, 200)))?.[1];
    found.set(name, known ?? OTHERS[next % OTHERS.length]);
    if (!known) next += 1;
  }
  return found;
}

/** The lines of the lanes that `keep` keeps: {lane, depth, start, end, name, index} with columns in order of time. */
export function lines(spans, keep = () => true, deepest = DEEPEST) {
  const { lane, name, t, dur, depth } = spans.spans;
  const kept = spans.lanes.map((each, at) => keep(each, at));
  const found = new Map();
  for (let at = 0; at < t.length; at += 1) {
    if (!kept[lane[at]]) continue;
    const key = lane[at] * (deepest + 1) + Math.min(depth[at], deepest);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(at);
  }
  const order = [...found.keys()].sort((a, b) => a - b);
  return order.map((key) => {
    const at = found.get(key).sort((a, b) => t[a] - t[b]);
    const start = Float64Array.from(at, (each) => t[each]);
    const end = Float64Array.from(at, (each) => t[each] + dur[each]);
    // The latest end so far: it tells where a search by time may begin even if spans overlap.
    const reach = Float64Array.from(end);
    for (let each = 1; each < reach.length; each += 1) reach[each] = Math.max(reach[each], reach[each - 1]);
    return {
      lane: Math.floor(key / (deepest + 1)), depth: key % (deepest + 1), start, end, reach,
      name: Uint16Array.from(at, (each) => name[each]), index: Uint32Array.from(at),
    };
  });
}

/** The first span of a line that may end after `t`. */
export function firstAfter(line, t) {
  let low = 0;
  let high = line.reach.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (line.reach[middle] > t) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Paint a line into a row of pixels; a span that is narrower than a pixel takes it only if no wider one has it. */
export function paint(line, pixels, offset, width, from, to, colours) {
  const scale = width / (to - from);
  const { start, end, name } = line;
  let taken = -1;
  for (let at = firstAfter(line, from); at < start.length; at += 1) {
    if (start[at] >= to) break;
    const left = start[at] <= from ? 0 : ((start[at] - from) * scale) | 0;
    const right = end[at] >= to ? width : ((end[at] - from) * scale) | 0;
    if (right <= left) {
      if (left === taken) continue;
      taken = left;
      pixels[offset + left] = colours[name[at]];
      continue;
    }
    pixels.fill(colours[name[at]], offset + left, offset + right);
    taken = right - 1;
  }
}

/** The span of a line at a time; -1 without one. */
export function spanAt(line, t, reach = 0) {
  for (let at = firstAfter(line, t - reach); at < line.start.length && line.start[at] <= t + reach; at += 1) {
    if (line.end[at] >= t - reach) return line.index[at];
  }
  return -1;
}

/** Which lanes a person asked for: words of "actor", "rank:0-7", "node:NAME" and "every:8", all of which must hold. */
export function laneFilter(text) {
  const tests = (text ?? "").trim().split(/\s+/).filter(Boolean).map((word) => {
    const [, kind, value] = /^(rank|node|every|actor):(.+)$/.exec(word) ?? [null, "any", word];
    if (kind === "every") return (lane, at) => at % Math.max(1, Number.parseInt(value, 10) || 1) === 0;
    if (kind === "node") return (lane) => lane.host.includes(value);
    if (kind === "actor") return (lane) => lane.actor === value;
    if (kind === "rank") return rankTest(value);
    return (lane) => `${lane.actor}/${lane.rank} ${lane.name}`.toLowerCase().includes(value.toLowerCase());
  });
  return (lane, at) => tests.every((test) => test(lane, at));
}

function rankTest(value) {
  const [, replica, low, high] = /^(?:(.*)\.)?(\d+)(?:-(\d+))?$/.exec(value) ?? [];
  if (low === undefined) return () => false;
  return (lane) => {
    const dot = lane.rank.lastIndexOf(".");
    const rank = Number(lane.rank.slice(dot + 1));
    return rank >= Number(low) && rank <= Number(high ?? low) && (replica === undefined || lane.rank.slice(0, dot) === replica);
  };
}

/**
 * Seconds of a step, of which its stages have shares: stages of several actors may run at one time, and take longer
 * together than the step.
 */
export function secondsOf(stages, at) {
  const sum = stages.seconds.reduce((total, column) => total + (column[at] ?? 0), 0);
  return Math.max(stages.dur[at] ?? 0, sum);
}

/** The indexes of the steps in a range of time. */
export function stepsIn(stages, from, to) {
  return stages.t.map((t, at) => (t <= to && t + (stages.dur[at] ?? 0) >= from ? at : -1)).filter((at) => at >= 0);
}

/** Of each lane how many spans it has in a range of time, the seconds in outermost ones, and the longest: {name, seconds}. */
export function busyLanes(found, from, to) {
  const lanes = new Map();
  for (const line of found) {
    if (!lanes.has(line.lane)) lanes.set(line.lane, { lane: line.lane, spans: 0, busy: 0, longest: null });
    const said = lanes.get(line.lane);
    for (let at = firstAfter(line, from); at < line.start.length && line.start[at] < to; at += 1) {
      if (line.end[at] <= from) continue;
      const took = line.end[at] - line.start[at];
      said.spans += 1;
      if (line.depth === 0) said.busy += Math.min(line.end[at], to) - Math.max(line.start[at], from);
      if (said.longest === null || took > said.longest.seconds) said.longest = { name: line.name[at], seconds: took };
    }
  }
  return [...lanes.values()];
}

/** Of the steps in a range of time, each stage's mean seconds and its share of the steps. */
export function stageShares(stages, from, to) {
  const inside = stepsIn(stages, from, to);
  const whole = inside.reduce((sum, at) => sum + secondsOf(stages, at), 0);
  const rows = [...stages.names.map((name, at) => [name, stages.seconds[at]]), ["(bubble)", stages.bubble]];
  return rows.map(([name, column]) => {
    const sum = inside.reduce((total, at) => total + (column[at] ?? 0), 0);
    return { name, mean: inside.length ? sum / inside.length : null, share: whole > 0 ? sum / whole : null, steps: inside.length };
  });
}
