// A line chart over steps that shares the page's cursor and range. Drawn by uPlot.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { palette } from "./colours.js";
import { folded, plain, table } from "./dom.js";
import { apart, bytes, full, number } from "./numbers.js";
import { alone, gist, rowsOf } from "./shape/curves.js";

const HEIGHT = 165;
const TWOS = Array.from({ length: 60 }, (_, power) => 2 ** power); // steps of an axis of bytes
const seen = new Set();

// Charts follow the size of the place they stand in, and are drawn again when light turns dark.
const sizes = new ResizeObserver((entries) => {
  for (const entry of entries) entry.target.rlshipChart?.resize();
});

/** Draw all charts of the page again with the colours that it has now. */
export function recolour() {
  for (const chart of seen) chart.build();
}

export class Chart {
  /**
   * `lines` are {label, colour, band}: a line, with a band from least to greatest where values were put together. A
   * person who cannot see the chart hears what it is like, and opens its values as a table. `axis` says what a place is: a
   * "step", or a "second" of a run that has none.
   */
  constructor(host, shared, { title, axis, lines, format = number, onPick, height = HEIGHT, marks = [] }) {
    Object.assign(this, { host, shared, title, axis, lines, format, onPick, height, marks });
    this.dragged = false;
    this.data = [[]];
    this.plot = null;
    host.classList.add("plot");
    host.setAttribute("role", "img");
    host.setAttribute("aria-label", this.told());
    this.values = folded("Values", () => this.table());
    host.after(this.values.box);
    host.rlshipChart = this;
    sizes.observe(host);
    seen.add(this);
    this.quit = shared.listen((view, changed) => this.follow(view, changed));
  }

  close() {
    this.quit();
    sizes.unobserve(this.host);
    seen.delete(this);
    this.plot?.destroy();
    this.plot = null;
  }

  /** Columns: steps, then for each line its values, and its least and greatest where the line has a band. */
  update(data, marks = this.marks) {
    this.data = data;
    this.marks = marks;
    this.host.setAttribute("aria-label", this.told());
    this.values.again();
    if (!this.plot) return this.build();
    this.plot.setData(data, false);
    this.rescale();
    return undefined;
  }

  /** The columns of each line: {label, mean, low, high}; without a band the three are one. */
  columns() {
    let at = 0;
    return this.lines.map(({ label = "value", band }) => {
      const mean = this.data[(at += 1)] ?? [];
      const [low, high] = band ? [this.data[(at += 1)] ?? mean, this.data[(at += 1)] ?? mean] : [mean, mean];
      return { label, mean, low, high };
    });
  }

  /** What the chart is like, in words. */
  told() {
    const [steps] = this.data;
    const axis = this.axis();
    const place = (found) => `${this.format(found.value)} at ${axis} ${full(found.step)}`;
    const lines = this.columns().map(({ label, mean, low, high }) => {
      const found = gist(steps, mean, low, high);
      return found && `${label}: newest ${place(found.newest)}, least ${place(found.least)}, greatest ${place(found.greatest)}`;
    });
    return `Chart of ${plain(this.title, 200)} over ${axis}s. ${lines.filter(Boolean).join("; ") || "No value yet"}.`;
  }

  /** The values in the range, a row for each step or bucket; without columns that say nothing. */
  table() {
    const found = this.columns().flatMap(({ label, mean, low, high }) => {
      const banded = mean.some((value, at) => low[at] !== value || high[at] !== value);
      return banded ? [[label, mean], ["least", low], ["greatest", high]] : [[label, mean]];
    }).filter(([, values]) => values.some((value) => value !== null && value !== undefined));
    const data = [this.data[0], ...found.map(([, values]) => values)];
    const rows = rowsOf(data, ...this.extent()).map(([step, ...values]) => [full(step), ...values.map((value) => this.format(value))]);
    return table(`Values of ${plain(this.title, 200)}`, [this.axis() === "step" ? "Step" : "Second", ...found.map(([label]) => label)], rows);
  }

  resize() {
    const width = Math.floor(this.host.clientWidth);
    if (width < 40) return;
    if (!this.plot) this.build();
    else if (width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }

  build() {
    this.plot?.destroy();
    this.plot = null;
    const width = Math.floor(this.host.clientWidth);
    if (width < 40 || !this.data[0].length) return;
    this.plot = new uPlot(this.options(width, palette()), this.data, this.host);
    this.rescale();
  }

  options(width, colours) {
    const series = [{}];
    const bands = [];
    for (const line of this.lines) {
      series.push({
        label: line.label, stroke: colours[line.colour], width: 1.6, spanGaps: false, dash: line.dash,
        points: { show: (u, index, from, to) => to - from < 40, filter: (u, index, all) => (all ? null : dots(u, index)), size: 5 },
      });
      if (!line.band) continue;
      const at = series.length;
      const edge = { stroke: "transparent", width: 0, points: { show: false } };
      series.push({ ...edge, label: "least" }, { ...edge, label: "greatest" });
      bands.push({ series: [at + 1, at], fill: `${colours[line.colour]}38` });
    }
    const axis = { stroke: colours.quiet, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.line, width: 1, size: 4 }, font: "11px system-ui" };
    return {
      width, height: this.height, series, bands, pxAlign: 0, legend: { show: false },
      padding: [8, 10, 0, 0],
      scales: { x: { time: false, auto: false, range: () => this.extent() }, y: { range: (u, low, high) => room(low, high) } },
      axes: [
        { ...axis, size: 26, gap: 3, space: (u, nth, low, high) => Math.max(50, 4 + 6.6 * full(Math.round(high)).length), values: (u, at) => at.map(full) },
        { ...axis, size: (u, said) => labelRoom(said), gap: 3, ...(this.format === bytes ? { incrs: TWOS } : {}), values: (u, at) => (this.format === number ? apart(at) : at.map((value) => this.format(value))) },
      ],
      cursor: { y: false, drag: { x: true, y: false, setScale: false }, points: { size: 7 }, focus: { prox: -1 } },
      hooks: {
        drawClear: [(u) => this.drawMarks(u, colours)],
        setSelect: [(u) => this.select(u)],
        ready: [(u) => this.watch(u)],
      },
    };
  }

  extent() {
    const { from, to } = this.shared.view;
    if (from < to) return [from, to];
    const steps = this.data[0];
    const [low, high] = [steps[0] ?? 0, steps[steps.length - 1] ?? 1];
    return high > low ? [low, high] : [low - 0.5, low + 0.5];
  }

  rescale() {
    const [min, max] = this.extent();
    this.plot?.setScale("x", { min, max });
    // uPlot takes a new scale over in a task of its own; until then a step has its former place.
    queueMicrotask(() => this.showCursor(this.shared.view.at));
  }

  follow(view, changed) {
    if (changed.has("from") || changed.has("to")) {
      this.rescale();
      this.values.again();
    }
    if (changed.has("at")) this.showCursor(view.at);
  }

  showCursor(at) {
    if (!this.plot) return;
    const left = at === undefined ? -10 : this.plot.valToPos(at, "x");
    this.plot.setCursor({ left, top: left < 0 ? -10 : 10 }, false);
  }

  select(u) {
    if (u.select.width < 4) return;
    const from = u.posToVal(u.select.left, "x");
    const to = u.posToVal(u.select.left + u.select.width, "x");
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.dragged = true;
    this.shared.set({ from, to });
  }

  watch(u) {
    u.over.addEventListener("mousemove", (event) => this.shared.set({ at: this.data[0][u.posToIdx(event.offsetX)] }));
    u.over.addEventListener("mousedown", () => { this.dragged = false; });
    u.over.addEventListener("click", () => {
      if (!this.dragged && this.onPick && this.shared.view.at !== undefined) this.onPick(this.shared.view.at);
    });
    u.over.addEventListener("dblclick", () => this.shared.set({ from: undefined, to: undefined }));
  }

  /** Stretches of episodes as bands behind the lines, and single steps as rules. */
  drawMarks(u, colours) {
    const { ctx } = u;
    const { left, top, width, height } = u.bbox;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    const stretches = this.marks.filter((mark) => mark.level === undefined).map((mark) => {
      const start = u.valToPos(mark.from, "x", true);
      return [start, Math.max(u.valToPos(mark.to ?? mark.from, "x", true) - start, 2)];
    });
    // In one fill: where many overlap, the lines upon them stay as visible as where one is.
    ctx.beginPath();
    for (const [start, wide] of stretches) ctx.rect(start, top, wide, height);
    ctx.fillStyle = colours.band;
    ctx.fill();
    ctx.fillStyle = colours.bad;
    ctx.globalAlpha = 0.6;
    for (const [start] of stretches) ctx.fillRect(start, top, 1.5, height);
    ctx.globalAlpha = 1;
    for (const mark of this.marks) if (mark.level !== undefined) ctx.fillRect(left, u.valToPos(mark.level, "y", true), width, 1.5);
    ctx.restore();
  }
}

/** Which values in the range get a dot where not all of them do: no line leads to those that stand between two gaps. */
function dots(u, index) {
  const [from, to] = u.series[0].idxs;
  return alone(u.data[index]).filter((at) => at >= from && at <= to);
}

/** How wide an axis has to be for its longest label. */
function labelRoom(said) {
  return Math.min(Math.max(58, 14 + 6.6 * Math.max(...(said ?? [""]).map((label) => label?.length ?? 0), 0)), 120);
}

/** The range of the y axis around what is drawn: some room above and below, and 0 if it is near. */
function room(low, high) {
  if (low === null || high === null || low === undefined || high === undefined) return [0, 1];
  if (high - low <= Math.abs(high) * 1e-6) {
    const half = Math.abs(low) * 0.1 || 0.5;
    return [low - half, low + half];
  }
  const rest = (high - low) * 0.08;
  const start = low >= 0 && low < (high - low) * 0.25 ? 0 : low - rest;
  return [start, high <= 0 && -high < (high - low) * 0.25 ? 0 : high + rest];
}

/** The index of the greatest step at or below `at`; -1 if all steps are greater. */
export function indexAt(steps, at) {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
