// The page: it asks for the token, opens a run, and shows one panel at a time under one cursor and one range.

import { recolour } from "./chart.js";
import { h, plain, problem, show } from "./dom.js";
import { full, number } from "./numbers.js";
import { Run } from "./run.js";
import { Served, embedded } from "./source.js";
import { Kept, Shared, moved, readFragment, writeFragment } from "./state.js";
import { drawList } from "./panels/list.js";
import { STATES, overview } from "./panels/overview.js";
import { stability } from "./panels/stability.js";
import { metrics } from "./panels/metrics.js";
import { timeline } from "./panels/timeline.js";
import { ranks } from "./panels/ranks.js";
import { memory } from "./panels/memory.js";
import { rollouts } from "./panels/rollouts.js";
import { alerts } from "./panels/alerts.js";
import { ledger } from "./panels/ledger.js";
import { events } from "./panels/events.js";
import { rundata } from "./panels/rundata.js";
import { diff } from "./panels/diff.js";

const PANELS = [overview, stability, metrics, timeline, ranks, memory, rollouts, alerts, ledger, events, rundata, diff];
const TOKEN = "rlship-token";
const [local, session] = [new Kept("localStorage"), new Kept("sessionStorage")];
const AGAIN_MS = 1000;
const KEYS = [
  ["1 … 9", "open a panel"], ["a, d", "move the range"], ["w, s", "make the range smaller, larger"], ["0", "the whole run"],
  ["← →", "move the cursor by a step"], ["/", "go to the filter"], ["l", "copy a link to this view"], ["?", "show these keys"],
];

class Page {
  constructor(root) {
    this.root = root;
    const { view, token } = readFragment(location.hash);
    this.shared = new Shared(view, { address: (hash, leaps) => (leaps ? history.pushState(null, "", hash) : history.replaceState(null, "", hash)), later: (act, ms) => setTimeout(act, ms) });
    // Before anything else runs, the token leaves the address and the history.
    history.replaceState(null, "", `#${writeFragment(view)}`);
    if (token) session.set(TOKEN, token);
    this.run = null;
    this.closePanel = null;
    this.parts = {};
  }

  async begin() {
    this.theme(local.get("rlship-theme"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.theme(local.get("rlship-theme")));
    addEventListener("hashchange", () => this.addressChanged());
    addEventListener("keydown", (event) => this.key(event));
    this.shared.listen((view, changed) => this.follow(view, changed));
    const data = document.getElementById("data");
    if (data) return this.enterFile(data.textContent);
    const token = session.get(TOKEN);
    return token ? this.enter(new Served(token)) : this.askToken("");
  }

  async enterFile(text) {
    let source;
    try {
      source = await embedded(text);
    } catch (error) {
      return this.say({ error: `the data of this file cannot be read (${error.message})`, hint: "write it again with `rlship view --export`, and open it in a browser of 2023 or later" });
    }
    return this.enter(source);
  }

  /** Show nothing but what is wrong, and the way out. */
  say(error) {
    show(this.root, h("main", { id: "main" }, h("h1", {}, "rlship view"), h("p", { class: "note bad", role: "alert" }, problem(error))));
  }

  addressChanged() {
    const { view, token } = readFragment(location.hash);
    if (!token) return this.shared.replace(view);
    history.replaceState(null, "", `#${writeFragment(view)}`);
    if (this.source && (!this.source.live || this.source.token === token)) return this.shared.replace(view);
    // A server that was started again has another token: what asks with the former one ends.
    session.set(TOKEN, token);
    this.leave();
    this.source = null;
    this.shared.replace(view);
    return this.enter(new Served(token));
  }

  askToken(why) {
    const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true, maxlength: 200 });
    const take = (event) => {
      event.preventDefault();
      const token = readFragment(field.value.includes("#") ? field.value.slice(field.value.indexOf("#")) : "").token || field.value.trim();
      session.set(TOKEN, token);
      this.enter(new Served(token));
    };
    show(this.root, h("main", { id: "main" }, h("h1", {}, "rlship view"),
      why ? h("p", { class: "note bad", role: "alert" }, why) : null,
      h("p", {}, "A link holds the view only, never the token. ", h("code", {}, "rlship view"), " printed an address that ends in the token: paste that address, or the token, here."),
      h("form", { class: "tools", on: { submit: take } }, h("label", {}, "Token ", field), h("button", { class: "main" }, "Open"))));
    field.focus();
  }

  async enter(source) {
    this.source = source;
    try {
      this.listed = await source.experiments();
    } catch (error) {
      if (error.status === 401 || error.status === 403) {
        session.remove(TOKEN);
        this.source = null;
        return this.askToken(error.message);
      }
      return this.say(error);
    }
    this.frame();
    if (source.live) this.followList();
    return this.openRun();
  }

  followList() {
    const take = (event) => {
      if (event.kind !== "experiments") return;
      const changed = new Map(event.experiments.map((entry) => [entry.id, entry]));
      const kept = this.listed.experiments.filter((entry) => !event.gone.includes(entry.id));
      const known = new Set(kept.map((entry) => entry.id));
      this.listed.experiments = [...kept.map((entry) => changed.get(entry.id) ?? entry), ...event.experiments.filter((entry) => !known.has(entry.id))];
      this.fillRuns();
      if (!this.run) this.drawList();
    };
    this.source.followList(take, () => undefined, new AbortController().signal);
  }

  frame() {
    const parts = this.parts;
    parts.runs = h("select", { id: "run", "aria-label": "Experiment", on: { change: () => this.shared.set({ run: parts.runs.value || undefined, at: undefined, from: undefined, to: undefined, episode: undefined }) } });
    parts.state = h("span", { class: "badge", role: "status" });
    parts.trouble = h("p", { class: "note bad", role: "alert", hidden: true });
    parts.nav = h("nav", { "aria-label": "Panels" }, PANELS.map((panel) => h("button", { data: { panel: panel.id }, on: { click: () => this.shared.set({ panel: panel.id }) } }, panel.title)));
    parts.from = h("input", { id: "from", inputmode: "decimal", "aria-label": "From step" });
    parts.to = h("input", { id: "to", inputmode: "decimal", "aria-label": "To step" });
    parts.at = h("output", { id: "at" });
    parts.rank = h("button", { id: "rank", hidden: true, on: { click: () => this.shared.set({ rank: undefined, actor: undefined }) } });
    parts.main = h("main", { id: "main", tabindex: -1 });
    parts.copied = h("span", { class: "quiet", role: "status" });
    for (const field of [parts.from, parts.to]) field.addEventListener("change", () => this.typedRange());
    parts.range = h("div", { class: "range", role: "group", "aria-label": "Range of steps" },
      h("label", {}, "Steps ", parts.from), h("label", {}, " to ", parts.to),
      h("button", { on: { click: () => this.move({ zoom: 0.5 }) }, "aria-label": "Zoom in" }, "+"),
      h("button", { on: { click: () => this.move({ zoom: 2 }) }, "aria-label": "Zoom out" }, "−"),
      h("button", { id: "whole", on: { click: () => this.shared.set({ from: undefined, to: undefined }) } }, "Whole run"),
      h("span", {}, "Cursor: ", parts.at), parts.rank);
    show(this.root,
      h("a", { class: "skip", href: "#main", on: { click: (event) => { event.preventDefault(); parts.main.focus(); } } }, "To the content"),
      h("header", {}, h("h1", {}, "rlship view"), h("span", { class: "grow" }, parts.runs), parts.state,
        h("button", { id: "link", on: { click: () => this.copyLink() } }, "Copy link"), parts.copied,
        h("button", { id: "theme", on: { click: () => this.turn() } }, "Light or dark"),
        h("button", { id: "keys", "aria-label": "Keys", on: { click: () => this.showKeys() } }, "?")),
      parts.nav, parts.range, parts.trouble, parts.main,
      h("footer", {}, `rlship ${this.listed.version}. `, this.source.live ? h("span", { title: this.listed.folder }, `Folder ${this.listed.folder.split("/").pop()}`) : "An exported file: it does not change."));
    this.fillRuns();
  }

  fillRuns() {
    const { runs } = this.parts;
    const chosen = this.shared.view.run ?? (this.listed.single ? this.listed.experiments[0]?.id : "");
    show(runs, this.listed.single ? [] : h("option", { value: "" }, "All experiments"), this.listed.experiments.map((entry) => h("option", { value: entry.id }, plain(entry.name, 120))));
    runs.value = chosen ?? "";
  }

  async openRun() {
    const id = this.shared.view.run ?? (this.listed.single ? this.listed.experiments[0]?.id : undefined);
    this.parts.runs.value = id ?? "";
    this.leave();
    this.parts.nav.hidden = this.parts.range.hidden = !id;
    this.parts.state.hidden = !id;
    if (!id) return this.drawList();
    show(this.parts.main, h("p", { class: "quiet", role: "status" }, "Loading …"));
    const run = new Run(this.source, id);
    this.run = run;
    run.listen((what) => this.hear(what));
    try {
      await run.start();
    } catch (error) {
      if (this.run !== run) return undefined;
      if (error.status === 401) return this.askToken(error.message);
      // A store may be there a moment later, as when a sidecar starts under an open page.
      if (error.status === 0 || error.status >= 500) setTimeout(() => { if (this.run === run) this.openRun(); }, AGAIN_MS);
      return show(this.parts.main, h("p", { class: "note bad", role: "alert" }, problem(error)),
        h("button", { on: { click: () => this.openRun() } }, "Try again"));
    }
    if (this.run === run) this.openPanel();
    return undefined;
  }

  leave() {
    this.closePanel?.();
    this.closePanel = null;
    this.run?.close();
    this.run = null;
  }

  drawList() {
    const before = this.parts.filter?.value ?? this.shared.view.filter ?? "";
    if (!this.parts.list?.isConnected) {
      this.parts.list = h("div", {});
      this.parts.filter = h("input", { id: "list-filter", type: "search", value: before, on: { input: () => this.drawList() } });
      show(this.parts.main, h("div", { class: "tools" }, h("label", {}, "Filter ", this.parts.filter)), this.parts.list);
    }
    drawList(this.parts.list, this.listed, this.parts.filter.value, (id) => this.shared.set({ run: id }));
  }

  openPanel() {
    this.closePanel?.();
    this.closePanel = null;
    this.shown = null;
    const panel = PANELS.find((each) => each.id === this.shared.view.panel) ?? PANELS[0];
    for (const button of this.parts.nav.children) {
      if (button.dataset.panel === panel.id) button.setAttribute("aria-current", "page");
      else button.removeAttribute("aria-current");
      if (button.dataset.panel === panel.id) button.scrollIntoView({ block: "nearest", inline: "center" });
    }
    const host = h("div", { data: { shown: panel.id } });
    show(this.parts.main, host);
    const ctx = { run: this.run, shared: this.shared, listed: this.listed, open: (id, parts = {}) => this.shared.set({ panel: id, ...parts }), move: (how) => this.move(how), shows: (range) => { this.shown = range; this.showRange(); } };
    this.closePanel = panel.make(host, ctx);
    this.showRange();
    document.title = `${panel.title} · ${plain(this.run.overview.entry.name, 80)} · rlship`;
  }

  hear(what) {
    const { trouble, state } = this.parts;
    if (what === "trouble") {
      if (this.run.lostBy === "token") {
        const why = this.run.trouble;
        this.leave();
        this.source = null;
        session.remove(TOKEN);
        return this.askToken(why);
      }
      trouble.hidden = !this.run.trouble;
      trouble.textContent = plain(this.run.trouble);
    }
    if (what === "all" || what === "rows") this.showRange();
    this.root.dataset.store = this.run.store;
    if (what !== "all" && what !== "overview") return undefined;
    const { entry } = this.run.overview;
    const [word, colour] = STATES[entry.state] ?? [plain(entry.state), ""];
    state.className = `badge ${colour} ${this.source.live && entry.state === "running" ? "live" : ""}`;
    state.textContent = word;
    return undefined;
  }

  follow(view, changed) {
    if (!this.source || !this.parts.main) return;
    if (changed.has("run")) this.openRun();
    else if (changed.has("panel") && this.run?.overview) this.openPanel();
    if (["at", "from", "to", "rank", "actor"].some((name) => changed.has(name))) this.showRange();
  }

  showRange() {
    const { from, to, at, rank } = this.parts;
    const { view } = this.shared;
    const [low, high] = this.rangeShown();
    if (document.activeElement !== from) from.value = typed(low);
    if (document.activeElement !== to) to.value = typed(high);
    rank.hidden = !view.rank;
    rank.textContent = `Rank ${plain([view.actor, view.rank].filter(Boolean).join(" "), 60)} ×`;
    rank.setAttribute("aria-label", `${rank.textContent.slice(0, -2)} is chosen; press to choose no rank`);
    at.textContent = view.at === undefined ? "none" : full(view.at);
    this.root.dataset.range = view.from < view.to ? `${view.from} ${view.to}` : "";
  }

  /** The range of steps that is seen: a panel may show less than the whole run as long as no range was chosen. */
  rangeShown() {
    const { view } = this.shared;
    if (view.from < view.to) return [view.from, view.to];
    return this.shown?.() ?? this.run?.whole ?? [0, 1];
  }

  typedRange() {
    const [from, to] = [Number(this.parts.from.value), Number(this.parts.to.value)];
    if (from < to) this.shared.set({ from, to });
    else this.showRange();
  }

  move(how) {
    if (!this.run?.overview) return;
    const { view } = this.shared;
    const whole = this.run.whole;
    const range = this.rangeShown();
    const around = how.zoom && how.around === undefined && view.at >= range[0] && view.at <= range[1] ? view.at : how.around;
    const [from, to] = moved(range, whole, { ...how, around });
    if (from <= whole[0] && to >= whole[1]) this.shared.set({ from: undefined, to: undefined });
    else this.shared.set({ from, to });
  }

  key(event) {
    const typing = event.target instanceof Element && event.target.closest("input, select, textarea, dialog");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !this.run) return;
    const step = () => this.shared.view.at ?? this.run.whole[1];
    const acts = {
      a: () => this.move({ by: -0.2 }), d: () => this.move({ by: 0.2 }), w: () => this.move({ zoom: 0.7 }), s: () => this.move({ zoom: 1 / 0.7 }),
      0: () => this.shared.set({ from: undefined, to: undefined }), l: () => this.copyLink(), "?": () => this.showKeys(),
      ArrowLeft: () => this.shared.set({ at: Math.max(Math.round(step()) - 1, this.run.whole[0]) }),
      ArrowRight: () => this.shared.set({ at: Math.min(Math.round(step()) + 1, this.run.whole[1]) }),
      "/": () => document.querySelector("main input[type=search]")?.focus(),
    };
    const act = acts[event.key] ?? (/^[1-9]$/.test(event.key) && PANELS[event.key - 1] ? () => this.shared.set({ panel: PANELS[event.key - 1].id }) : null);
    if (!act) return;
    event.preventDefault();
    act();
  }

  copyLink() {
    this.shared.store();
    const link = location.href;
    const done = () => { this.parts.copied.textContent = "Copied: the link holds the view, not the token."; };
    const shown = () => { this.parts.copied.textContent = link; };
    if (navigator.clipboard) navigator.clipboard.writeText(link).then(done, shown);
    else shown();
    this.root.dataset.link = link;
  }

  showKeys() {
    const dialog = h("dialog", { "aria-label": "Keys" }, h("h2", {}, "Keys"),
      h("dl", {}, KEYS.map(([key, does]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)))),
      h("form", { method: "dialog" }, h("button", { class: "main" }, "Close")));
    dialog.addEventListener("close", () => dialog.remove());
    this.root.append(dialog);
    dialog.showModal();
  }

  theme(chosen) {
    const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    recolour();
    dispatchEvent(new Event("rlship-theme"));
  }

  turn() {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    local.set("rlship-theme", next);
    this.theme(next);
  }
}

/** A step as a person may type it. */
function typed(step) {
  if (Number.isInteger(step)) return String(step);
  return Math.abs(step) < 1e5 ? number(step, 6).replaceAll(",", "") : String(Number(step.toFixed(1)));
}

new Page(document.getElementById("page")).begin();
