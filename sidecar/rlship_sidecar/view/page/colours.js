// Colours of the style sheet for what is drawn on a canvas. The palette is Okabe and Ito's, darkened on white where a
// thin line would be faint: people who cannot tell red from green can tell all of these.

const NAMES = ["back", "raised", "line", "grid", "text", "quiet", "accent", "bad", "warn", "good", "band", "missing", "cursor",
  "cold", "even", "hot", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];

/** All colours as the page has them now. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** "#rrggbb" as three numbers. */
export function channels(hex) {
  const value = parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** "#rrggbb" as a pixel of a canvas' image data, on a machine that is little endian. */
export function pixel(hex) {
  const [red, green, blue] = channels(hex);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Pixels from one end over the even middle to the other end, 2 * half + 1 of them. */
export function diverging(colours, half = 100) {
  const [cold, even, hot] = [colours.cold, colours.even, colours.hot].map(channels);
  const found = new Uint32Array(2 * half + 1);
  for (let at = -half; at <= half; at += 1) {
    const end = at < 0 ? cold : hot;
    const share = (Math.abs(at) / half) ** 0.75;
    const [red, green, blue] = even.map((value, index) => Math.round(value + (end[index] - value) * share));
    found[at + half] = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  }
  return found;
}
