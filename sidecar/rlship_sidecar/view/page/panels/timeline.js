// The timeline: rollout, reward, log-probabilities, update and checkpoint as spans, a lane for each process.

import { Canvas, Raster, centred } from "../canvas.js";
import { palette, pixel } from "../colours.js";
import { clipped, folded, h, plain, problem, show, table } from "../dom.js";
import { clock as timeOfDay, counted, full, number, seconds, ticks } from "../numbers.js";
import { busyLanes, firstAfter, laneFilter, lines, paint, secondsOf, spanAt, stageColours, stageShares, stepsIn } from "../shape/lanes.js";

const GUTTER = 132;
const TALLEST = 900;
const FLEET = 64; // above so many lanes each is a thin line without its name
const SETTLE_MS = 300;
const LIVE_MS = 3000;
const AXIS = 22;
const TABLED = 2000; // steps of a table: a browser takes half a minute for a hundred thousand
const [FAR, FAR_S] = [2, 60]; // lengths of the steps, and seconds, beyond which a span is not seen at first

export const timeline = {
  id: "timeline",
  title: "Timeline",
  make(host, ctx) {
    const panel = new Timeline(host, ctx);
    panel.load();
    return () => panel.close();
  },
};

class Timeline {
  constructor(host, ctx) {
    this.ctx = ctx;
    this.spans = null;
    this.lines = [];
    this.raster = new Raster();
    this.note = h("p", { class: "quiet", role: "status" }, "Loading …");
    this.key = h("p", {});
    this.tip = h("p", { class: "tip", "aria-live": "off" }, "Point at a span; a click chooses its rank. Drag to move; double-click a strip to see one step; w, s, a, d move and zoom.");
    this.shares = h("div", {});
    this.tables = [folded("Steps", () => this.stepTable()), folded("Lanes", () => this.laneTable())];
    this.field = h("input", { id: "lane-filter", type: "search", maxlength: 200, value: ctx.shared.view.lanes ?? "", placeholder: "rank:0-7 node:n1 every:8" });
    const places = [h("div", {}), h("div", {}), h("div", {})];
    show(host, h("h2", {}, "Timeline"), h("div", { class: "tools" }, h("label", {}, "Lanes ", this.field), this.note), this.key,
      h("h3", {}, "Share of each stage"), places[0], h("h3", {}, "Bubbles: seconds of a step in which a rank of the lead is in no span"), places[1],
      h("h3", {}, "Lanes"), places[2], this.tip, this.shares, this.tables.map((each) => each.box));
    this.strip = new Canvas(places[0], "Share of each stage of the steps; the table Steps has the values", 64, (...at) => this.drawShares(...at));
    this.bubbles = new Canvas(places[1], "Bubbles of the steps; the table Steps has the values", 36, (...at) => this.drawBubbles(...at));
    this.lanes = new Canvas(places[2], "Spans in lanes over time; the table Lanes says what each lane was busy with", 60, (...at) => this.drawLanes(...at));
    this.lanes.node.classList.add("lanes");
    this.lanes.node.rlshipPanel = this;
    this.field.addEventListener("input", () => { ctx.shared.set({ lanes: this.field.value || undefined }); this.arrange(); });
    this.pointer();
    this.quit = [
      ctx.shared.listen((view, changed) => this.follow(view, changed)),
      ctx.run.listen((what) => {
        if (what === "all") this.load();
        if (what === "rows" && this.atEnd()) this.later("live", LIVE_MS, () => this.load());
      }),
    ];
    this.timers = {};
  }

  close() {
    for (const quit of this.quit) quit();
    for (const timer of Object.values(this.timers)) clearTimeout(timer);
    this.asking?.abort();
    for (const canvas of [this.strip, this.bubbles, this.lanes]) canvas.close();
  }

  later(name, ms, act) {
    if (this.timers[name]) return;
    this.timers[name] = setTimeout(() => { this.timers[name] = 0; act(); }, ms);
  }

  /** The range of the page as times: the whole of what was read, as long as no range was chosen. */
  range() {
    const { view } = this.ctx.shared;
    const { clock } = this.ctx.run;
    if (view.from < view.to) return [clock.time(view.from), clock.time(view.to)];
    const [low, high] = this.spans?.shown ?? this.ctx.run.whole.map((step) => clock.time(step));
    return low < high ? [low, high] : [low - 0.5, low + 0.5];
  }

  atEnd() {
    const { view } = this.ctx.shared;
    return !(view.from < view.to) || view.to >= this.ctx.run.whole[1] - 1;
  }

  async load() {
    const { view } = this.ctx.shared;
    this.asking?.abort();
    this.asking = new AbortController();
    const parameters = {};
    if (view.from < view.to) {
      const [from, to] = this.range();
      // Some more on both sides, so that moving shows what is there at once.
      Object.assign(parameters, { from: from - (to - from) / 2, to: to + (to - from) / 2 });
    }
    try {
      this.take(await this.ctx.run.ask("spans", parameters, this.asking.signal));
    } catch (error) {
      if (!this.asking.signal.aborted) this.note.textContent = plain(problem(error));
    }
  }

  take(spans) {
    this.spans = { ...spans, shown: near(spans, this.ctx.run.clock) };
    const many = spans.spans.t.length;
    const said = [`${counted(many, "span")} in ${counted(spans.lanes.length, "lane")}`];
    if (this.spans.shown !== spans.found) said.push("some lie far from these steps: is a host's clock wrong?");
    if (spans.left_out) said.push(`${number(spans.left_out)} shorter ones are left out: zoom in to see them`);
    if (spans.note) said.push(spans.note);
    this.note.textContent = plain(said.join("; "));
    this.inks = stageColours([...spans.stages.names, ...spans.names]);
    show(this.key, [...this.inks.keys()].slice(0, 24).map((name) => {
      const swatch = h("span", { class: "swatch" });
      swatch.style.background = `var(--${this.inks.get(name)})`;
      return h("span", { class: "key" }, swatch, h("span", { class: "name" }, plain(name, 60)));
    }));
    this.arrange();
    this.tellShares();
    const { clock } = this.ctx.run;
    this.ctx.shows(() => this.spans.shown?.map((t) => clock.step(t)));
  }

  arrange() {
    if (!this.spans) return;
    const keep = laneFilter(this.field.value);
    const kept = this.spans.lanes.filter(keep).length;
    this.fleet = kept > FLEET;
    this.lines = lines(this.spans, keep, this.fleet ? 0 : 4);
    this.tall = Math.max(1, Math.min(16, Math.floor(TALLEST / Math.max(this.lines.length, 1))));
    this.lanes.grow(Math.max(this.lines.length, 1) * this.tall + AXIS);
    this.redraw();
    this.tables[1].again();
  }

  redraw() {
    for (const canvas of [this.strip, this.bubbles, this.lanes]) canvas.later();
  }

  follow(view, changed) {
    if (changed.has("from") || changed.has("to")) {
      this.redraw();
      clearTimeout(this.timers.settle);
      this.timers.settle = 0;
      this.later("settle", SETTLE_MS, () => this.settle());
    } else if (["at", "rank", "actor"].some((name) => changed.has(name))) this.lanes.later();
  }

  /** After moving: the values of the range, and more spans if there may be some. */
  settle() {
    this.tellShares();
    if (!this.spans || !this.ctx.run.source.live) return;
    const [from, to] = this.range();
    const found = this.spans.found ?? [0, 0];
    const beyond = from < found[0] - 1e-6 || to > found[1] + 1e-6;
    if (beyond || this.spans.left_out) this.load();
  }

  tellShares() {
    for (const each of this.tables) each.again();
    const [from, to] = this.range();
    const rows = stageShares(this.spans?.stages ?? { t: [], dur: [], names: [], seconds: [], bubble: [] }, from, to);
    const steps = rows[0]?.steps ?? 0;
    show(this.shares, table(`Stages of ${counted(steps, "step")} in the range`, ["Stage", "Mean seconds of a step", "Share"], rows.map((row) => [
      h("span", { class: "name", data: { stage: row.name } }, row.name), seconds(row.mean), row.share === null ? "–" : `${number(row.share * 100, 3)} %`,
    ])));
  }

  /** The two strips as a table: the seconds of each stage, and of the bubble, of each step in the range. */
  stepTable() {
    if (!this.spans) return null;
    const { stages } = this.spans;
    const found = stepsIn(stages, ...this.range());
    const rows = found.slice(-TABLED).map((at) => [full(stages.step[at]), ...[...stages.seconds, stages.bubble].map((column) => seconds(column[at]))]);
    const which = found.length > TABLED ? `the newest ${number(TABLED)} of ${counted(found.length, "step")}` : "each step";
    return table(`Seconds of ${which} in the range`, ["Step", ...stages.names, "(bubble)"], rows);
  }

  /** The lanes as a table: what each was busy with in the range. */
  laneTable() {
    if (!this.spans) return null;
    const { origin, lanes, names } = this.spans;
    const [from, to] = this.range();
    const rows = busyLanes(this.lines, from - origin, to - origin).map(({ lane, spans, busy, longest }) => [
      h("span", { class: "name" }, laneName(lanes[lane])), number(spans), seconds(busy),
      longest ? h("span", { class: "name" }, `${plain(names[longest.name], 60)}: ${seconds(longest.seconds)}`) : "",
    ]);
    return table("Lanes in the range", ["Lane", "Spans", "In spans", "Longest span"], rows);
  }

  /** Where times lie on a canvas. */
  scale(width) {
    const [from, to] = this.range();
    const gutter = width > 700 ? GUTTER : 56;
    return { from, to, gutter, wide: width - gutter, x: (t) => gutter + ((t - from) / (to - from)) * (width - gutter) };
  }

  steps(width, act) {
    const { stages } = this.spans ?? { stages: { t: [] } };
    const place = this.scale(width);
    for (let at = 0; at < stages.t.length; at += 1) {
      const start = place.x(stages.t[at]);
      const end = place.x(stages.t[at] + (stages.dur[at] ?? 0));
      if (end >= place.gutter && start <= width) act(at, Math.max(start, place.gutter), end);
    }
  }

  drawShares(context, width, height) {
    const colours = palette();
    if (!this.spans) return;
    const { stages } = this.spans;
    context.fillStyle = colours.raised;
    context.fillRect(this.scale(width).gutter, 0, width, height);
    this.steps(width, (at, start, end) => {
      const whole = secondsOf(stages, at) || 1;
      let y = height;
      stages.names.forEach((name, index) => {
        const share = ((stages.seconds[index][at] ?? 0) / whole) * height;
        context.fillStyle = colours[this.inks.get(name)];
        context.fillRect(start, y - share, Math.max(end - start - (end - start > 6 ? 1 : 0), 0.6), share);
        y -= share;
      });
    });
    this.label(context, colours, ["100 %", "0 %"], height);
  }

  drawBubbles(context, width, height) {
    const colours = palette();
    if (!this.spans) return;
    const { stages } = this.spans;
    const most = stages.bubble.reduce((found, value) => Math.max(found, value ?? 0), 1e-9);
    this.steps(width, (at, start, end) => {
      const tall = ((stages.bubble[at] ?? 0) / most) * (height - 2);
      context.fillStyle = colours.c5;
      context.fillRect(start, height - tall, Math.max(end - start - 1, 0.6), tall);
    });
    this.label(context, colours, [seconds(most), "0 s"], height);
  }

  label(context, colours, [top, bottom], height) {
    context.fillStyle = colours.quiet;
    context.font = "11px system-ui, 'DejaVu Sans'";
    context.textBaseline = "top";
    context.fillText(top, 2, 1);
    context.textBaseline = "bottom";
    context.fillText(bottom, 2, height - 1);
  }

  drawLanes(context, width, height) {
    const colours = palette();
    if (!this.spans) return;
    const place = this.scale(width);
    const { origin } = this.spans;
    const tall = height - AXIS;
    context.fillStyle = colours.raised;
    context.fillRect(place.gutter, 0, place.wide, tall);
    if (this.lines.length && place.wide > 1) {
      const wide = Math.floor(place.wide * Math.min(globalThis.devicePixelRatio || 1, 2));
      const pixels = this.raster.pixels(wide, this.lines.length);
      const inks = this.spans.names.map((name) => pixel(colours[this.inks.get(name)]));
      this.lines.forEach((line, row) => paint(line, pixels, row * wide, wide, place.from - origin, place.to - origin, inks));
      this.raster.draw(context, place.gutter, 0, place.wide, tall);
    }
    this.drawRules(context, colours, place, tall);
    this.drawNames(context, colours, place);
    this.drawCursor(context, colours, place, tall);
  }

  drawRules(context, colours, place, tall) {
    const { clock } = this.ctx.run;
    // No step comes before the first one.
    const first = Math.max(clock.step(place.from), clock.known ? clock.x[0] : -Infinity);
    const last = clock.known && !clock.paced ? Math.min(clock.step(place.to), first) : clock.step(place.to);
    const close = place.wide / Math.max(last - first, 1e-9) < 5;
    context.strokeStyle = colours.text;
    context.globalAlpha = 0.45;
    context.lineWidth = 1;
    context.beginPath();
    for (const step of close ? ticks(first, last, 12) : whole(first, last)) {
      const x = Math.round(place.x(clock.time(step))) + 0.5;
      context.moveTo(x, 0);
      context.lineTo(x, tall);
    }
    context.stroke();
    context.globalAlpha = 1;
    context.fillStyle = colours.quiet;
    context.font = "11px system-ui, 'DejaVu Sans'";
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const step of first < last ? ticks(first, last, Math.max(2, place.wide / 110)) : [first]) centred(context, full(step), place.x(clock.time(step)), place.gutter + place.wide, tall + 5);
    context.textAlign = "left";
    context.fillText(clock.known ? "step" : "seconds", 2, tall + 5);
  }

  drawNames(context, colours, place) {
    context.font = "11px system-ui, 'DejaVu Sans'";
    context.textBaseline = "middle";
    let before = "";
    this.lines.forEach((line, row) => {
      const lane = this.spans.lanes[line.lane];
      if (lane.rank === this.ctx.shared.view.rank && lane.actor === this.ctx.shared.view.actor) {
        context.fillStyle = colours.accent;
        context.fillRect(place.gutter - 4, row * this.tall, 3, this.tall);
      }
      const name = this.fleet ? lane.host || lane.actor : `${lane.actor} ${lane.rank}${lane.name ? ` ${lane.name}` : ""}`;
      const y = row * this.tall;
      if (this.tall >= 6) {
        context.fillStyle = colours.back;
        context.fillRect(place.gutter, y + this.tall - 1, place.wide, 1);
      }
      const room = this.fleet ? row * this.tall - (this.lastName ?? -99) >= 13 || row === 0 : this.tall >= 9;
      if (line.depth !== 0 || name === before || !room) return;
      before = name;
      this.lastName = y;
      const { rank, actor } = this.ctx.shared.view;
      context.fillStyle = lane.rank === rank && lane.actor === actor ? colours.accent : colours.text;
      context.fillText(clipped(name, 24), 2, y + Math.max(this.tall, 10) / 2, place.gutter - 6);
    });
    this.lastName = undefined;
    if (this.tall >= 13) this.writeSpans(context, place);
  }

  /** The names of spans that are wide enough for them. */
  writeSpans(context, place) {
    const origin = this.spans.origin;
    let left = 400;
    context.fillStyle = document.documentElement.dataset.theme === "dark" ? "#0b1117" : "#ffffff";
    this.lines.forEach((line, row) => {
      for (let at = firstAfter(line, place.from - origin); at < line.start.length && left > 0; at += 1) {
        if (line.start[at] + origin >= place.to) break;
        const start = Math.max(place.x(line.start[at] + origin), place.gutter);
        const wide = Math.min(place.x(line.end[at] + origin), place.gutter + place.wide) - start;
        if (wide < 46) continue;
        left -= 1;
        context.fillText(clipped(this.spans.names[line.name[at]], Math.floor(wide / 7)), start + 4, row * this.tall + this.tall / 2, wide - 6);
      }
    });
  }

  drawCursor(context, colours, place, tall) {
    const { at } = this.ctx.shared.view;
    if (at === undefined) return;
    const x = place.x(this.ctx.run.clock.time(at));
    if (x < place.gutter || x > place.gutter + place.wide) return;
    context.fillStyle = colours.cursor;
    context.fillRect(Math.round(x), 0, 1.5, tall);
  }

  pointer() {
    const { node } = this.lanes;
    let held = null;
    let dragged = false;
    node.addEventListener("pointerdown", (event) => { held = event.clientX; dragged = false; node.setPointerCapture(event.pointerId); });
    node.addEventListener("pointerup", () => { held = null; });
    node.addEventListener("click", (event) => {
      const lane = this.spans?.lanes[this.lines[Math.floor(event.offsetY / this.tall)]?.lane];
      if (lane && !dragged) this.ctx.shared.set({ rank: lane.rank, actor: lane.actor });
    });
    node.addEventListener("pointermove", (event) => {
      const place = this.scale(node.clientWidth);
      if (held !== null) {
        this.ctx.move({ by: (held - event.clientX) / place.wide });
        dragged ||= event.clientX !== held;
        held = event.clientX;
        return;
      }
      this.tell(event.offsetX, event.offsetY, place);
    });
    node.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const place = this.scale(node.clientWidth);
      const t = place.from + ((event.offsetX - place.gutter) / place.wide) * (place.to - place.from);
      this.ctx.move({ zoom: (event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, around: this.ctx.run.clock.step(t) });
    }, { passive: false });
    for (const canvas of [this.strip, this.bubbles]) {
      canvas.node.addEventListener("dblclick", (event) => {
        const place = this.scale(canvas.node.clientWidth);
        const { clock } = this.ctx.run;
        const step = Math.ceil(clock.step(place.from + ((event.offsetX - place.gutter) / place.wide) * (place.to - place.from)));
        this.ctx.shared.set({ from: step - 1, to: step, at: step });
      });
    }
  }

  /** Say what is under the pointer, and put the cursor there. */
  tell(x, y, place) {
    const line = this.lines[Math.floor(y / this.tall)];
    const t = place.from + ((x - place.gutter) / place.wide) * (place.to - place.from);
    if (!this.spans || x < place.gutter) return;
    const found = line ? spanAt(line, t - this.spans.origin, (place.to - place.from) / place.wide) : -1;
    this.ctx.shared.set({ at: Math.max(Math.ceil(this.ctx.run.clock.step(t)), 0) });
    if (found < 0) {
      this.tip.textContent = line ? `${plain(laneName(this.spans.lanes[line.lane]), 80)}: no span at ${timeOfDay(t)}` : "";
      return;
    }
    const { name, dur, step, err } = this.spans.spans;
    const said = [laneName(this.spans.lanes[line.lane]), `${this.spans.names[name[found]]}: ${seconds(dur[found])}`];
    if (step[found] >= 0) said.push(`step ${full(step[found])}`);
    if (err[found]) said.push(`ended by ${err[found]}`);
    this.tip.textContent = plain(said.join(", "), 400);
  }
}

function laneName(lane) {
  return `${lane.actor} ${lane.rank}${lane.name ? ` ${lane.name}` : ""}${lane.host ? ` on ${lane.host}` : ""}${lane.attempt ? `, attempt ${lane.attempt}` : ""}`;
}

/** What was found, without what lies so far from the steps that a clock must be wrong. */
export function near({ found, stages }, clock) {
  if (!found || !clock.paced || !stages.step.length) return found;
  const [first, last] = [clock.time(stages.step[0] - 1), clock.time(stages.step[stages.step.length - 1])];
  const room = FAR * (last - first) + FAR_S;
  return found[0] < first - room || found[1] > last + room ? [Math.max(found[0], first - room), Math.min(found[1], last + room)] : found;
}

/** All steps of a range that has room for them. Counted, as beyond 2 ** 53 adding one changes nothing. */
function whole(first, last) {
  const low = Math.ceil(first);
  return Array.from({ length: Math.max(Math.floor(last - low) + 1, 0) }, (_, at) => low + at);
}
