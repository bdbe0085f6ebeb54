// rlship.mjs: writes metrics, spans, events and samples into an rlship experiment (format version 1).
//
//     import { init } from "./rlship.mjs";
//     const rl = init("outputs/grpo-7b", { actor: "environment" });
//     rl.log({ reward: 0.5, turns: 4 }, { step: 12 });
//     rl.barrier(12);
//
// One file, no dependencies; Node 18 or newer. Usage: README.md beside this file. Types: rlship.d.mts.
//
// Lines are gathered in memory and written with one synchronous append: at every barrier, every half second by a timer
// that does not keep the process alive, at 256 KiB, and at exit. Nothing here throws into the program, prints more than
// one line for each kind of trouble, or touches signals.

import { randomBytes } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { isMainThread, threadId } from "node:worker_threads";
import zlib from "node:zlib";

const VERSION = "1.0.0";

const LINE_LIMIT = 1 << 20; // bytes, the LF included
const LONGEST_NAME = 1000; // code points, of a metric, an event, a table, a column
const LONGEST_SPAN = 500;
const LONGEST_WHO = 200; // of actor, replica, axis
const MOST_LABELS = 8192; // characters of all labels
const MOST_ELEMENTS = 1 << 18; // of one value
const DEEPEST = 30; // objects in objects
const DEFINE_BYTES = 1 << 16;
const LONGEST_SETTING = 1 << 16; // characters of a text of the run's configuration
const LARGEST_SETTING = 512 << 10; // bytes of any value of it
const MOST_NOTED = 4 << 20; // characters of `run` records that a new file repeats
const CAPACITY = 8 << 20; // bytes of lines that wait
const RESERVE = 1 << 20; // more, for barriers, definitions and rollbacks
const WRITE_AT = 256 << 10;
const RANKS_END = 2 ** 20;
const GREATEST_STEP = Number.MAX_SAFE_INTEGER;

const FLUSH_MS = 500;
const BEAT_S = 10;
const LOOK_MS = 5000;
const BACKOFF_MS = 100;
const BACKOFF_MOST_MS = 5000;

const ALLOWED = "a number, an array of numbers, {v: […], w: […]} or a summary {n: …, sum: …, …}";

// ---- time ----

let anchor = performance.timeOrigin;

/** Unix milliseconds with their fractions: a monotonic clock that follows where the system's one is set. */
function wallMs() {
  const elapsed = performance.now();
  const wall = Date.now();
  if (Math.abs(anchor + elapsed - wall) > 5) anchor = wall - elapsed;
  return anchor + elapsed;
}

const seconds = (ms) => (ms / 1000).toFixed(6);
const stamp = () => (Date.now() / 1000).toFixed(3);

// ---- text and numbers as JSON ----

/** A value that cannot be used; the text says why. */
class Unusable extends Error {}

/** Half surrogate pairs are no text: U+FFFD stands in their place. */
const wellFormed = (text) => text.replace(/\p{Surrogate}/gu, "\ufffd");
const jsonString = (text) => JSON.stringify(wellFormed(text));
const sizeOf = (text) => Buffer.byteLength(text);

/** Characters as people count them, and as the format does: code points. */
function lengthOf(text) {
  let pairs = 0;
  for (let i = 0; i < text.length - 1; i++) {
    if ((text.charCodeAt(i) & 0xfc00) === 0xd800 && (text.charCodeAt(i + 1) & 0xfc00) === 0xdc00) pairs++, i++;
  }
  return text.length - pairs;
}

/** At most `most` characters of a text. */
function beginningOf(text, most) {
  if (text.length <= most) return text;
  return lengthOf(text) <= most ? text : Array.from(text.slice(0, most * 2)).slice(0, most).join("");
}

/** The text without half a character at its end. */
const untorn = (text) => ((text.charCodeAt(text.length - 1) & 0xfc00) === 0xd800 ? text.slice(0, -1) : text);

function whyNotAName(name) {
  if (name === "") return "the name is empty";
  const length = name.length > LONGEST_NAME ? lengthOf(name) : name.length;
  return length > LONGEST_NAME ? `the name has ${length} characters, ${LONGEST_NAME} are allowed` : "";
}

/** A double so that it reads back with the same bits. */
function double(value) {
  if (Number.isFinite(value)) return Object.is(value, -0) ? "-0.0" : String(value);
  return Number.isNaN(value) ? '"NaN"' : value > 0 ? '"Infinity"' : '"-Infinity"';
}

/** One observation. Booleans are 1 and 0; null and undefined are no observation. */
function observation(value) {
  switch (typeof value) {
    case "number":
      return double(value);
    case "boolean":
      return value ? "1" : "0";
    case "bigint":
      if (!Number.isFinite(Number(value))) throw new Unusable("the integer is too large for a double");
      return String(value);
  }
  if (value === null || value === undefined) return "null";
  throw new Unusable("");
}

function weightOf(value) {
  const number = typeof value === "bigint" ? Number(value) : value;
  if (typeof number === "number" && Number.isFinite(number) && number >= 0) return double(number);
  throw new Unusable(`the weight ${shown(value)} is not a finite number >= 0`);
}

/** A short text for messages, whatever the value does when it is asked for one. */
function shown(value) {
  try {
    return typeof value === "string" ? JSON.stringify(value.slice(0, 40)) : String(value).slice(0, 40);
  } catch {
    return `<${typeof value}>`;
  }
}

const isArray = (value) => Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));

const isObject = (value) => typeof value === "object" && value !== null && !isArray(value);

/** Objects that hold values by name: plain ones and Maps, but no Date, no Promise, no instance of a class. */
function isDictionary(value) {
  if (!isObject(value)) return false;
  if (value instanceof Map) return true;
  const prototype = Object.getPrototypeOf(value);
  // Objects of another realm (vm, a test runner) have another Object.prototype, which has no prototype itself either.
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

const entriesOf = (value) => (value instanceof Map ? value : Object.entries(value));

// ---- metrics records ----

/** Several encoded observations of one metric, with their weights or none. */
class Observations {
  constructor(v, w) {
    this.v = v;
    this.w = w;
  }

  toString() {
    return this.w ? `{"v":[${this.v.join()}],"w":[${this.w.join()}]}` : `[${this.v.join()}]`;
  }

  /** The same in parts of at most `most` bytes each. */
  *cut(most) {
    let start = 0;
    let size = 0;
    for (let i = 0; i < this.v.length; i++) {
      const cost = this.v[i].length + 1 + (this.w ? this.w[i].length + 1 : 0);
      if (size && size + cost > most - 16) {
        yield this.#part(start, i);
        [start, size] = [i, 0];
      }
      size += cost;
    }
    yield this.#part(start, this.v.length);
  }

  #part(from, to) {
    return new Observations(this.v.slice(from, to), this.w && this.w.slice(from, to));
  }
}

function several(values) {
  if (values.length > MOST_ELEMENTS) {
    throw new Unusable(`it has ${values.length} elements, ${MOST_ELEMENTS} are allowed: log a summary of them`);
  }
  return Array.from(values, observation);
}

/** `weight` is one number for all of them, or an array with one for each. */
function observations(value, weight) {
  const many = isArray(value);
  if (weight === undefined || weight === null) return many ? new Observations(several(value), null) : observation(value);
  const v = many ? several(value) : [observation(value)];
  if (!isArray(weight)) return new Observations(v, Array(v.length).fill(weightOf(weight)));
  if (weight.length !== v.length) throw new Unusable(`${v.length} values have ${weight.length} weights`);
  return new Observations(v, Array.from(weight, weightOf));
}

const SUMMARY = new Set(["n", "w", "sum", "min", "max", "first", "last", "m2"]);

function summary(value) {
  const parts = [];
  for (const [name, given] of entriesOf(value)) {
    const figure = typeof given === "bigint" ? Number(given) : given;
    if (typeof figure !== "number" || !Number.isFinite(figure)) {
      throw new Unusable(`the summary's ${name} is ${shown(given)}, not a finite number`);
    }
    if ("n w m2".split(" ").includes(name) && figure < 0) throw new Unusable(`the summary's ${name} is ${figure}, below 0`);
    if (name === "n" && !Number.isSafeInteger(figure)) throw new Unusable(`the summary's n is ${figure}, not an integer`);
    parts.push(`"${name}":${double(figure)}`);
  }
  return `{${parts.join()}}`;
}

/** Encode `metrics` into `found` (name to value). Objects in objects are flattened with "/". */
function collect(metrics, weight, found, leftOut, prefix = "", depth = 0) {
  for (const [key, value] of entriesOf(metrics)) {
    const name = prefix + wellFormed(String(key));
    try {
      let encoded;
      if (!isDictionary(value)) {
        encoded = observations(value, weight);
      } else {
        const members = new Map(entriesOf(value));
        const weighted = members.size === 2 && isArray(members.get("v")) && members.has("w");
        const summed = members.has("n") && [...members.keys()].every((member) => SUMMARY.has(member));
        if (!weighted && !summed) {
          if (depth >= DEEPEST) throw new Unusable(`it is more than ${DEEPEST} objects deep`);
          collect(members, weight, found, leftOut, `${name}/`, depth + 1);
          continue;
        }
        if (weight !== undefined && weight !== null) throw new Unusable("the value carries its own weights: leave `weight` out");
        encoded = summed ? summary(members) : observations(members.get("v"), isArray(members.get("w")) ? members.get("w") : [members.get("w")]);
      }
      const wrong = whyNotAName(name);
      if (wrong) throw new Unusable(wrong);
      found.set(name, encoded);
    } catch (error) {
      leftOut(name, value, error instanceof Unusable ? error.message : `reading its value threw ${shown(error)}`);
    }
  }
}

/** Metrics records that hold the encoded values of `found`, none longer than a line may be. */
function pack(found, step, leftOut) {
  const head = `{"t":${stamp()},${step === null ? "" : `"step":${step},`}"m":{`;
  const room = LINE_LIMIT - head.length - 3;
  const lines = [];
  let parts = [];
  let used = 0;
  const end = () => {
    lines.push(`${head}${parts.join()}}}\n`);
    [parts, used] = [[], 0];
  };
  for (const [name, value] of found) {
    const key = `${jsonString(name)}:`;
    const keySize = sizeOf(key) + 1;
    let pieces = [String(value)];
    if (keySize + pieces[0].length > room && value instanceof Observations) pieces = Array.from(value.cut(room - keySize), String);
    pieces.forEach((piece, i) => {
      const size = keySize + piece.length; // numbers are ASCII
      if (size > room) return leftOut(name, value, "it does not fit in a line of 1 MiB");
      if (parts.length && (used + size > room || i)) end();
      parts.push(key + piece);
      used += size;
    });
  }
  if (parts.length || !lines.length) end();
  return lines;
}

// ---- other data as JSON ----

class Full extends Error {}

/** The JSON of any value, at most `room` characters of it. */
class Pieces {
  text = "";
  odd = ""; // what was first not kept as it was

  constructor(room) {
    this.room = room;
  }

  #add(text) {
    this.text += text;
    if (this.text.length > this.room) throw new Full();
  }

  add(value, depth = 0) {
    switch (typeof value) {
      case "string":
        return this.#add(jsonString(untorn(value.slice(0, this.room + 2))));
      case "number":
        return this.#add(double(value));
      case "boolean":
        return this.#add(String(value));
      case "bigint":
        // Whole numbers that a double cannot hold are texts.
        return this.#add(Number.isSafeInteger(Number(value)) ? String(value) : `"${value}"`);
      case "object":
        return this.#addObject(value, depth);
    }
    if (value === undefined) return this.#add("null");
    return this.#addText(value, `it has a part of type ${typeof value}, which JSON does not have: a text stands in its place`);
  }

  #addText(value, odd) {
    this.odd ||= odd;
    this.#add(jsonString(untorn(String(value).slice(0, this.room + 2))));
  }

  #addObject(value, depth) {
    if (value === null) return this.#add("null");
    if (depth >= DEEPEST) return this.#addText(Object.prototype.toString.call(value), `it is more than ${DEEPEST} arrays or objects deep`);
    if (typeof value.toJSON === "function" && !Buffer.isBuffer(value)) return this.add(value.toJSON(), depth + 1);
    if (value instanceof Error) return this.#addText(value, "");
    if (isArray(value) || value instanceof Set) {
      let before = "[";
      for (const item of value) {
        this.#add(before);
        this.add(item, depth + 1);
        before = ",";
      }
      return this.#add(before === "[" ? "[]" : "]");
    }
    let before = "{";
    for (const [key, item] of named(value)) {
      if (item === undefined) continue;
      this.#add(`${before}${jsonString(key)}:`);
      this.add(item, depth + 1);
      before = ",";
    }
    this.#add(before === "{" ? "{}" : "}");
  }
}

/** The members of an object under names that are texts, each once. */
function named(value) {
  const found = new Map();
  for (const [key, item] of entriesOf(value)) found.set(wellFormed(String(key)), item);
  return found;
}

const json = (value) => {
  const pieces = new Pieces(Infinity);
  pieces.add(value);
  return pieces.text;
};

/**
 * The members of a JSON object of at most `room` bytes, and those of its `cut`. Where that is too long, the longest
 * values are shortened to one length: a text to its beginning, an array or object to the beginning of its JSON.
 */
function jsonObject(data, room, told) {
  const cells = [];
  for (const [name, value] of named(data)) {
    if (value === undefined) continue;
    const wrong = whyNotAName(name);
    if (wrong) told(name.slice(0, 40), `${wrong}; it is left out`);
    else cells.push(cellOf(name, value, room, told));
  }
  if (cells.reduce((sum, cell) => sum + cell.key + cell.size, 0) > room) shorten(cells, room);
  const members = cells.map((cell) => `${jsonString(cell.name)}:${cell.text}`).join();
  const cut = cells.filter((cell) => cell.short).map((cell) => `${jsonString(cell.name)}:${fullLength(cell.value, cell.text)}`).join();
  return { members, cut: cut && `,"cut":{${cut}}` };
}

function cellOf(name, value, room, told) {
  let pieces = new Pieces(room);
  let whole = true;
  try {
    pieces.add(value);
  } catch (error) {
    if (error instanceof Full) {
      whole = false;
    } else {
      told(name, `reading it threw ${shown(error)}; its type stands in its place`);
      pieces = new Pieces(room);
      pieces.add(`<${typeof value}>`);
    }
  }
  if (pieces.odd) told(name, pieces.odd);
  const size = whole ? sizeOf(pieces.text) : room + 1;
  return { name, value, text: pieces.text, key: sizeOf(jsonString(name)) + 2, size, short: false };
}

function fullLength(value, text) {
  if (typeof value === "string") return lengthOf(value);
  if (isArray(value)) return value.length;
  if (value instanceof Map || value instanceof Set) return value.size;
  return typeof value === "object" && value !== null ? Object.keys(value).length : text.length;
}

const SMALL = 64;
const CUT_BYTES = 20; // what an entry of `cut` takes beside the name

function shorten(cells, room) {
  let left = room;
  for (const cell of cells) left -= cell.key + (cell.size > SMALL ? cell.key + CUT_BYTES : 0);
  // The greatest size to which all may be brought down so that together they fit.
  let level = 0;
  let count = cells.length;
  for (const size of cells.map((cell) => cell.size).sort((a, b) => a - b)) {
    level = size;
    if (size * count > left) {
      level = Math.floor(left / count);
      break;
    }
    left -= size;
    count--;
  }
  if (level < SMALL) throw new Unusable(`its ${cells.length} values do not fit in a line of 1 MiB`);
  for (const cell of cells) {
    if (cell.size <= level) continue;
    cell.text = beginningAsJson(typeof cell.value === "string" ? cell.value : cell.text, level);
    cell.short = true;
  }
}

/** A beginning of `text` as a JSON string of at most `most` bytes. */
function beginningAsJson(text, most) {
  let kept = untorn(text.slice(0, most - 2));
  let encoded = jsonString(kept);
  for (let size = sizeOf(encoded); size > most; size = sizeOf(encoded)) {
    kept = untorn(kept.slice(0, Math.max(0, Math.floor((kept.length * most) / size) - 1)));
    encoded = jsonString(kept);
  }
  return encoded;
}

// ---- definitions ----

const REDUCTIONS = "mean sum min max first last std count p50 p90 p95 p99 hist rate sum_last".split(" ");
const DEFINED = ["reduce", "unit", "perRank", "stream"];

function reductionsOf(given) {
  const names = [...new Set(typeof given === "string" ? [given] : given)];
  for (const name of names) {
    const own = typeof name === "string" && name.length <= 100 && name.slice(1, -1).includes(".") && !/\s/u.test(name);
    if (!own && !REDUCTIONS.includes(name)) {
      throw new Unusable(`reduce ${shown(name)} does not exist: use ${REDUCTIONS.join(", ")}, or a name of your own with a dot in it`);
    }
  }
  if (!names.length) throw new Unusable(`reduce names no reduction: use ${REDUCTIONS.join(", ")}`);
  return names;
}

/** The entry of one metric, as it stands in the record. */
function definition(name, spec, told) {
  const entry = {};
  const asked = typeof spec === "string" || isArray(spec) ? { reduce: spec } : (spec ?? {});
  const unknown = Object.keys(asked).filter((field) => !DEFINED.includes(field));
  if (unknown.length) told(`${unknown.map(shown)} is not known: use ${DEFINED.join(", ")}`);
  try {
    if (asked.reduce !== undefined && asked.reduce !== null) {
      const names = reductionsOf(asked.reduce);
      entry.reduce = names.length === 1 ? names[0] : names;
    }
  } catch (error) {
    told(error instanceof Unusable ? error.message : `reduce ${shown(asked.reduce)} is no name and no list of names`);
  }
  if (asked.unit !== undefined && asked.unit !== null) entry.unit = beginningOf(wellFormed(String(asked.unit)), LONGEST_NAME);
  if (asked.perRank) entry.per_rank = true;
  if (asked.stream) entry.stream = true;
  return entry;
}

/** `define` records for these entries (name to entry), none near the limit of a line. */
function defineRecords(entries) {
  const lines = [];
  let parts = [];
  let size = 0;
  for (const [name, entry] of entries) {
    const part = `${jsonString(name)}:${json(entry)}`;
    if (parts.length && size + sizeOf(part) > DEFINE_BYTES - 64) {
      lines.push(`{"kind":"define","m":{${parts.join()}}}\n`);
      [parts, size] = [[], 0];
    }
    parts.push(part);
    size += sizeOf(part) + 1;
  }
  if (parts.length) lines.push(`{"kind":"define","m":{${parts.join()}}}\n`);
  return lines;
}

// ---- the run ----

const SECRET_WORDS = new Set(
  ("password passwords passwd passphrase secret secrets credential credentials apikey apikeys accesskey privatekey " +
    "authorization bearer").split(" "),
);
// What a word may end with, if nothing divides it: `dbpassword`.
const SECRET_END = /(?:password|passwd|passphrase|secret|secretkey|apikey)$/;
// What may be kept under a key and whose key it is, whose password it is, whose personal access token.
const oneOf = (names) => `(?:${names.split(" ").join("|")})`;
const SECRET_PAIR = new RegExp(
  "(?:^| )(?:" +
    oneOf(
      "api access private auth signing encryption ssh gpg pgp rsa tls ssl master deploy openai gemini google mistral " +
        "cohere groq deepseek openrouter replicate wandb hf huggingface comet neptune github gitlab aws azure gcp stripe " +
        "tavily serper pinecone langsmith",
    ) +
    " keys?|" +
    oneOf(
      "db database sql mysql pg postgres mongo redis amqp rabbitmq smtp mail email ftp ssh http https proxy admin root " +
        "user login auth ldap sudo",
    ) +
    " (?:pass|pwd)|" +
    oneOf("github gh gitlab git azure ado devops") +
    " pat|pass word)(?: |$)",
);
const NO_WORD = /^(?:hf_|sk-|gh[pousr]_|github_pat_|glpat-|nvapi-|xox[bp]-|wandb_v1_|dckr_pat_|[sr]k_live_)\S*$/u;
const KEY =
  /^(?:(?:hf_|sk-|gh[pousr]_|github_pat_|glpat-|nvapi-|xox[bp]-|wandb_v1_|dckr_pat_|[sr]k_live_|gsk_|AKIA|ASIA|AIza|eyJ|pypi-AgE)[\w.-]{16,}|npm_[A-Za-z0-9]{16,})$/;
const BETWEEN = /[\s"'`,;:=()[\]{}<>|&?]/u;

/** The words of a name in lower case: divided by what is no letter or digit, and by the capitals of camelCase. */
const wordsOf = (name) =>
  name
    .replace(/(\p{Lu})(?=\p{Lu}\p{Ll})|([^\p{Lu}])(?=\p{Lu})/gu, "$1$2 ")
    .toLowerCase()
    .split(/[^\p{L}\p{N}]+/u)
    .filter(Boolean);

function namesSecret(name) {
  const words = wordsOf(name);
  return words.some((word) => SECRET_WORDS.has(word) || SECRET_END.test(word)) || SECRET_PAIR.test(words.join(" "));
}

const namesToken = (name) => wordsOf(name).at(-1) === "token";

/** Whether a text may be an access token: not a special token of a tokenizer, which stands in brackets. */
const isToken = (text) => !/^(?:<.*>|\[.*\])$/su.test(text) && !/\s/u.test(text) && lengthOf(text) >= 16;

/** Whether a text looks like a secret, or has a part that does. */
function hasSecret(text) {
  if (NO_WORD.test(text) || text.split(BETWEEN).some((word) => KEY.test(word))) return true;
  if (text.includes("hooks.slack.com/services/") || authorizes(text)) return true;
  if (text.includes("-----BEGIN") && text.includes("PRIVATE KEY-----")) return true;
  const addresses = text.split("://"); // scheme://user:password@host, https://token@host
  const hasPassword = (rest, i) => {
    const [host] = rest.split("/", 1);
    return /^[^\s:]*:\S+@[^@]*$/u.test(host) || (/https?$/.test(addresses[i]) && /^\S{16,}@[^@]*$/u.test(host));
  };
  if (addresses.slice(1).some(hasPassword)) return true;
  const parts = text.split("=");
  return parts.slice(1).some((after, i) => {
    const name = parts[i].split(BETWEEN).at(-1);
    const value = after.replace(/^['"]+/, "").split(BETWEEN, 1)[0];
    return name && value && (namesSecret(name) || (namesToken(name) && isToken(value)));
  });
}

/** Whether a text has a header such as `Authorization: Bearer x`. */
function authorizes(text) {
  const words = text.split(BETWEEN).filter(Boolean);
  const named = /authorization/i.test(text);
  return words.some((word, i) => i > 0 && words[i - 1].toLowerCase() === "bearer" && (named || lengthOf(word) >= 16));
}

/** Whether a text below these names is a secret. Elements of arrays have their numbers as names. */
function isSecret(names, text) {
  if (names.some(namesSecret)) return text.trim() !== "";
  return (namesToken(names.findLast((name) => !/^\d+$/.test(name)) ?? "") && isToken(text)) || hasSecret(text);
}

/** A value of JSON without its secrets; undefined if it is one. Adds their dotted paths to `dropped`. */
function withoutSecrets(names, value, dropped) {
  if (typeof value === "string" && isSecret(names, value)) {
    dropped.push(names.join("."));
    return undefined;
  }
  if (Array.isArray(value)) return value.map((item, i) => withoutSecrets([...names, String(i)], item, dropped) ?? (item === null ? null : "***"));
  if (typeof value !== "object" || value === null) return value;
  const kept = Object.entries(value).map(([name, item]) => [name, withoutSecrets([...names, name], item, dropped)]);
  return Object.fromEntries(kept.filter(([, item]) => item !== undefined));
}

const MEMBERS = {
  ...Object.fromEntries(["name", "notes", "group", "project", "entity", "job_type"].map((name) => [name, '"'])),
  ...{ tags: "[", dropped: "[", config: "{", summary: "{", facts: "{" },
};

/** The JSON of one value of a run, without secrets; undefined where nothing is left. Throws Unusable. */
function setting(names, value, dropped) {
  const pieces = new Pieces(Infinity);
  pieces.add(typeof value === "string" ? beginningOf(value, LONGEST_SETTING) : value);
  let text = pieces.text;
  const found = [];
  const kept = text.includes('"') ? withoutSecrets(names, JSON.parse(text), found) : null;
  dropped.push(...found);
  if (found.length) text = JSON.stringify(kept);
  if (text !== undefined && sizeOf(text) > LARGEST_SETTING) throw new Unusable(`it has more than ${LARGEST_SETTING} bytes`);
  if (text === undefined || names.length > 1) return text;
  const [name] = names;
  const usable = name === "exit_code" ? Number.isInteger(value) && Math.abs(value) <= 255 : MEMBERS[name] === text[0];
  if (!usable) throw new Unusable("it is no member of a run, or not of this type");
  return text;
}

/**
 * `run` records of names and values, as many as it takes for none to exceed a line; without an `object` they are the
 * record's own members. The last one has what was dropped. `names` are "" where an object joins an earlier one.
 */
function runRecords(object, texts, dropped) {
  const lines = [];
  let [parts, names, size] = [[], [], 0];
  const put = (last) => {
    const members = parts.length ? [object ? `"${object}":{${parts.join()}}` : parts.join()] : [];
    if (last && dropped.length) members.push(`"dropped":${json(dropped)}`);
    if (members.length) lines.push({ line: `${head("run", wallMs(), null)},${members.join()}}\n`, names: parts.join().includes("{") ? "" : names.join() });
    [parts, names, size] = [[], [], 0];
  };
  for (const [name, text] of texts) {
    const key = jsonString(name);
    if (size + sizeOf(key) + sizeOf(text) > LINE_LIMIT - LARGEST_SETTING / 4) put(false);
    parts.push(`${key}:${text}`);
    names.push(object + key);
    size += sizeOf(key) + sizeOf(text) + 2;
  }
  put(true);
  return lines;
}

// ---- the ledger ----

const MOST_SAMPLES = 1 << 21; // of a group: up to here the sums of a digest are exact
const LONGEST_KEY = 200; // characters
const MOST_FIELDS = 32;
const MEMBERS_OF_A_CALL = new Set(["step", "n", "sample", "lengths", "response", "version", "part", "retry", "passes", "why", "precision"]);
const LITTLE = os.endianness() === "LE";
const GOLDEN = 0x9e3779b97f4a7c15n;
const WORD = (1n << 64n) - 1n;

const CRC_TABLE = Int32Array.from({ length: 256 }, (_, byte) => {
  let register = byte;
  for (let bit = 0; bit < 8; bit++) register = register & 1 ? (register >>> 1) ^ 0xedb88320 : register >>> 1;
  return register;
});

/** CRC-32 of bytes, going on from that of the bytes before them. Node's own, where it has one, is faster. */
const crc32 =
  zlib.crc32 ??
  ((bytes, before = 0) => {
    let register = ~before;
    for (const byte of bytes) register = CRC_TABLE[(register ^ byte) & 255] ^ (register >>> 8);
    return ~register >>> 0;
  });

function mix64(x) {
  x = (x + GOLDEN) & WORD;
  x = ((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n) & WORD;
  x = ((x ^ (x >> 27n)) * 0x94d049bb133111ebn) & WORD;
  return x ^ (x >> 31n);
}

/** Whether a share of all keys has this one. Every process decides alike. */
const keepsKey = (key, share) => Number(mix64(BigInt(crc32(Buffer.from(key)))) >> 11n) < share * 2 ** 53;

/** The digest of a field over samples, given the CRCs of their ids and of their canonical values. */
function digestOf(name, ids, values) {
  const end = Buffer.from(name);
  let [low, high] = [0, 0];
  ids.forEach((id, i) => {
    const h = mix64((BigInt(id) << 32n) | BigInt(crc32(end, values[i])));
    low += Number(h & 0xffffffffn);
    high += Number(h >> 32n);
  });
  return [low, high];
}

/** The CRC of integers: as int32 if all of them fit, else as int64, little-endian. */
function crcOfIntegers(name, row) {
  if (row instanceof Int32Array && LITTLE) return crc32(Buffer.from(row.buffer, row.byteOffset, row.byteLength));
  const values = Array.from(row);
  for (const x of values) {
    if (!(typeof x === "bigint" || Number.isSafeInteger(x))) throw new Unusable(`${name} holds ${shown(x)}, which is no integer`);
    if (typeof x === "bigint" && BigInt.asIntN(64, x) !== x) throw new Unusable(`${name} holds an integer that does not fit in 64 bits`);
  }
  const small = values.every((x) => x >= -(2 ** 31) && x < 2 ** 31);
  const bytes = Buffer.alloc(values.length * (small ? 4 : 8));
  values.forEach((x, i) => (small ? bytes.writeInt32LE(Number(x), 4 * i) : bytes.writeBigInt64LE(BigInt(x), 8 * i)));
  return crc32(bytes);
}

const crcOfMask = (row) => crc32(Buffer.from(Array.from(row, (x) => (x ? 1 : 0))));

/** The CRC of numbers rounded to float32, or to bfloat16: one NaN, and no negative zero. */
function crcOfNumbers(name, row, precision) {
  const singles = Float32Array.from(row, (x) => {
    if (typeof x !== "number") throw new Unusable(`${name} holds ${shown(x)}, which is no number`);
    return x;
  });
  const bytes = Buffer.alloc(singles.length * (precision ? 2 : 4));
  const bits = new Uint32Array(singles.buffer);
  singles.forEach((x, i) => {
    let found = Number.isNaN(x) ? 0x7fc00000 : x === 0 ? 0 : bits[i];
    if (!precision) return bytes.writeUInt32LE(found, 4 * i);
    if (!Number.isNaN(x)) found += 0x7fff + ((found >>> 16) & 1);
    found = Math.floor(found / 65536);
    bytes.writeUInt16LE(found === 0x8000 ? 0 : found, 2 * i);
  });
  return crc32(bytes);
}

/** The sum of doubles, rounded once where that is easily had: a second sum holds what the first one loses. */
function sumOf(values) {
  let [sum, lost] = [0, 0];
  for (const x of values) {
    const next = sum + x;
    lost += Math.abs(sum) >= Math.abs(x) ? sum - next + x : x - next + sum;
    sum = next;
  }
  return sum + lost;
}

const isRow = (row) => Array.isArray(row) || (ArrayBuffer.isView(row) && !(row instanceof DataView));
const rowOf = (row) => (isRow(row) ? row : [row]);

function count(name, value, least = 0) {
  if (!(Number.isSafeInteger(value) && value >= least)) throw new Unusable(`${name} ${shown(value)} is no integer from ${least} to 2^53-1`);
  return value;
}

/** The members of a `ledger` record behind its time and step. */
function groupOf(hop, key, given) {
  const { sample, lengths, precision = "" } = given;
  if (precision !== "" && precision !== "bf16") throw new Unusable(`precision ${shown(precision)} is not known: use "bf16", or leave it out for float32`);
  const fields = Object.entries(given).filter(([name, value]) => !MEMBERS_OF_A_CALL.has(name) && value !== undefined && value !== null);
  if (fields.length > MOST_FIELDS) throw new Unusable(`there are ${fields.length} fields, ${MOST_FIELDS} are allowed`);
  const columns = [...fields, ...Object.entries({ sample, lengths }).filter(([, value]) => value !== undefined)];
  for (const [name, value] of columns) if (!isRow(value)) throw new Unusable(`${name} has no value for each sample`);
  const n = count("n", given.n ?? columns[0]?.[1].length);
  if (n > MOST_SAMPLES) throw new Unusable(`a group has ${n} samples, ${MOST_SAMPLES} are allowed`);
  for (const [name, value] of columns) if (value.length !== n) throw new Unusable(`${name} has values of ${value.length} samples, and n is ${n}`);
  const real = Object.fromEntries(
    fields.map(([name, rows]) => [name, Array.from(rows, (row, i) => (lengths && isRow(row) ? row.slice(0, count("lengths", lengths[i])) : row))]),
  );
  const found = { hop, key, n };
  const tokens = real.tokens?.map((row) => crcOfIntegers("tokens", rowOf(row)));
  const ids = sample ? Array.from(sample, (name) => crc32(Buffer.from(wellFormed(String(name))))) : (tokens ?? new Array(n).fill(0));
  const digests = sample ? { sample: digestOf("sample", ids, ids) } : {};
  const rewards = real.reward?.map((row) => sumOf(rowOf(row)));
  for (const [name, rows] of Object.entries(real)) {
    let crcs = tokens;
    if (name === "mask") crcs = rows.map((row) => crcOfMask(rowOf(row)));
    else if (name === "reward") crcs = rewards.map((reward) => crcOfNumbers(name, [reward], precision));
    else if (name !== "tokens") crcs = rows.map((row) => crcOfNumbers(name, rowOf(row), precision));
    digests[wellFormed(name)] = digestOf(name, ids, crcs);
  }
  if (Object.keys(digests).length) {
    if (sample || tokens) found.by = sample ? "sample" : "tokens";
    found.d = digests;
    if (precision) found.precision = precision;
  }
  return Object.assign(found, sumsOf(real, rewards), othersOf(given));
}

function sumsOf(real, rewards) {
  const found = {};
  const finite = (values) => values.every((x) => Number.isFinite(x * x));
  if (rewards && finite(rewards)) found.reward = [sumOf(rewards), sumOf(rewards.map((x) => x * x))];
  const advantages = real.advantage?.map((row, i) => rowOf(row)[isRow(row) && real.mask ? Array.from(rowOf(real.mask[i])).findIndex(Boolean) : 0] ?? 0);
  if (advantages && finite(advantages)) {
    found.advantage = [sumOf(advantages), sumOf(advantages.map((x) => x * x))];
    const mean = found.reward && found.reward[0] / rewards.length;
    if (found.reward && rewards.length) found.advantage.push(sumOf(advantages.map((x, i) => (rewards[i] - mean) * x)));
  }
  if (real.mask) {
    const counts = real.mask.map((row) => Array.from(rowOf(row)).filter(Boolean).length);
    const all = (real.tokens ?? real.mask).map((row) => rowOf(row).length);
    found.mask = [sumOf(counts), sumOf(all), counts.filter((x) => x === 0).length];
  }
  return found;
}

function othersOf({ version, response, part, retry, passes, why }) {
  const found = {};
  if (version !== undefined) {
    const each = rowOf(version).length ? Array.from(rowOf(version), (one) => count("version", one)) : [0];
    found.version = [Math.min(...each), Math.max(...each)];
  }
  if (response !== undefined) found.response = sumOf(Array.from(rowOf(response), (one) => count("response", one)));
  if (part !== undefined) {
    if (!(isRow(part) && part.length === 2 && count("part", part[0]) < count("part", part[1], 1))) throw new Unusable(`part ${shown(part)} is not [i, k] with i below k`);
    found.part = [part[0], part[1]];
  }
  if (retry !== undefined) found.try = count("retry", retry);
  if (passes !== undefined) found.passes = count("passes", passes, 1);
  if (why !== undefined) found.why = untorn(String(why).slice(0, LONGEST_KEY));
  return found;
}

// ---- lines that wait ----

/** How many lines were dropped or may be lost, and of which steps. */
class Tally {
  #stepped = 0;
  #unstepped = 0;
  #from = Infinity;
  #to = -1;

  get any() {
    return this.#stepped + this.#unstepped > 0;
  }

  add(step) {
    if (step === null) {
      this.#unstepped++;
      return;
    }
    this.#stepped++;
    this.#from = Math.min(this.#from, step);
    this.#to = Math.max(this.#to, step);
  }

  /** The `gap` records that tell it. */
  records() {
    const t = `"t":${stamp()}}\n`;
    const lines = [];
    if (this.#stepped) lines.push(`{"kind":"gap","n":${this.#stepped},"from":${this.#from},"to":${this.#to},${t}`);
    if (this.#unstepped) lines.push(`{"kind":"gap","n":${this.#unstepped},${t}`);
    return lines;
  }
}

/** Encoded lines, at most so many bytes of them. When full, lines are dropped and a `gap` tells it before the next. */
class Waiting {
  size = 0; // bytes, of those that are being written too
  dropped = 0;
  #lines = [];
  #steps = [];
  #lost = new Tally();

  get empty() {
    return this.#lines.length === 0 && !this.#lost.any;
  }

  /** Add a line. False if it was dropped. */
  add(line, step, reserve = 0) {
    const size = sizeOf(line);
    if ((this.#lost.any && !this.#tell(size, reserve)) || this.size + size > CAPACITY + reserve) {
      this.refuse(step);
      return false;
    }
    this.#push(line, step, size);
    return true;
  }

  /** Count a line that cannot be kept, or could not be made at all. */
  refuse(step) {
    this.#lost.add(step);
    this.dropped++;
  }

  /** All lines as bytes, with their steps. They count as used until `size` is lowered. */
  take() {
    if (this.#lost.any) this.#tell(0, RESERVE);
    const taken = { data: Buffer.from(this.#lines.join("")), steps: this.#steps, at: 0 };
    this.#lines = [];
    this.#steps = [];
    return taken;
  }

  #push(line, step, size) {
    this.#lines.push(line);
    this.#steps.push(step);
    this.size += size;
  }

  #tell(size, reserve) {
    const records = this.#lost.records();
    if (this.size + size + sizeOf(records.join("")) > CAPACITY + reserve) return false;
    for (const record of records) this.#push(record, null, record.length);
    this.#lost = new Tally();
    return true;
  }
}

// ---- the file ----

const { O_WRONLY, O_APPEND, O_CREAT, O_EXCL } = fs.constants;
const LF = 0x0a;
// The descriptor is no longer good, whatever became of the file: open it again by its path.
const LOST = new Set(["ESTALE", "EBADF", "ENOENT", "ENODEV", "ENXIO", "ENOTCONN", "ECONNABORTED", "ESHUTDOWN"]);

function systemError(code, message) {
  return Object.assign(new Error(`${code}: ${message}`), { code });
}

const keyOf = (status) => `${status.dev}:${status.ino}`;

/** Whether `file` is there. Errors other than "no such file" prove nothing, and are thrown. */
function statusAt(file) {
  return fs.statSync(file, { bigint: true, throwIfNoEntry: false });
}

/**
 * Whether a folder has the set-group-ID bit and lets its group write, or else one above it, up to the first without the
 * bit: another process may just have made the one between.
 */
function isMeantForGroup(folder) {
  for (;;) {
    const mode = fs.statSync(folder).mode;
    if ((mode & 0o2000) === 0) return false;
    if ((mode & 0o020) !== 0) return true;
    const above = path.dirname(folder);
    if (above === folder) return false;
    folder = above;
  }
}

/**
 * Make a folder and those above it. A new one lets its group write where the one above is meant for the group. A umask
 * that lets the group not even read is heeded.
 */
function makeFolder(folder) {
  if (fs.statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return;
  const above = path.dirname(folder);
  if (above !== folder) makeFolder(above);
  try {
    fs.mkdirSync(folder);
  } catch (error) {
    if (fs.statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return;
    throw error;
  }
  try {
    const made = fs.statSync(folder).mode & 0o7777;
    if ((made & 0o050) === 0o050 && isMeantForGroup(above)) fs.chmodSync(folder, made | 0o020);
  } catch {
    // Where this fails and matters, the sidecar reports it.
  }
}

/**
 * One writer's file: created once, appended to only, and brought back after a full disk or a vanished mount.
 *
 * An error leaves the state such that calling `write` again goes on at the right byte. What cannot be known to be in
 * the file whole is given up with a `gap` record, never written a second time.
 */
class LineFile {
  path = null;
  inVain = false; // not even the first line of the last file could be synced
  #nextPart;
  #definitions;
  #release;
  #fd = -1;
  #key = "";
  #device = 0n;
  #offset = 0;
  #created = false;
  #header = [];
  #headerSafe = false;
  #queue = [];
  // Lines that must be there whole before anything else: the header, or what follows a line that may be torn.
  #front = null;
  #frontLines = [];
  #unsynced = []; // the steps of what was written since the last sync
  #unseen = []; // of what is safe, but only where the descriptor leads to
  #lookAt = 0;
  #lost = new Tally();
  #syncing = null;

  constructor(nextPart, definitions, release) {
    this.#nextPart = nextPart;
    this.#definitions = definitions;
    this.#release = release;
  }

  get unsynced() {
    return this.#unsynced.length > 0 || !this.#headerSafe;
  }

  get syncing() {
    return this.#syncing !== null;
  }

  put(piece) {
    if (piece.data.length) this.#queue.push(piece);
  }

  /** Write all that was put and return how many bytes that were. Throws; call again later to go on. */
  write() {
    this.#ready();
    let written = 0;
    for (let piece = this.#front ?? this.#queue[0]; piece; piece = this.#front ?? this.#queue[0]) {
      let n;
      try {
        n = fs.writeSync(this.#fd, piece.data, piece.at);
        if (n <= 0) throw systemError("ENOSPC", "nothing could be written");
      } catch (error) {
        this.#after(error);
        throw error;
      }
      piece.at += n;
      this.#offset += n;
      written += n;
      if (piece.at === piece.data.length) this.#finish(piece);
    }
    return written;
  }

  /** Make what is written visible to other machines, now. Throws; then a `gap` is queued and writing goes on. */
  sync() {
    this.#syncing = null;
    let failed = null;
    try {
      fs.fdatasyncSync(this.#fd);
    } catch (error) {
      failed = error;
    }
    failed = this.#synced(failed, this.#unsynced.length);
    if (failed) throw failed;
  }

  /** The same without waiting for it. */
  startSync(done) {
    const ticket = (this.#syncing = {});
    const count = this.#unsynced.length;
    fs.fdatasync(this.#fd, (error) => {
      if (this.#syncing !== ticket) return; // the file was synced, closed or given up since
      this.#syncing = null;
      done(this.#synced(error, count));
    });
  }

  /** On a local filesystem a returned write is enough. */
  forgetUnsynced(count = this.#unsynced.length) {
    this.#unseen.push(...this.#unsynced.splice(0, count));
    this.#headerSafe = true;
    this.inVain = false;
  }

  close() {
    this.#syncing = null;
    if (this.#fd >= 0) fs.closeSync(this.#fd);
    this.#fd = -1;
  }

  #synced(error, count) {
    if (!error || error.code === "EINVAL" || error.code === "ENOTSUP") {
      this.forgetUnsynced(count);
      return null;
    }
    if (LOST.has(error.code)) {
      this.#letGo(error);
    } else {
      this.#doubtUnsynced();
      if (this.#headerSafe) {
        this.#measure();
        this.#breakLine();
      } else {
        this.#abandon();
        this.inVain = true;
      }
    }
    return error;
  }

  // Opening

  #ready() {
    if (this.#fd < 0) {
      if (this.#created) this.#reopen();
      else this.#create();
      return;
    }
    let status;
    try {
      status = fs.fstatSync(this.#fd, { bigint: true });
    } catch (error) {
      this.#letGo(error);
      throw error;
    }
    const size = Number(status.size);
    if (size !== this.#offset && keyOf(status) !== this.#key) {
      // Someone closed our descriptor and the number now means another file: not ours to write to or to close.
      this.#fd = -1;
      this.#syncing = null;
      this.#reopen();
    } else if (status.nlink === 0n) {
      this.#abandon();
      this.#create();
    } else if (size < this.#offset) {
      this.#settle(size);
    } else if (performance.now() >= this.#lookAt) {
      this.#lookAt = performance.now() + LOOK_MS;
      if (this.#inPlace()) {
        this.#unseen = [];
      } else {
        this.#letGo(systemError("ESTALE", "the file is not at its path"));
        this.#reopen();
      }
    }
  }

  /** Whether who opens the path finds this file, or would but for a folder's new name. */
  #inPlace() {
    let status;
    try {
      status = statusAt(this.path);
      if (status) return keyOf(status) === this.#key;
      let folder = path.dirname(this.path);
      if (statusAt(folder)) return false;
      while (!statusAt(folder)) folder = path.dirname(folder);
      // Where a mount was taken away, what is left of the path is on another filesystem.
      return statusAt(folder).dev === this.#device;
    } catch {
      return true; // it tells nothing of the descriptor
    }
  }

  #create() {
    if (this.path === null) ({ path: this.path, header: this.#header } = this.#nextPart());
    makeFolder(path.dirname(this.path));
    try {
      this.#fd = fs.openSync(this.path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL, 0o666);
    } catch (error) {
      if (error.code === "EEXIST") this.path = null; // never share a file: take another name next time
      throw error;
    }
    this.#opened();
    this.#offset = 0;
    this.#created = true;
    this.#headerSafe = false;
    this.#putFront("", [...this.#header, ...this.#told()]);
  }

  #reopen() {
    let fd;
    try {
      fd = fs.openSync(this.path, O_WRONLY | O_APPEND);
    } catch (error) {
      // A missing folder is a mount that has not come back yet; a missing file in its folder is gone for good.
      if (error.code !== "ENOENT" || !statusAt(path.dirname(this.path))) throw error;
      this.#abandon();
      this.#create();
      return;
    }
    this.#fd = fd;
    this.#settle(this.#opened());
  }

  #opened() {
    const status = fs.fstatSync(this.#fd, { bigint: true });
    this.#key = keyOf(status);
    this.#device = status.dev;
    return Number(status.size);
  }

  // Trouble

  /** A write failed: find out what of it is in the file. */
  #after(error) {
    if (LOST.has(error.code)) {
      this.#letGo(error);
      return;
    }
    try {
      this.#settle(Number(fs.fstatSync(this.#fd, { bigint: true }).size));
    } catch (second) {
      this.#letGo(second);
    }
  }

  #letGo(error) {
    const fd = this.#fd;
    this.#fd = -1;
    this.#syncing = null;
    if (fd < 0 || error.code === "EBADF") return;
    try {
      fs.closeSync(fd);
    } catch {
      // Already known to be bad; what is in the file is found out when it is opened again.
    }
  }

  /** The file is gone, or its header may be: begin a new one. A line not whole in the old one starts afresh. */
  #abandon() {
    this.#letGo(systemError("ESTALE", "the file is gone"));
    this.#created = false;
    this.path = null;
    this.#front = null;
    this.#doubtAll();
    const piece = this.#queue[0];
    if (piece?.at) piece.at = piece.data.lastIndexOf(LF, piece.at - 1) + 1;
  }

  #measure() {
    try {
      this.#offset = Number(fs.fstatSync(this.#fd, { bigint: true }).size);
    } catch (error) {
      this.#letGo(error);
    }
  }

  /** Make the books agree with the file's real size. */
  #settle(size) {
    const extra = size - this.#offset;
    if (extra === 0) return;
    this.#offset = size;
    const piece = this.#front ?? this.#queue[0];
    if (extra < 0) {
      if (!this.#headerSafe) {
        this.#abandon();
        return;
      }
      this.#doubtAll();
    } else if (piece && extra <= piece.data.length - piece.at) {
      // The call that failed did put bytes there. A line it tore is given up; whole ones are not written again.
      piece.at += extra;
      if (piece.data[piece.at - 1] === LF) {
        if (piece.at === piece.data.length) this.#finish(piece);
        return;
      }
    }
    this.#breakLine();
  }

  /** Begin a new line: an LF makes what stands before it a line of its own, and a gap says what may be missing. */
  #breakLine() {
    if (this.#front) {
      this.#putFront("\n", [...this.#frontLines, ...this.#told()]);
      return;
    }
    const piece = this.#queue[0];
    if (piece?.at) {
      let written = 0;
      for (let i = piece.data.indexOf(LF); i >= 0 && i < piece.at; i = piece.data.indexOf(LF, i + 1)) written++;
      let end = piece.at;
      if (piece.data[end - 1] !== LF) {
        end = piece.data.indexOf(LF, end) + 1;
        this.#lost.add(piece.steps[written++]);
      }
      this.#release(end);
      if (end < piece.data.length) this.#queue[0] = { data: piece.data.subarray(end), steps: piece.steps.slice(written), at: 0 };
      else this.#queue.shift();
    }
    this.#putFront("\n", [...this.#told(), ...this.#definitions()]);
  }

  #doubtUnsynced() {
    for (const steps of this.#unsynced.splice(0)) for (const step of steps) this.#lost.add(step);
  }

  #doubtAll() {
    this.#unsynced.push(...this.#unseen.splice(0));
    this.#doubtUnsynced();
  }

  #told() {
    const lost = this.#lost;
    this.#lost = new Tally();
    return lost.records();
  }

  #putFront(before, lines) {
    this.#frontLines = lines;
    this.#front = { data: Buffer.from(before + lines.join("")), steps: [], at: 0 };
  }

  #finish(piece) {
    if (piece === this.#front) {
      this.#front = null;
      return;
    }
    this.#unsynced.push(piece.steps);
    this.#release(piece.data.length);
    this.#queue.shift();
  }
}

// Filesystems on which another client sees nothing of a write before it is synced, or may not.
const NETWORK = new Set(
  (
    "9p acfs afs beegfs beegfs_nodev ceph cifs gfs gfs2 glusterfs gpfs lustre nfs nfs4 ocfs2 openafs orangefs panfs " +
    "pvfs2 quobyte smb3 smbfs vastnfs virtiofs wekafs"
  ).split(" "),
);

/** Whether a folder that exists lies on a network filesystem; FUSE of any kind counts. False where none can tell. */
function isNetwork(folder) {
  let mounts;
  try {
    folder = fs.realpathSync(folder);
    mounts = fs.readFileSync("/proc/self/mountinfo", "utf8");
  } catch {
    return false;
  }
  let best = "";
  let kind = "";
  for (const line of mounts.split("\n")) {
    // "36 35 98:0 /root /mount/point options [tags…] - type source superoptions"
    const [left, right] = line.split(" - ", 2);
    if (right === undefined) continue;
    const point = (left.split(" ")[4] ?? "").replace(/\\(040|011|012|134)/g, (_, octal) => String.fromCharCode(parseInt(octal, 8)));
    const inside = folder === point || folder.startsWith(point.endsWith("/") ? point : `${point}/`);
    if (inside && point.length >= best.length) [best, kind] = [point, right.split(" ", 1)[0]]; // the later hides the earlier
  }
  return NETWORK.has(kind) || kind === "fuse" || kind.startsWith("fuse.");
}

// ---- who writes ----

// Launcher, variables of the rank, of the world: the first launcher that gives a rank counts, and both are its own.
const LAUNCHERS = [
  ["torchrun", ["RANK"], ["WORLD_SIZE"]],
  ["ascend", ["RANK_ID"], ["RANK_SIZE"]],
  ["jax", ["JAX_PROCESS_ID", "JAX_PROCESS_INDEX"], ["JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT"]],
  ["openmpi", ["OMPI_COMM_WORLD_RANK"], ["OMPI_COMM_WORLD_SIZE"]],
  ["pmi", ["PMI_RANK"], ["PMI_SIZE"]],
  ["pmix", ["PMIX_RANK"], ["SLURM_STEP_NUM_TASKS"]],
  ["slurm", ["SLURM_PROCID"], ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]],
];

/** Rank, world, replica and attempt: as given, else from RLSHIP_*, else from the launcher. */
function identify(options, warn) {
  const usable = (number, least, end) => Number.isSafeInteger(number) && number >= least && number < end;
  const given = (name, least, end = RANKS_END) => {
    const value = options[name];
    if (value === undefined || value === null) return undefined;
    if (usable(value, least, end)) return value;
    warn(`${name} ${shown(value)} is not an integer from ${least} to ${end - 1}, so it is left out`);
    return undefined;
  };
  const variable = (names, least = 0, end = RANKS_END) => {
    for (const name of names) {
      const text = (process.env[name] ?? "").trim();
      if (text === "") continue;
      if (/^\d{1,16}$/.test(text) && usable(Number(text), least, end)) return Number(text);
      warn(`${name}=${text.slice(0, 40)} in the environment is not an integer from ${least} to ${end - 1}, so it is left out`);
    }
    return undefined;
  };
  const launched = () => {
    for (const [source, ranks, worlds] of LAUNCHERS) {
      const rank = variable(ranks);
      if (rank !== undefined) return { source, rank, world: variable(worlds, 1) };
    }
    return indexedJob(variable) ?? { source: "none", rank: 0 };
  };

  let place = launched();
  const named = given("rank", 0);
  const told = named ?? variable(["RLSHIP_RANK"]);
  if (told !== undefined) place = { source: named === undefined ? "RLSHIP_RANK" : "given", rank: told };
  let world = given("world", 1) ?? variable(["RLSHIP_WORLD"], 1) ?? place.world;
  if (world !== undefined && place.rank >= world) {
    warn(`world ${world} is not above rank ${place.rank}, so it is left out`);
    world = undefined;
  }
  // torchrun counts its own restarts anew each time the batch system starts it again, so the outer counter weighs more.
  const restarts = () => 1000 * (variable(["SLURM_RESTART_COUNT", "JOBSET_RESTART_ATTEMPT"]) ?? 0) + (variable(["TORCHELASTIC_RESTART_COUNT"]) ?? 0);
  const attempt = given("attempt", 0, GREATEST_STEP + 1) ?? variable(["RLSHIP_ATTEMPT"], 0, GREATEST_STEP + 1) ?? restarts();
  const replica = options.replica ?? (process.env.RLSHIP_REPLICA || place.replica);
  return { rank: place.rank, world, replica: who("replica", replica ?? "", warn) || "0", attempt, source: place.source };
}

/** Kubernetes: an Indexed Job; in a JobSet the index counts anew in every job, so the job's own index has to come in. */
function indexedJob(variable) {
  const index = variable(["JOB_COMPLETION_INDEX"]);
  if (index === undefined) return undefined;
  const job = variable(["JOB_GLOBAL_INDEX", "JOB_INDEX"]);
  if (job === undefined) return { source: "kubernetes", rank: index };
  const processes = variable(["PROCESSES_IN_JOB"], 1);
  if (processes === undefined) return { source: "jobset", rank: index, replica: String(job) };
  return { source: "jobset", rank: job * processes + index };
}

function who(what, value, warn) {
  const text = wellFormed(String(value));
  const kept = beginningOf(text, LONGEST_WHO);
  if (kept !== text) warn(`${what} ${shown(text)} is too long: only the first ${LONGEST_WHO} characters are kept`);
  return kept;
}

function labelsOf(given, warn) {
  const kept = {};
  let room = MOST_LABELS;
  for (const [name, value] of named(given ?? {})) {
    const text = wellFormed(String(value));
    room -= lengthOf(name) + lengthOf(text);
    if (room < 0) {
      warn(`labels have more than ${MOST_LABELS} characters: ${shown(name)} and those after it are left out`);
      break;
    }
    kept[name] = text;
  }
  return Object.keys(kept).length ? kept : undefined;
}

/** A part of a file name, which is for people. */
function safe(text) {
  const kept = Array.from(text.slice(0, 96)).slice(0, 48).join("").replace(/[^A-Za-z0-9._]/gu, "_");
  return kept.replace(/^\./, "_") || "_";
}

function hostName() {
  try {
    return os.hostname() || "unknown";
  } catch {
    return "unknown";
  }
}

// ---- families: whose child is this thread or process? ----
//
// RLSHIP_PARENT holds, for each open writer of the process that set it, "<id>:<pid>:<start of that pid>:<checksum of the
// identity>". It reaches restarted processes and other ranks as well: so a process is a child only if its identity is
// the same and the writer's process lives and is an ancestor of this one. A worker thread has a copy of its process's
// environment, so its ancestors begin with its own process. All of rlship's writers understand each other here.

const PARENT = "RLSHIP_PARENT";

const announced = () => (process.env[PARENT] ?? "").split(",").filter(Boolean);

function announce(id, checksum) {
  process.env[PARENT] = [...announced(), `${id}:${process.pid}:${processStatus(process.pid).start}:${checksum}`].join();
}

function withdraw(id) {
  const rest = announced().filter((entry) => !entry.startsWith(`${id}:`));
  if (rest.length) process.env[PARENT] = rest.join();
  else delete process.env[PARENT];
}

function parentOf(checksum) {
  const writers = new Map();
  for (const entry of announced()) {
    const [id, pid, start, whose] = entry.split(":");
    if (whose === checksum) writers.set(`${pid}:${start}`, id);
  }
  let pid = isMainThread ? process.ppid : process.pid;
  for (let i = 0; writers.size && i < 64 && pid > 0; i++) {
    const { parent, start } = processStatus(pid);
    const id = writers.get(`${pid}:${start}`);
    if (id) return id;
    pid = parent;
  }
  return undefined;
}

function processStatus(pid) {
  try {
    // The second field is the program's name in parentheses, which may itself hold spaces and parentheses.
    const fields = fs.readFileSync(`/proc/${pid}/stat`, "latin1").split(")").at(-1).trim().split(" ");
    return { parent: Number(fields[1]), start: fields[19] };
  } catch {
    return { parent: 0, start: "" }; // without /proc only a direct parent is found
  }
}

/** Eight hex digits that stand for an identity: the CRC-32 of it as Python would print it. */
function checksumOf(parts) {
  const text = parts.map((part) => (typeof part === "string" ? quoted(part) : String(part ?? "None"))).join(", ");
  let crc = ~0;
  for (const byte of Buffer.from(`(${text})`)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (~crc >>> 0).toString(16).padStart(8, "0");
}

function quoted(text) {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escapes = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": quote === "'" ? "\\'" : "'" };
  return quote + text.replace(/[\n\r\t\\']/g, (character) => escapes[character]) + quote;
}

// ---- samples ----

/** A random number in [0, 1) of 53 bits, from the system. */
function priority() {
  const bytes = randomBytes(7);
  return (bytes.readUIntBE(0, 4) * 2 ** 21 + (bytes.readUIntBE(4, 3) >>> 3)) * 2 ** -53;
}

/**
 * At most about 1 MiB of samples for each step. The first half takes every sample; after that the threshold for `pri`
 * goes down as samples come and as the budget is used. Whether one is kept does not depend on what is in it.
 */
class Quota {
  static #BUDGET = 1 << 20;
  static #WINDOW_S = 10;
  static #MOST_STEPS = 64;
  #uses = new Map(); // by step; samples without one share that of ten seconds, whose key is negative

  use(step) {
    const key = step ?? -1 - Math.floor(Date.now() / 1000 / Quota.#WINDOW_S);
    let use = this.#uses.get(key);
    if (!use) this.#uses.set(key, (use = { step, used: 0, kept: 0, offered: 0, dropped: 0, pri: 1 }));
    return use;
  }

  admits(use, pri) {
    use.offered++;
    if (use.used * 2 < Quota.#BUDGET) return true;
    // A quarter of those that still fit, of as many as there were: what is left lasts for very many.
    if (pri * use.offered * 4 < ((Quota.#BUDGET - use.used) * use.kept) / use.used) return true;
    use.dropped++;
    use.pri = Math.min(use.pri, pri);
    return false;
  }

  /** The events that tell what was dropped of steps up to `upto` (Infinity: of none as well), which are done with. */
  *settle(upto) {
    for (const [key, use] of this.#uses) {
      if (upto === Infinity || (key >= 0 && key <= upto)) {
        this.#uses.delete(key);
        yield* Quota.#told(use);
      }
    }
  }

  /** The same of the oldest, where there are many. */
  *passed() {
    for (const [key, use] of this.#uses) {
      if (this.#uses.size <= Quota.#MOST_STEPS) return;
      this.#uses.delete(key);
      yield* Quota.#told(use);
    }
  }

  static *#told({ step, dropped, pri }) {
    if (dropped) yield { step, line: `${head("event", wallMs(), step)},"name":"samples_dropped","attrs":{"n":${dropped},"pri":${double(pri)}}}\n` };
  }
}

const head = (kind, ms, step) => `{"kind":"${kind}","t":${seconds(ms)}${step === null ? "" : `,"step":${step}`}`;

// ---- spans ----

/** The spans of this thread that are open, and since when each lane is free. */
const lanes = { open: [], free: [], most: 10_000 };

/**
 * What nests in one lane has to nest in time. Spans that end in the opposite order of their beginnings do; one that
 * ends while a later one is open (they belong to asynchronous tasks side by side) gets the first lane that was free.
 */
function laneOf(span, began, ended) {
  const name = isMainThread ? "main" : `worker-${threadId}`;
  const at = lanes.open.lastIndexOf(span);
  const last = at === lanes.open.length - 1;
  if (at >= 0) lanes.open.splice(at, 1);
  if (at >= 0 && last) return name;
  let number = lanes.free.findIndex((since) => since <= began);
  if (number < 0) number = lanes.free.length;
  lanes.free[number] = ended;
  return `${name}-${number + 2}`;
}

class Span {
  #write;
  #step;
  #lane;
  #began = wallMs();
  #started = performance.now();

  constructor(write, step, lane) {
    this.#write = write;
    this.#step = step;
    this.#lane = lane;
    if (lanes.open.length >= lanes.most) lanes.open.shift();
    lanes.open.push(this);
  }

  /** End it, the first time it is called. `step` is the one at the end, if it changed since; `error` what ended it. */
  end(options) {
    const write = this.#write;
    if (!write) return;
    this.#write = null;
    const took = performance.now() - this.#started;
    const lane = laneOf(this, this.#began, this.#began + took);
    write(this.#began, took / 1000, this.#lane ?? lane, this.#step, options);
  }
}

function errorName(error) {
  try {
    if (typeof error === "string") return error || "Error";
    return String(error?.constructor?.name || error?.name || "Error");
  } catch {
    return "Error";
  }
}

// ---- what is said on stderr ----

const MOST_NOTICES = 1000;

/** Says a thing the first time it happens. */
class Notices {
  #said = new Set();

  once(topic, message) {
    if (this.#said.has(topic) || this.#said.size >= MOST_NOTICES) return false;
    this.#said.add(topic);
    Notices.say(message);
    return true;
  }

  /** Let the next `once` about it be said again. Returns whether something was said. */
  forget(topic) {
    return this.#said.delete(topic);
  }

  static say(message) {
    try {
      // Past process.stderr, which throws inside the program once the pipe's reader is gone.
      fs.writeSync(2, `rlship: ${message.slice(0, 1000).replace(/\p{Cc}/gu, " ")}\n`);
    } catch {
      // There is nowhere to report it.
    }
  }
}

// ---- the logger ----

/** One actor of this thread, with a file of its own. Made by `init`; no method throws. */
export class Logger {
  #who; // null: every call is dropped, silently
  #id = null;
  #firstId = null;
  #waiting = new Waiting();
  #file;
  #definitions = new Map();
  #noted = []; // `run` records, which a new file repeats
  #owed = false; // a full buffer dropped one of them
  #notices = new Notices();
  #quota = new Quota();
  #promised = -1;
  #logged = -1; // the step of the last `log`
  #at = -1; // the step under way
  #tags = new Set();
  #closed = false;
  #failing = false;
  #network = null;
  #errors = 0;
  #droppedValues = 0;
  #diskError = "";
  #backoff = BACKOFF_MS;
  #retryAt = 0;
  #wroteAt = 0; // the last attempt, which a program that never yields has to make itself
  #lineAt = 0;
  #syncMs = 0;
  #syncAt = 0;
  #timer = null;

  /** @internal `init` makes it. */
  constructor(who) {
    this.#who = who;
    if (!who) return;
    this.#id = this.#firstId = randomBytes(8).toString("hex");
    // About 500 syncs a second reach the file server up to 1,000 ranks, and at most 2,000 from 4,000 ranks on. Ranks
    // start together, so a random phase keeps them from syncing together.
    const ranks = who.world ?? 1;
    this.#syncMs = Math.max(500, Math.min(ranks * 2, 2000), ranks / 2);
    this.#syncAt = performance.now() + this.#syncMs * Math.random();
    this.#file = new LineFile(
      () => this.#nextPart(),
      () => this.#repeated(),
      (bytes) => (this.#waiting.size -= bytes),
    );
    if (!who.parent) announce(this.#id, who.checksum);
    this.#lineAt = performance.now();
    this.#write(false);
    this.#arm();
  }

  // What a job says

  /** Write one record of `metrics`. */
  log(metrics, options) {
    this.#call("log", () => {
      const { step: given, weight } = optionsOf(options, "log(metrics, {step, weight})");
      const step = stepOf(given);
      if (!isObject(metrics)) throw new Unusable(`log() takes an object of names and values, not ${shown(metrics)}`);
      const found = new Map();
      const leftOut = (name, value, why) => this.#leftOut(name, value, why);
      collect(metrics, weight, found, leftOut);
      if (step !== null && step !== undefined) this.#reach(step);
      for (const line of pack(found, step, leftOut)) this.#add(line, step);
    });
  }

  #reach(step) {
    if (step === this.#promised && this.#at === step + 1 && this.#logged <= step) {
      this.#tell("log", "after the barrier", `log(…, step=${step}) comes right after barrier(${step}): nothing is lost, but a row of a step may appear without it and be revised later. Call barrier once nothing more of its step will come`);
    }
    this.#at = Math.max(this.#at, step);
    this.#logged = step;
  }

  /** Declare how metrics are reduced, from here on. */
  define(metrics) {
    this.#call("define", () => {
      if (!isObject(metrics)) throw new Unusable(`define() takes an object of names and entries, not ${shown(metrics)}`);
      const entries = new Map();
      for (const [name, spec] of named(metrics)) {
        const told = (why) => this.#tell("define", `define ${name.slice(0, 200)}`, `define(${shown(name)}): ${why}`);
        const wrong = whyNotAName(name);
        if (wrong) told(`${wrong}; it is left out`);
        else entries.set(name, definition(name, spec, told));
      }
      const kept = defineRecords(entries).map((line) => this.#control(line));
      if (kept.every(Boolean)) for (const [name, entry] of entries) this.#definitions.set(name, entry);
    });
  }

  /** Begin a span; its `end()` writes it. */
  span(name, options) {
    const { step, lane } = this.#guarded("span", () => ({ ...optionsOf(options, "span(name, {step, lane})") })) ?? {};
    return new Span((...ended) => this.#call("span", () => this.#addSpan(name, ...ended)), step, lane);
  }

  /** Write a span that ends now and lasted so many seconds, by a clock of your own. */
  took(name, seconds, options) {
    this.#call("took", () => {
      if (!(typeof seconds === "number" && seconds >= 0 && seconds <= 1e9)) throw new Unusable(`${shown(seconds)} seconds are not within 0 and 10^9`);
      const { step, lane, error } = optionsOf(options, "took(name, seconds, {step, lane, error})");
      const ended = wallMs();
      const began = ended - seconds * 1000;
      this.#addSpan(name, began, seconds, lane ?? laneOf(null, began, ended), step, { error });
    });
  }

  /** Run `body` in a span and return what it returns; a promise is waited for. Its errors are passed on. */
  timed(name, body, options) {
    const span = this.span(name, options);
    let result;
    try {
      result = body(span);
    } catch (error) {
      span.end({ error: error ?? "Error" });
      throw error;
    }
    if (typeof result?.then !== "function") {
      span.end();
      return result;
    }
    return result.then(
      (value) => {
        span.end();
        return value;
      },
      (error) => {
        span.end({ error: error ?? "Error" });
        throw error;
      },
    );
  }

  /** Write that something happened. */
  event(name, attrs, options) {
    this.#call("event", () => {
      const t = wallMs();
      const step = stepOf(optionsOf(options, "event(name, attrs, {step})").step);
      const title = nameOf("event", name);
      if (!isObject(attrs ?? {})) throw new Unusable(`event(${shown(title)}) takes attributes as an object, not ${shown(attrs)}`);
      if (title === "step_tag") return this.#tag(attrs instanceof Map ? attrs.get("tag") : attrs?.tag, step);
      const before = `${head("event", t, step)},"name":${jsonString(title)}`;
      const told = (attribute, why) => this.#tell("event", `event ${title} ${attribute}`, `event(${shown(title)}): ${shown(attribute)}: ${why}`);
      const { members, cut } = jsonObject(attrs ?? {}, LINE_LIMIT - sizeOf(before) - 32, told);
      this.#add(`${before},"attrs":{${members}}${cut}}\n`, step);
    });
  }

  /** Tag a step, once. */
  tag(tag, options) {
    this.#call("tag", () => this.#tag(tag, stepOf(optionsOf(options, "tag(tag, {step})").step)));
  }

  /** Offer a row of a table. */
  sample(table, row, options) {
    this.#call("sample", () => {
      const { step: given, score } = optionsOf(options, "sample(table, row, {step, score})");
      const step = stepOf(given);
      const title = nameOf("sample", table);
      if (!isObject(row)) throw new Unusable(`sample(${shown(title)}) takes a row as an object of columns, not ${shown(row)}`);
      const pri = priority();
      const use = this.#quota.use(step);
      for (const passed of this.#quota.passed()) this.#control(passed.line, passed.step);
      if (!this.#quota.admits(use, pri)) return;
      let ranked = "";
      if (Number.isFinite(score)) ranked = `"score":${double(score)},`;
      else if (score !== undefined && score !== null) {
        this.#tell("sample", `score ${title}`, `sample(${shown(title)}): the score ${shown(score)} is no finite number: the row is kept without one`);
      }
      const before = `${head("sample", wallMs(), step)},"table":${jsonString(title)},${ranked}"pri":${double(pri)}`;
      const told = (column, why) => this.#tell("sample", `sample ${title} ${column}`, `sample(${shown(title)}): ${shown(column)}: ${why}`);
      const { members, cut } = jsonObject(row, LINE_LIMIT - sizeOf(before) - 32, told);
      const line = `${before},"row":{${members}}${cut}}\n`;
      use.kept++;
      use.used += sizeOf(line);
      this.#add(line, step);
    });
  }

  /** Record what a group of samples is at one hop of its way: docs/ledger.md. */
  ledger(hop, key, given) {
    this.#call("ledger", () => {
      const members = optionsOf(given, "ledger(hop, key, {step, n, tokens, reward, …})");
      const step = stepOf(members.step);
      const title = nameOf("ledger", hop);
      const name = wellFormed(String(key));
      if (!name || lengthOf(name) > LONGEST_KEY) throw new Unusable(`a key has ${lengthOf(name)} characters, 1 to ${LONGEST_KEY} are allowed`);
      if (!keepsKey(name, this.#who?.ledgerShare ?? 1 / 8)) return;
      this.#addEntry(groupOf(title, name, members), step);
    });
  }

  /** Record which weights a version has, on both sides of a weight sync. */
  weights(version, options) {
    this.#call("weights", () => {
      const { step: given, fingerprint } = optionsOf(options, "weights(version, {step, fingerprint})");
      const step = stepOf(given);
      const number = count("version", version);
      const found = { hop: "weights", key: String(number), n: 0, version: [number, number] };
      if (fingerprint) found.fingerprint = untorn(String(fingerprint).slice(0, LONGEST_KEY));
      this.#addEntry(found, step);
    });
  }

  /** Note what was set, such as hyper-parameters. A later call updates by name, in objects too. Secrets are left out. */
  config(values) {
    this.#note("config", values);
  }

  /** Note results. */
  summary(values) {
    this.#note("summary", values);
  }

  /** Note other members of section 5.8 of SPEC.md: name, notes, group, project, entity, job_type, tags, exit_code, facts. */
  run(members) {
    this.#note("", members);
  }

  /** Promise that this writer writes nothing more for steps up to `step`. */
  barrier(step) {
    this.#call("barrier", () => {
      const found = neededStep("barrier", step);
      if (found < this.#promised) {
        this.#tell("barrier", "back", `barrier(${found}) goes back behind barrier(${this.#promised}): call rollback(${found}) first if the job resumed from an older checkpoint`);
      }
      this.#settleSamples(found);
      this.#control(`{"kind":"barrier","step":${found},"t":${stamp()}}\n`, found);
      this.#promised = Math.max(this.#promised, found);
      this.#at = found + 1;
      if (this.#due()) this.#write(false);
    }, false);
  }

  /** Say that this process goes back, to do `step` again. */
  rollback(step) {
    this.#call("rollback", () => {
      const found = neededStep("rollback", step);
      const newest = Math.max(this.#logged, this.#at);
      // The checkpoint of step n may be the one from which step n + 1 begins.
      if (newest >= 0 && newest < found - 1) {
        this.#tell("rollback", "forward", `rollback(${found}) goes forward: the step of this process is ${newest}. It is carried out. A rollback names the step of the checkpoint that the job went back to`);
      }
      this.#settleSamples(Infinity);
      this.#tags.clear();
      this.#control(`{"kind":"rollback","step":${found},"t":${stamp()}}\n`, found);
      this.#promised = found - 1;
      this.#at = found;
    }, false);
  }

  /** Write what waits, and sync it where that matters. False if that failed; it is tried again later. */
  flush() {
    return this.#guarded("flush", () => !this.#live || this.#write(true)) ?? false;
  }

  /** Write what waits and the `close` record. Later calls are dropped. */
  close() {
    return (
      this.#guarded("close", () => {
        if (!this.#live) return true;
        this.#settleSamples(Infinity);
        this.#control(`{"kind":"close","t":${stamp()},"reason":"exit"}\n`);
        this.#closed = true;
        clearTimeout(this.#timer);
        withdraw(this.#id);
        const done = this.#write(true);
        if (!done) Notices.say(`${this.#who.actor}: not everything could be written to ${this.#who.folder} before the end`);
        this.#file.close();
        return done;
      }) ?? false
    );
  }

  // What became of it

  get id() {
    return this.#id;
  }

  get path() {
    return this.#file?.path ?? null;
  }

  get closed() {
    return this.#closed;
  }

  get actor() {
    return this.#who?.actor ?? null;
  }

  get rank() {
    return this.#who?.rank ?? null;
  }

  get world() {
    return this.#who?.world ?? null;
  }

  /** How many lines were left out because the buffer was full or the call could not be understood. */
  get droppedLines() {
    return this.#waiting.dropped;
  }

  /** How many values were left out because they are no metrics. */
  get droppedValues() {
    return this.#droppedValues;
  }

  /** How many attempts to write failed, and how many calls with an error of their own. */
  get errors() {
    return this.#errors;
  }

  // Calls

  get #live() {
    return this.#who !== null && !this.#closed;
  }

  /** Run a call's body. What cannot be used is reported and, where a line is missing for it, counted. */
  #call(where, body, counted = true) {
    this.#guarded(where, () => {
      if (!this.#live) {
        if (this.#closed) this.#notices.once("closed", `${this.#who.actor} is closed: calls after close() are dropped`);
        return;
      }
      try {
        body();
      } catch (error) {
        if (counted) this.#waiting.refuse(null);
        if (!(error instanceof Unusable)) throw error;
        this.#tell(where, `refused ${where}`, `${where}: ${error.message}; the call is left out`);
      }
    });
  }

  #guarded(where, body) {
    try {
      return body();
    } catch (error) {
      this.#errors++;
      this.#tell(where, `error ${where} ${errorName(error)}`, `internal error in ${where}, the job goes on: ${shown(error)}`);
      return undefined;
    }
  }

  #addEntry(members, step) {
    this.#add(`${head("ledger", wallMs(), step)},${JSON.stringify(members).slice(1)}\n`, step);
  }

  #add(line, step) {
    this.#waiting.add(line, step);
    const late = performance.now() - this.#wroteAt > FLUSH_MS;
    if ((late || this.#waiting.size > WRITE_AT) && this.#due()) this.#write(false);
  }

  #note(object, values) {
    const where = object || "run";
    this.#call(where, () => {
      if (!isObject(values)) throw new Unusable(`${where}() takes an object of names and values, not ${shown(values)}`);
      const texts = new Map();
      const dropped = [];
      for (const [name, value] of named(values)) {
        if (value === undefined) continue;
        try {
          const wrong = whyNotAName(name);
          if (wrong) throw new Unusable(wrong);
          texts.delete(name);
          const text = setting(object ? [object, name] : [name], value, dropped);
          if (text !== undefined) texts.set(name, text);
        } catch (error) {
          const why = error instanceof Unusable ? error.message : `reading it threw ${shown(error)}`;
          this.#tell(where, `${where} ${name.slice(0, 200)}`, `${where}: ${shown(name)}: ${why}; it is left out`);
        }
      }
      for (const record of runRecords(object, texts, dropped)) {
        if (record.names) this.#noted = this.#noted.filter((one) => one.names !== record.names);
        const size = this.#noted.reduce((sum, one) => sum + one.line.length, record.line.length);
        if (size <= MOST_NOTED) this.#noted.push(record);
        if (!this.#control(record.line)) this.#owed = true;
      }
    }, false);
  }

  /** What a new file repeats. */
  #repeated() {
    return [...defineRecords(this.#definitions), ...this.#noted.map((one) => one.line)];
  }

  #addSpan(name, began, took, lane, before, options) {
    const { step = before, error } = optionsOf(options, "end({step, error})");
    const found = stepOf(step);
    const title = beginningOf(wellFormed(String(name)), LONGEST_SPAN) || "unnamed";
    const place = jsonString(beginningOf(String(lane), LONGEST_WHO));
    const err = error === undefined || error === null ? "" : `,"err":${jsonString(errorName(error).slice(0, LONGEST_WHO))}`;
    this.#add(`${head("span", began, found)},"dur":${double(took)},"name":${jsonString(title)},"lane":${place}${err}}\n`, found);
  }

  #control(line, step = null) {
    return this.#waiting.add(line, step, RESERVE);
  }

  #tag(tag, step) {
    if (step === null || typeof tag !== "string") throw new Unusable("a tag is a text and has a step: tag(tag, {step})");
    const title = nameOf("tag", tag);
    const key = `${step} ${title}`;
    if (this.#tags.has(key)) return;
    this.#add(`${head("event", wallMs(), step)},"name":"step_tag","attrs":{"tag":${jsonString(title)}}}\n`, step);
    this.#tags.add(key);
    if (this.#tags.size > 1000) this.#tags.delete(this.#tags.values().next().value);
  }

  #settleSamples(upto) {
    for (const { line, step } of this.#quota.settle(upto)) this.#control(line, step);
  }

  #leftOut(name, value, why) {
    this.#droppedValues++;
    const reason = why ? `is left out: ${why}` : `has a value of type ${typeof value} that is no metric; it is left out`;
    this.#tell("value", `value ${name.slice(0, 200)}`, `${shown(name)} ${reason}. Allowed: ${ALLOWED}`);
  }

  /** Say it on stderr and in the file, once for each topic. */
  #tell(where, topic, message) {
    if (!this.#notices.once(topic, message) || !this.#live) return;
    const attrs = json({ where, error: beginningOf(message, 1000) });
    this.#control(`${head("event", wallMs(), null)},"name":"rlship_error","attrs":${attrs}}\n`);
  }

  // Writing

  #due() {
    return !this.#failing || performance.now() >= this.#retryAt;
  }

  /** Write what waits. False if it failed. */
  #write(sync) {
    this.#wroteAt = performance.now();
    try {
      if (this.#failing && !this.#recovered(sync)) return false;
      if (this.#owed && this.#waiting.size < CAPACITY / 2) {
        this.#owed = false;
        for (const { line } of this.#noted) if (!this.#control(line)) this.#owed = true;
      }
      this.#file.put(this.#waiting.take());
      if (this.#file.write() > 0) this.#lineAt = performance.now();
      this.#network ??= isNetwork(this.#who.folder);
      if (!this.#network) this.#file.forgetUnsynced();
      else if (sync && this.#file.unsynced) this.#file.sync();
      return true;
    } catch (error) {
      this.#trouble(error);
      return false;
    }
  }

  /** Write what an earlier attempt left. Whatever is mounted there may be another filesystem by now. */
  #recovered(sync) {
    this.#file.write();
    this.#network = isNetwork(this.#who.folder);
    if (this.#network && !sync) {
      this.#startSync(); // all is well once that is through
      return false;
    }
    if (this.#network) this.#file.sync();
    this.#well();
    return true;
  }

  #startSync() {
    if (this.#file.syncing) return;
    this.#syncAt = performance.now() + this.#syncMs;
    this.#file.startSync((error) => {
      if (error) this.#trouble(error);
      else if (this.#failing) this.#well();
    });
  }

  #tick() {
    this.#guarded("writing", () => {
      if (!this.#due()) return;
      const now = performance.now();
      if (!this.#failing && now - this.#lineAt >= BEAT_S * 1000 && this.#waiting.empty) this.#control(`{"kind":"beat","t":${stamp()}}\n`);
      if (this.#write(false) && this.#network && this.#file.unsynced && now >= this.#syncAt) this.#startSync();
    });
    if (!this.#closed) this.#arm();
  }

  #arm() {
    const now = performance.now();
    let wait = FLUSH_MS;
    if (this.#failing) wait = this.#retryAt - now;
    else if (this.#network && this.#file.unsynced && this.#syncAt > now) wait = Math.min(wait, this.#syncAt - now);
    this.#timer = setTimeout(() => this.#tick(), Math.max(1, Math.ceil(wait)));
    this.#timer.unref();
  }

  #trouble(error) {
    this.#errors++;
    this.#diskError = shown(error?.message ?? error);
    if (error?.code) {
      const place = this.path ?? this.#who.folder;
      this.#notices.once("disk", `cannot write to ${place}: ${error.message}; keeping lines in memory and trying again`);
    } else {
      this.#tell("writing", "error writing", `internal error in writing, the job goes on: ${shown(error)}`);
    }
    // Where each attempt costs a new file, they have to be few.
    const most = BACKOFF_MOST_MS * (this.#file.inVain ? 12 : 1);
    this.#failing = true;
    this.#retryAt = performance.now() + Math.min(this.#backoff, most);
    this.#backoff = Math.min(this.#backoff * 2, most);
  }

  #well() {
    this.#failing = false;
    this.#backoff = BACKOFF_MS;
    if (!this.#notices.forget("disk")) return;
    Notices.say(`writing to ${this.path} again`);
    this.#control(`${head("event", wallMs(), null)},"name":"rlship_error","attrs":${json({ where: "disk", error: this.#diskError })}}\n`);
  }

  /** The path and the first lines of the next file: the first, or one in the place of a file that is gone. */
  #nextPart() {
    const who = this.#who;
    const first = this.#firstId !== null;
    if (!first) {
      const before = this.#id;
      this.#id = randomBytes(8).toString("hex");
      if (!who.parent) {
        withdraw(before);
        announce(this.#id, who.checksum);
      }
    }
    this.#firstId = null;
    const { actor, replica, rank, world, attempt, axis, host, parent, labels } = who;
    const names = [safe(actor), safe(replica), `r${rank}`, safe(host), process.pid, this.#id];
    const record = {
      ...{ kind: "open", rlship: 1, id: this.#id, actor, replica, rank, world, attempt, axis },
      ...{ beat: BEAT_S, host, pid: process.pid, pid_space: pidSpace(), t: Date.now() / 1000, writer: `js/${VERSION}`, parent, labels },
    };
    // Of the first file only its own `define` records govern: they stand where they were called.
    const repeated = first ? [] : this.#repeated();
    return { path: path.join(who.folder, "rlship", `${names.join("-")}.jsonl`), header: [`${json(record)}\n`, ...repeated] };
  }
}

/** Which processes our pid counts among: the kernel's boot and the pid namespace. Linux alone says so. */
function pidSpace() {
  try {
    return `${fs.readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim()} ${fs.readlinkSync("/proc/self/ns/pid", "latin1")}`;
  } catch {
    return undefined;
  }
}

function optionsOf(given, form) {
  if (given === undefined || given === null) return {};
  if (typeof given !== "object") throw new Unusable(`${shown(given)} is no object of options: call ${form}`);
  return given;
}

/** A step as a number; null without a step. */
function stepOf(step) {
  if (step === undefined || step === null) return null;
  const number = typeof step === "bigint" ? Number(step) : step;
  if (Number.isSafeInteger(number) && number >= 0) return number + 0;
  throw new Unusable(`the step ${shown(step)} is not an integer from 0 to ${GREATEST_STEP}`);
}

function neededStep(call, step) {
  const found = stepOf(step);
  if (found === null) throw new Unusable(`give ${call}() a step`);
  return found;
}

function nameOf(call, name) {
  const found = wellFormed(String(name));
  const wrong = whyNotAName(found);
  if (wrong) throw new Unusable(`${call}(${shown(found)}): ${wrong}`);
  return found;
}

// ---- opening ----

const notices = new Notices();
const loggers = new Map();

/**
 * Open the file of an actor in the experiment `dir`, or return the Logger that was opened for it before.
 *
 * What is not given comes from RLSHIP_DIR, RLSHIP_ACTOR, RLSHIP_RANK, …, or from the launcher. Where there is nothing to
 * write to, and with RLSHIP_DISABLE, the Logger drops every call.
 */
export function init(dir, options) {
  try {
    return opened(dir, options ?? {});
  } catch (error) {
    notices.once("init", `init failed, nothing is logged: ${shown(error)}`);
    return new Logger(null);
  }
}

function opened(dir, options) {
  if (!["", "0"].includes(process.env.RLSHIP_DISABLE ?? "")) return new Logger(null);
  const warn = (message) => notices.once(message, message);
  const place = dir instanceof URL ? fileURLToPath(dir) : String(dir ?? process.env.RLSHIP_DIR ?? "");
  const actor = who("actor", options.actor ?? process.env.RLSHIP_ACTOR ?? "", warn);
  if (place === "" || actor === "") {
    warn(`init needs ${place === "" ? "a folder (or RLSHIP_DIR)" : "an actor (or RLSHIP_ACTOR)"}: nothing is logged`);
    return new Logger(null);
  }
  const folder = path.resolve(place);
  const key = `${folder}\0${actor}`;
  const before = loggers.get(key);
  if (before && !before.closed) return before;
  const identity = identify(options, warn);
  const { rank, world, replica, attempt, source } = identity;
  const checksum = checksumOf([folder, actor, replica, rank, world, attempt, source]);
  const axis = who("axis", options.axis ?? "", warn) || "global_step";
  const parent = options.parent ? wellFormed(String(options.parent)) : parentOf(checksum);
  const logger = new Logger({ ...identity, folder, actor, axis, host: hostName(), parent, checksum, labels: labelsOf(options.labels, warn), ledgerShare: shareOf(options.ledgerShare, warn) });
  if (loggers.size === 0) process.on("exit", closeAll);
  loggers.set(key, logger);
  return logger;
}

/** The share of groups that `ledger` records: the same in every process. */
function shareOf(given, warn) {
  const named = given ?? process.env.RLSHIP_LEDGER_SHARE;
  if (named === undefined || named === "") return 1 / 8;
  const share = Number(named);
  if (share >= 0 && share <= 1) return share;
  warn(`ledgerShare ${shown(named)} is no number from 0 to 1; an eighth of the groups is recorded`);
  return 1 / 8;
}

function closeAll() {
  for (const logger of loggers.values()) logger.close();
}
