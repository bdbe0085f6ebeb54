// Elements and texts. Everything that a job wrote goes through `plain`, and is shown as text only.

const LONGEST = 4000;
// C0 and C1 controls but newline and tab, marks that change the direction of writing, and what shows nothing at all. Joiners
// (U+200C, U+200D) stay between two characters beyond Latin, where scripts and emoji need them.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}]|(?<![^\u0000-\u024f\u2000-\u206f])[\u200c\u200d]|[\u200c\u200d](?![^\u0000-\u024f\u2000-\u206f])/gu;
// Marks upon one letter; more of them than any script has would reach over what stands above and below.
const STACKED = /(\p{M}{6})\p{M}+/gu;

/** A text as it may be shown: what would not be seen is spelled out, and it has at most `most` characters. */
export function plain(value, most = LONGEST) {
  const text = typeof value === "string" ? value : value === undefined ? "" : String(value);
  const cut = text.length > most ? text.slice(0, most) : text;
  const shown = cut.toWellFormed().replace(UNSEEN, spelled).replace(STACKED, "$1…");
  return cut === text ? shown : `${shown}… (${text.length.toLocaleString("en")} characters in all)`;
}

/** The beginning of a text where there is little room. */
export function clipped(text, most) {
  const shown = plain(text);
  return shown.length > most ? `${shown.slice(0, Math.max(most - 1, 1))}…` : shown;
}

/** What is wrong, and the way out, as sentences. */
export function problem({ message, error = message, hint }) {
  return [error, hint].filter(Boolean).map((part) => `${/^(?!rlship)[a-z]/.test(part) ? part[0].toUpperCase() : part[0]}${part.slice(1)}${/[.!?]$/.test(part) ? "" : "."}`).join(" ");
}

function spelled(char) {
  const code = char.codePointAt(0);
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** An element. `attrs` may hold `on`, handlers by event, and `data`; strings among `children` become plain texts. */
export function h(tag, attrs = {}, ...children) {
  const made = document.createElement(tag);
  fill(made, attrs);
  put(made, children);
  return made;
}

function fill(made, attrs) {
  for (const [name, value] of Object.entries(attrs)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (name === "data") Object.assign(made.dataset, value);
    else if (name === "value") made.value = value;
    else if (name === "checked" || name === "selected" || name === "disabled" || name === "open") made[name] = value;
    else made.setAttribute(name, value === true ? "" : plain(value));
  }
}

/** Append children: elements as they are, all else as plain text. */
export function put(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    parent.append(child instanceof Node ? child : plain(child));
  }
  return parent;
}

/** Replace what an element holds. */
export function show(parent, ...children) {
  parent.replaceChildren();
  return put(parent, children);
}

const CALM_MS = 1000;

/** A table that is made once a person opens it. `again` makes an open one anew, at most once a second. */
export function folded(title, make) {
  const place = h("div", {});
  const box = h("details", { class: "values" }, h("summary", {}, title), place);
  let timer = 0;
  const draw = () => {
    timer = 0;
    if (box.open) show(place, make());
  };
  box.addEventListener("toggle", draw);
  return { box, again: () => { if (box.open) timer ||= setTimeout(draw, CALM_MS); } };
}

/** A table whose head cells are labelled. */
export function table(caption, head, rows, attrs = {}) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", attrs,
      h("caption", { class: "quiet" }, caption),
      h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map((cells) => (cells instanceof Node ? cells : h("tr", {}, cells.map((cell) => h("td", {}, cell))))))));
}
