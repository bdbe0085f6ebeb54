// Cards with a chart each. Those that are seen ask for their values together, follow the range and take live rows.

import { Chart } from "./chart.js";
import { h, show } from "./dom.js";
import { bytes, full, number, seconds } from "./numbers.js";
import { addRow, columns, newestOf, lineOf, valueAt } from "./shape/curves.js";
import { bands } from "./shape/episodes.js";

const GATHER_MS = 20;
const SETTLE_MS = 250;
const POINTS = 600;
const MANY_ADDED = 300;

/** How values of a metric's unit are written. */
export function formatOf(unit) {
  if (unit === "s" || unit === "seconds") return seconds;
  if (unit === "B" || unit === "bytes") return bytes;
  return number;
}

export class ChartGrid {
  /** `wanted` are {title, ids, colours, about}; `onPick(step, metric)` is called for a click. */
  constructor(host, ctx, wanted, { onPick, height } = {}) {
    Object.assign(this, { host, ctx, onPick, height });
    this.cards = [];
    this.due = new Set();
    this.asked = 0;
    this.onTheWay = new Map(); // by question the rows that came since it was asked
    this.timers = {};
    host.classList.add("charts");
    this.looking = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: "300px" });
    this.put(wanted);
    this.quit = [ctx.shared.listen((view, changed) => this.follow(view, changed)), ctx.run.listen((what, more) => this.hear(what, more))];
  }

  close() {
    for (const quit of this.quit) quit();
    for (const timer of Object.values(this.timers)) clearTimeout(timer);
    this.looking.disconnect();
    for (const card of this.cards) card.chart.close();
  }

  /** Show these charts; those that are there already stay. */
  put(wanted) {
    const before = new Map(this.cards.map((card) => [card.key, card]));
    this.cards = wanted.map((spec) => {
      const key = spec.ids.join(" ");
      const card = before.get(key) ?? this.make(key, spec);
      before.delete(key);
      return card;
    });
    for (const card of before.values()) {
      this.looking.unobserve(card.box);
      card.chart.close();
    }
    show(this.host, this.cards.map((card) => card.box));
  }

  make(key, spec) {
    const metrics = spec.ids.map((id) => this.ctx.run.metrics.get(id));
    const format = formatOf(metrics[0]?.unit);
    const now = h("span", { class: "now" });
    const plot = h("div", {});
    const box = h("article", { class: "card", data: { metric: spec.ids[0] } },
      h("header", {}, h("h3", { class: "name", title: spec.about || metrics[0]?.about || "" }, spec.title), now), plot);
    const lines = spec.ids.map((id, at) => ({ colour: spec.colours?.[at] ?? `c${at % 8}`, band: true }));
    const chart = new Chart(plot, this.ctx.shared, { title: spec.title, axis: () => this.ctx.run.axis, lines, format, height: this.height, onPick: this.onPick && ((step) => this.onPick(step, spec.ids[0])) });
    const card = { key, spec, box, now, chart, format, lines: null, visible: false };
    box.rlshipCard = card;
    this.looking.observe(box);
    return card;
  }

  seen(entries) {
    for (const entry of entries) {
      const card = entry.target.rlshipCard;
      card.visible = entry.isIntersecting;
      if (card.visible && !card.lines) this.want(card);
      else if (card.visible && card.stale) this.want(card);
    }
  }

  want(card) {
    this.due.add(card);
    this.later("gather", GATHER_MS, () => this.gather());
  }

  later(name, ms, act) {
    if (this.timers[name]) return;
    this.timers[name] = setTimeout(() => {
      this.timers[name] = 0;
      act();
    }, ms);
  }

  async gather() {
    const cards = [...this.due];
    this.due.clear();
    if (!cards.length) return;
    const { run, shared } = this.ctx;
    const { from, to } = shared.view;
    const ids = [...new Set(cards.flatMap((card) => card.spec.ids))];
    const range = from < to && run.clock.known ? { from: Math.floor(from), to: Math.ceil(to) } : {};
    const asked = (this.asked += 1);
    const rows = [];
    this.onTheWay.set(asked, rows);
    try {
      const series = await run.ask("series", { m: ids.join(","), axis: run.clock.known ? "step" : "time", points: POINTS, ...range }, run.ending.signal);
      // An answer does not have the rows that overtook it, and may itself be overtaken by that of a later question.
      const missed = rows.filter((row) => row.no >= series.row);
      for (const card of cards) if (asked >= (card.asked ?? 0)) this.fill(card, series, missed, asked);
    } catch (error) {
      if (!run.ending.signal.aborted) run.lost(error);
    } finally {
      this.onTheWay.delete(asked);
    }
  }

  fill(card, series, missed, asked) {
    const { clock, metrics } = this.ctx.run;
    const found = card.spec.ids.map((id) => lineOf(series, id, clock));
    card.lines = found.map((line, at) => line ?? empty(card.spec.ids[at], metrics.get(card.spec.ids[at])));
    for (const line of card.lines) for (const row of missed) addRow(line, row, clock);
    card.asked = asked;
    card.stale = false;
    this.draw(card);
  }

  draw(card) {
    const { alerts, whole } = this.ctx.run;
    card.chart.update(columns(card.lines), bands(alerts.episodes, whole[1]));
    this.tellValue(card);
  }

  tellValue(card) {
    const at = this.ctx.shared.view.at;
    const found = card.lines.map((line) => (at === undefined ? newestOf(line) : { value: valueAt(line, at), since: null }));
    // An older value is no news: newer rows lack it, or it was not finite there.
    card.now.textContent = found.map(({ value, since }) => `${card.format(value)}${since === null ? "" : ` at step ${full(since)}`}`).join(" · ");
    card.box.dataset.value = String(found[0].value);
  }

  follow(view, changed) {
    if (changed.has("at")) this.later("values", 16, () => this.cards.forEach((card) => card.lines && this.tellValue(card)));
    if (!changed.has("from") && !changed.has("to")) return;
    clearTimeout(this.timers.settle);
    this.timers.settle = 0;
    this.later("settle", SETTLE_MS, () => this.refresh());
  }

  /** Ask for the values of what is seen again; the rest is asked for once it is seen. */
  refresh() {
    for (const card of this.cards) {
      card.stale = true;
      if (card.visible) this.want(card);
    }
  }

  hear(what, rows) {
    if (what === "all") this.refresh();
    if (what === "alerts") for (const card of this.cards) if (card.lines) this.draw(card);
    if (what !== "rows") return;
    for (const onTheWay of this.onTheWay.values()) onTheWay.push(...rows);
    for (const card of this.cards) if (card.lines) this.takeRows(card, rows);
  }

  takeRows(card, rows) {
    const { clock } = this.ctx.run;
    let changed = false;
    for (const line of card.lines) {
      for (const row of rows) if (addRow(line, row, clock)) changed = true;
      if (line.added > MANY_ADDED) {
        line.added = 0;
        card.stale = true;
        if (card.visible) this.want(card);
      }
    }
    card.changed ||= changed;
    if (changed && card.visible) this.later("draw", 16, () => this.redraw());
  }

  redraw() {
    for (const card of this.cards) {
      if (!card.changed || !card.visible) continue;
      card.changed = false;
      this.draw(card);
    }
  }
}

function empty(id, metric) {
  return { id, actor: metric?.actor ?? "", kind: metric?.kind ?? "step", axis: metric && ["clock", "point"].includes(metric.kind) ? "time" : "step", width: 1, added: 0, x: [], t: [], mean: [], min: [], max: [], partial: [], banded: false };
}
