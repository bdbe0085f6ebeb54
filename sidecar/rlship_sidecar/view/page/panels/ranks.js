// The heat map of ranks: how far each rank is from the median of its step.

import { Canvas, Raster, centred } from "../canvas.js";
import { diverging, palette, pixel } from "../colours.js";
import { clipped, folded, h, plain, problem, show, table } from "../dom.js";
import { formatOf } from "../grid.js";
import { counted, full, number, ticks } from "../numbers.js";
import { matrixOf } from "../packed.js";
import { FLEET, GREATEST, bucketsOf, byHost, deviations, outstanding, paintCarpet } from "../shape/carpet.js";

const GUTTER = 120;
const TALLEST = 1000;
const AXIS = 22;
const SETTLE_MS = 300;
const LIVE_MS = 2000;

export const ranks = {
  id: "ranks",
  title: "Ranks",
  make(host, ctx) {
    const panel = new Carpet(host, ctx);
    panel.load();
    return () => panel.close();
  },
};

/** The metrics that have values by rank, those of the panel first. */
export function byRank(run, panel) {
  const first = run.overview.panels[panel] ?? [];
  const all = [...run.metrics.values()].filter((metric) => metric.per_rank).map((metric) => metric.id);
  return [...new Set([...first.filter((id) => run.metrics.get(id)?.per_rank), ...all])].map((id) => run.metrics.get(id));
}

class Carpet {
  constructor(host, ctx) {
    this.ctx = ctx;
    this.held = null;
    this.timers = {};
    this.raster = new Raster();
    this.choice = h("select", { id: "rank-metric", on: { change: () => { ctx.shared.set({ metric: this.choice.value }); } } });
    this.stat = h("select", { id: "rank-stat", on: { change: () => this.load() } }, [["mean", "mean"], ["min", "least"], ["max", "greatest"]].map(([name, title]) => h("option", { value: name }, title)));
    this.note = h("span", { class: "quiet", role: "status" });
    this.tip = h("p", { class: "tip" }, "Point at a cell to read its value; a click chooses its rank.");
    this.worst = h("div", {});
    this.all = folded("All ranks", () => this.table());
    const place = h("div", {});
    show(host, h("h2", {}, "Ranks"), h("div", { class: "tools" }, h("label", {}, "Metric ", this.choice), h("label", {}, "Value of a bucket ", this.stat), this.note), legend(), place, this.tip, this.worst, this.all.box);
    this.canvas = new Canvas(place, "Deviation of each rank from the median of its step; the table below names the ranks that stand out", 60, (...at) => this.draw(...at));
    this.canvas.node.classList.add("carpet");
    this.canvas.node.rlshipPanel = this;
    this.canvas.node.addEventListener("pointermove", (event) => this.tell(event, false));
    this.canvas.node.addEventListener("click", (event) => this.tell(event, true));
    this.fillChoice();
    this.quit = [ctx.shared.listen((view, changed) => this.follow(changed)), ctx.run.listen((what) => this.hear(what))];
  }

  close() {
    for (const quit of this.quit) quit();
    for (const timer of Object.values(this.timers)) clearTimeout(timer);
    this.asking?.abort();
    this.canvas.close();
  }

  later(name, ms, act) {
    if (this.timers[name]) return;
    this.timers[name] = setTimeout(() => { this.timers[name] = 0; act(); }, ms);
  }

  fillChoice() {
    const found = byRank(this.ctx.run, "ranks");
    show(this.choice, found.map((metric) => h("option", { value: metric.id }, plain(metric.key, 120))));
    const wanted = this.ctx.shared.view.metric;
    this.metric = found.find((metric) => metric.id === wanted) ?? found[0];
    if (this.metric) this.choice.value = this.metric.id;
  }

  hear(what) {
    if (what === "all" || what === "metrics") {
      this.fillChoice();
      this.later("live", 0, () => this.load());
    }
    // A large matrix is asked for less often.
    if (what === "rows") this.later("live", Math.max(LIVE_MS, 5 * (this.took ?? 0)), () => this.load());
  }

  follow(changed) {
    if (changed.has("metric")) {
      this.fillChoice();
      this.load();
    } else if (changed.has("from") || changed.has("to")) {
      this.canvas.later();
      clearTimeout(this.timers.settle);
      this.timers.settle = 0;
      this.later("settle", SETTLE_MS, () => this.load());
    } else if (changed.has("at") || changed.has("rank")) this.canvas.later();
  }

  range() {
    const { view } = this.ctx.shared;
    return view.from < view.to ? [view.from, view.to] : this.ctx.run.whole;
  }

  async load() {
    if (!this.metric) {
      this.note.textContent = "No metric has values by rank. The configuration's `[reduce]` can ask for `per_rank`.";
      return;
    }
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    const { view } = this.ctx.shared;
    const stepped = this.ctx.run.clock.known;
    const range = view.from < view.to && stepped ? { from: Math.floor(view.from), to: Math.ceil(view.to) } : {};
    const began = performance.now();
    try {
      const said = await this.ctx.run.ask("ranks", { m: this.metric.id, axis: stepped ? "step" : "time", stat: this.stat.value === "mean" ? undefined : `mean,${this.stat.value}`, ...range }, asking.signal);
      const values = await matrixOf(said, this.stat.value);
      this.took = performance.now() - began;
      if (!asking.signal.aborted) this.take(said, values);
    } catch (error) {
      if (!asking.signal.aborted) this.note.textContent = plain(problem(error));
    }
  }

  take(said, values) {
    const { rows, columns } = said.mean;
    const { clock } = this.ctx.run;
    const { grid } = said;
    const onSteps = grid.axis === "step";
    this.held = {
      said, values, rows, columns,
      x: onSteps ? grid.x : grid.x.map((t) => clock.step(t)),
      width: onSteps ? grid.width : clock.step(grid.x[0] + grid.width) - clock.step(grid.x[0]),
      deviation: deviations(values, rows, columns, said.median),
      order: byHost(said.ranks, said.hosts),
    };
    this.tall = rows > FLEET ? Math.max(1, Math.floor(TALLEST / rows)) : 14;
    this.canvas.grow(rows * this.tall + AXIS);
    this.canvas.node.dataset.ranks = String(rows);
    this.note.textContent = `${counted(rows, "rank")} on ${counted(new Set(said.hosts).size, "host")}, ${grid.width > 1 ? `${counted(columns, "bucket")} of ${number(grid.width)} steps` : counted(columns, "step")}`;
    this.canvas.later();
    this.tellWorst();
  }

  /** The ranks that stand out most in the range. */
  outstanding(most) {
    const { values, deviation, rows, columns, x, width } = this.held;
    const [from, to] = this.range();
    const chosen = x.map((step, at) => (step + width > from && step <= to ? at : -1)).filter((at) => at >= 0);
    return outstanding(values, deviation, rows, columns, chosen, most);
  }

  tellWorst() {
    const { said } = this.held;
    const format = formatOf(this.metric.unit);
    const found = this.outstanding();
    this.all.again();
    show(this.worst, table("Ranks that stand out in the range", ["Rank", "Host", "Mean value", "From the median", "Steps without a value"], found.map((each) => [
      h("button", { data: { rank: said.ranks[each.rank] }, on: { click: () => this.ctx.shared.set({ rank: said.ranks[each.rank], actor: said.grid.actor }) } }, said.ranks[each.rank]),
      h("span", { class: "name" }, said.hosts[each.rank]), format(each.value), percent(each.deviation), each.missing ? h("span", { class: "bad" }, number(each.missing)) : "0",
    ])));
  }

  /** All ranks as a table, in the order of the map. */
  table() {
    if (!this.held) return null;
    const { said, rows, order } = this.held;
    const format = formatOf(this.metric.unit);
    const found = new Map(this.outstanding(rows).map((each) => [each.rank, each]));
    return table("All ranks in the range", ["Rank", "Host", "Mean value", "From the median", "Steps without a value"], order.map(({ rank, host }) => {
      const { value, deviation, missing } = found.get(rank);
      return [said.ranks[rank], h("span", { class: "name" }, host), format(value), percent(deviation), number(missing)];
    }));
  }

  gutter(width) {
    return width > 700 ? GUTTER : 60;
  }

  draw(context, width) {
    if (!this.held) return;
    const colours = palette();
    const { order, deviation, columns, x, width: bucket, said, rows } = this.held;
    const [from, to] = this.range();
    const gutter = this.gutter(width);
    const wide = width - gutter;
    const high = rows * this.tall;
    const end = Math.max(to, from + 1e-9) + (to - from > 0 ? 0 : 1);
    const buckets = bucketsOf(x, bucket, from, this.ctx.shared.view.from < this.ctx.shared.view.to ? end : end + bucket, wide);
    this.shownTo = this.ctx.shared.view.from < this.ctx.shared.view.to ? end : end + bucket;
    context.fillStyle = colours.raised;
    context.fillRect(gutter, 0, wide, high);
    const pixels = this.raster.pixels(wide, high);
    paintCarpet(pixels, wide, order, deviation, columns, buckets, { tall: this.tall, scale: diverging(colours), missing: pixel(colours.missing), back: pixel(colours.back) });
    this.raster.draw(context, gutter, 0, wide, high);
    this.drawNames(context, colours, gutter, wide, said, high);
    this.drawAxis(context, colours, gutter, wide, from, high);
  }

  drawNames(context, colours, gutter, wide, said, high) {
    context.font = "11px system-ui, 'DejaVu Sans'";
    context.textBaseline = "middle";
    let last = -99;
    const chosen = this.ctx.shared.view.rank;
    this.held.order.forEach(({ rank, host, first }, line) => {
      const y = line * this.tall;
      if (first && line && (this.tall > 2 || y - last > 20)) {
        context.globalAlpha = this.tall < 6 ? 0.35 : 1;
        context.fillStyle = colours.text;
        context.fillRect(gutter, y - 0.5, wide, 1);
        context.globalAlpha = 1;
      }
      const name = this.tall >= 11 ? `${said.ranks[rank]} ${first ? host : ""}` : first ? host || said.ranks[rank] : "";
      context.fillStyle = said.ranks[rank] === chosen ? colours.accent : colours.text;
      if (name && y - last >= 11) {
        context.fillText(clipped(name, 24), 2, y + Math.max(this.tall, 11) / 2, gutter - 6);
        last = y;
      }
      if (said.ranks[rank] === chosen) {
        context.strokeStyle = colours.accent;
        context.lineWidth = 2;
        context.strokeRect(gutter + 1, y, wide - 2, Math.max(this.tall, 3));
      }
    });
    context.fillStyle = colours.quiet;
    context.textBaseline = "top";
    context.fillText("step", 2, high + 5);
  }

  drawAxis(context, colours, gutter, wide, from, high) {
    const place = (step) => gutter + ((step - from) / (this.shownTo - from)) * wide;
    context.textAlign = "center";
    for (const step of ticks(from, this.shownTo, Math.max(2, wide / 110))) centred(context, full(step), place(step), gutter + wide, high + 5);
    context.textAlign = "left";
    const { at } = this.ctx.shared.view;
    if (at === undefined || at < from || at > this.shownTo) return;
    context.fillStyle = colours.cursor;
    context.fillRect(Math.round(place(at + this.held.width / 2)), 0, 1.5, high);
  }

  /** The value of a rank at a bucket, as text. */
  read(line, bucket) {
    const { said, values, deviation, columns, order, x } = this.held;
    const { rank, host } = order[line];
    const value = values[rank * columns + bucket];
    const format = formatOf(this.metric.unit);
    const from = `${said.grid.actor} ${said.ranks[rank]}${host ? ` on ${host}` : ""}, step ${full(x[bucket])}`;
    if (Number.isNaN(value)) return `${from}: no value`;
    return `${from}: ${format(value)}, ${percent(deviation[rank * columns + bucket])} from the median ${format(said.median[bucket])}`;
  }

  tell(event, choose) {
    if (!this.held) return;
    const width = this.canvas.node.clientWidth;
    const gutter = this.gutter(width);
    const line = Math.floor(event.offsetY / this.tall);
    const [from] = this.range();
    const step = from + ((event.offsetX - gutter) / (width - gutter)) * (this.shownTo - from);
    const [bucket] = bucketsOf(this.held.x, this.held.width, step, step, 1);
    if (line >= this.held.rows || event.offsetX < gutter || bucket < 0) return;
    this.tip.textContent = plain(this.read(line, bucket), 400);
    const said = { at: this.held.x[bucket] };
    if (choose) Object.assign(said, { rank: this.held.said.ranks[this.held.order[line].rank], actor: this.held.said.grid.actor });
    this.ctx.shared.set(said);
  }
}

function percent(share) {
  return `${share > 0 ? "+" : share < 0 ? "−" : ""}${number(Math.abs(share) * 100, 3)} %`;
}

function legend() {
  const swatch = (style) => {
    const found = h("span", { class: "swatch" });
    found.style.background = style;
    return found;
  };
  return h("p", { class: "small" },
    h("span", { class: "key" }, swatch("var(--cold)"), `${GREATEST * 100} % below the median of the step`),
    h("span", { class: "key" }, swatch("var(--even)"), "at the median"),
    h("span", { class: "key" }, swatch("var(--hot)"), `${GREATEST * 100} % above`),
    h("span", { class: "key" }, swatch("repeating-linear-gradient(45deg, var(--missing) 0 3px, var(--back) 3px 6px)"), "no value"));
}
