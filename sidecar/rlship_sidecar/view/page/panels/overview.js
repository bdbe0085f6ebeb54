// The overview: how the run is, its headline charts, who takes part, and what is missing or was refused.

import { ChartGrid } from "../grid.js";
import { h, plain, show, table } from "../dom.js";
import { clock, counted, full, number, seconds } from "../numbers.js";
import { endOf, GOING, judged } from "../shape/episodes.js";

export const STATES = {
  running: ["Running", "good"], held: ["Held up", "bad"], silent: ["Silent", "bad"], ended: ["Ended", "warn"], finished: ["Finished", "good"],
  stopped: ["Stopped", "warn"], unwatched: ["No rows yet", "warn"], unreadable: ["Unreadable", "bad"],
};
const [HEADLINES, MOST_ACTORS, MOST_ALARMS, MOST_PARTS, MOST_ENDED] = [12, 200, 20, 4, 50];

export const overview = {
  id: "overview",
  title: "Overview",
  make(host, ctx) {
    const facts = h("div", {});
    const alarms = h("div", {});
    const lines = h("div", {});
    const charts = h("section", { class: "section", "aria-label": "Headline charts" });
    const details = h("div", {});
    show(host, h("h2", { class: "unseen" }, "Overview"), facts, alarms, lines, charts, details);
    const grid = new ChartGrid(charts, ctx, headlines(ctx.run), { onPick: (step) => ctx.open("rollouts", { at: step }) });
    // A button keeps the focus as long as what it is for stays; a table that a person opened stays open.
    const alert = () => show(alarms, goingOn(ctx.run).map((episode) => alarm(episode, ctx)));
    const draw = () => {
      const open = details.querySelector("details")?.open ?? false;
      show(facts, tiles(ctx.run));
      show(lines, notes(ctx.run));
      show(details, actors(ctx.run.overview), refused(ctx.run.overview), sinks(ctx.run.overview), writers(ctx.run.overview, open));
    };
    alert();
    draw();
    const quit = ctx.run.listen((what) => {
      if (["all", "alerts"].includes(what)) alert();
      if (["all", "overview", "alerts", "trouble"].includes(what)) draw();
      if (what === "all" || what === "metrics") grid.put(headlines(ctx.run));
    });
    return () => { quit(); grid.close(); };
  },
};

/** The charts that a person looks at first. */
export function headlines(run) {
  const all = [...run.metrics.values()];
  const first = all.filter((metric) => metric.headline !== null).sort((a, b) => a.headline - b.headline);
  // A run of names that the catalogue does not have shows its first ones.
  return (first.length ? first : all.filter((metric) => !["alert", "ledger"].includes(metric.kind)).slice(0, 6))
    .slice(0, HEADLINES)
    .map((metric, at) => ({ title: metric.key, ids: [metric.id], colours: [`c${at % 5}`], about: metric.about }));
}

function tiles(run) {
  const { entry } = run.overview;
  const ranks = ranksOf(run.overview.actors);
  const [word, colour] = STATES[entry.state] ?? [entry.state, ""];
  const clearing = run.alerts.episodes.filter((episode) => episode.state === "clearing").length;
  const others = clearing ? `${number(clearing)} clearing` : entry.episodes ? `${number(entry.episodes)} past` : run.alerts.needs.length ? "none so far" : "off";
  const facts = [
    ["State", h("span", { class: colour, data: { fact: "state" } }, word)],
    ["Step", fact("step", full(entry.step), entry.step >= 1e9 ? "small" : "")],
    ["Steps a second", fact("speed", number(entry.steps_per_s, 3))],
    ["Ranks", fact("ranks", `${number(ranks.here)} of ${number(ranks.expected)}`, ranks.here < ranks.expected ? "bad" : ""), ranks.parts],
    ["Rows", fact("rows", full(run.row))],
    ["Alerts", fact("alerts", entry.firing ? `${number(entry.firing)} firing` : others, entry.firing ? "bad" : ""), entry.firing || entry.episodes || !run.overview.lead_steps ? "" : `in ${counted(run.overview.lead_steps, "step")}`],
    ["Began (UTC)", fact("began", clock(entry.began), "small")],
    ["Newest line (UTC)", fact("newest", clock(entry.newest), "small")],
  ];
  return h("dl", { class: "tiles", "aria-label": "State of the run" }, facts.map(([name, value, more]) => h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value, more ? h("div", { class: "quiet", data: { more: name } }, more) : null))));
}

/** The ranks of all actors together, and of several actors how many these are, or which of them lack ranks. */
export function ranksOf(actors) {
  const sum = (of) => actors.reduce((total, actor) => total + actor[of], 0);
  const lacking = actors.filter((actor) => actor.ranks < actor.expected);
  const parts = lacking.slice(0, MOST_PARTS).map((actor) => `${plain(actor.actor, 40)} ${number(actor.ranks)} of ${number(actor.expected)}`);
  if (lacking.length > MOST_PARTS) parts.push(`${number(lacking.length - MOST_PARTS)} more`);
  const several = actors.length > 1;
  return { here: sum("ranks"), expected: sum("expected"), parts: several ? parts.join(", ") || counted(actors.length, "actor") : "" };
}

/** What is known of a run of which no alert fired: in how many steps, and whether these are enough to say so. */
export function noAlert(run) {
  const { steps, rules, early } = judged(run.alerts.needs, run.overview.lead_steps);
  if (!rules) return "No rule of alerts looks at this run.";
  if (!steps) return "No alert so far.";
  const few = early ? ` Rules that also compare with earlier steps, of which there are too few yet: ${number(early)} of ${number(rules)}.` : "";
  return `No alert so far, in ${counted(steps, "step")}.${few}`;
}

function fact(name, value, colour = "") {
  return h("span", { class: colour, data: { fact: name } }, value);
}

function goingOn(run) {
  return run.alerts.episodes.filter((episode) => GOING.includes(episode.state)).slice(0, MOST_ALARMS);
}

function notes(run) {
  const { overview: said } = run;
  const told = new Set(goingOn(run).map((episode) => `${episode.rule} firing`));
  const lines = [...new Set([said.entry.note, ...said.entry.trouble, ...said.notes].filter((line) => line && !told.has(line)))];
  const progress = said.progress === null ? null : h("p", { class: "note" }, `${said.doing || "Rows are made"}: `,
    h("progress", { max: 1, value: String(said.progress), "aria-label": "Progress" }), ` ${Math.round(said.progress * 100)} %`);
  return h("div", { class: "section" }, progress, lines.map((line) => h("p", { class: `note ${said.entry.trouble.includes(line) ? "bad" : "plain"}` }, line)));
}

/** What goes wrong now, and the way to its cause. */
function alarm(episode, ctx) {
  const where = [episode.place && `at ${episode.place}`, Number.isFinite(episode.first?.step) && stretch(episode)].filter(Boolean).join(" ");
  return h("p", { class: "note bad", data: { alarm: episode.rule } }, h("strong", { class: "name" }, episode.rule), ` ${plain(episode.state, 40)} `, h("span", { class: "name" }, where), episode.about ? `: ${plain(episode.about, 300)} ` : " ",
    h("button", { "aria-label": `Why? ${plain(episode.rule, 80)}`, on: { click: () => ctx.open("alerts", { episode: episode.id }) } }, "Why?"));
}

/** In which steps an episode that goes on has its breaches. */
function stretch(episode) {
  const [from, to] = [episode.first.step, endOf(episode)];
  if (to === null) return `since step ${full(from)}`;
  return to === from ? `after step ${full(from)}` : `after steps ${full(from)} to ${full(to)}`;
}

export function actors(said) {
  // Those that lack ranks stand behind the lead, so that the bound leaves none of them out before others.
  const order = (actor) => (actor.lead ? 0 : actor.ranks < actor.expected ? 1 : 2);
  const shown = [...said.actors].sort((a, b) => order(a) - order(b)).slice(0, MOST_ACTORS);
  const title = shown.length < said.actors.length ? `Actors and their ranks: ${number(shown.length)} of ${number(said.actors.length)}` : "Actors and their ranks";
  const rows = shown.map((actor) => [
    h("span", { class: "name" }, actor.actor, actor.lead ? h("span", { class: "quiet" }, " (lead)") : null),
    full(actor.step), full(actor.open_step), number(actor.steps_per_s, 3), seconds(actor.lag_s),
    h("span", { data: { actor: actor.actor }, class: actor.ranks < actor.expected ? "bad" : "" }, `${number(actor.ranks)} of ${number(actor.expected)}`),
    names(actor.missing), names(actor.absent), actor.note,
  ]);
  return section("Actors", rows.length
    ? table(title, ["Actor", "Step", "Open step", "Steps a second", "Lag", "Ranks", "Missing", "Never came", "Note"], rows, { class: "wide" })
    : h("p", { class: "quiet" }, "No actor has a row yet."));
}

function names(ranks) {
  if (!ranks.length) return "";
  return h("span", { class: "bad" }, ranks.slice(0, 40).join(", "), ranks.length > 40 ? ` and ${ranks.length - 40} more` : "");
}

function refused(said) {
  const rows = said.refused.map((each) => [each.what, h("span", { class: "name" }, each.where), each.reason, number(each.count), h("code", { class: "text" }, each.excerpt)]);
  const lists = [["Lacking", said.lacking], ["Ranks that are short of a metric", said.short], ["Values that are not finite", said.nonfinite]]
    .filter(([, found]) => found.length)
    .map(([title, found]) => h("div", {}, h("h3", {}, title), h("ul", {}, found.slice(0, 50).map((each) => h("li", { class: "text" }, described(each))))));
  const ended = said.writers.filter((each) => ["silent", "failed"].includes(each.state));
  const gone = ended.slice(0, MOST_ENDED).map((each) => h("li", { class: "text bad" }, `${each.actor} ${each.rank}${each.host || each.pid ? ` (${[each.host, each.pid && `pid ${each.pid}`].filter(Boolean).join(" ")})` : ""}${each.state === "failed" ? `: ${plain(each.note, 300)}` : ""}`));
  if (ended.length > gone.length) gone.push(h("li", {}, `and ${number(ended.length - gone.length)} more`));
  return section("Missing or refused", [
    gone.length ? h("div", {}, h("h3", {}, "Processes that ended without a close"), h("ul", { data: { fact: "ended" } }, gone)) : null,
    rows.length ? table(`Refused: ${number(said.refused_in_all)} in all`, ["What", "Where", "Why", "Times", "Excerpt"], rows) : h("p", { class: "quiet" }, "No line was refused."),
    lists,
  ]);
}

/** Plain data as a line of text. */
export function described(value) {
  if (Array.isArray(value)) return value.map(described).join(", ");
  if (value && typeof value === "object") return Object.entries(value).filter(([, each]) => each !== null).map(([key, each]) => `${key}: ${described(each)}`).join("; ");
  return typeof value !== "number" ? String(value) : Number.isInteger(value) ? full(value) : number(value, 6);
}

function sinks(said) {
  if (!said.sinks.length) return null;
  return section("Sinks", table("Where rows go", ["Sink", "State", "Rows sent", "Where", "What is wrong"], said.sinks.map((sink) => [
    h("span", { class: "name" }, sink.name), sink.state, full(sink.sent), h("span", { class: "text" }, sink.where),
    h("span", { class: sink.error ? "text bad" : "text" }, [sink.error, sink.note, sink.advice].filter(Boolean).map((part) => plain(part, 500)).join("; ")),
  ])));
}

function writers(said, open) {
  const rows = said.writers.map((writer) => [
    h("span", { class: "name" }, writer.actor), writer.rank, number(writer.attempt), h("span", { class: "name" }, writer.host), writer.pid || "",
    full(writer.step), h("span", { class: ["failed", "silent"].includes(writer.state) ? "bad" : "" }, writer.state), seconds(writer.silent_s), writer.note,
  ]);
  const title = `Processes: ${number(said.writers.length)} of ${number(said.writers_in_all)}`;
  return h("details", { class: "section", open }, h("summary", {}, title),
    table(title, ["Actor", "Rank", "Attempt", "Host", "Pid", "Step", "State", "Silent for", "Note"], rows, { class: "wide" }));
}

export function section(title, ...content) {
  return h("section", { class: "section", "aria-label": title }, h("h2", {}, title), content);
}
