// Numbers, times and durations as people read them.

/** A number with at most `digits` significant digits; what is not there is a dash. */
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(digits - 1).replace(/\.?0*e\+?/, "e");
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Number(value.toPrecision(Math.max(digits, Math.ceil(Math.log10(size + 1))))).toLocaleString("en", { maximumFractionDigits: 8 });
}

/** A step or a count with all of its digits: neighbours beyond 1e9 differ in the last ones. */
export function full(value) {
  return Number.isSafeInteger(value) ? value.toLocaleString("en") : number(value, 9);
}

/** Numbers along an axis in words, with as many digits as tell neighbours apart. */
export function apart(values) {
  const size = Math.max(...values.map(Math.abs));
  const gap = values.length > 1 ? Math.abs(values[1] - values[0]) : 0;
  const digits = gap > 0 ? Math.min(15, Math.max(4, Math.ceil(Math.log10(size / gap)) + 2)) : 4;
  return values.map((value) => number(value, digits));
}

/** "1 step", "3 steps". */
export function counted(count, noun) {
  return `${full(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Bytes in units of 1,024. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  let left = value;
  while (Math.abs(left) >= 1024 && at < units.length - 1) {
    left /= 1024;
    at += 1;
  }
  return `${number(left, 3)} ${units[at]}`;
}

/** Seconds as people say them. */
export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${number(value * 1e6, 3)} µs`;
  if (size < 1) return `${number(value * 1e3, 3)} ms`;
  if (size < 120) return `${number(value, 3)} s`;
  if (size < 7200) return `${number(value / 60, 3)} min`;
  return size < 172800 ? `${number(value / 3600, 3)} h` : `${number(value / 86400, 3)} d`;
}

/** Unix seconds as a time of day with its date, in UTC. */
export function clock(t) {
  if (!Number.isFinite(t) || Math.abs(t) > 8.6e12) return "–";
  return new Date(t * 1000).toISOString().replace("T", " ").slice(0, 19);
}

/** The middle of finite numbers; null without any. */
export function median(values) {
  const sorted = Float64Array.from(values.filter((value) => Number.isFinite(value))).sort();
  if (!sorted.length) return null;
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** About `count` round places between low and high. */
export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0) || !Number.isFinite(rough)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((times) => times * power >= rough) * power;
  // Counted, as beyond 2 ** 53 adding one changes nothing.
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.min(Math.max(Math.floor(high / step) - first + 1, 0), 2 * count + 2) }, (_, at) => (first + at) * step);
}
