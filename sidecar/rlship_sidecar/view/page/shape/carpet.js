// Values by rank as deviations from the median of their step, and as pixels. Plain data only.

export const FLEET = 64; // above so many ranks each is a thin line without its name
export const GREATEST = 0.5; // a deviation that has the full colour

/** (value - median) / median of each bucket; NaN where a rank has no value. */
export function deviations(values, rows, columns, medians) {
  const found = new Float32Array(rows * columns);
  for (let column = 0; column < columns; column += 1) {
    const middle = medians[column];
    const size = Math.abs(middle ?? 0);
    for (let row = 0; row < rows; row += 1) {
      const at = row * columns + column;
      const value = values[at];
      if (Number.isNaN(value) || middle === null) found[at] = NaN;
      else found[at] = size > 0 ? (value - middle) / size : Math.sign(value - middle) * GREATEST;
    }
  }
  return found;
}

/** Ranks grouped by host, in their order: {rank, host, first} where `first` is true for a host's first rank. */
export function byHost(ranks, hosts) {
  const groups = new Map();
  ranks.forEach((rank, at) => {
    const host = hosts[at] ?? "";
    if (!groups.has(host)) groups.set(host, []);
    groups.get(host).push(at);
  });
  return [...groups].flatMap(([host, members]) => members.map((rank, at) => ({ rank, host, first: at === 0 })));
}

/** For each pixel of a range of steps the bucket that it shows; -1 where no row is. */
export function bucketsOf(x, width, from, to, wide) {
  const found = new Int32Array(wide).fill(-1);
  let bucket = -1;
  for (let at = 0; at < wide; at += 1) {
    const step = from + ((at + 0.5) / wide) * (to - from);
    while (bucket + 1 < x.length && x[bucket + 1] <= step) bucket += 1;
    // Steps that no row has stay empty; a bucket ends where the next begins, or at its width.
    if (bucket >= 0 && step < Math.max(x[bucket] + width, x[bucket + 1] === undefined ? -Infinity : x[bucket] + width)) found[at] = bucket;
  }
  return found;
}

/** Paint ranks as lines of `tall` pixels; what is missing is hatched. */
export function paintCarpet(pixels, wide, order, deviation, columns, buckets, { tall, scale, missing, back }) {
  const half = (scale.length - 1) >> 1;
  order.forEach(({ rank }, line) => {
    const top = line * tall * wide;
    for (let at = 0; at < wide; at += 1) {
      const bucket = buckets[at];
      if (bucket < 0) continue;
      const value = deviation[rank * columns + bucket];
      if (Number.isNaN(value)) {
        for (let y = 0; y < tall; y += 1) pixels[top + y * wide + at] = (at + line * tall + y) % 6 < 3 ? missing : back;
        continue;
      }
      const share = Math.max(-1, Math.min(1, value / GREATEST));
      const ink = scale[half + Math.round(share * half)];
      for (let y = 0; y < tall; y += 1) pixels[top + y * wide + at] = ink;
    }
  });
}

/** The ranks that stand out most over the buckets: {rank, deviation, value, missing}, by mean size of the deviation. */
export function outstanding(values, deviation, rows, columns, chosen, most = 10) {
  const found = [];
  for (let rank = 0; rank < rows; rank += 1) {
    let [sum, whole, known, missing] = [0, 0, 0, 0];
    for (const bucket of chosen) {
      const value = deviation[rank * columns + bucket];
      if (Number.isNaN(value)) {
        missing += 1;
        continue;
      }
      sum += value;
      whole += values[rank * columns + bucket];
      known += 1;
    }
    found.push({ rank, deviation: known ? sum / known : 0, value: known ? whole / known : null, missing });
  }
  return found.sort((a, b) => b.missing * 10 + Math.abs(b.deviation) - (a.missing * 10 + Math.abs(a.deviation)) || a.rank - b.rank).slice(0, most);
}
