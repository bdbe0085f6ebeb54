// Alerts and why they fired.

import { h, plain, problem, show, table } from "../dom.js";
import { counted, full, number } from "../numbers.js";
import { endOf, GOING } from "../shape/episodes.js";
import { noAlert } from "./overview.js";

export const alerts = {
  id: "alerts",
  title: "Alerts",
  make(host, ctx) {
    const list = h("div", {});
    const why = h("section", { class: "section", "aria-label": "Why", "aria-live": "polite" });
    show(host, h("h2", {}, "Alerts"), list, why);
    let asked = "";
    const ask = async (episode) => {
      show(why, h("p", { class: "quiet" }, "Looking for causes …"));
      try {
        const said = await ctx.run.ask("why", { episode: episode.id });
        if (asked !== episode.id) return;
        show(why, h("h2", {}, `Why ${plain(episode.rule, 80)}`), h("pre", { class: "text mono", tabindex: 0 }, plain(said.text.join("\n"), 40_000)));
      } catch (error) {
        show(why, h("p", { class: "note bad" }, problem(error)));
      }
    };
    const follow = () => {
      const { episodes } = ctx.run.alerts;
      // Who comes here without a choice wants to know of what goes on.
      const wanted = episodes.find((each) => each.id === ctx.shared.view.episode) ?? episodes.find((each) => GOING.includes(each.state));
      if (!wanted || wanted.id === asked) return;
      asked = wanted.id;
      ask(wanted);
    };
    const draw = () => {
      const { episodes, note, blind } = ctx.run.alerts;
      const head = ["Rule", "Severity", "State", "Place", "Steps", "Evidence", "What it means"];
      show(list,
        note ? h("p", { class: "note" }, note) : null,
        episodes.length ? table(counted(episodes.length, "episode"), head, episodes.map((episode) => line(episode, ctx)), { class: "wide" }) : note ? null : h("p", { class: "note plain", data: { none: "" } }, noAlert(ctx.run)),
        blind.length ? h("p", { class: "quiet text" }, `Rules that saw none of their metrics: ${blind.join(", ")}`) : null);
    };
    draw();
    follow();
    const quit = [
      ctx.run.listen((what) => {
        const { episodes } = ctx.run.alerts;
        if (what !== "all" && what !== "alerts" && (what !== "overview" || episodes.length)) return;
        draw();
        follow();
      }),
      ctx.shared.listen((view, changed) => { if (changed.has("episode")) follow(); }),
    ];
    return () => quit.forEach((each) => each());
  },
};

function line(episode, ctx) {
  const from = episode.first?.step;
  const to = endOf(episode);
  const going = GOING.includes(episode.state);
  const evidence = Object.entries(episode.evidence).slice(0, 20).map(([key, value]) => h("div", { class: "text small" }, `${key}: ${number(value)}`));
  return h("tr", { data: { episode: episode.rule } }, [
    [h("strong", { class: "name" }, episode.rule), h("div", {}, h("button", { "aria-label": `Why? ${plain(episode.rule, 80)}`, on: { click: () => ctx.shared.set({ episode: episode.id }) } }, "Why?"))], episode.severity, h("span", { class: going ? "bad" : "quiet" }, episode.state), h("span", { class: "name" }, episode.place),
    Number.isFinite(from) ? h("button", { on: { click: () => ctx.open("stability", { from: Math.max(from - 20, 0), to: (to ?? ctx.run.whole[1]) + 20, at: from }) } }, `${full(from)} to ${to === null ? "now" : full(to)}`) : "–",
    evidence, h("span", { class: "text" }, episode.about, episode.look ? h("div", { class: "quiet small text" }, `Look at: ${plain(episode.look, 400)}`) : null),
  ].map((cell) => h("td", {}, cell)));
}
