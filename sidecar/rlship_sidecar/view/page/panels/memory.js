// Memory over steps: what all ranks have, the worst rank, the capacity, and how much of what is reserved is in no use.

import { Chart } from "../chart.js";
import { h, show, put } from "../dom.js";
import { ChartGrid, formatOf } from "../grid.js";
import { matrixOf } from "../packed.js";
import { bands } from "../shape/episodes.js";
import { fragmentation, memoryGroups, memoryLines } from "../shape/memory.js";

const LIVE_MS = 10_000;
const POINTS = 200;
const SETTLE_MS = 300;
const WORST = "worst"; // no rank has this name: the server gives the one with the greatest value

export const memory = {
  id: "memory",
  title: "Memory",
  make(host, ctx) {
    const panel = new Memory(host, ctx);
    panel.load();
    return () => panel.close();
  },
};

class Memory {
  constructor(host, ctx) {
    this.ctx = ctx;
    this.cards = new Map();
    this.timer = 0;
    this.groups = h("div", {});
    this.note = h("p", { class: "quiet" });
    this.rest = h("div", {});
    show(host, h("h2", {}, "Memory"), this.note, this.groups, this.rest);
    this.grid = new ChartGrid(this.rest, ctx, [], {});
    this.quit = [
      ctx.run.listen((what) => {
        if (what === "all" || what === "metrics") this.later(0);
        if (what === "rows") this.later(LIVE_MS);
        if (what === "alerts") for (const card of this.cards.values()) card.chart.update(card.chart.data, this.marks());
      }),
      ctx.shared.listen((view, changed) => {
        if (["from", "to", "rank", "actor"].some((name) => changed.has(name))) this.later(SETTLE_MS);
        if (changed.has("at")) for (const card of this.cards.values()) this.tell(card);
      }),
    ];
  }

  close() {
    for (const quit of this.quit) quit();
    clearTimeout(this.timer);
    this.grid.close();
    for (const card of this.cards.values()) card.chart.close();
  }

  later(ms) {
    if (this.timer) return;
    this.timer = setTimeout(() => { this.timer = 0; this.load(); }, ms);
  }

  marks() {
    const { alerts, whole } = this.ctx.run;
    return bands(alerts.episodes, whole[1]);
  }

  metrics() {
    const { run } = this.ctx;
    return (run.overview.panels.memory ?? []).map((id) => run.metrics.get(id)).filter(Boolean);
  }

  async load() {
    const all = this.metrics();
    const ranked = all.filter((metric) => metric.per_rank);
    this.note.textContent = all.length
      ? "The line is the median of the ranks, the band reaches from the least to the greatest, the dashed line is the rank that had most, or the one that you chose."
      : "The run logs no metric of memory: `rlship.gpu` and `sysmon` do.";
    this.grid.put(all.filter((metric) => !metric.per_rank).map((metric) => ({ title: metric.key, ids: [metric.id], about: metric.about })));
    try {
      await Promise.all(memoryGroups(ranked).map((group) => this.loadGroup(group)));
    } catch (error) {
      if (!this.ctx.run.ending.signal.aborted) this.ctx.run.lost(error);
    }
  }

  async loadGroup(group) {
    const asked = new Map();
    // Several metrics have one limit, which is asked for once. An exported file may lack it.
    const lines = (id) => {
      const metric = this.ctx.run.metrics.get(id);
      if (!metric?.per_rank) return null;
      if (!asked.has(id)) asked.set(id, this.lines(metric));
      return asked.get(id);
    };
    const found = await Promise.all(group.shown.map(async (metric) => {
      const [own, limit, used] = await Promise.all([metric.id, metric.limit, metric.in_use].map(lines));
      return { metric, own, capacity: limit?.low.filter((value) => value !== null).at(-1), used };
    }));
    for (const { metric, own, capacity } of found) this.draw(group, metric, own, capacity);
    for (const { metric, own, used } of found) if (used) this.drawFragmentation(group, metric, used, own);
  }

  async lines(metric) {
    const { run, shared } = this.ctx;
    const stepped = run.clock.known;
    const range = shared.view.from < shared.view.to && stepped ? { from: Math.floor(shared.view.from), to: Math.ceil(shared.view.to) } : {};
    const chosen = shared.view.actor === metric.actor ? shared.view.rank : undefined;
    // One rank's line is drawn beside the band: the matrix of all ranks stays at the server.
    const said = await run.ask("ranks", { m: metric.id, axis: stepped ? "step" : "time", points: POINTS, rank: chosen ?? WORST, ...range }, run.ending.signal);
    return { ...memoryLines(said, await matrixOf(said), run.clock, chosen), said };
  }

  card(group, key, title, lines, format) {
    const before = this.cards.get(key);
    if (before) return before;
    const box = this.place(group);
    const now = h("span", { class: "now" });
    const plot = h("div", {});
    const card = { now, format, box: h("article", { class: "card", data: { metric: key } }, h("header", {}, h("h3", { class: "name" }, title), now), plot) };
    put(box, [card.box]);
    card.chart = new Chart(plot, this.ctx.shared, { title, axis: () => this.ctx.run.axis, lines, format, height: 220, onPick: (step) => this.ctx.open("ranks", { at: step, metric: key }) });
    this.cards.set(key, card);
    return card;
  }

  place(group) {
    this.places ??= new Map();
    if (!this.places.has(group.actor)) {
      const made = h("div", { class: "charts" });
      put(this.groups, [h("section", { class: "section", "aria-label": group.actor }, h("h3", { class: "name" }, group.actor), made)]);
      this.places.set(group.actor, made);
    }
    return this.places.get(group.actor);
  }

  draw(group, metric, found, capacity) {
    const lines = [{ label: "median", colour: "c0", band: true }, { label: "worst rank", colour: "c5", dash: [5, 4] }, { label: "capacity", colour: "bad" }];
    const card = this.card(group, metric.id, metric.key, lines, formatOf(metric.unit));
    card.worst = found.worst < 0 ? "" : found.said.ranks[found.worst];
    card.found = found;
    card.capacity = capacity;
    card.box.dataset.worst = card.worst;
    const ceiling = found.x.map(() => (capacity === undefined ? null : capacity));
    card.chart.update([found.x, found.median, found.low, found.high, found.own, ceiling], this.marks());
    this.tell(card);
  }

  drawFragmentation(group, metric, allocated, reserved) {
    const card = this.card(group, `${metric.id}/fragmentation`, "fragmentation: (reserved − allocated) / reserved", [{ label: "median", colour: "c3" }], (value) => (value === null ? "–" : `${Math.round(value * 1000) / 10} %`));
    card.found = { x: reserved.x, median: fragmentation(allocated, reserved) };
    card.chart.update([card.found.x, card.found.median], this.marks());
    this.tell(card);
  }

  tell(card) {
    if (!card.found) return;
    const { at } = this.ctx.shared.view;
    const { x, median, own } = card.found;
    let index = x.length - 1;
    if (at !== undefined) while (index > 0 && x[index] > at) index -= 1;
    const said = [`median ${card.format(median[index] ?? null)}`];
    if (own && card.worst) said.push(`rank ${card.worst} ${card.format(own[index] ?? null)}`);
    if (card.capacity !== undefined) said.push(`of ${card.format(card.capacity)}`);
    card.now.textContent = said.join(", ");
    card.box.dataset.value = String(median[index] ?? null);
  }
}
