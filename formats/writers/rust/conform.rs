//! Calls the writer as the lines of standard input say, for `tests/writers`.

mod rlship;

use std::io::BufRead;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use rlship::{Attr, Define, Options, Step, Summary, Value, Writer};

fn main() {
    let mut writer = None;
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.expect("standard input is readable");
        let fields: Vec<String> = line.split(|&byte| byte == b'\t').map(unescaped).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        match fields[0] {
            "init" => writer = Some(init(&fields[1..])),
            "exit" => return,
            "abort" => abort(),
            "sleep" => thread::sleep(Duration::from_millis(fields[1].parse().expect("milliseconds"))),
            _ => call(writer.as_ref().expect("init comes first"), &fields),
        }
    }
}

fn init(fields: &[&str]) -> Writer {
    let mut options = Options::new(fields[0], fields[1]);
    let field = |i: usize| fields.get(i).copied().filter(|text| !text.is_empty());
    let number = |i: usize| field(i).map(|text| text.parse().expect("a number"));
    if let Some(rank) = number(2) {
        options = options.rank(rank);
    }
    if let Some(world) = number(3) {
        options = options.world(world);
    }
    if let Some(replica) = field(4) {
        options = options.replica(replica);
    }
    if let Some(attempt) = number(5) {
        options = options.attempt(attempt);
    }
    if let Some(axis) = field(6) {
        options = options.axis(axis);
    }
    if let Some(parent) = field(7) {
        options = options.parent(parent);
    }
    for label in fields.get(8..).unwrap_or_default().chunks_exact(2) {
        options = options.label(label[0], label[1]);
    }
    options.open()
}

/// A call of the ledger: the step, hop and key stand behind the call as JSON, then names and values.
fn enter(writer: &Writer, fields: &[&str]) {
    let given: std::collections::HashMap<&str, &str> =
        fields[5..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let text = |name: &str| given.get(name).copied().unwrap_or("");
    let rows = |name: &str| -> Vec<Vec<i64>> {
        let Some(text) = given.get(name) else { return Vec::new() };
        let integers =
            |row: &str| row.split(',').filter(|x| !x.is_empty()).map(|x| x.parse().expect("an integer")).collect();
        text.split(';').map(integers).collect()
    };
    let numbers = |name: &str| -> Vec<f64> { text(name).split(',').filter(|x| !x.is_empty()).map(double).collect() };
    let pair = |name: &str| rows(name).first().map(|pair| (pair[0] as u64, pair[1] as u64));
    let (tokens, mask) = (rows("tokens"), rows("mask"));
    let tokens: Vec<&[i64]> = tokens.iter().map(Vec::as_slice).collect();
    let mask: Vec<Vec<u8>> = mask.iter().map(|row| row.iter().map(|x| *x as u8).collect()).collect();
    let mask: Vec<&[u8]> = mask.iter().map(Vec::as_slice).collect();
    let sample: Vec<&str> = text("sample").split(',').filter(|name| !name.is_empty()).collect();
    let group = rlship::Group {
        n: text("n").parse().unwrap_or(0),
        tokens: if tokens.is_empty() { rlship::Tokens::None } else { rlship::Tokens::I64(&tokens) },
        mask: &mask,
        reward: &numbers("reward"),
        advantage: &numbers("advantage"),
        sample: &sample,
        response: text("response").parse().ok(),
        version: pair("version"),
        part: pair("part"),
        retry: text("retry").parse().unwrap_or(0),
        passes: text("passes").parse().unwrap_or(0),
        why: text("why"),
        bf16: text("precision") == "bf16",
    };
    writer.ledger(fields[2].parse::<u64>().ok(), fields[3], fields[4], &group);
}

fn call(writer: &Writer, fields: &[&str]) {
    let field = |i: usize| fields.get(i).copied().unwrap_or("");
    let step = || match field(1) {
        "" => Step::from(None),
        text => Step::from(text.parse::<i64>().expect("a step")),
    };
    match fields[0] {
        "define" => {
            let reduce: Vec<&str> = field(2).split(',').filter(|name| !name.is_empty()).collect();
            let define = Define { reduce: &reduce, unit: field(3), per_rank: field(4) == "1", stream: field(5) == "1" };
            writer.define(field(1), define);
        }
        "log" => {
            let metrics: Vec<(&str, Value)> =
                fields[3..].chunks_exact(2).map(|pair| (pair[0], value(pair[1]))).collect();
            match field(2) {
                "" => writer.log(step(), &metrics),
                weight => writer.log_weighted(step(), double(weight), &metrics),
            }
        }
        "list" => {
            let (values, weights) = (doubles(field(3)), doubles(field(4)));
            match field(4) {
                "" => writer.log(step(), &[(field(2), values.as_slice())]),
                _ => writer.log(step(), &[(field(2), Value::Weighted(&values, &weights))]),
            }
        }
        "summary" => {
            let mut summary = Summary::default();
            for member in fields[3..].chunks_exact(2) {
                let x = Some(double(member[1]));
                match member[0] {
                    "n" => summary.n = member[1].parse().expect("a count"),
                    "w" => summary.w = x,
                    "sum" => summary.sum = x,
                    "min" => summary.min = x,
                    "max" => summary.max = x,
                    "first" => summary.first = x,
                    "last" => summary.last = x,
                    "m2" => summary.m2 = x,
                    other => panic!("{other:?} is no member of a summary"),
                }
            }
            writer.log(step(), &[(field(2), summary)]);
        }
        "span" => {
            let took = Duration::from_secs_f64(field(3).parse().unwrap_or(0.0));
            let error = Some(field(4)).filter(|error| !error.is_empty());
            writer.record_span(step(), field(2), SystemTime::now() - took, took, error);
        }
        "event" => writer.event(step(), field(2), &attributes(fields.get(3..).unwrap_or_default())),
        "sample" => {
            let score = Some(field(3)).filter(|score| !score.is_empty()).map(double);
            writer.sample(step(), field(2), score, &attributes(fields.get(4..).unwrap_or_default()));
        }
        "ledger" => enter(writer, fields),
        "weights" => {
            let step = fields[2].parse::<u64>().ok();
            writer.weights(step, field(6).parse().expect("a version"), field(8));
        }
        "run" => {
            let values = attributes(fields.get(2..).unwrap_or_default());
            match field(1) {
                "config" => writer.config(&values),
                "summary" => writer.summary(&values),
                _ => writer.run(&values),
            }
        }
        "barrier" => writer.barrier(step()),
        "rollback" => writer.rollback(step()),
        "flush" => drop(writer.flush()),
        "close" => drop(writer.close()),
        "burst" => {
            for i in 0..field(1).parse().expect("a number of lines") {
                writer.log(i, &[("x", i)]);
                writer.barrier(i);
            }
        }
        "threads" => {
            let lines: u64 = field(2).parse().expect("a number of lines");
            thread::scope(|scope| {
                for _ in 0..field(1).parse().expect("a number of threads") {
                    scope.spawn(move || (0..lines).for_each(|i: u64| writer.log(i, &[("x", i)])));
                }
            });
        }
        "" => {}
        other => panic!("{other:?} is no command"),
    }
}

fn attributes<'a>(fields: &[&'a str]) -> Vec<(&'a str, Attr<'a>)> {
    fields.chunks_exact(2).map(|pair| (pair[0], attribute(pair[1]))).collect()
}

fn attribute(text: &str) -> Attr<'_> {
    match text.split_once(':') {
        Some(("s", text)) => Attr::Text(text),
        Some(("b", text)) => Attr::Bool(text == "1"),
        Some(("n", text)) => attribute_number(text),
        Some(("j", text)) => json(&mut text.char_indices().peekable(), text),
        _ => panic!("{text:?} is no attribute"),
    }
}

type Characters<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

/// Any JSON whose texts have no escapes. What it is made of stays until the process ends.
fn json<'a>(rest: &mut Characters<'a>, all: &'a str) -> Attr<'a> {
    let Some((start, first)) = rest.next() else { panic!("{all:?} is no JSON") };
    let mut pass = |wanted: &dyn Fn(char) -> bool| {
        while rest.next_if(|&(_, c)| wanted(c)).is_some() {}
        rest.peek().map_or(all.len(), |&(at, _)| at)
    };
    match first {
        '"' => {
            let end = pass(&|c| c != '"');
            rest.next();
            Attr::Text(&all[start + 1..end])
        }
        '[' | '{' => {
            let mut items = Vec::new();
            loop {
                while rest.next_if(|&(_, c)| ", :".contains(c)).is_some() {}
                if rest.next_if(|&(_, c)| "]}".contains(c)).is_some() {
                    break;
                }
                items.push(json(rest, all));
            }
            if first == '[' {
                return Attr::List(items.leak());
            }
            let members: Vec<_> = items.chunks_exact(2).map(|pair| (text(pair[0]), pair[1])).collect();
            Attr::Object(members.leak())
        }
        _ => match &all[start..pass(&|c| !", ]}".contains(c))] {
            "null" => Attr::Null,
            "true" => Attr::Bool(true),
            "false" => Attr::Bool(false),
            number => attribute_number(number),
        },
    }
}

fn text(attr: Attr<'_>) -> &str {
    match attr {
        Attr::Text(text) => text,
        other => panic!("{other:?} is no name"),
    }
}

fn attribute_number(text: &str) -> Attr<'_> {
    text.parse().map_or_else(|_| Attr::Float(double(text)), Attr::Int)
}

fn value(text: &str) -> Value<'_> {
    match text.parse() {
        Ok(integer) => Value::Int(integer),
        Err(_) => Value::Float(double(text)),
    }
}

fn doubles(text: &str) -> Vec<f64> {
    text.split(',').filter(|one| !one.is_empty()).map(double).collect()
}

fn double(text: &str) -> f64 {
    text.parse().expect("a decimal, NaN, Infinity or -Infinity")
}

fn unescaped(field: &[u8]) -> String {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let [code, after @ ..] = rest else { panic!("a field ends in a backslash") };
        rest = after;
        match code {
            b't' => out.push(b'\t'),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b'x' => {
                let digits = std::str::from_utf8(&rest[..2]).expect("two hex digits");
                out.push(u8::from_str_radix(digits, 16).expect("two hex digits"));
                rest = &rest[2..];
            }
            other => out.push(*other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Die by SIGKILL.
fn abort() {
    let killed = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
    panic!("still alive: {killed:?}");
}
