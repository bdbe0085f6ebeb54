//! Writes metrics, spans and events of one process for rlship to read: one file, standard library only, no unsafe.
//!
//! ```no_run
//! mod rlship;
//!
//! let log = rlship::Options::new("outputs/grpo-7b", "trainer").open();
//! log.define("tokens", rlship::Define { reduce: &["sum"], ..Default::default() });
//! for step in 0..1000u64 {
//!     let _span = log.span(step, "rollout");
//!     log.log(step, &[("loss", 0.53), ("lr", 3e-4)]);
//!     log.barrier(step);
//! }
//! ```
//!
//! No call panics, waits for a disk or returns an error: what cannot be written is left out, counted in the file and said
//! once on stderr. Callers fill a buffer of at most 8 MiB; a thread of the writer's own does the rest.

#![forbid(unsafe_code)]
#![allow(dead_code)] // copied into a program that may need half of it

use std::collections::hash_map::RandomState;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::hash::BuildHasher;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, mem, process, thread};

const VERSION: &str = "0.1.0";

const LINE_LIMIT: usize = 1 << 20;
const CAPACITY: usize = 8 << 20;
/// Barriers, defines and rollbacks are few and small, and losing one costs more than a line of values.
const RESERVE: usize = 1 << 20;
const WAKE_AT: usize = 1 << 20;
const DEFINE_LIMIT: usize = 64 << 10;
const LONGEST_NAME: usize = 1000;
const LONGEST_SPAN: usize = 500;
const LONGEST_ACTOR: usize = 200;
const MOST_ELEMENTS: usize = 262_144;
/// Elements that surely fit in one line, whatever their digits and weights are.
const ELEMENTS_AT_ONCE: usize = 8192;
const MOST_TOLD: usize = 1000;
const DEEPEST: usize = 100;
const STEPS_END: u64 = 1 << 53;
const RANKS_END: u64 = 1 << 20;

const FLUSH: Duration = Duration::from_millis(500);
const BEAT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_secs(5);
const CLOSE: Duration = Duration::from_secs(5);
const SAY: Duration = Duration::from_millis(100);
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MOST: Duration = Duration::from_secs(5);
/// Where each attempt costs a new file, they have to be few.
const RARER: u32 = 12;

const LONGEST_KEY: usize = 200; // characters of the key of a group
const MOST_SAMPLES: usize = 1 << 21; // of a group: up to here the sums of a digest are exact
const LONGEST_SETTING: usize = 65_536; // characters of a text of the run's configuration
const LARGEST_SETTING: usize = 512 << 10; // bytes of any value of it
const MOST_NOTED: usize = 4 << 20; // bytes of `run` records that a new file repeats
const SHORTEST_TOKEN: usize = 16;

// ---------------------------------------------------------------------------------------------------------------------
// What a program says

/// The step that a line belongs to: any integer in 0..2^53, or `None` for a stream record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step(Result<Option<u64>, i128>);

macro_rules! step_from {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Step {
            fn from(step: $integer) -> Self {
                match u64::try_from(step) {
                    Ok(number) if number < STEPS_END => Step(Ok(Some(number))),
                    _ => Step(Err(step as i128)),
                }
            }
        }
    )*};
}
step_from!(i32, i64, u32, u64, usize);

impl From<Option<u64>> for Step {
    fn from(step: Option<u64>) -> Self {
        step.map_or(Step(Ok(None)), Step::from)
    }
}

/// What a group of samples is at one hop: `Group { tokens: Tokens::I32(&rows), reward: &scores, ..Group::default() }`.
/// What is not set is not recorded. Rows are those of one sample each, without padding.
#[derive(Clone, Copy, Debug, Default)]
pub struct Group<'a> {
    /// How many samples; 0: as many as the slices below have.
    pub n: usize,
    pub tokens: Tokens<'a>,
    /// For each token, whether it counts in the loss.
    pub mask: &'a [&'a [u8]],
    pub reward: &'a [f64],
    pub advantage: &'a [f64],
    /// Names of the samples; empty: they are known by their tokens.
    pub sample: &'a [&'a str],
    /// How many tokens the model generated.
    pub response: Option<u64>,
    /// The least and the greatest version of the weights that generated.
    pub version: Option<(u64, u64)>,
    /// (i, k): these are the samples of part i of k.
    pub part: Option<(u64, u64)>,
    /// The number of the dispatch, from 0.
    pub retry: u64,
    /// How often the step trains on the group; 0 is 1.
    pub passes: u64,
    /// Why the group was dropped.
    pub why: &'a str,
    /// Round numbers to bfloat16.
    pub bf16: bool,
}

/// Tokens of samples.
#[derive(Clone, Copy, Debug, Default)]
pub enum Tokens<'a> {
    #[default]
    None,
    I32(&'a [&'a [i32]]),
    I64(&'a [&'a [i64]]),
}

/// The value of a metric: one observation, several, or a summary of many.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Float(f64),
    Int(i64),
    Unsigned(u64),
    List(&'a [f64]),
    /// Observations and their weights: as many, or one for all.
    Weighted(&'a [f64], &'a [f64]),
    Summary(Summary),
}

/// What is known of `n` observations; `None` is unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub n: u64,
    pub w: Option<f64>,
    pub sum: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub first: Option<f64>,
    pub last: Option<f64>,
    pub m2: Option<f64>,
}

/// An attribute of an event, or a column of a sample.
#[derive(Clone, Copy, Debug)]
pub enum Attr<'a> {
    Text(&'a str),
    Float(f64),
    Int(i64),
    Unsigned(u64),
    Bool(bool),
    Null,
    List(&'a [Attr<'a>]),
    Object(&'a [(&'a str, Attr<'a>)]),
}

macro_rules! value_from {
    ($target:ident: $($source:ty => $variant:ident($as:ty)),*) => {$(
        impl<'a> From<$source> for $target<'a> {
            fn from(value: $source) -> Self {
                $target::$variant(value as $as)
            }
        }
    )*};
}
value_from!(Value: f64 => Float(f64), f32 => Float(f64), i32 => Int(i64), i64 => Int(i64), u32 => Unsigned(u64),
    u64 => Unsigned(u64), usize => Unsigned(u64), bool => Int(i64), &'a [f64] => List(&'a [f64]));
value_from!(Attr: f64 => Float(f64), f32 => Float(f64), i32 => Int(i64), i64 => Int(i64), u32 => Unsigned(u64),
    u64 => Unsigned(u64), usize => Unsigned(u64), bool => Bool(bool), &'a str => Text(&'a str));

impl<'a> From<&'a String> for Attr<'a> {
    fn from(text: &'a String) -> Self {
        Attr::Text(text)
    }
}

impl From<Summary> for Value<'_> {
    fn from(summary: Summary) -> Self {
        Value::Summary(summary)
    }
}

/// How a metric is reduced over ranks and observations; an empty `reduce` leaves it to the catalogue, else to `mean`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Define<'a> {
    /// Of `mean sum min max first last std count p50 p90 p95 p99 hist rate sum_last`, or a custom one with a dot in its name.
    pub reduce: &'a [&'a str],
    pub unit: &'a str,
    pub per_rank: bool,
    pub stream: bool,
}

/// Who writes, and where. What is not said comes from `RLSHIP_*`, else from the launcher's variables.
#[derive(Clone, Debug, Default)]
pub struct Options {
    dir: PathBuf,
    actor: String,
    replica: Option<String>,
    rank: Option<u64>,
    world: Option<u64>,
    attempt: Option<u64>,
    axis: Option<String>,
    parent: Option<String>,
    labels: Vec<(String, String)>,
}

impl Options {
    /// `dir` is the folder of the experiment (empty: `RLSHIP_DIR`), `actor` the kind of worker (empty: `RLSHIP_ACTOR`).
    pub fn new(dir: impl Into<PathBuf>, actor: impl Into<String>) -> Self {
        Options { dir: dir.into(), actor: actor.into(), ..Options::default() }
    }

    /// Which of several groups of ranks of this actor this one is in (`"0"`).
    pub fn replica(mut self, replica: impl Into<String>) -> Self {
        self.replica = Some(replica.into());
        self
    }

    pub fn rank(mut self, rank: u64) -> Self {
        self.rank = Some(rank);
        self
    }

    /// How many ranks the replica has.
    pub fn world(mut self, world: u64) -> Self {
        self.world = Some(world);
        self
    }

    /// How often this rank was started again.
    pub fn attempt(mut self, attempt: u64) -> Self {
        self.attempt = Some(attempt);
        self
    }

    /// What the steps count (`"global_step"`).
    pub fn axis(mut self, axis: impl Into<String>) -> Self {
        self.axis = Some(axis.into());
        self
    }

    /// The `Writer::id` of the process that this one is a child of, working for the same rank.
    pub fn parent(mut self, id: impl Into<String>) -> Self {
        self.parent = Some(id.into());
        self
    }

    /// A fact for people, such as the GPU.
    pub fn label(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.labels.push((name.into(), text.into()));
        self
    }

    /// Start writing. Where that is impossible, or `RLSHIP_DISABLE` is set, the writer does nothing.
    pub fn open(self) -> Writer {
        Writer { shared: start(self) }
    }
}

/// Writes one file. To be shared by reference (or `Arc`) between threads; dropping it closes it.
///
/// A process made by a bare `fork` has no thread that writes: there all calls do nothing. It opens a writer of its own,
/// with `Options::parent`.
pub struct Writer {
    shared: Option<Arc<Shared>>,
}

impl Writer {
    /// The id of the file, for `Options::parent` of a child; empty if nothing is written.
    pub fn id(&self) -> &str {
        self.shared.as_ref().map_or("", |shared| &shared.id)
    }

    /// Say how a metric is reduced, from here on.
    pub fn define(&self, name: &str, define: Define) {
        let Some(shared) = self.alive() else { return };
        if let Err(why) = usable_name(name) {
            return shared.tell(&format!("define {:?}", shown(name)), "define", &why);
        }
        let mut reduce: Vec<&str> = Vec::new();
        for &one in define.reduce {
            if !usable_reduction(one) {
                let why = format!("{:?} is no reduction: it is left out", shown(one));
                shared.tell(&format!("define {:?}", shown(name)), "define", &why);
            } else if !reduce.contains(&one) {
                reduce.push(one);
            }
        }
        let mut members = Vec::new();
        match reduce.as_slice() {
            [] => {}
            [one] => members.push(format!("\"reduce\":{}", quoted(one))),
            several => {
                let names: Vec<String> = several.iter().map(|one| quoted(one)).collect();
                members.push(format!("\"reduce\":[{}]", names.join(",")));
            }
        }
        if !define.unit.is_empty() {
            members.push(format!("\"unit\":{}", quoted(first_chars(define.unit, LONGEST_NAME))));
        }
        for (flag, member) in [(define.per_rank, "per_rank"), (define.stream, "stream")] {
            if flag {
                members.push(format!("\"{member}\":true"));
            }
        }
        let entry = format!("{}:{{{}}}", quoted(name), members.join(","));
        let line = format!("{{\"kind\":\"define\",\"m\":{{{entry}}}}}\n");
        let mut state = shared.lock();
        match state.defines.iter_mut().find(|(known, _)| known == name) {
            Some(known) => known.1 = entry,
            None => state.defines.push((name.to_owned(), entry)),
        }
        state.append(&line, None, RESERVE);
    }

    /// Log the values of one call: `log.log(step, &[("loss", 0.5), ("lr", 3e-4)])`. Values of several types:
    /// `&[("loss", 0.5.into()), ("tokens", rlship::Value::from(4096))]`.
    pub fn log<'a, V: Into<Value<'a>> + Clone>(&self, step: impl Into<Step>, metrics: &[(&str, V)]) {
        self.observe(step.into(), None, metrics);
    }

    /// The same with a weight of all values, such as the number of tokens that a mean was taken over.
    pub fn log_weighted<'a, V: Into<Value<'a>> + Clone>(
        &self,
        step: impl Into<Step>,
        weight: f64,
        metrics: &[(&str, V)],
    ) {
        self.observe(step.into(), Some(weight), metrics);
    }

    /// Time what happens until the span is dropped.
    pub fn span(&self, step: impl Into<Step>, name: &str) -> Span<'_> {
        Span {
            writer: self,
            step: step.into(),
            name: name.to_owned(),
            began: SystemTime::now(),
            clock: Instant::now(),
            error: None,
        }
    }

    /// Write a span that was timed otherwise: it began at `began`, took `took`, and `error` names what ended it.
    pub fn record_span(
        &self,
        step: impl Into<Step>,
        name: &str,
        began: SystemTime,
        took: Duration,
        error: Option<&str>,
    ) {
        let Some((shared, step)) = self.ready(step.into(), "span") else { return };
        let name = if name.is_empty() { "unnamed" } else { first_chars(name, LONGEST_SPAN) };
        let thread = thread::current();
        let lane = match thread.name() {
            Some(name) if !name.is_empty() => first_chars(name, LONGEST_SPAN).to_owned(),
            _ => format!("{:?}", thread.id()),
        };
        let mut line = head("span", unix(began), step);
        let dur = took.as_secs_f64().min(1e9);
        let _ = write!(line, ",\"name\":{},\"dur\":{dur:?},\"lane\":{}", quoted(name), quoted(&lane));
        if let Some(error) = error {
            let _ = write!(line, ",\"err\":{}", quoted(first_chars(error, LONGEST_NAME)));
        }
        line.push_str("}\n");
        shared.lock().append(&line, step, 0);
    }

    /// Write that something happened: `log.event(step, "weights_pushed", &[("bytes", 123)])`.
    pub fn event<'a, A: Into<Attr<'a>> + Clone>(&self, step: impl Into<Step>, name: &str, attrs: &[(&str, A)]) {
        let Some((shared, step)) = self.ready(step.into(), "event") else { return };
        if let Err(why) = usable_name(name) {
            return shared.refuse("event", &why);
        }
        let mut line = head("event", now(), step);
        let _ = write!(line, ",\"name\":{}", quoted(name));
        shared.finish(line, "attrs", attrs, step);
    }

    /// Write a row of a table, with a score or without.
    pub fn sample<'a, A: Into<Attr<'a>> + Clone>(
        &self,
        step: impl Into<Step>,
        table: &str,
        score: Option<f64>,
        row: &[(&str, A)],
    ) {
        let Some((shared, step)) = self.ready(step.into(), "sample") else { return };
        if let Err(why) = usable_name(table) {
            return shared.refuse("sample", &why);
        }
        let mut line = head("sample", now(), step);
        let _ = write!(line, ",\"table\":{}", quoted(table));
        if let Some(score) = score {
            line.push_str(",\"score\":");
            push_float(&mut line, score);
        }
        let pri = (shared.random() >> 11) as f64 / STEPS_END as f64;
        let _ = write!(line, ",\"pri\":{pri:?}");
        shared.finish(line, "row", row, step);
    }

    /// Record what a group of samples is at one hop of its way: `generated`, `rewarded`, `dropped`, `trained`, or a name of
    /// your own. The key is the group's, another one each time that it is generated. Of all keys a share is kept
    /// (`RLSHIP_LEDGER_SHARE`, 1/8), the same in every process.
    pub fn ledger(&self, step: impl Into<Step>, hop: &str, key: &str, group: &Group<'_>) {
        let Some((shared, step)) = self.ready(step.into(), "ledger") else { return };
        if !keeps_key(key) {
            return;
        }
        let length = key.chars().count();
        let usable = if (1..=LONGEST_KEY).contains(&length) {
            usable_name(hop)
        } else {
            Err(format!("a key has {length} characters, 1 to {LONGEST_KEY} are allowed"))
        };
        match usable.and_then(|()| group.members()) {
            Ok(members) => shared.enter(step, hop, key, &members),
            Err(why) => shared.refuse("ledger", &why),
        }
    }

    /// Record which weights a version has, on both sides of a weight sync; an empty `fingerprint` says nothing of them.
    pub fn weights(&self, step: impl Into<Step>, version: u64, fingerprint: &str) {
        let Some((shared, step)) = self.ready(step.into(), "weights") else { return };
        if version >= STEPS_END {
            return shared.refuse("weights", &format!("version {version} is not in 0..2^53"));
        }
        let mut members = format!(",\"n\":0,\"version\":[{version},{version}]");
        if !fingerprint.is_empty() {
            let text: String = fingerprint.chars().take(LONGEST_KEY).collect();
            let _ = write!(members, ",\"fingerprint\":{}", quoted(&text));
        }
        shared.enter(step, "weights", &version.to_string(), &members);
    }

    /// Note what was set, such as hyper-parameters: `log.config(&[("lr", 1e-6)])`. A later call updates by name, in objects
    /// too. Secrets are left out: texts under names such as `api_key`, and those that look like keys of known services.
    pub fn config<'a, A: Into<Attr<'a>> + Clone>(&self, values: &[(&str, A)]) {
        self.note("config", values);
    }

    /// Note results, as `config` notes what was set.
    pub fn summary<'a, A: Into<Attr<'a>> + Clone>(&self, values: &[(&str, A)]) {
        self.note("summary", values);
    }

    /// Note other members of section 5.8 of SPEC.md: the texts `name`, `notes`, `group`, `project`, `entity` and `job_type`,
    /// `tags` (a list of texts), `exit_code` (an integer in -255..=255), `facts` (an object).
    pub fn run<'a, A: Into<Attr<'a>> + Clone>(&self, members: &[(&str, A)]) {
        self.note("", members);
    }

    /// This process is done with all steps up to `step`. The lines so far are written soon.
    pub fn barrier(&self, step: impl Into<Step>) {
        self.mark("barrier", step.into());
    }

    /// This process went back, to do `step` again.
    pub fn rollback(&self, step: impl Into<Step>) {
        self.mark("rollback", step.into());
    }

    /// Wait until all lines so far are in the file, at most 5 s. Says whether they are.
    pub fn flush(&self) -> bool {
        self.alive().is_none_or(|shared| shared.flush())
    }

    /// Write what is left and end the file, in at most 5 s. Says whether all was written. Later calls do nothing.
    pub fn close(&self) -> bool {
        self.alive().is_none_or(|shared| shared.close())
    }

    fn note<'a, A: Into<Attr<'a>> + Clone>(&self, object: &str, given: &[(&str, A)]) {
        let Some(shared) = self.alive() else { return };
        let place = if object.is_empty() { "run" } else { object };
        let mut noted = Noted { object, ..Noted::default() };
        for (i, (name, value)) in given.iter().enumerate() {
            if given[i + 1..].iter().any(|(later, _)| later == name) {
                continue; // of one name the last
            }
            let attr: Attr = value.clone().into();
            let mut path: Vec<&str> = if object.is_empty() { vec![*name] } else { vec![object, *name] };
            let mut text = String::new();
            let made = usable_name(name)
                .and_then(|()| if object.is_empty() { usable_member(name, &attr) } else { Ok(()) })
                .and_then(|()| push_safe(&mut text, &attr, &mut path, &mut noted.dropped));
            match made {
                Ok(true) if text.len() > LARGEST_SETTING => {
                    let why = format!("it has more than {LARGEST_SETTING} bytes: it is left out");
                    shared.tell(&format!("{place} {:?}", shown(name)), place, &why);
                }
                Ok(true) => noted.push(shared, name, &text),
                Ok(false) => {}
                Err(why) => shared.tell(&format!("{place} {:?}", shown(name)), place, &why),
            }
        }
        noted.put(shared, true);
    }

    fn alive(&self) -> Option<&Shared> {
        self.shared.as_deref().filter(|shared| shared.pid == process::id())
    }

    /// Where to write a line of `step`; None where there is nothing to write to, or the step is not valid.
    fn ready(&self, step: Step, call: &str) -> Option<(&Shared, Option<u64>)> {
        let shared = self.alive()?;
        match step.0 {
            Ok(step) => Some((shared, step)),
            Err(number) => {
                shared.refuse(call, &format!("step {number} is not in 0..{STEPS_END}"));
                None
            }
        }
    }

    fn mark(&self, kind: &str, step: Step) {
        let Some((shared, step)) = self.ready(step, kind) else { return };
        if step.is_none() {
            return shared.refuse(kind, "it needs a step");
        }
        shared.reach(kind, step);
        shared.lock().append(&(head(kind, now(), step) + "}\n"), step, RESERVE);
        shared.wake();
    }

    fn observe<'a, V: Into<Value<'a>> + Clone>(&self, step: Step, weight: Option<f64>, metrics: &[(&str, V)]) {
        let Some((shared, step)) = self.ready(step, "log") else { return };
        shared.reach("log", step);
        let mut found: Vec<(&str, Vec<String>)> = Vec::with_capacity(metrics.len());
        for (name, value) in metrics {
            match usable_name(name).and_then(|()| observations(value.clone().into(), weight)) {
                Ok(pieces) => found.push((name, pieces)),
                Err(why) => shared.tell(&format!("value {:?}", shown(name)), "value", &why),
            }
        }
        let full = {
            let mut state = shared.lock();
            for line in pack(&found, step, now()) {
                state.append(&line, step, 0);
            }
            state.size > WAKE_AT
        };
        if full {
            shared.wake();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

/// A span under way; dropping it ends it.
pub struct Span<'a> {
    writer: &'a Writer,
    step: Step,
    name: String,
    began: SystemTime,
    clock: Instant,
    error: Option<String>,
}

impl Span<'_> {
    /// It ends in a later step than it began in.
    pub fn step(&mut self, step: impl Into<Step>) {
        self.step = step.into();
    }

    /// Name the error that ends it.
    pub fn fail(&mut self, error: impl Into<String>) {
        self.error = Some(error.into());
    }
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        let error = self.error.as_deref().or(thread::panicking().then_some("panic"));
        self.writer.record_span(self.step, &self.name, self.began, self.clock.elapsed(), error);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Values to lines

fn now() -> f64 {
    unix(SystemTime::now())
}

fn unix(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The beginning of a record, without its closing brace.
// ---------------------------------------------------------------------------------------------------------------------
// The ledger

impl Group<'_> {
    /// The members of the record behind its key.
    fn members(&self) -> Result<String, String> {
        let n = self.count()?;
        let mut line = format!(",\"n\":{n}");
        self.digests(n, &mut line);
        self.sums(&mut line);
        if let Some((low, high)) = self.version {
            let _ = write!(line, ",\"version\":[{low},{high}]");
        }
        if let Some(response) = self.response {
            let _ = write!(line, ",\"response\":{response}");
        }
        if let Some((i, k)) = self.part {
            let _ = write!(line, ",\"part\":[{i},{k}]");
        }
        for (name, value) in [("try", self.retry), ("passes", self.passes)] {
            if value > 0 {
                let _ = write!(line, ",\"{name}\":{value}");
            }
        }
        if !self.why.is_empty() {
            let why: String = self.why.chars().take(LONGEST_KEY).collect();
            let _ = write!(line, ",\"why\":{}", quoted(&why));
        }
        let counts = [self.version, self.part, Some((self.retry, self.passes)), self.response.map(|x| (x, x))];
        if counts.iter().flatten().any(|(a, b)| *a >= STEPS_END || *b >= STEPS_END) {
            return Err("a count is not in 0..2^53".into());
        }
        if self.version.is_some_and(|(low, high)| low > high) || self.part.is_some_and(|(i, k)| i >= k) {
            return Err("a version or a part is not in order".into());
        }
        Ok(line)
    }

    /// How many samples there are; every slice has to agree.
    fn count(&self) -> Result<usize, String> {
        let lengths = [self.tokens.len(), self.mask.len(), self.reward.len(), self.advantage.len(), self.sample.len()];
        let n = lengths.into_iter().fold(self.n, usize::max);
        match lengths.into_iter().find(|length| *length != 0 && *length != n) {
            Some(length) => Err(format!("an argument has values of {length} samples, and the group has {n}")),
            None if n > MOST_SAMPLES => Err(format!("a group has {n} samples, {MOST_SAMPLES} are allowed")),
            None => Ok(n),
        }
    }

    fn digests(&self, n: usize, line: &mut String) {
        let tokens = self.tokens.crcs();
        let mut ids = vec![0; n];
        let mut found: Vec<(&str, Vec<u32>)> = Vec::new();
        if !self.sample.is_empty() {
            ids = self.sample.iter().map(|name| crc32(0, name.as_bytes())).collect();
            found.push(("sample", ids.clone()));
        } else if !tokens.is_empty() {
            ids.clone_from(&tokens);
        }
        let by = if !self.sample.is_empty() { "sample" } else { "tokens" };
        let is_known = !self.sample.is_empty() || !tokens.is_empty();
        found.push(("tokens", tokens));
        found.push((
            "mask",
            self.mask.iter().map(|row| crc32(0, &row.iter().map(|x| u8::from(*x != 0)).collect::<Vec<_>>())).collect(),
        ));
        for (name, values) in [("reward", self.reward), ("advantage", self.advantage)] {
            found.push((name, values.iter().map(|x| crc_of_number(*x, self.bf16)).collect()));
        }
        found.retain(|(_, crcs)| !crcs.is_empty());
        if found.is_empty() {
            return;
        }
        if is_known {
            let _ = write!(line, ",\"by\":\"{by}\"");
        }
        let members: Vec<String> = found.iter().map(|(name, crcs)| digest(name, &ids, crcs)).collect();
        let _ = write!(line, ",\"d\":{{{}}}", members.join(","));
        if self.bf16 {
            line.push_str(",\"precision\":\"bf16\"");
        }
    }

    fn sums(&self, line: &mut String) {
        let mut numbers = |name: &str, values: &[f64]| {
            let _ = write!(line, ",\"{name}\":[");
            for (i, x) in values.iter().enumerate() {
                line.push_str(if i == 0 { "" } else { "," });
                push_float(line, *x);
            }
            line.push(']');
        };
        let squares = |values: &[f64]| sum(values.iter().map(|x| x * x));
        let usable = |values: &[f64]| !values.is_empty() && squares(values).is_finite();
        let total = sum(self.reward.iter().copied());
        if usable(self.reward) {
            numbers("reward", &[total, squares(self.reward)]);
        }
        if usable(self.advantage) {
            let mut found = vec![sum(self.advantage.iter().copied()), squares(self.advantage)];
            if usable(self.reward) {
                let mean = total / self.reward.len() as f64;
                found.push(sum(self.reward.iter().zip(self.advantage).map(|(r, a)| (r - mean) * a)));
            }
            numbers("advantage", &found);
        }
        if !self.mask.is_empty() {
            let counts: Vec<usize> = self.mask.iter().map(|row| row.iter().filter(|x| **x != 0).count()).collect();
            let tokens = self.tokens.total().unwrap_or_else(|| self.mask.iter().map(|row| row.len()).sum());
            let empty = counts.iter().filter(|count| **count == 0).count();
            let _ = write!(line, ",\"mask\":[{},{tokens},{empty}]", counts.iter().sum::<usize>());
        }
    }
}

impl Tokens<'_> {
    fn len(&self) -> usize {
        match self {
            Tokens::None => 0,
            Tokens::I32(rows) => rows.len(),
            Tokens::I64(rows) => rows.len(),
        }
    }

    fn total(&self) -> Option<usize> {
        match self {
            Tokens::None => None,
            Tokens::I32(rows) => Some(rows.iter().map(|row| row.len()).sum()),
            Tokens::I64(rows) => Some(rows.iter().map(|row| row.len()).sum()),
        }
    }

    fn crcs(&self) -> Vec<u32> {
        let narrow = |row: &[i32]| crc32(0, &row.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
        match self {
            Tokens::None => Vec::new(),
            Tokens::I32(rows) => rows.iter().map(|row| narrow(row)).collect(),
            Tokens::I64(rows) => rows
                .iter()
                .map(|row| match row.iter().map(|x| i32::try_from(*x)).collect::<Result<Vec<_>, _>>() {
                    Ok(small) => narrow(&small),
                    Err(_) => crc32(0, &row.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()),
                })
                .collect(),
        }
    }
}

/// The sum of doubles; what additions lose is held in a second sum.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut total, mut lost) = (0.0_f64, 0.0_f64);
    for x in values {
        let next = total + x;
        lost += if total.abs() >= x.abs() { (total - next) + x } else { (x - next) + total };
        total = next;
    }
    total + lost
}

const CRCS: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// CRC-32, going on from that of the bytes before.
fn crc32(before: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!before, |crc, byte| CRCS[((crc ^ u32::from(*byte)) & 255) as usize] ^ (crc >> 8))
}

fn mix64(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Whether the share of the environment has this key. Every process decides alike.
fn keeps_key(key: &str) -> bool {
    let given = env::var("RLSHIP_LEDGER_SHARE").ok().and_then(|share| share.parse::<f64>().ok());
    let share = given.filter(|share| (0.0..=1.0).contains(share)).unwrap_or(0.125);
    ((mix64(u64::from(crc32(0, key.as_bytes()))) >> 11) as f64) < share * STEPS_END as f64
}

fn digest(name: &str, ids: &[u32], values: &[u32]) -> String {
    let (mut low, mut high) = (0, 0);
    for (id, value) in ids.iter().zip(values) {
        let h = mix64(u64::from(*id) << 32 | u64::from(crc32(*value, name.as_bytes())));
        low += h & u64::from(u32::MAX);
        high += h >> 32;
    }
    format!("\"{name}\":[{low},{high}]")
}

/// A number rounded to float32, or to bfloat16: one NaN, and no negative zero.
fn crc_of_number(x: f64, bf16: bool) -> u32 {
    let bits = if x.is_nan() { 0x7FC0_0000 } else { (x as f32).to_bits() };
    if bf16 {
        let rounded = if x.is_nan() { bits } else { bits + 0x7FFF + (bits >> 16 & 1) };
        let upper = (rounded >> 16) as u16;
        return crc32(0, &(if upper == 0x8000 { 0 } else { upper }).to_le_bytes());
    }
    crc32(0, &(if bits == 0x8000_0000 { 0 } else { bits }).to_le_bytes())
}

fn head(kind: &str, t: f64, step: Option<u64>) -> String {
    match step {
        Some(step) => format!("{{\"kind\":\"{kind}\",\"t\":{t:.6},\"step\":{step}"),
        None => format!("{{\"kind\":\"{kind}\",\"t\":{t:.6}"),
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    push_escaped(&mut out, text);
    out.push('"');
    out
}

fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
}

/// The shortest decimal that reads back as `x`; `{:?}` because `{}` writes 1e308 with all its zeros.
fn push_float(out: &mut String, x: f64) {
    if x.is_finite() {
        let _ = write!(out, "{x:?}");
    } else if x.is_nan() {
        out.push_str("\"NaN\"");
    } else {
        out.push_str(if x > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" });
    }
}

fn array(values: &[f64]) -> String {
    let mut out = String::with_capacity(values.len() * 20 + 2);
    out.push('[');
    for (i, &x) in values.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        push_float(&mut out, x);
    }
    out.push(']');
    out
}

fn first_chars(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

/// As much of a name as a message shows.
fn shown(name: &str) -> &str {
    first_chars(name, 200)
}

fn usable_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("the name is empty: it is left out".into());
    }
    // No more characters than bytes: most names need not be counted.
    if name.len() > LONGEST_NAME && name.chars().count() > LONGEST_NAME {
        return Err(format!("the name has more than {LONGEST_NAME} characters: it is left out"));
    }
    Ok(())
}

fn usable_reduction(name: &str) -> bool {
    const KNOWN: [&str; 15] = [
        "mean", "sum", "min", "max", "first", "last", "std", "count", "p50", "p90", "p95", "p99", "hist", "rate",
        "sum_last",
    ];
    KNOWN.contains(&name) || (name.contains('.') && name.chars().count() <= 100)
}

/// The value as JSON: more than one piece only of an array that would not fit in a line.
fn observations(value: Value, weight: Option<f64>) -> Result<Vec<String>, String> {
    let weight_of_all = weight.map(|w| [w]);
    let weights = weight_of_all.as_ref().map(|w| w.as_slice());
    match value {
        Value::Float(x) => weighted(&[x], weights, false),
        Value::Int(n) if weights.is_none() => Ok(vec![n.to_string()]),
        Value::Unsigned(n) if weights.is_none() => Ok(vec![n.to_string()]),
        Value::Int(n) => weighted(&[n as f64], weights, false),
        Value::Unsigned(n) => weighted(&[n as f64], weights, false),
        Value::List(values) => weighted(values, weights, true),
        Value::Weighted(values, own) if weights.is_none() => weighted(values, Some(own), true),
        Value::Summary(summary) if weights.is_none() => summarised(&summary),
        _ => Err("it carries weights of its own: log it without a weight".into()),
    }
}

fn weighted(values: &[f64], weights: Option<&[f64]>, list: bool) -> Result<Vec<String>, String> {
    if values.len() > MOST_ELEMENTS {
        return Err(format!("it has {} elements, {MOST_ELEMENTS} are allowed", values.len()));
    }
    let Some(weights) = weights else {
        if let ([x], false) = (values, list) {
            let mut out = String::with_capacity(24);
            push_float(&mut out, *x);
            return Ok(vec![out]);
        }
        if values.is_empty() {
            return Ok(vec!["[]".into()]);
        }
        return Ok(values.chunks(ELEMENTS_AT_ONCE).map(array).collect());
    };
    if let Some(bad) = weights.iter().find(|w| !w.is_finite() || **w < 0.0) {
        return Err(format!("its weight {bad:?} is not a finite number of 0 or more"));
    }
    let repeated;
    let weights = match weights {
        [one] => {
            repeated = vec![*one; values.len()];
            &repeated
        }
        many if many.len() == values.len() => many,
        many => return Err(format!("it has {} values and {} weights", values.len(), many.len())),
    };
    if values.is_empty() {
        return Ok(vec!["[]".into()]);
    }
    let pieces = values.chunks(ELEMENTS_AT_ONCE).zip(weights.chunks(ELEMENTS_AT_ONCE));
    Ok(pieces.map(|(v, w)| format!("{{\"v\":{},\"w\":{}}}", array(v), array(w))).collect())
}

fn summarised(summary: &Summary) -> Result<Vec<String>, String> {
    if summary.n >= STEPS_END || summary.w.is_some_and(|w| w < 0.0) || summary.m2.is_some_and(|m2| m2 < 0.0) {
        return Err("a summary needs n below 2^53, and w and m2 of 0 or more".into());
    }
    let mut out = format!("{{\"n\":{}", summary.n);
    for (name, member) in [
        ("w", summary.w),
        ("sum", summary.sum),
        ("min", summary.min),
        ("max", summary.max),
        ("first", summary.first),
        ("last", summary.last),
        ("m2", summary.m2),
    ] {
        match member {
            Some(x) if x.is_finite() => {
                let _ = write!(out, ",\"{name}\":{x:?}");
            }
            Some(x) => return Err(format!("its {name} is {x}: members of a summary have to be finite")),
            None => {}
        }
    }
    out.push('}');
    Ok(vec![out])
}

/// Metrics records of these values: one, unless it would be too long or hold a name twice.
fn pack(found: &[(&str, Vec<String>)], step: Option<u64>, t: f64) -> Vec<String> {
    let head = match step {
        Some(step) => format!("{{\"t\":{t:.3},\"step\":{step},\"m\":{{"),
        None => format!("{{\"t\":{t:.3},\"m\":{{"),
    };
    let mut lines = Vec::with_capacity(1);
    let mut line = head.clone();
    let mut names = HashSet::with_capacity(found.len());
    for (name, pieces) in found {
        for piece in pieces {
            // A name takes at most six bytes for each of its own.
            let most = name.len() * 6 + piece.len() + 8;
            if names.contains(name) || (!names.is_empty() && line.len() + most > LINE_LIMIT) {
                lines.push(mem::replace(&mut line, head.clone()) + "}}\n");
                names.clear();
            }
            if !names.is_empty() {
                line.push(',');
            }
            names.insert(name);
            line.push('"');
            push_escaped(&mut line, name);
            line.push_str("\":");
            line.push_str(piece);
        }
    }
    lines.push(line + "}}\n");
    lines
}

/// `{…}` of attributes or columns in at most `room` bytes; with it `{…}` of the lengths that those had which were cut, if
/// any was. Err: it cannot be made to fit.
fn object(members: &[(&str, Attr)], room: usize) -> Result<(String, Option<String>), String> {
    const NO_ROOM: &str = "it does not fit in a line of 1 MiB";
    let mut encoded = Vec::with_capacity(members.len());
    let mut sizes = Vec::new(); // of what can be cut
    let mut left = room.checked_sub(2).ok_or(NO_ROOM)?;
    for (name, attr) in members {
        let (key, mut value) = (quoted(name), String::new());
        push_attr(&mut value, attr, 0)?;
        let fixed = if attr.length().is_some() {
            sizes.push(value.len());
            2 * key.len() + 30 // once more in `cut`, with a length
        } else {
            key.len() + value.len() + 2
        };
        left = left.checked_sub(fixed).ok_or(NO_ROOM)?;
        encoded.push((key, value));
    }
    // The longest are cut to one length, such that all fit; the others stay whole.
    sizes.sort_unstable();
    let mut most = usize::MAX;
    for (i, &size) in sizes.iter().enumerate() {
        let share = left / (sizes.len() - i);
        if size > share {
            most = share;
            break;
        }
        left -= size;
    }
    let (mut out, mut cut) = (String::from("{"), String::new());
    for ((key, value), (_, attr)) in encoded.iter().zip(members) {
        if out.len() > 1 {
            out.push(',');
        }
        let _ = write!(out, "{key}:");
        match attr.length() {
            Some(length) if value.len() > most => {
                out.push_str(&beginning(if let Attr::Text(text) = attr { text } else { value }, most));
                let _ = write!(cut, "{}{key}:{length}", if cut.is_empty() { "" } else { "," });
            }
            _ => out.push_str(value),
        }
    }
    out.push('}');
    Ok((out, (!cut.is_empty()).then(|| format!("{{{cut}}}"))))
}

impl Attr<'_> {
    /// The characters or elements of what can be cut to fit a line.
    fn length(&self) -> Option<usize> {
        match self {
            Attr::Text(text) => Some(text.chars().count()),
            Attr::List(items) => Some(items.len()),
            Attr::Object(members) => Some(members.len()),
            _ => None,
        }
    }
}

/// What a `run` record is made of.
#[derive(Default)]
struct Noted<'a> {
    object: &'a str,
    members: String,
    /// What says the same names again, and no object, takes the place of this record where it is repeated.
    names: String,
    joins: bool,
    dropped: Vec<String>,
}

impl Noted<'_> {
    fn push(&mut self, shared: &Shared, name: &str, value: &str) {
        let key = quoted(name);
        if self.members.len() + key.len() + value.len() > LINE_LIMIT - LARGEST_SETTING / 4 {
            self.put(shared, false);
        }
        let _ = write!(self.members, ",{key}:{value}");
        let _ = write!(self.names, "{}{key}", self.object);
        self.joins |= value.contains('{');
    }

    /// Append the record; the last one names what was dropped.
    fn put(&mut self, shared: &Shared, last: bool) {
        let dropped: Vec<String> =
            if last { self.dropped.iter().map(|path| quoted(path)).collect() } else { Vec::new() };
        if self.members.is_empty() && dropped.is_empty() {
            return;
        }
        let mut line = head("run", now(), None);
        match self.members.get(1..) {
            Some(members) if !self.object.is_empty() => {
                let _ = write!(line, ",\"{}\":{{{members}}}", self.object);
            }
            _ => line.push_str(&self.members),
        }
        if !dropped.is_empty() {
            let _ = write!(line, ",\"dropped\":[{}]", dropped.join(","));
        }
        line.push_str("}\n");
        let names = if self.joins { String::new() } else { mem::take(&mut self.names) };
        shared.lock().note(names, line);
        (self.joins, self.members, self.names) = (false, String::new(), String::new());
    }
}

/// A value as JSON without the texts in it that are secrets, whose dotted paths are added to `dropped`. False: it is one
/// itself, and nothing was pushed.
fn push_safe<'a>(
    out: &mut String,
    attr: &Attr<'a>,
    path: &mut Vec<&'a str>,
    dropped: &mut Vec<String>,
) -> Result<bool, String> {
    match *attr {
        Attr::Text(text) if is_secret(path, text) => {
            dropped.push(path.join("."));
            return Ok(false);
        }
        Attr::Text(text) => out.push_str(&quoted(first_chars(text, LONGEST_SETTING))),
        Attr::List(items) if path.len() <= DEEPEST => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                // The number of an element is part of its path, and no name of its own.
                let before = dropped.len();
                if !push_safe(out, item, path, dropped)? {
                    out.push_str("\"***\"");
                }
                let above = path.join(".");
                for one in &mut dropped[before..] {
                    one.insert_str(above.len(), &format!(".{i}"));
                }
            }
            out.push(']');
        }
        Attr::Object(members) if path.len() <= DEEPEST => {
            out.push('{');
            let mut names = HashSet::new();
            let mut comma = "";
            for (name, member) in members {
                if !names.insert(name) {
                    continue;
                }
                let start = out.len();
                let _ = write!(out, "{comma}{}:", quoted(name));
                path.push(name);
                let kept = push_safe(out, member, path, dropped)?;
                path.pop();
                if kept {
                    comma = ",";
                } else {
                    out.truncate(start);
                }
            }
            out.push('}');
        }
        _ => push_attr(out, attr, path.len())?,
    }
    Ok(true)
}

fn usable_member(name: &str, attr: &Attr) -> Result<(), String> {
    let usable = match attr {
        Attr::Text(_) => ["name", "notes", "group", "project", "entity", "job_type"].contains(&name),
        Attr::List(_) => ["tags", "dropped"].contains(&name),
        Attr::Object(_) => ["config", "summary", "facts"].contains(&name),
        Attr::Int(code) => name == "exit_code" && (-255..=255).contains(code),
        Attr::Unsigned(code) => name == "exit_code" && *code <= 255,
        _ => false,
    };
    usable.then_some(()).ok_or_else(|| "it is no member of a run, or not of this type: it is left out".into())
}

const SECRET_WORDS: [&str; 14] = [
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "apikey",
    "apikeys",
    "accesskey",
    "privatekey",
    "authorization",
    "bearer",
];
/// What a word may end with, if nothing divides it: `dbpassword`.
const SECRET_ENDS: [&str; 6] = ["password", "passwd", "passphrase", "secret", "secretkey", "apikey"];
/// What may be kept under a key, and whose key it is.
const BEFORE_KEY: &str = " api access private auth signing encryption ssh gpg pgp rsa tls ssl master deploy openai gemini \
    google mistral cohere groq deepseek openrouter replicate wandb hf huggingface comet neptune github gitlab aws azure \
    gcp stripe tavily serper pinecone langsmith ";
/// Whose password it is.
const ACCOUNTS: &str =
    " db database sql mysql pg postgres mongo redis amqp rabbitmq smtp mail email ftp ssh http https \
    proxy admin root user login auth ldap sudo ";
const FORGES: &str = " github gh gitlab git azure ado devops ";
const KEY_PREFIXES: [&str; 23] = [
    "hf_",
    "sk-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "nvapi-",
    "xoxb-",
    "xoxp-",
    "wandb_v1_",
    "dckr_pat_",
    "sk_live_",
    "rk_live_",
    "gsk_",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "pypi-AgE",
    "npm_",
];
const NEVER_WORDS: usize = 16; // of these prefixes, the first ones

/// Whether a text below these names is a secret.
fn is_secret(path: &[&str], text: &str) -> bool {
    if path.iter().any(|name| names_secret(name)) {
        return !text.trim().is_empty();
    }
    path.last().is_some_and(|name| names_token(name)) && is_token(text) || has_secret(text)
}

fn names_secret(name: &str) -> bool {
    let words = words_of(name);
    let pair = |pair: &[String]| {
        let among = |list: &str| list.contains(&format!(" {} ", pair[0]));
        match &*pair[1] {
            "key" | "keys" => among(BEFORE_KEY),
            "pass" | "pwd" => among(ACCOUNTS),
            "pat" => among(FORGES),
            "word" => pair[0] == "pass",
            _ => false,
        }
    };
    let ends = |word: &String| SECRET_ENDS.iter().any(|end| word.ends_with(end));
    words.iter().any(|word| SECRET_WORDS.contains(&&**word) || ends(word)) || words.windows(2).any(pair)
}

fn names_token(name: &str) -> bool {
    words_of(name).last().is_some_and(|word| word == "token")
}

/// The words of a name in lower case: divided by what is no letter or digit, and by the capitals of camelCase.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    let mut left = name.chars().peekable();
    while let Some(c) = left.next() {
        let lower_next = left.peek().is_some_and(|next| next.is_lowercase());
        if !c.is_alphanumeric() || c.is_uppercase() && (!before.is_uppercase() || lower_next) {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().into_iter().for_each(|word| word.extend(c.to_lowercase()));
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether a text may be an access token: not a special token of a tokenizer, which stands in brackets.
fn is_token(text: &str) -> bool {
    let special = text.starts_with('<') && text.ends_with('>') || text.starts_with('[') && text.ends_with(']');
    !special && text.chars().count() >= SHORTEST_TOKEN && !text.contains(char::is_whitespace)
}

fn between_words(c: char) -> bool {
    c.is_whitespace() || "\"'`,;:=()[]{}<>|&?".contains(c)
}

/// Whether a text looks like a secret, or has a part that does.
fn has_secret(text: &str) -> bool {
    let one_word = !text.contains(char::is_whitespace);
    if one_word && KEY_PREFIXES[..NEVER_WORDS].iter().any(|prefix| text.starts_with(prefix)) {
        return true;
    }
    let is_key = |word: &str| {
        let others = if word.starts_with("npm_") { "" } else { "_-." }; // `npm_config_...` is a setting
        KEY_PREFIXES.iter().filter_map(|prefix| word.strip_prefix(prefix)).any(|rest| {
            rest.len() >= SHORTEST_TOKEN && rest.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
        })
    };
    if text.split(between_words).any(is_key) || text.contains("hooks.slack.com/services/") || authorizes(text) {
        return true;
    }
    if text.contains("-----BEGIN") && text.contains("PRIVATE KEY-----") {
        return true;
    }
    // scheme://user:password@host, https://token@host
    let has_password = |pair: &[&str]| {
        let user = pair[1].split('/').next().and_then(|host| host.rsplit_once('@')).map_or("", |(user, _)| user);
        let of_web = pair[0].ends_with("http") || pair[0].ends_with("https");
        let named = user.split_once(':').is_some_and(|(_, password)| !password.is_empty());
        (named || of_web && user.chars().count() >= SHORTEST_TOKEN) && !user.contains(char::is_whitespace)
    };
    if text.split("://").collect::<Vec<&str>>().windows(2).any(has_password) {
        return true;
    }
    let parts: Vec<&str> = text.split('=').collect();
    parts.windows(2).any(|pair| {
        let name = pair[0].rsplit(between_words).next().unwrap_or("");
        let value = pair[1].trim_start_matches(['\'', '"']).split(between_words).next().unwrap_or("");
        !name.is_empty() && !value.is_empty() && (names_secret(name) || names_token(name) && is_token(value))
    })
}

/// Whether a text has a header such as `Authorization: Bearer x`.
fn authorizes(text: &str) -> bool {
    let text = text.to_lowercase();
    let named = text.contains("authorization");
    let words: Vec<&str> = text.split(between_words).filter(|word| !word.is_empty()).collect();
    words.windows(2).any(|pair| pair[0] == "bearer" && (named || pair[1].chars().count() >= SHORTEST_TOKEN))
}

fn push_attr(out: &mut String, attr: &Attr, depth: usize) -> Result<(), String> {
    if depth > DEEPEST {
        return Err(format!("it is nested more than {DEEPEST} deep"));
    }
    match *attr {
        Attr::Text(text) => out.push_str(&quoted(text)),
        Attr::Float(x) => push_float(out, x),
        Attr::Int(n) => out.push_str(&n.to_string()),
        Attr::Unsigned(n) => out.push_str(&n.to_string()),
        Attr::Bool(yes) => out.push_str(if yes { "true" } else { "false" }),
        Attr::Null => out.push_str("null"),
        Attr::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                push_attr(out, item, depth + 1)?;
            }
            out.push(']');
        }
        Attr::Object(members) => {
            out.push('{');
            let mut names = HashSet::new();
            for (name, member) in members {
                if names.insert(name) {
                    out.push_str(if names.len() > 1 { "," } else { "" });
                    out.push_str(&quoted(name));
                    out.push(':');
                    push_attr(out, member, depth + 1)?;
                }
            }
            out.push('}');
        }
    }
    Ok(())
}

/// The beginning of a text in JSON, in at most `most` bytes.
fn beginning(text: &str, most: usize) -> String {
    let mut out = String::from("\"");
    let mut one = String::new();
    for c in text.chars() {
        one.clear();
        push_escaped(&mut one, c.encode_utf8(&mut [0; 4]));
        if out.len() + one.len() + 1 > most {
            break;
        }
        out.push_str(&one);
    }
    out.push('"');
    out
}

// ---------------------------------------------------------------------------------------------------------------------
// The buffer between the threads that log and the one that writes

/// How many lines were dropped, or may be lost, and of which steps.
#[derive(Clone, Copy, Default)]
struct Tally {
    stepped: u64,
    first: u64,
    last: u64,
    unstepped: u64,
}

impl Tally {
    fn add(&mut self, step: Option<u64>) {
        match step {
            Some(step) => self.merge(Tally { stepped: 1, first: step, last: step, unstepped: 0 }),
            None => self.unstepped += 1,
        }
    }

    fn merge(&mut self, other: Tally) {
        if other.stepped > 0 {
            self.first = if self.stepped > 0 { self.first.min(other.first) } else { other.first };
            self.last = self.last.max(other.last);
            self.stepped += other.stepped;
        }
        self.unstepped += other.unstepped;
    }

    fn is_empty(&self) -> bool {
        self.stepped == 0 && self.unstepped == 0
    }

    /// The `gap` lines that tell it.
    fn lines(&self) -> String {
        let (t, mut out) = (now(), String::new());
        if self.stepped > 0 {
            let Tally { stepped, first, last, .. } = self;
            let _ = writeln!(out, "{{\"kind\":\"gap\",\"n\":{stepped},\"from\":{first},\"to\":{last},\"t\":{t:.3}}}");
        }
        if self.unstepped > 0 {
            let _ = writeln!(out, "{{\"kind\":\"gap\",\"n\":{},\"t\":{t:.3}}}", self.unstepped);
        }
        out
    }
}

/// Whole lines: for each where it ends, and its step.
#[derive(Default)]
struct Lines {
    data: Vec<u8>,
    ends: Vec<(usize, Option<u64>)>,
}

impl Lines {
    fn push(&mut self, line: &str, step: Option<u64>) {
        self.data.extend_from_slice(line.as_bytes());
        self.ends.push((self.data.len(), step));
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for &(_, step) in &self.ends {
            tally.add(step);
        }
        tally
    }
}

#[derive(Default)]
struct State {
    waiting: Lines,
    /// Bytes that wait, and those taken that are not written yet.
    size: usize,
    dropped: Tally,
    /// By name the entries to repeat where lines may have been lost.
    defines: Vec<(String, String)>,
    /// The `run` records to repeat there, each with its names.
    noted: Vec<(String, String)>,
    /// A full buffer dropped a `run` record.
    owed: bool,
    told: HashSet<String>,
    /// One more than the step of a barrier, of the last log, and that under way; 0 stands for no step.
    promised: u64,
    logged: u64,
    at: u64,
    saying: Vec<thread::JoinHandle<()>>,
    hurry: bool,
    asked: u64,
    done: u64,
    closing: Option<Instant>,
    /// The writing thread is through, having written everything or not.
    ended: Option<bool>,
}

impl State {
    /// Add a line that may use `reserve` bytes above the capacity, or count it.
    fn append(&mut self, line: &str, step: Option<u64>, reserve: usize) {
        if self.closing.is_some() {
            return;
        }
        if self.owed {
            let again: usize = self.noted.iter().map(|(_, line)| line.len()).sum();
            if self.size + again + line.len() + 400 <= CAPACITY + RESERVE {
                self.owed = false;
                for (names, noted) in mem::take(&mut self.noted) {
                    self.note(names, noted);
                }
            }
        }
        if line.len() > LINE_LIMIT || !self.tell_dropped(line.len(), reserve) {
            return self.dropped.add(step);
        }
        self.size += line.len();
        self.waiting.push(line, step);
    }

    /// Append a `run` record, and keep it for later files in the place of the one with the same names.
    fn note(&mut self, names: String, line: String) {
        if !names.is_empty() {
            self.noted.retain(|(known, _)| *known != names);
        }
        let before = (self.dropped.stepped, self.dropped.unstepped);
        self.append(&line, None, RESERVE);
        let after = (self.dropped.stepped, self.dropped.unstepped);
        self.owed |= after != before && after != (0, 0);
        if self.noted.iter().map(|(_, line)| line.len()).sum::<usize>() + line.len() <= MOST_NOTED {
            self.noted.push((names, line));
        }
    }

    /// Put the gap records in, if they and `more` bytes fit.
    fn tell_dropped(&mut self, more: usize, reserve: usize) -> bool {
        let gaps = if self.dropped.is_empty() { String::new() } else { self.dropped.lines() };
        if self.size + gaps.len() + more > CAPACITY + reserve {
            return false;
        }
        if !gaps.is_empty() {
            self.size += gaps.len();
            self.waiting.push(&gaps, None);
            self.dropped = Tally::default();
        }
        true
    }

    fn take(&mut self) -> Lines {
        self.tell_dropped(0, RESERVE);
        mem::take(&mut self.waiting)
    }

    /// `define` records of all that was defined, none near the limit of a line, and the `run` records.
    fn definitions(&self) -> String {
        let (mut out, mut line) = (String::new(), String::new());
        for (_, entry) in &self.defines {
            if !line.is_empty() && line.len() + entry.len() > DEFINE_LIMIT - 64 {
                let _ = writeln!(out, "{{\"kind\":\"define\",\"m\":{{{}}}}}", mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(',');
            }
            line.push_str(entry);
        }
        if !line.is_empty() {
            let _ = writeln!(out, "{{\"kind\":\"define\",\"m\":{{{line}}}}}");
        }
        out.extend(self.noted.iter().map(|(_, line)| line.as_str()));
        out
    }
}

struct Shared {
    id: String,
    pid: u32,
    state: Mutex<State>,
    changed: Condvar,  // for the writing thread
    progress: Condvar, // for who waits in flush and close
    seed: RandomState,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.lock().hurry = true;
        self.changed.notify_one();
    }

    fn random(&self) -> u64 {
        random(&self.seed)
    }

    /// Say a thing the first time, in the file and on stderr.
    fn tell(&self, topic: &str, place: &str, message: &str) {
        {
            let mut state = self.lock();
            if state.told.len() >= MOST_TOLD || !state.told.insert(topic.to_owned()) {
                return;
            }
            let mut line = head("event", now(), None);
            let attrs = format!("{{\"where\":{},\"error\":{}}}", quoted(place), quoted(&format!("{topic}: {message}")));
            let _ = writeln!(line, ",\"name\":\"rlship_error\",\"attrs\":{attrs}}}");
            state.append(&line, None, 0);
        }
        let saying = say(format!("{topic}: {message}"));
        self.lock().saying.extend(saying);
    }

    /// Note a call for this step, and tell of one that does not follow what came before.
    fn reach(&self, call: &str, step: Option<u64>) {
        let Some(step) = step else { return };
        let mut told = None;
        let mut state = self.lock();
        let (promised, newest) = (state.promised, state.logged.max(state.at));
        if call == "log" {
            if promised > 0 && step + 1 == promised && state.at == promised + 1 && state.logged <= promised {
                told = Some(("after the barrier", format!(
                    "log(…, step={step}) comes right after barrier({step}): nothing is lost, but a row of a step may appear \
                     without it and be revised later. Call barrier once nothing more of its step will come"
                )));
            }
            (state.at, state.logged) = (state.at.max(step + 1), step + 1);
        } else if call == "barrier" {
            if step + 1 < promised {
                told = Some(("back", format!(
                    "barrier({step}) goes back behind barrier({}): call rollback({step}) first if the job resumed from an \
                     older checkpoint",
                    promised - 1
                )));
            }
            (state.promised, state.at) = (promised.max(step + 1), step + 2);
        } else {
            // The checkpoint of step n may be the one from which step n + 1 begins.
            if newest > 0 && newest < step {
                told = Some(("forward", format!(
                    "rollback({step}) goes forward: the step of this process is {}. It is carried out. A rollback names \
                     the step of the checkpoint that the job went back to",
                    newest - 1
                )));
            }
            (state.promised, state.at) = (step, step + 1);
        }
        drop(state);
        if let Some((topic, message)) = told {
            self.tell(topic, call, &message);
        }
    }

    /// A line that cannot be made is counted, and told once for each kind of call.
    fn refuse(&self, call: &str, why: &str) {
        self.tell(call, call, why);
        self.lock().dropped.add(None);
    }

    /// Append a record of which only `attrs` or `row` is missing.
    fn enter(&self, step: Option<u64>, hop: &str, key: &str, members: &str) {
        let mut line = head("ledger", now(), step);
        let _ = writeln!(line, ",\"hop\":{},\"key\":{}{members}}}", quoted(hop), quoted(key));
        self.lock().append(&line, step, 0);
    }

    fn finish<'a, A: Into<Attr<'a>> + Clone>(
        &self,
        mut line: String,
        member: &str,
        given: &[(&str, A)],
        step: Option<u64>,
    ) {
        let mut members: Vec<(&str, Attr)> = Vec::with_capacity(given.len());
        for (name, value) in given {
            match usable_name(name) {
                Err(why) => self.tell(&format!("{member} {:?}", shown(name)), member, &why),
                Ok(()) => match members.iter_mut().find(|(known, _)| known == name) {
                    Some(known) => known.1 = value.clone().into(),
                    None => members.push((name, value.clone().into())),
                },
            }
        }
        let room = LINE_LIMIT - line.len() - 40;
        match object(&members, room) {
            Ok((members, cut)) => {
                let _ = write!(line, ",\"{member}\":{members}");
                if let Some(cut) = cut {
                    let _ = write!(line, ",\"cut\":{cut}");
                }
                line.push_str("}\n");
                self.lock().append(&line, step, 0);
            }
            Err(why) => self.refuse(member, &why),
        }
    }

    fn flush(&self) -> bool {
        let deadline = Instant::now() + CLOSE;
        let mut state = self.lock();
        state.asked += 1;
        let ticket = state.asked;
        state.hurry = true;
        self.changed.notify_one();
        while state.done < ticket && state.ended.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.progress.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.done >= ticket || state.ended == Some(true)
    }

    fn close(&self) -> bool {
        let deadline = Instant::now() + CLOSE;
        let mut state = self.lock();
        if state.closing.is_none() {
            state.append(&format!("{{\"kind\":\"close\",\"t\":{:.3},\"reason\":\"exit\"}}\n", now()), None, RESERVE);
            state.closing = Some(deadline);
            state.hurry = true;
            self.changed.notify_one();
        }
        while state.ended.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.progress.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let all = state.ended == Some(true);
        let saying = mem::take(&mut state.saying);
        drop(state);
        let patience = Instant::now() + SAY;
        while Instant::now() < patience && !saying.iter().all(thread::JoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(1));
        }
        all
    }
}

/// 64 random bits. The standard library has them only as the seed of its hash maps, which a fork would repeat: so the
/// process and the time go in.
fn random(seed: &RandomState) -> u64 {
    seed.hash_one((process::id(), SystemTime::now(), Instant::now(), thread::current().id()))
}

/// One line on stderr, by a thread of its own: the program may hold its lock, or a pipe may have no reader.
fn say(message: String) -> Option<thread::JoinHandle<()>> {
    let text = format!("rlship: {}\n", first_chars(&message, 600).replace(char::is_control, " "));
    let speak = move || {
        let _ = io::stderr().write_all(text.as_bytes());
    };
    thread::Builder::new().name("rlship-say".into()).spawn(speak).ok()
}

// ---------------------------------------------------------------------------------------------------------------------
// The thread that writes

fn start(options: Options) -> Option<Arc<Shared>> {
    if env::var_os("RLSHIP_DISABLE").is_some_and(|value| !value.is_empty() && value != "0") {
        return None;
    }
    let or_variable = |given: String, name| if given.is_empty() { variable(name).unwrap_or_default() } else { given };
    let dir = match options.dir.as_os_str().is_empty() {
        true => PathBuf::from(env::var_os("RLSHIP_DIR").unwrap_or_default()),
        false => options.dir.clone(),
    };
    let actor = or_variable(options.actor.clone(), "RLSHIP_ACTOR");
    if dir.as_os_str().is_empty() || actor.is_empty() {
        say("nothing is logged: give dir and actor, or set RLSHIP_DIR and RLSHIP_ACTOR".into());
        return None;
    }
    let dir = env::current_dir().map(|here| here.join(&dir)).unwrap_or(dir);
    let seed = RandomState::new();
    let id = format!("{:016x}", random(&seed));
    let shared = Arc::new(Shared {
        id: id.clone(),
        pid: process::id(),
        state: Mutex::default(),
        changed: Condvar::new(),
        progress: Condvar::new(),
        seed,
    });
    let identity = Identity::detect(options, actor, &shared);
    let ranks = identity.world.unwrap_or(1) as f64;
    let sync_every = FLUSH.max(Duration::from_secs_f64((ranks / 500.0).min(2.0).max(ranks / 2000.0)));
    let file = LineFile::new(shared.clone(), dir.join("rlship"), identity, id);
    let thread = thread::Builder::new().name("rlship".into()).spawn(move || run(file, sync_every));
    match thread {
        Ok(_) => Some(shared),
        Err(error) => {
            say(format!("nothing is logged: no thread could be started: {error}"));
            None
        }
    }
}

fn run(mut file: LineFile, sync_every: Duration) {
    let shared = file.shared.clone();
    let mut network = None;
    // Ranks start together: a random phase keeps them from syncing together.
    let mut next_sync = Instant::now() + sync_every.mul_f64((shared.random() >> 11) as f64 / STEPS_END as f64);
    let mut last_line = Instant::now();
    let mut failing = false;
    let mut backoff = BACKOFF;
    loop {
        let (asked, closing) = {
            let mut state = shared.lock();
            state.hurry = false;
            // While the disk fails, what was taken stays at hand, and the rest in the buffer.
            if !failing {
                let idle = state.waiting.ends.is_empty() && state.dropped.is_empty();
                if idle && last_line.elapsed() >= BEAT {
                    state.append(&format!("{{\"kind\":\"beat\",\"t\":{:.3}}}\n", now()), None, 0);
                }
                file.put(state.take());
            }
            (state.asked, state.closing)
        };
        let now = Instant::now();
        let due = failing || closing.is_some() || asked > shared.lock().done || now >= next_sync;
        let result = file.write_out().and_then(|wrote| {
            if wrote {
                last_line = now;
            }
            if !*network.get_or_insert_with(|| is_network(&file.folder)) {
                file.safe();
            } else if file.unsynced && due {
                next_sync = now + sync_every;
                file.sync()?;
            }
            Ok(())
        });
        let mut state = shared.lock();
        state.size -= file.freed();
        let wait = match result {
            Ok(()) if failing => {
                failing = false;
                backoff = BACKOFF;
                network = None; // what is mounted there may have changed
                continue;
            }
            Ok(()) => {
                state.done = asked;
                shared.progress.notify_all();
                if closing.is_some() && state.waiting.ends.is_empty() && state.dropped.is_empty() {
                    state.ended = Some(true);
                    return;
                }
                FLUSH
            }
            Err(error) => {
                failing = true;
                drop(state);
                let topic = format!("cannot write to {}", file.folder.display());
                shared.tell(&topic, "file", &format!("{error}; it goes on trying"));
                state = shared.lock();
                let most = if file.in_vain { BACKOFF_MOST * RARER } else { BACKOFF_MOST };
                let wait = backoff.min(most);
                backoff = most.min(backoff * 2);
                wait
            }
        };
        let wait = match state.closing {
            Some(deadline) if Instant::now() >= deadline => {
                state.ended = Some(false);
                shared.progress.notify_all();
                return;
            }
            Some(_) => wait.min(Duration::from_millis(50)),
            None => wait,
        };
        // While the disk fails no wake shortens the wait, or each barrier would be one more attempt.
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let called = if failing { state.closing.is_some() && closing.is_none() } else { state.hurry };
            if called || left.is_zero() {
                break;
            }
            state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Some lines on their way into the file: `pos` bytes of them are there.
#[derive(Default)]
struct Piece {
    lines: Lines,
    pos: usize,
}

/// One file: created once, appended to only, and brought back after a full disk or a vanished mount.
///
/// After an error the descriptor is let go: what became of the write is found out from the file's size when it is opened
/// again. What cannot be known to be there whole is given up with a `gap`, never written a second time.
struct LineFile {
    shared: Arc<Shared>,
    folder: PathBuf,
    identity: Identity,
    id: String,
    began: f64,
    path: Option<PathBuf>,
    file: Option<File>,
    key: (u64, u64), // device, inode
    offset: u64,
    piece: Option<Piece>,
    /// Lines that must be there before anything else: the header, or what follows a line that may be torn.
    front: Option<Piece>,
    header_safe: bool,
    in_vain: bool,
    unsynced: bool,
    /// Lines that are lost if the next sync fails, and lines that are if the file turns out to be gone.
    in_doubt: Tally,
    unseen: Tally,
    lost: Tally,
    look_at: Instant,
    freed: usize,
}

/// Whether a folder has the set-group-ID bit and lets its group write, or else one above it, up to the first without the
/// bit: another process may just have made the one between.
fn is_meant_for_group(folder: &Path) -> bool {
    for above in folder.ancestors() {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        match fs::metadata(above).map(|found| found.mode()) {
            Ok(mode) if mode & 0o2020 == 0o2020 => return true,
            Ok(mode) if mode & 0o2000 != 0 => {}
            _ => return false,
        }
    }
    false
}

/// Makes a folder and those above it. A new one lets its group write where the one above is meant for the group. A umask
/// that lets the group not even read is heeded.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let above = folder.parent().unwrap_or(Path::new(""));
    make_folder(above)?;
    if let Err(error) = fs::create_dir(folder) {
        return if folder.is_dir() { Ok(()) } else { Err(error) };
    }
    if let Ok(made) = fs::metadata(folder) {
        let mode = made.mode() & 0o7777;
        if mode & 0o050 == 0o050 && is_meant_for_group(above) {
            // Where this fails and matters, the sidecar reports it.
            let _ = fs::set_permissions(folder, fs::Permissions::from_mode(mode | 0o020));
        }
    }
    Ok(())
}

impl LineFile {
    fn new(shared: Arc<Shared>, folder: PathBuf, identity: Identity, id: String) -> Self {
        LineFile {
            shared,
            folder,
            identity,
            id,
            began: now(),
            path: None,
            file: None,
            key: (0, 0),
            offset: 0,
            piece: None,
            front: None,
            header_safe: false,
            in_vain: false,
            unsynced: false,
            in_doubt: Tally::default(),
            unseen: Tally::default(),
            lost: Tally::default(),
            look_at: Instant::now() + LOOK,
            freed: 0,
        }
    }

    /// The lines to write next, once those before are written.
    fn put(&mut self, lines: Lines) {
        if !lines.ends.is_empty() {
            self.piece = Some(Piece { lines, pos: 0 });
        }
    }

    /// How many bytes were done with since the last time.
    fn freed(&mut self) -> usize {
        mem::take(&mut self.freed)
    }

    /// Write all there is; says whether that was anything. After an error, call again later to go on.
    fn write_out(&mut self) -> io::Result<bool> {
        let result = self.ready().and_then(|()| self.write_pieces());
        if result.is_err() {
            self.file = None;
        }
        result
    }

    fn write_pieces(&mut self) -> io::Result<bool> {
        let mut wrote = false;
        loop {
            let front = self.front.is_some();
            let Some(piece) = self.front.as_mut().or(self.piece.as_mut()) else { return Ok(wrote) };
            let rest = &piece.lines.data[piece.pos..];
            if rest.is_empty() {
                self.finish(front);
                continue;
            }
            let Some(mut file) = self.file.as_ref() else { return Err(io::ErrorKind::NotFound.into()) };
            match file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    piece.pos += n;
                    self.offset += n as u64;
                    self.unsynced = true;
                    wrote = true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn finish(&mut self, front: bool) {
        if front {
            self.front = None;
        } else if let Some(piece) = self.piece.take() {
            self.in_doubt.merge(piece.lines.tally());
            self.freed += piece.lines.data.len();
        }
    }

    /// Make what is written visible to other machines.
    fn sync(&mut self) -> io::Result<()> {
        let Some(file) = self.file.as_ref() else { return Ok(()) };
        let Err(error) = file.sync_data() else {
            self.safe();
            return Ok(());
        };
        if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) {
            self.safe(); // this filesystem has no such thing
            return Ok(());
        }
        let size = file.metadata().map(|metadata| metadata.len());
        if self.header_safe {
            self.lost.merge(mem::take(&mut self.in_doubt));
            self.offset = size.unwrap_or(self.offset);
            self.break_line();
        } else {
            self.abandon();
            self.in_vain = true;
        }
        self.file = None;
        Err(error)
    }

    /// All that was written is safe: synced, or on a local filesystem, where a returned write is enough.
    fn safe(&mut self) {
        self.unseen.merge(mem::take(&mut self.in_doubt));
        self.unsynced = false;
        self.header_safe = true;
        self.in_vain = false;
    }

    // Opening

    fn ready(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return if self.path.is_some() { self.reopen() } else { self.create() };
        };
        let metadata = file.metadata()?;
        if metadata.nlink() == 0 {
            self.abandon();
            return self.create();
        }
        if metadata.len() < self.offset {
            self.settle(metadata.len()); // cut by another hand, perhaps in the midst of a line
        }
        // A descriptor stays good where the file can no longer be found, as under a mount that was taken away.
        if Instant::now() >= self.look_at {
            self.look_at = Instant::now() + LOOK;
            if self.in_place() {
                self.unseen = Tally::default();
            } else {
                self.file = None;
                return self.reopen();
            }
        }
        Ok(())
    }

    /// Whether who opens the path finds this file, or would but for a folder's new name.
    fn in_place(&self) -> bool {
        let Some(path) = &self.path else { return false };
        match fs::metadata(path) {
            Ok(metadata) => (metadata.dev(), metadata.ino()) == self.key,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Where a mount was taken away, what is left of the path is on another filesystem.
                !self.folder.is_dir()
                    && self.folder.ancestors().find_map(|above| fs::metadata(above).ok()).map(|m| m.dev())
                        == Some(self.key.0)
            }
            Err(_) => true, // it tells nothing of the descriptor
        }
    }

    fn create(&mut self) -> io::Result<()> {
        make_folder(&self.folder)?;
        let path = self.folder.join(self.identity.file_name(&self.id));
        let file = match OpenOptions::new().append(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) => {
                if error.kind() == io::ErrorKind::AlreadyExists {
                    self.id = format!("{:016x}", self.shared.random());
                }
                return Err(error);
            }
        };
        let metadata = file.metadata()?;
        self.key = (metadata.dev(), metadata.ino());
        self.file = Some(file);
        self.path = Some(path);
        self.offset = 0;
        self.header_safe = false;
        let mut header = self.identity.open_record(&self.id, self.began);
        header += &self.told();
        if self.id != self.shared.id {
            header += &self.shared.lock().definitions();
        }
        self.put_front(&header);
        Ok(())
    }

    fn reopen(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else { return self.create() };
        match OpenOptions::new().append(true).open(path) {
            Ok(file) => {
                let metadata = file.metadata()?;
                self.key = (metadata.dev(), metadata.ino());
                self.file = Some(file);
                self.settle(metadata.len());
                Ok(())
            }
            // A missing folder is a mount that has not come back yet; a missing file in its folder is gone for good.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.folder.is_dir() => {
                self.abandon();
                self.create()
            }
            Err(error) => Err(error),
        }
    }

    // Trouble

    /// The file is gone, or its header may be: begin a new one. A line not whole in the old one starts afresh.
    fn abandon(&mut self) {
        self.file = None;
        self.path = None;
        self.front = None;
        self.id = format!("{:016x}", self.shared.random());
        self.began = now();
        self.lost.merge(mem::take(&mut self.unseen));
        self.lost.merge(mem::take(&mut self.in_doubt));
        if let Some(piece) = &mut self.piece {
            // Of a part of the piece only whole lines are in the old file, and gone with it.
            let written = piece.lines.ends.partition_point(|&(end, _)| end <= piece.pos);
            for &(_, step) in &piece.lines.ends[..written] {
                self.lost.add(step);
            }
            piece.pos = written.checked_sub(1).map_or(0, |last| piece.lines.ends[last].0);
        }
    }

    /// Make the books agree with the file's real size.
    fn settle(&mut self, size: u64) {
        let before = mem::replace(&mut self.offset, size);
        if size == before {
            return;
        }
        if size < before {
            if !self.header_safe {
                return self.abandon();
            }
            self.lost.merge(mem::take(&mut self.unseen));
            self.lost.merge(mem::take(&mut self.in_doubt));
        } else if let Some(piece) = self.front.as_mut().or(self.piece.as_mut()) {
            let extra = size - before;
            if extra <= (piece.lines.data.len() - piece.pos) as u64 {
                // The call that failed did put bytes there. Whole lines are not written again.
                piece.pos += extra as usize;
                if piece.lines.data[piece.pos - 1] == b'\n' {
                    return;
                }
            }
        }
        self.break_line();
    }

    /// Start a new line: an LF makes what stands before it a line of its own, and a gap says what may be missing.
    fn break_line(&mut self) {
        if let Some(front) = self.front.take() {
            let again = String::from_utf8_lossy(&front.lines.data).trim_start_matches('\n').to_owned();
            let told = self.told();
            return self.put_front(&format!("\n{again}{told}"));
        }
        if let Some(piece) = self.piece.take().filter(|piece| piece.pos > 0) {
            let ends = &piece.lines.ends;
            let mut next = ends.partition_point(|&(end, _)| end <= piece.pos);
            let mut from = next.checked_sub(1).map_or(0, |last| ends[last].0);
            if from < piece.pos {
                self.lost.add(ends[next].1); // the line that is torn
                from = ends[next].0;
                next += 1;
            }
            self.freed += from;
            self.put(Lines {
                data: piece.lines.data[from..].to_vec(),
                ends: ends[next..].iter().map(|&(end, step)| (end - from, step)).collect(),
            });
        }
        let definitions = self.shared.lock().definitions();
        let told = self.told();
        self.put_front(&format!("\n{told}{definitions}"));
    }

    fn told(&mut self) -> String {
        mem::take(&mut self.lost).lines()
    }

    fn put_front(&mut self, text: &str) {
        let mut lines = Lines::default();
        lines.push(text, None);
        self.front = Some(Piece { lines, pos: 0 });
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Who writes, and where

struct Identity {
    actor: String,
    replica: String,
    rank: u64,
    world: Option<u64>,
    attempt: u64,
    axis: String,
    host: String,
    parent: Option<String>,
    labels: Vec<(String, String)>,
}

/// (rank, world) of launchers: what sets the rank of this very process comes before what only placed it.
const LAUNCHERS: [(&str, &[&str]); 8] = [
    ("RANK", &["WORLD_SIZE"]), // torchrun, Kubeflow, DeepSpeed, Accelerate
    ("RANK_ID", &["RANK_SIZE"]),
    ("JAX_PROCESS_ID", &["JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT"]),
    ("JAX_PROCESS_INDEX", &["JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT"]),
    ("OMPI_COMM_WORLD_RANK", &["OMPI_COMM_WORLD_SIZE"]),
    ("PMI_RANK", &["PMI_SIZE"]),
    ("PMIX_RANK", &["SLURM_STEP_NUM_TASKS"]),
    ("SLURM_PROCID", &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]),
];

impl Identity {
    /// Rank and world come as a pair from one source, so that a rank is never combined with the size of another group;
    /// only a world given on its own is combined with a launcher's rank.
    fn detect(options: Options, actor: String, shared: &Shared) -> Self {
        let number = |name: &str, least: u64, end: u64| {
            let text = variable(name)?;
            let number = text.trim().parse().ok().filter(|number| (least..end).contains(number));
            if number.is_none() {
                shared.tell(name, "open", &format!("{:?} is not an integer in {least}..{end}", shown(&text)));
            }
            number
        };
        let given = |name: &str, value: Option<u64>, least: u64, end: u64| {
            let usable = value.filter(|value| (least..end).contains(value));
            if let (Some(value), None) = (value, usable) {
                shared.tell(name, "open", &format!("{value} is not an integer in {least}..{end}"));
            }
            usable
        };
        let bounded = |what: &str, text: String| {
            let kept = first_chars(&text, LONGEST_ACTOR);
            if kept.len() < text.len() {
                shared.tell(what, "open", &format!("only its first {LONGEST_ACTOR} characters are kept"));
            }
            kept.to_owned()
        };
        let own = given("rank", options.rank, 0, RANKS_END).or_else(|| number("RLSHIP_RANK", 0, RANKS_END));
        let launched = || {
            LAUNCHERS.iter().find_map(|(rank, worlds)| {
                let rank = number(rank, 0, RANKS_END)?;
                Some((rank, worlds.iter().find_map(|world| number(world, 1, RANKS_END))))
            })
        };
        let (rank, its_world) = match own {
            Some(rank) => (rank, None),
            None => launched().unwrap_or((0, None)),
        };
        let world = given("world", options.world, 1, RANKS_END + 1);
        let mut world = world.or_else(|| number("RLSHIP_WORLD", 1, RANKS_END + 1)).or(its_world);
        if world.is_some_and(|world| world <= rank) {
            shared.tell("world", "open", &format!("it is not above rank {rank}, so it is left out"));
            world = None;
        }
        let attempt =
            given("attempt", options.attempt, 0, STEPS_END).or_else(|| number("RLSHIP_ATTEMPT", 0, STEPS_END));
        let attempt = attempt.unwrap_or_else(|| {
            // torchrun counts anew each time the batch system starts it again, so the outer counter weighs more.
            let outer = ["SLURM_RESTART_COUNT", "JOBSET_RESTART_ATTEMPT"];
            let outer = outer.iter().find_map(|name| number(name, 0, RANKS_END)).unwrap_or(0);
            outer * 1000 + number("TORCHELASTIC_RESTART_COUNT", 0, RANKS_END).unwrap_or(0)
        });
        let replica = options.replica.or_else(|| variable("RLSHIP_REPLICA")).filter(|replica| !replica.is_empty());
        Identity {
            actor: bounded("actor", actor),
            replica: bounded("replica", replica.unwrap_or_else(|| "0".into())),
            rank,
            world,
            attempt,
            axis: bounded("axis", options.axis.filter(|axis| !axis.is_empty()).unwrap_or_else(|| "global_step".into())),
            host: host(),
            parent: options.parent.filter(|parent| !parent.is_empty()),
            labels: options.labels,
        }
    }

    /// For people: who wrote a file is in its first line.
    fn file_name(&self, id: &str) -> String {
        let (actor, replica, host) = (safe(&self.actor), safe(&self.replica), safe(&self.host));
        format!("{actor}-{replica}-r{}-{host}-{}-{id}.jsonl", self.rank, process::id())
    }

    fn open_record(&self, id: &str, t: f64) -> String {
        let mut line = format!(
            "{{\"kind\":\"open\",\"rlship\":1,\"id\":\"{id}\",\"actor\":{},\"replica\":{},\"rank\":{}",
            quoted(&self.actor),
            quoted(&self.replica),
            self.rank,
        );
        if let Some(world) = self.world {
            let _ = write!(line, ",\"world\":{world}");
        }
        let _ = write!(
            line,
            ",\"attempt\":{},\"axis\":{},\"beat\":{},\"host\":{},\"pid\":{},\"t\":{t:.6},\"writer\":\"rust/{VERSION}\"",
            self.attempt,
            quoted(&self.axis),
            BEAT.as_secs(),
            quoted(&self.host),
            process::id(),
        );
        if let Some(space) = pid_space() {
            let _ = write!(line, ",\"pid_space\":{}", quoted(&space));
        }
        if let Some(parent) = &self.parent {
            let _ = write!(line, ",\"parent\":{}", quoted(first_chars(parent, LONGEST_ACTOR)));
        }
        let (mut labels, mut left) = (Vec::<(&str, Attr)>::new(), 8192);
        for (name, text) in &self.labels {
            let size = name.chars().count() + text.chars().count();
            if size <= left && labels.iter().all(|(known, _)| known != name) {
                left -= size;
                labels.push((name, Attr::Text(text)));
            }
        }
        if let (false, Ok((labels, _))) = (labels.is_empty(), object(&labels, LINE_LIMIT / 2)) {
            let _ = write!(line, ",\"labels\":{labels}");
        }
        line + "}\n"
    }
}

/// A part of a file name: at most 48 letters, digits, `.` and `_`, and no leading dot.
fn safe(text: &str) -> String {
    let kept: String =
        text.chars().take(48).map(|c| if c.is_ascii_alphanumeric() || "._".contains(c) { c } else { '_' }).collect();
    match kept.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None if kept.is_empty() => "_".into(),
        None => kept,
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.trim().is_empty())
}

fn host() -> String {
    let read = |path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let found = read("/proc/sys/kernel/hostname").or_else(|| read("/etc/hostname")).or_else(|| variable("HOSTNAME"));
    found.unwrap_or_else(|| "unknown".into())
}

/// Which processes our pid counts among: the kernel's boot and the pid namespace. Linux alone says so.
fn pid_space() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), space.to_str()?))
}

/// Filesystems on which another client sees nothing of a write before it is synced, or may not.
const NETWORK: [&str; 25] = [
    "9p",
    "acfs",
    "afs",
    "beegfs",
    "beegfs_nodev",
    "ceph",
    "cifs",
    "gfs",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "ocfs2",
    "openafs",
    "orangefs",
    "panfs",
    "pvfs2",
    "quobyte",
    "smb3",
    "smbfs",
    "vastnfs",
    "virtiofs",
    "wekafs",
];

/// Whether `path` lies on a network filesystem; FUSE counts as one, as what is behind it is unknown.
fn is_network(path: &Path) -> bool {
    let Ok(mounts) = fs::read("/proc/self/mountinfo") else { return false };
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (mut best, mut kind) = (0, String::new());
    for line in String::from_utf8_lossy(&mounts).lines() {
        // 36 35 98:0 /root /mount/point options [tags…] - type source superoptions
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let Some(point) = left.split(' ').nth(4) else { continue };
        let mut point = point.to_owned();
        for (code, character) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
            point = point.replace(code, character);
        }
        // `>=`: of two mounts on one point the later hides the earlier.
        if real.starts_with(&point) && point.len() >= best {
            best = point.len();
            kind = right.split(' ').next().unwrap_or_default().to_owned();
        }
    }
    NETWORK.contains(&kind.as_str()) || kind == "fuse" || kind.starts_with("fuse.")
}
