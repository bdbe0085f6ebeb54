// One experiment as the page knows it, kept new by the live stream.

import { StepClock } from "./shape/steps.js";
import { kindOf } from "./shape/curves.js";
import { problem } from "./dom.js";

const CALM_MS = 1000; // between two questions of a kind

export class Run {
  constructor(source, id) {
    this.source = source;
    this.id = id;
    this.store = "";
    this.row = 0;
    this.overview = null;
    this.metrics = new Map();
    this.episodes = [];
    this.alerts = null;
    this.clock = new StepClock([], []);
    this.trouble = "";
    this.heard = new Set();
    this.ending = new AbortController();
    this.timers = new Map();
    this.busy = new Set();
    this.again = new Set();
  }

  /** Call `hear(what, more)` for "all" (everything is new), "rows", "overview", "alerts", "metrics", "run" and "trouble". */
  listen(hear) {
    this.heard.add(hear);
    return () => this.heard.delete(hear);
  }

  tell(what, more) {
    for (const hear of [...this.heard]) hear(what, more);
  }

  ask(what, parameters, signal) {
    return this.source.ask(this.id, what, parameters, signal);
  }

  async start() {
    await this.load();
    if (!this.source.live) return;
    const have = () => ({ store: this.store, row: this.row });
    this.source.follow(this.id, have, (event) => this.take(event), (error) => this.lost(error), this.ending.signal);
  }

  close() {
    this.ending.abort();
    for (const timer of this.timers.values()) clearTimeout(timer);
    this.heard.clear();
  }

  async load() {
    const [alerts, ...first] = ["alerts", "overview", "metrics"].map((what) => this.ask(what));
    alerts.catch(() => undefined); // it is awaited below
    const [overview, metrics] = await Promise.all(first);
    this.overview = overview;
    this.store = overview.store;
    this.row = overview.row;
    this.takeMetrics(metrics);
    // Neither waits for the other: alerts are read from the store's rows.
    [this.alerts] = await Promise.all([alerts, this.loadClock()]);
    this.tell("all");
  }

  /** The times of the lead's steps, from any of its metrics. */
  async loadClock() {
    const began = this.overview.extent.time?.[0] ?? 0;
    const metric = [...this.metrics.values()].find((each) => each.actor === this.overview.lead && each.kind === "step");
    if (!metric) {
      this.clock = new StepClock([], [], began);
      return;
    }
    const series = await this.ask("series", { m: metric.id, axis: "step", points: 4000 });
    const grid = series.grids.find((each) => each.axis === "step");
    this.clock = new StepClock(grid?.x ?? [], grid?.t ?? [], began);
  }

  /** What a place on the axis is: a "step", or a "second" where the lead has none. */
  get axis() {
    return this.clock.known ? "step" : "second";
  }

  /** The least and greatest step; where the lead has none, seconds. */
  get whole() {
    const extent = this.overview?.extent ?? {};
    const [first, last] = this.clock.known ? [this.clock.x[0], this.clock.x[this.clock.x.length - 1]] : [0, 1];
    if (this.clock.known) return [Math.min(first, extent.step?.[0] ?? first), Math.max(last, extent.step?.[1] ?? last)];
    return extent.time ? [0, Math.max(extent.time[1] - extent.time[0], 1)] : [first, last];
  }

  take(event) {
    if (event.kind === "beat") return;
    if (this.trouble && event.kind !== "trouble") {
      this.trouble = "";
      this.tell("trouble");
      // What was asked for meanwhile got no answer.
      this.soon("load", 0, () => this.load());
    }
    const anew = event.kind === "behind" || event.kind === "store" || event.behind || event.store !== this.store;
    if (anew) {
      this.store = event.store;
      this.row = event.row;
      this.soon("load", 0, () => this.load());
      return;
    }
    if (event.kind === "rows") this.takeRows(event);
    else if (event.kind === "status") this.takeStatus(event);
    else if (event.kind === "run") this.tell("run");
    else if (event.kind === "trouble") {
      this.trouble = problem(event);
      this.tell("trouble");
    }
  }

  takeRows(event) {
    this.row = event.row;
    for (const metric of event.metrics ?? []) this.metrics.set(metric.id, metric);
    if (event.metrics?.length) this.tell("metrics");
    // Which of them come first, and those of rows that this page missed, the server's list says.
    if (event.metrics?.length || event.rows.some((row) => Object.keys(row.m).some((id) => !this.metrics.has(id)))) {
      this.soon("metrics", CALM_MS, () => this.loadMetrics());
    }
    const { known, paced } = this.clock;
    for (const row of event.rows) {
      if (row.x !== null && kindOf(row) === "step" && row.actor === this.overview.lead) this.clock.add(row.x, row.t);
      for (const [id, value] of Object.entries(row.m)) {
        const metric = this.metrics.get(id);
        if (metric) metric.last = value;
      }
    }
    this.tell("rows", event.rows);
    // What has times alone has another place from the first step on, and from the second one.
    if (this.clock.known !== known || this.clock.paced !== paced) this.tell("all");
    if (event.rows.some((row) => kindOf(row) === "alert")) this.soon("alerts", 100, () => this.loadAlerts());
    this.soon("overview", CALM_MS, () => this.loadOverview());
  }

  takeStatus(event) {
    this.takeOverview({ ...this.overview, entry: event.entry, progress: event.progress, doing: event.doing });
    this.tell("overview");
    this.soon("overview", CALM_MS, () => this.loadOverview());
  }

  takeOverview(overview) {
    // No row tells that an alert is clearing; fewer of them fire then.
    if (overview.entry.firing !== this.overview.entry.firing) this.soon("alerts", CALM_MS, () => this.loadAlerts());
    this.overview = overview;
  }

  async loadOverview() {
    const before = JSON.stringify(this.overview.panels);
    const { store, row, ...rest } = await this.ask("overview");
    this.takeOverview({ ...rest, store, row });
    this.tell("overview");
    // A page that was opened before the first row knows only now when the run began.
    const began = rest.extent.time?.[0] ?? 0;
    if (!this.clock.known && this.clock.began !== began) {
      this.clock = new StepClock([], [], began);
      this.tell("all");
    }
    // Which metrics a panel has may be known later than the metrics themselves.
    if (JSON.stringify(rest.panels) !== before) this.tell("metrics");
  }

  async loadMetrics() {
    this.takeMetrics(await this.ask("metrics"));
    this.tell("metrics");
  }

  takeMetrics(said) {
    this.metrics = new Map(said.metrics.map((metric) => [metric.id, metric]));
    this.leftOut = said.left_out;
  }

  async loadAlerts() {
    this.alerts = await this.ask("alerts");
    this.tell("alerts");
  }

  lost(error) {
    this.trouble = problem(error);
    this.lostBy = error.code;
    this.tell("trouble");
  }

  /** Do something once after a while, however often it is wanted until then; and once more if it is wanted meanwhile. */
  soon(name, ms, act) {
    if (this.ending.signal.aborted) return;
    if (this.timers.has(name)) {
      if (this.busy.has(name)) this.again.add(name);
      return;
    }
    const timer = setTimeout(async () => {
      this.busy.add(name);
      try {
        await act();
      } catch (error) {
        if (!this.ending.signal.aborted) this.lost(error);
        // A store that is being made anew cannot be read for a moment, and a server may be away.
        if (error.status === 0 || error.status >= 500) this.again.add(name);
      }
      this.busy.delete(name);
      this.timers.delete(name);
      if (this.again.delete(name)) this.soon(name, Math.max(ms, CALM_MS), act);
    }, ms);
    this.timers.set(name, timer);
  }
}
