// Metrics over steps as columns for a chart, and how live rows join them. Plain data only.

/** A metric's line out of an answer to /series; null if it holds none. `clock` gives steps to what has only times. */
export function lineOf(series, id, clock) {
  const curve = series.curves[id];
  if (!curve) return null;
  const grid = series.grids[curve.grid];
  const x = grid.axis === "step" ? grid.x : grid.x.map((t) => clock.step(t));
  return {
    id, actor: grid.actor, kind: grid.kind, axis: grid.axis, width: grid.width, added: 0,
    x: [...x], t: [...grid.t], mean: [...curve.mean],
    min: curve.min ? [...curve.min] : [...curve.mean], max: curve.max ? [...curve.max] : [...curve.mean],
    partial: [...grid.partial], banded: curve.min !== null,
  };
}

/** Join a live row to a line; false if the row is not of the line. A row that the line has is replaced. */
export function addRow(line, row, clock) {
  if (line.actor !== row.actor || line.kind !== kindOf(row)) return false;
  const x = line.axis === "step" ? row.x : clock.step(row.t);
  if (x === null || x === undefined) return false;
  const value = row.m[line.id] ?? null;
  let at = line.x.length;
  while (at > 0 && line.x[at - 1] > x) at -= 1;
  if (at > 0 && line.x[at - 1] === x) at -= 1;
  const there = line.x[at] === x;
  // A bucket of many rows cannot take one of them back: the next answer of the server has it.
  if (!there && at < line.x.length && line.width > 1) return false;
  const gone = there ? 1 : 0;
  line.x.splice(at, gone, x);
  line.t.splice(at, gone, row.t);
  line.mean.splice(at, gone, value);
  line.min.splice(at, gone, value);
  line.max.splice(at, gone, value);
  line.partial.splice(at, gone, row.partial ? 1 : 0);
  line.added += 1 - gone;
  return true;
}

export function kindOf(row) {
  return row.kind.split(":", 1)[0];
}

/** Lines over all of their steps together, as uPlot wants them: steps, then mean, least and greatest of each line. */
export function columns(lines, banded = true) {
  const steps = lines.length === 1 ? lines[0].x : [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const data = [steps];
  for (const line of lines) {
    const place = lines.length === 1 ? null : new Map(line.x.map((x, index) => [x, index]));
    const take = (values) => (place === null ? values : steps.map((x) => (place.has(x) ? values[place.get(x)] : undefined)));
    data.push(take(line.mean));
    if (banded) data.push(take(line.min), take(line.max));
  }
  return data;
}

/** The value of a line at a step: that of the greatest step at or below it; null without one. */
export function valueAt(line, at) {
  let low = 0;
  let high = line.x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (line.x[middle] <= at) low = middle + 1;
    else high = middle;
  }
  return low === 0 ? null : line.mean[low - 1];
}

/** The newest value of a line, null without one, and the step of its bucket where newer rows have none, else null. */
export function newestOf(line) {
  for (let at = line.mean.length - 1; at >= 0; at -= 1) {
    if (line.mean[at] !== null) return { value: line.mean[at], since: at < line.mean.length - 1 && line.axis === "step" ? line.x[at] : null };
  }
  return { value: null, since: null };
}

/** What a line of values is like, as a person would tell it: null without any value. */
export function gist(steps, values, lows = values, highs = values) {
  let [least, greatest, newest] = [-1, -1, -1];
  for (let at = 0; at < steps.length; at += 1) {
    if (values[at] === null || values[at] === undefined) continue;
    newest = at;
    if (least < 0 || lows[at] < lows[least]) least = at;
    if (greatest < 0 || highs[at] > highs[greatest]) greatest = at;
  }
  if (newest < 0) return null;
  return {
    newest: { value: values[newest], step: steps[newest] },
    least: { value: lows[least], step: steps[least] }, greatest: { value: highs[greatest], step: steps[greatest] },
  };
}

/** Where values are that have a gap, or an end, on both sides. As in `columns`, null is a gap, undefined is not. */
export function alone(values) {
  const found = [];
  let [newest, length] = [-1, 0]; // of the values since the last gap
  for (let at = 0; at <= values.length; at += 1) {
    if (at === values.length || values[at] === null) {
      if (length === 1) found.push(newest);
      length = 0;
    } else if (values[at] !== undefined) {
      newest = at;
      length += 1;
    }
  }
  return found;
}

/** The rows of a table of columns of values by step, as far as these are in a range: [step, value of each column]. */
export function rowsOf(data, from, to) {
  const [steps, ...found] = data;
  return steps.flatMap((step, at) => (step >= from && step <= to ? [[step, ...found.map((column) => column[at] ?? null)]] : []));
}

/** The points of a sparkline as a polyline of an SVG of this size. */
export function sparkline(points, width, height) {
  const known = points.filter((value) => value !== null);
  if (known.length < 2) return "";
  const low = Math.min(...known);
  const high = Math.max(...known);
  const tall = high > low ? high - low : 1;
  return points
    .map((value, at) => (value === null ? null : `${((at / (points.length - 1)) * width).toFixed(1)},${(height - 2 - ((value - low) / tall) * (height - 4)).toFixed(1)}`))
    .filter((point) => point !== null)
    .join(" ");
}
