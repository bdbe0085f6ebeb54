// Rollouts of a step, grouped by prompt: texts, chat turns, tool calls, tokens, rewards; two of them side by side.

import { h, plain, problem, show, table } from "../dom.js";
import { counted, full, number } from "../numbers.js";
import { chosenSamples, ofAll, tokenColumns, tokenShade, turns } from "../shape/samples.js";

const MOST = 60; // samples that are drawn at a time
const LONGEST = 20_000; // characters of a text that are drawn at once
const TOKENS = 6_000;
const SETTLE_MS = 250;
const LOADED = 2000; // samples that a person may have loaded of one step
const MOST_STEPS = 2000; // that an answer names
const BESIDE = 4; // numbers of a sample that stand beside its measure

export const rollouts = {
  id: "rollouts",
  title: "Rollouts",
  make(host, ctx) {
    const panel = new Rollouts(host, ctx);
    panel.load();
    return () => panel.close();
  },
};

class Rollouts {
  constructor(host, ctx) {
    this.ctx = ctx;
    this.said = null;
    this.most = MOST;
    this.timers = {};
    this.tables = h("select", { id: "rollout-table", on: { change: () => ctx.shared.set({ table: this.tables.value, bin: undefined }) } });
    this.step = h("input", { id: "rollout-step", type: "number", inputmode: "numeric", min: 0, "aria-describedby": "rollout-steps", on: { input: () => { this.typing = true; }, change: () => this.goTo(), blur: () => this.tellStep(), keydown: (event) => this.stepKey(event) } });
    this.steps = h("span", { id: "rollout-steps", class: "quiet" });
    this.search = h("input", { id: "rollout-search", type: "search", maxlength: 200, placeholder: "a text in any column", on: { input: () => this.draw() } });
    this.colour = h("select", { id: "token-colour", on: { change: () => this.draw() } });
    this.note = h("p", { class: "quiet", role: "status" }, "Loading …");
    this.bars = h("div", {});
    this.pair = h("div", {});
    this.list = h("div", {});
    const next = (by) => () => this.moveStep(by);
    show(host, h("h2", {}, "Rollouts"),
      h("div", { class: "tools" }, h("label", {}, "Step ", this.step), this.steps, h("button", { on: { click: next(-1) } }, "Earlier"), h("button", { on: { click: next(1) } }, "Later"),
        h("label", {}, "Table ", this.tables), h("label", {}, "Search ", this.search), h("label", {}, "Colour of tokens ", this.colour)),
      this.note, this.bars, this.pair, this.list);
    this.quit = [
      ctx.shared.listen((view, changed) => this.follow(view, changed)),
      ctx.run.listen((what, rows) => {
        if (what === "all" || (what === "rows" && rows.some((row) => row.tables.length) && ctx.shared.view.at === undefined)) this.later("load", 500, () => this.load());
      }),
    ];
  }

  close() {
    for (const quit of this.quit) quit();
    for (const timer of Object.values(this.timers)) clearTimeout(timer);
    this.asking?.abort();
  }

  later(name, ms, act) {
    clearTimeout(this.timers[name]);
    this.timers[name] = setTimeout(act, ms);
  }

  follow(view, changed) {
    if (changed.has("at") && view.at !== undefined && Math.round(view.at) !== this.said?.step) this.later("load", SETTLE_MS, () => this.load());
    else if (changed.has("table")) this.takeTables();
    if (["bin", "left", "right"].some((name) => changed.has(name))) this.draw();
    if (changed.has("bin") && view.bin !== undefined) this.loadAll();
  }

  /** A bar counts all samples of the step: those that were not loaded come too. */
  loadAll() {
    if (!this.lacks()) return;
    this.limit = LOADED;
    this.load();
  }

  /** A choice is one of this step: a live run does not go on to its next one under it. */
  choose(parts) {
    this.ctx.shared.set({ ...parts, at: this.said.step });
  }

  lacks() {
    return this.ctx.run.source.live && this.limit === undefined && this.table?.shown < this.table?.kept;
  }

  /** The next step that has rollouts, of the one that was asked for last: its answer may not be there yet. */
  moveStep(by) {
    const steps = this.said?.steps ?? [];
    const now = Math.round(this.ctx.shared.view.at ?? this.said?.step);
    const next = by < 0 ? steps.findLast((step) => step < now) : steps.find((step) => step > now);
    if (next === undefined) return;
    this.typing = false;
    this.ctx.shared.set({ at: next });
    this.step.value = String(next);
  }

  /** The step that a person typed. One without rollouts leads to the nearest that has some. */
  goTo() {
    this.typing = false;
    const wanted = this.step.value === "" ? undefined : Math.min(Math.max(Math.round(Number(this.step.value)), 0), Number.MAX_SAFE_INTEGER);
    if (wanted === undefined || wanted === this.ctx.shared.view.at) this.tellStep();
    else this.ctx.shared.set({ at: wanted });
  }

  stepKey(event) {
    const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!by) return;
    event.preventDefault(); // the field itself would go to steps without rollouts
    this.moveStep(by);
  }

  /** Which step is shown, and of how many; what a person types at this moment stays. */
  tellStep() {
    const { steps = [], step = null } = this.said ?? {};
    if (!this.typing || document.activeElement !== this.step) this.step.value = step === null ? "" : String(step);
    const many = steps.length >= MOST_STEPS ? "the nearest " : "";
    this.steps.textContent = steps.length > 1 ? `${many}${counted(steps.length, "step")}: ${full(steps[0])} to ${full(steps[steps.length - 1])}` : "";
  }

  async load() {
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    const { at } = this.ctx.shared.view;
    try {
      const said = await this.ctx.run.ask("rollouts", { step: at === undefined ? undefined : Math.round(at), limit: this.limit }, asking.signal);
      if (!asking.signal.aborted) this.take(said);
    } catch (error) {
      if (!asking.signal.aborted) this.note.textContent = plain(problem(error));
    }
  }

  take(said) {
    this.said = said;
    this.tellStep();
    this.takeTables();
  }

  takeTables() {
    const { tables } = this.said ?? { tables: [] };
    show(this.tables, tables.map((each) => h("option", { value: keyOf(each) }, plain(`${each.actor}: ${each.table}`, 100))));
    this.table = tables.find((each) => keyOf(each) === this.ctx.shared.view.table) ?? tables[0];
    if (this.table) this.tables.value = keyOf(this.table);
    const columns = new Map((this.table?.samples ?? []).flatMap((sample) => tokenColumns(sample.tokens).map((column) => [column.name, column.title])));
    const before = this.colour.value;
    show(this.colour, h("option", { value: "" }, columns.size ? "none" : "no values by token"), [...columns].map(([name, title]) => h("option", { value: name }, title)));
    this.colour.value = columns.has(before) ? before : [...columns.keys()][0] ?? "";
    this.most = MOST;
    this.draw();
  }

  draw() {
    const { said, table: found } = this;
    if (!said) return;
    if (!found) {
      show(this.bars);
      show(this.pair);
      show(this.list);
      this.note.textContent = said.note ? plain(said.note) : "This run has no rollouts: `rlship.sample` records them.";
      return;
    }
    const { view } = this.ctx.shared;
    const bin = view.bin === undefined ? undefined : Number(view.bin);
    const chosen = chosenSamples(found, { bin, text: this.search.value });
    const asked = view.at !== undefined && Math.round(view.at) !== said.step ? `Step ${full(view.at)} has none; step ${full(said.step)} is the nearest. ` : "";
    this.note.textContent = plain(`${asked}Step ${said.step}: ${ofAll(found, chosen.length)}. ${said.note}`);
    this.drawBars(found, bin);
    this.drawPair(found);
    this.drawGroups(found, new Set(chosen));
  }

  drawBars(found, bin) {
    if (!found.rewards) {
      show(this.bars);
      return;
    }
    const { edges, counts } = found.rewards;
    const most = Math.max(...counts, 1);
    const bars = counts.map((count, at) => {
      const empty = !count && bin !== at; // one that a link chose can be given up
      const said = `${capital(found.measure)} ${number(edges[at])} to ${number(edges[at + 1])}: ${counted(count, "sample")}`;
      const bar = h("button", { "aria-label": said, title: said, disabled: empty, "aria-pressed": String(bin === at), data: { bin: String(at), count: String(count) },
        on: { click: () => this.choose({ bin: bin === at ? undefined : String(at) }) } });
      bar.style.height = count ? `${Math.max((count / most) * 100, 3)}%` : "0";
      return bar;
    });
    show(this.bars, h("h3", {}, `${capital(found.measure)}s of the step: a bar chooses its samples`), h("div", { class: "bars", role: "group", "aria-label": `Histogram of ${found.measure}s` }, bars),
      h("p", { class: "quiet small" }, `from ${number(edges[0])} to ${number(edges[edges.length - 1])}${bin === undefined ? "" : `; chosen: ${number(edges[bin])} to ${number(edges[bin + 1])}`}`));
  }

  drawPair(found) {
    const { view } = this.ctx.shared;
    const chosen = [view.left, view.right].map((id) => found.samples.find((sample) => sample.id === id));
    if (!chosen[0] && !chosen[1]) {
      show(this.pair);
      return;
    }
    show(this.pair, h("section", { class: "section", "aria-label": "Side by side" }, h("h3", {}, "Side by side"),
      h("div", { class: "pair", data: { pair: "" } }, chosen.map((sample, at) => h("div", {}, sample ? this.sample(sample, true) : h("p", { class: "note" }, `Choose the ${at ? "right" : "left"} one below.`)))),
      h("button", { on: { click: () => this.ctx.shared.set({ left: undefined, right: undefined }) } }, "Close")));
  }

  drawGroups(found, chosen) {
    let left = this.most;
    const groups = found.groups.map((members) => members.filter((at) => chosen.has(at))).filter((members) => members.length);
    const drawn = [];
    for (const members of groups) {
      if (left <= 0) break;
      drawn.push(this.group(found, members.slice(0, left)));
      left -= members.length;
    }
    const rest = chosen.size - this.most;
    const more = this.lacks() ? h("button", { data: { load: "" }, on: { click: () => this.loadAll() } }, `Load the other ${full(found.kept - found.shown)} samples of the step`) : null;
    const single = groups.every((members) => members.length === 1);
    show(this.list, single ? h("div", { class: "pair" }, drawn) : drawn, rest > 0 ? h("button", { on: { click: () => { this.most += MOST; this.draw(); } } }, `Show more: ${number(rest)} are left`) : null, more);
  }

  group(found, members) {
    const samples = members.map((at) => found.samples[at]);
    const scores = samples.map((sample) => sample.score).filter((score) => score !== null);
    const mean = scores.length ? scores.reduce((sum, score) => sum + score, 0) / scores.length : null;
    const [first] = samples;
    const same = samples.every((sample) => JSON.stringify(sample.prompt) === JSON.stringify(first.prompt));
    return h("details", { class: "section group", open: true },
      h("summary", {}, h("span", { class: "name" }, `Group ${plain(first.group || "without a key", 80)}`), h("span", { class: "quiet" }, `: ${counted(samples.length, "sample")}, mean ${found.measure} ${number(mean)}`)),
      same ? this.turns(first.prompt, "user") : null,
      h("div", { class: "pair" }, samples.map((sample) => this.sample(sample, !same))));
  }

  sample(sample, withPrompt) {
    const facts = Object.entries(sample.row);
    const { measure } = this.table;
    // Without a reward, what its functions gave stands among the columns.
    const beside = measure === "reward" ? [["advantage", sample.advantage]].filter(([, value]) => value !== null) : facts.filter(([, value]) => typeof value === "number").slice(0, BESIDE);
    return h("article", { class: "sample", data: { sample: sample.id } },
      h("div", { class: "tools" },
        h("strong", {}, `${capital(measure)} ${number(sample.score)}`), beside.map(([name, value]) => h("span", {}, `${plain(name, 40)} ${number(value)}`)),
        h("span", { class: "quiet" }, `rank ${plain(sample.rank, 40)}`), sample.why.length ? h("span", { class: "quiet", title: "Why the row of this step shows the sample" }, `shown as ${sample.why.join(", ")}`) : null,
        h("button", { on: { click: () => this.choose({ left: sample.id }) } }, "Left"), h("button", { on: { click: () => this.choose({ right: sample.id }) } }, "Right")),
      withPrompt ? this.turns(sample.prompt, "user") : null,
      // Tokens stand for a text; turns and tool calls say more than they do.
      sample.tokens?.text && this.colour.value ? [typeof sample.response === "object" ? this.turns(sample.response, "assistant") : null, this.tokens(sample.tokens)] : this.turns(sample.response, "assistant"),
      facts.length ? h("details", {}, h("summary", {}, `${counted(facts.length, "more column")}`), table("Columns", ["Column", "Value"], facts.slice(0, 200).map(([name, value]) => [
        h("span", { class: "name" }, name), h("span", { class: "text" }, typeof value === "string" ? plain(value, LONGEST) : JSON.stringify(value)?.slice(0, LONGEST)),
      ]))) : null,
      sample.cut ? h("p", { class: "quiet small" }, `Cut by the job's settings: ${plain(JSON.stringify(sample.cut), 300)}`) : null);
  }

  turns(said, role) {
    return turns(said, role).map((turn) => h("div", { class: `turn ${["user", "assistant", "tool", "system"].includes(turn.role) ? turn.role : ""}` },
      h("div", { class: "who" }, plain(turn.role, 40)), turn.text ? this.text(turn.text) : null,
      turn.calls.map((call) => h("div", { class: "turn tool call" }, h("div", { class: "who" }, "tool call"), h("code", { class: "text" }, plain(call, LONGEST))))));
  }

  /** A text; a very long one only in part, until a person wants all of it. */
  text(text) {
    const place = h("div", { class: "text", dir: "auto" }, plain(text, LONGEST));
    if (text.length <= LONGEST) return place;
    const all = h("button", { on: { click: () => { place.textContent = plain(text, text.length); all.remove(); } } }, `Show all ${number(text.length)} characters`);
    return h("div", {}, place, all);
  }

  tokens(tokens) {
    const column = tokenColumns(tokens).find((each) => each.name === this.colour.value);
    const { mask } = tokens.columns;
    const shown = tokens.text.slice(0, TOKENS).map((text, at) => {
      const value = column?.values[at] ?? null;
      const shade = tokenShade(this.colour.value, value);
      const masked = mask && mask[at] === 0;
      const token = h("span", { class: masked ? "token masked" : "token", title: `${column?.title}: ${number(value)}${masked ? ", masked" : ""}` }, plain(text, 200));
      if (Math.abs(shade) > 0.02) token.style.backgroundColor = `color-mix(in srgb, var(--${shade < 0 ? "cold" : "hot"}) ${Math.round(Math.abs(shade) * 45)}%, transparent)`;
      return token;
    });
    return h("div", { class: "turn assistant" }, h("div", { class: "who" }, `tokens by ${column?.title ?? ""}: blue below, orange above, italic masked`),
      h("div", { class: "text", dir: "auto" }, shown, tokens.text.length > TOKENS ? `… and ${number(tokens.text.length - TOKENS)} more tokens` : null));
  }
}

function capital(word) {
  return word[0].toUpperCase() + word.slice(1);
}

function keyOf(found) {
  return `${found.actor}/${found.table}`;
}
