// Steps of the lead as times, and back, so that one cursor and one range hold for what has steps and what has times.

export class StepClock {
  /**
   * Steps ended at times: both rise. Without a step, "steps" are seconds since `began`. Where the time of one step alone is
   * known, as in a run's first step and in logs whose steps have one time, a step is taken to last a second.
   */
  constructor(x, t, began = 0) {
    this.x = [];
    this.t = [];
    this.began = began;
    for (let at = 0; at < x.length; at += 1) this.add(x[at], t[at]);
  }

  /**
   * A step that ended. One at or below the last step is known, unless it ended later than that: then it was done again, and
   * those after it are to come again.
   */
  add(x, t) {
    if (t <= this.t[this.t.length - 1]) return;
    while (x <= this.x[this.x.length - 1]) {
      this.x.pop();
      this.t.pop();
    }
    this.x.push(x);
    this.t.push(t);
  }

  /** Whether the lead has steps. */
  get known() {
    return this.x.length > 0;
  }

  /** Whether it is known how long steps last. */
  get paced() {
    return this.x.length > 1;
  }

  step(t) {
    return this.known ? between(this.t, this.x, t) : t - this.began;
  }

  time(step) {
    return this.known ? between(this.x, this.t, step) : step + this.began;
  }
}

/** Straight lines between known places, and on beyond the ends at the mean slope. */
function between(from, to, value) {
  const last = from.length - 1;
  if (value <= from[0]) return to[0] + (value - from[0]) * slope(from, to);
  if (value >= from[last]) return to[last] + (value - from[last]) * slope(from, to);
  let low = 0;
  let high = last;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle] <= value) low = middle;
    else high = middle;
  }
  return to[low] + ((value - from[low]) / (from[high] - from[low])) * (to[high] - to[low]);
}

function slope(from, to) {
  const last = from.length - 1;
  return last > 0 ? (to[last] - to[0]) / (from[last] - from[0]) : 1;
}
