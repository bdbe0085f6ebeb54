// What the job said of the run: configuration, summary, facts, and what was changed later.

import { h, plain, problem, show, table } from "../dom.js";
import { clock, number } from "../numbers.js";

export const rundata = {
  id: "rundata",
  title: "Run data",
  make(host, ctx) {
    let said = null;
    let closed = false;
    const field = h("input", { id: "run-filter", type: "search", maxlength: 200, placeholder: "lr", on: { input: () => draw() } });
    const note = h("span", { class: "quiet", role: "status" });
    const list = h("div", {});
    show(host, h("h2", {}, "Run data"), h("div", { class: "tools" }, h("label", {}, "Filter ", field), note), list);
    const load = async () => {
      try {
        said = await ctx.run.ask("run");
        if (!closed) draw();
      } catch (error) {
        if (!closed) note.textContent = plain(problem(error));
      }
    };
    const draw = () => {
      if (!said) return;
      const wanted = field.value.toLowerCase();
      const found = said.keys.filter((each) => `${each.part}.${each.key} ${value(each.value)}`.toLowerCase().includes(wanted));
      note.textContent = `${number(found.length)} of ${number(said.keys.length)} keys${said.left_out ? `; ${number(said.left_out)} more are left out` : ""}`;
      const parts = [...new Set(found.map((each) => each.part))];
      show(list,
        said.keys.length ? null : h("p", { class: "note" }, "The job said nothing of the run: `rlship.init(config=…)` does."),
        parts.map((part) => table(part, ["Key", "Value"], found.filter((each) => each.part === part).slice(0, 2000).map((each) => [
          h("span", { class: "name", data: { key: `${part}.${each.key}` } }, each.key), h("span", { class: "text" }, value(each.value)),
        ]), { class: "keys" })),
        said.changes.length ? table("Changed later", ["Time (UTC)", "Key", "By", "Before", "After"], said.changes.map((each) => [
          clock(each.t), h("span", { class: "name" }, `${each.part}.${each.key}`), h("span", { class: "name" }, each.who), h("span", { class: "text" }, value(each.before)), h("span", { class: "text" }, value(each.after)),
        ])) : null);
    };
    load();
    const quit = ctx.run.listen((what) => { if (what === "all" || what === "run") load(); });
    return () => { closed = true; quit(); };
  },
};

/** A value of run data as text. */
export function value(given) {
  if (typeof given === "string") return plain(given, 4000);
  return given === undefined ? "–" : plain(JSON.stringify(given), 4000);
}
