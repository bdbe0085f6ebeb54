// One cursor, one range and one selection for the whole page. They stand in the fragment of the address, so that a link
// restores what is seen. The token is never part of it.

const TEXTS = ["panel", "run", "actor", "rank", "metric", "filter", "table", "bin", "left", "right", "lanes", "episode"];
const NUMBERS = ["at", "from", "to"];
const LONGEST = 400;

/** What a fragment says: the view, and the token that `rlship view` handed over once. */
export function readFragment(fragment) {
  const said = new URLSearchParams(String(fragment).replace(/^#/, ""));
  const view = {};
  for (const name of TEXTS) {
    const value = said.get(name);
    if (value) view[name] = value.slice(0, LONGEST);
  }
  for (const name of NUMBERS) {
    const value = said.get(name);
    if (value !== null && value.trim() !== "" && Number.isFinite(Number(value))) view[name] = Number(value);
  }
  if (!(view.from < view.to)) {
    delete view.from;
    delete view.to;
  }
  return { view, token: said.get("token") ?? "" };
}

/** The fragment that restores a view. */
export function writeFragment(view) {
  const said = new URLSearchParams();
  for (const name of TEXTS) if (view[name]) said.set(name, String(view[name]).slice(0, LONGEST));
  for (const name of NUMBERS) if (Number.isFinite(view[name])) said.set(name, String(shortNumber(view[name])));
  return said.toString();
}

function shortNumber(value) {
  return Number.isInteger(value) ? value : Number(value.toPrecision(12));
}

/**
 * What the browser keeps under names. A sandbox, as of an exported file among a build's results, and a person's settings
 * refuse it: then it is kept as long as the page is open.
 */
export class Kept {
  constructor(storage) {
    this.storage = storage;
    this.held = new Map();
  }

  get(name) {
    return this.tried((storage) => storage.getItem(name)) ?? this.held.get(name) ?? null;
  }

  set(name, value) {
    this.held.set(name, value);
    this.tried((storage) => storage.setItem(name, value));
  }

  remove(name) {
    this.held.delete(name);
    this.tried((storage) => storage.removeItem(name));
  }

  tried(act) {
    try {
      return act(globalThis[this.storage]);
    } catch {
      return null;
    }
  }
}

/** The view that everything on the page shares. `place` is the window's location, history and clock. */
export class Shared {
  constructor(view, place) {
    this.view = view;
    this.place = place;
    this.heard = new Set();
    this.waiting = 0;
    this.leaps = false;
  }

  /** Call `hear(view, changed)` at each change, until the function that this returns is called. */
  listen(hear) {
    this.heard.add(hear);
    return () => this.heard.delete(hear);
  }

  /** Change some of the view; undefined takes a part away. */
  set(parts) {
    const changed = Object.keys(parts).filter((name) => this.view[name] !== parts[name]);
    if (!changed.length) return;
    this.view = { ...this.view, ...parts };
    for (const name of changed) if (this.view[name] === undefined || this.view[name] === "") delete this.view[name];
    const names = new Set(changed);
    this.leaps ||= names.has("run") || names.has("panel");
    for (const hear of [...this.heard]) hear(this.view, names);
    // A cursor that moves with the mouse changes often; browsers allow few changes of the address.
    if (!this.waiting) this.waiting = this.place.later(() => this.store(), 200);
  }

  /** Take over a view from the address, as when a person goes back. */
  replace(view) {
    const names = new Set([...Object.keys(this.view), ...Object.keys(view)]);
    this.view = view;
    for (const hear of [...this.heard]) hear(this.view, names);
  }

  store() {
    this.waiting = 0;
    // Back leads to the panel before, not to each place that the cursor had.
    this.place.address(`#${writeFragment(this.view)}`, this.leaps);
    this.leaps = false;
  }
}

/** The range moved by a share of its length, or made smaller or larger around a place; within what is known. */
export function moved(range, whole, { by = 0, zoom = 1, around } = {}) {
  const [low, high] = range;
  const length = Math.min(Math.max((high - low) * zoom, 1e-6), whole[1] - whole[0]);
  const middle = around === undefined ? (low + high) / 2 : around;
  const share = high > low ? (middle - low) / (high - low) : 0.5;
  let start = middle - share * length + by * (high - low);
  start = Math.min(Math.max(start, whole[0]), whole[1] - length);
  return [start, start + length];
}
