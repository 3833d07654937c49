//! M4: memory of a row, against Redis sorted sets.
//!
//! Two kinds of rows: random ones (a key of 50 characters, a value of 100, five values of a key)
//! and the clicks of a log (`../shared/data/train_sample.csv`; each further copy of it gets keys of
//! its own). Lockstep's figure is the memory it accounts for, and `lockstep_process` is the growth
//! of the process; Redis's figure is the growth of `used_memory`. In Redis a value, or a click as
//! JSON, is a member of its key's set, scored by time, as in the published comparison;
//! `redis_compact` has clicks as comma-separated text, which short sets hold in one small block.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use lockstep_engine::Database;
use lockstep_host::disk;
use lockstep_row::{Datum, calendar};
use serde_json::{Map, Value as Json, json};

use crate::{
    arguments::{BenchOptions, PeerName},
    draw::KeyedRandom,
    engine_memory::memory_and_rows,
    error::{Error, Result},
    m1::moment,
    machine::{give_back_memory, resident_bytes},
    peer::redis::Redis,
    report::{BASELINE, LOCKSTEP, Point, SystemResult, rounded},
    suite::{Outcome, say, wanted},
};

/// Values of a key among the random rows.
const VALUES_PER_KEY: usize = 5;
/// When the random rows begin, in milliseconds since the epoch.
const START_MS: i64 = 1_718_409_600_000;
/// The path of the click log, from the root of the project.
const LOG: &str = "../shared/data/train_sample.csv";

/// A click: ip, app, device, os, channel, time, whether the app was downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Click {
    numbers: [i32; 5],
    time_ms: i64,
    is_attributed: i32,
}

/// The source of the rows.
#[derive(Debug, Clone)]
enum GeneratedRows {
    Random,
    Clicks(Vec<Click>),
}

/// The memory of one system for some rows.
struct Taken {
    name: &'static str,
    bytes: u64,
    rows: usize,
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let counts: &[usize] =
        if options.quick { &[10_000, 100_000] } else { &[10_000, 100_000, 1_000_000] };
    let redis_is_wanted = wanted(options, PeerName::Redis, Redis::start)?.is_some();
    let mut kinds = vec![("random", GeneratedRows::Random)];
    let mut notes = Map::new();
    match read_log()? {
        Some(clicks) => kinds.push(("clicks", GeneratedRows::Clicks(clicks))),
        None => {
            let text = format!("{LOG} does not exist: only random rows are measured");
            say(&text);
            notes.insert("left_out".to_owned(), json!(text));
        }
    }
    let mut sweeps = Vec::new();
    for (name, rows) in &kinds {
        let mut points = Vec::new();
        for count in counts {
            points.push(run_point(name, rows, *count, redis_is_wanted)?);
        }
        sweeps.push((*name, points));
    }
    let headline = sweeps.last().and_then(|(_, points)| points.last());
    let point = headline.expect("there are random rows at least").clone();
    Ok(Outcome { point, sweeps, notes, ..Outcome::default() })
}

fn run_point(
    name: &str,
    rows: &GeneratedRows,
    count: usize,
    redis_is_wanted: bool,
) -> Result<Point> {
    say(&format!("M4 {name}, {count} rows"));
    let mut taken = Vec::new();
    let (bytes, grown) = lockstep_bytes(rows, count)?;
    taken.push(Taken { name: LOCKSTEP, bytes, rows: count });
    if let Some(grown) = grown {
        taken.push(Taken { name: "lockstep_process", bytes: grown, rows: count });
    }
    taken.push(Taken { name: BASELINE, bytes: array_bytes(rows, count), rows: count });
    if redis_is_wanted {
        taken.push(redis_bytes("redis", rows, count, &json_member)?);
        if matches!(rows, GeneratedRows::Clicks(_)) {
            taken.push(redis_bytes("redis_compact", rows, count, &compact_member)?);
        }
    }
    let mut ratios = Map::new();
    for other in &taken[1..] {
        let ratio = rounded(bytes as f64 / other.bytes.max(1) as f64);
        ratios.insert(format!("{LOCKSTEP}/{}", other.name), json!(ratio));
    }
    let lost: Map<String, Json> = taken
        .iter()
        .filter(|taken| taken.rows != count)
        .map(|taken| (taken.name.to_owned(), json!(count - taken.rows)))
        .collect();
    let system = |taken: &Taken| SystemResult {
        name: taken.name.to_owned(),
        bytes_per_row: Some(taken.bytes as f64 / taken.rows.max(1) as f64),
        loads: Vec::new(),
    };
    let systems = taken.iter().map(system).collect();
    let params = json!({ "rows": count, "kind": name, "equal_rows_that_a_set_holds_once": lost });
    let point = Point { params, systems, ratios };
    say(&point.markdown());
    Ok(point)
}

fn random_text(key: usize, value: usize, length: usize) -> String {
    let place = |number: usize| u64::try_from(number).expect("a count fits");
    let draw = KeyedRandom::at(&[41, place(key), place(value)]);
    let letter = |column: u64| {
        char::from(b'a' + u8::try_from(draw.below(column, 26)).expect("it is a letter"))
    };
    (0..place(length)).map(letter).collect()
}

/// Returns a click of a copy of the log; each copy has keys of its own.
fn click(clicks: &[Click], number: usize) -> Click {
    let mut click = clicks[number % clicks.len()];
    let copy = i32::try_from(number / clicks.len()).expect("few copies");
    click.numbers[0] += copy * 1_000_000;
    click
}

/// Returns the memory that Lockstep accounts for, and the growth of the process.
fn lockstep_bytes(rows: &GeneratedRows, count: usize) -> Result<(u64, Option<u64>)> {
    give_back_memory();
    let before = resident_bytes();
    let session = Database::in_memory().session();
    match rows {
        GeneratedRows::Random => {
            session.execute(
                "CREATE TABLE rows (k STRING, v STRING, ts TIMESTAMP, \
                 INDEX(KEY=k, TS=ts, TTL=0m, TTL_TYPE=absolute))",
            )?;
            let appender = session.appender("rows")?;
            for number in 0..count {
                let (key, value) = random_row(number);
                let time = Datum::Timestamp(random_time_ms(number));
                appender.append([[Datum::String(&key), Datum::String(&value), time]])?;
            }
        }
        GeneratedRows::Clicks(clicks) => {
            session.execute(
                "CREATE TABLE rows (ip INT, app INT, device INT, os INT, channel INT, \
                 click_time TIMESTAMP, is_attributed INT, \
                 INDEX(KEY=ip, TS=click_time, TTL=0m, TTL_TYPE=absolute))",
            )?;
            let appender = session.appender("rows")?;
            for number in 0..count {
                let click = click(clicks, number);
                let [ip, app, device, os, channel] = click.numbers.map(Datum::Int);
                let time = Datum::Timestamp(click.time_ms);
                let attributed = Datum::Int(click.is_attributed);
                appender.append([[ip, app, device, os, channel, time, attributed]])?;
            }
        }
    }
    give_back_memory();
    let grown = resident_bytes().zip(before).map(|(after, before)| after.saturating_sub(before));
    let (bytes, found) = memory_and_rows(&session, &["rows".to_owned()])?;
    assert_eq!(usize::try_from(found), Ok(count), "all rows are stored");
    Ok((bytes, grown))
}

fn random_row(number: usize) -> (String, String) {
    let key = number / VALUES_PER_KEY;
    (random_text(key, usize::MAX, 50), random_text(key, number, 100))
}

fn random_time_ms(number: usize) -> i64 {
    START_MS + i64::try_from(number).expect("a count fits")
}

/// Returns the bytes of the values alone, keys once.
fn array_bytes(rows: &GeneratedRows, count: usize) -> u64 {
    let bytes = match rows {
        GeneratedRows::Random => count * (100 + 8) + count.div_ceil(VALUES_PER_KEY) * 50,
        GeneratedRows::Clicks(clicks) => {
            let of_one = |clicks: &[Click]| {
                let mut keys: Vec<i32> = clicks.iter().map(|click| click.numbers[0]).collect();
                keys.sort_unstable();
                keys.dedup();
                keys.len()
            };
            count * (4 * 4 + 8 + 4) + of_one(clicks) * count.div_ceil(clicks.len()) * 4
        }
    };
    u64::try_from(bytes).expect("a size fits")
}

fn json_member(click: &Click) -> String {
    let [ip, app, device, os, channel] = click.numbers;
    format!(
        "{{\"ip\":{ip},\"app\":{app},\"device\":{device},\"os\":{os},\"channel\":{channel},\
         \"click_time\":\"{}\",\"is_attributed\":{}}}",
        &moment(click.time_ms)[..19],
        click.is_attributed
    )
}

fn compact_member(click: &Click) -> String {
    let mut text = String::new();
    for number in &click.numbers[1..] {
        write!(text, "{number},").expect("a string takes everything");
    }
    write!(text, "{},{}", click.time_ms / 1_000, click.is_attributed)
        .expect("a string takes everything");
    text
}

/// Returns the growth of an empty server, in bytes.
fn redis_bytes(
    name: &'static str,
    rows: &GeneratedRows,
    count: usize,
    member: &dyn Fn(&Click) -> String,
) -> Result<Taken> {
    let redis = Redis::start()?;
    let before = redis.used_bytes()?;
    let mut resp = redis.connect()?;
    let (mut waiting, mut kept) = (0, 0);
    for number in 0..count {
        let (key, time_ms, member) = match rows {
            GeneratedRows::Random => {
                let (key, value) = random_row(number);
                (key, random_time_ms(number), value)
            }
            GeneratedRows::Clicks(clicks) => {
                let click = click(clicks, number);
                (click.numbers[0].to_string(), click.time_ms, member(&click))
            }
        };
        let score = time_ms.to_string();
        resp.command(&[b"ZADD", key.as_bytes(), score.as_bytes(), member.as_bytes()]);
        waiting += 1;
        if waiting == 10_000 || number + 1 == count {
            resp.send()?;
            for _ in 0..std::mem::take(&mut waiting) {
                kept += resp.int()?;
            }
        }
    }
    let bytes = redis.used_bytes()?.saturating_sub(before);
    Ok(Taken { name, bytes, rows: usize::try_from(kept).expect("a count fits") })
}

/// Returns the click log, from the project's folder or the current one; `None` when neither has it.
fn read_log() -> Result<Option<Vec<Click>>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let places = [root.join(LOG), PathBuf::from(LOG), root.join("../").join(LOG)];
    let Some(text) = places.iter().find_map(|path| disk::read_to_string(path).ok()) else {
        return Ok(None);
    };
    let bad = |line: &str| Error::Peer { system: "click log", message: format!("`{line}`") };
    let lines = text.lines().skip(1);
    let clicks = lines.map(|line| parse_click(line).ok_or_else(|| bad(line)));
    clicks.collect::<Result<Vec<Click>>>().map(Some)
}

fn parse_click(line: &str) -> Option<Click> {
    let mut fields = line.split(',');
    let mut numbers = [0; 5];
    for number in &mut numbers {
        *number = fields.next()?.parse().ok()?;
    }
    let (date, time) = fields.next()?.split_once(' ')?;
    let days = calendar::parse_date(date)?;
    let time_ms = days * 86_400_000 + calendar::parse_time(time)?.to_ms();
    Some(Click { numbers, time_ms, is_attributed: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::{GeneratedRows, compact_member, json_member, lockstep_bytes, parse_click};

    #[test]
    fn a_line_of_the_log_is_a_click() {
        let click = parse_click("106385,12,1,19,178,2017-11-08 06:30:54,0").unwrap();
        assert_eq!(click.numbers, [106_385, 12, 1, 19, 178]);
        assert_eq!(compact_member(&click), "12,1,19,178,1510122654,0");
        let json = json_member(&click);
        assert!(
            json.contains("\"click_time\":\"2017-11-08 06:30:54\",\"is_attributed\":0}"),
            "{json}"
        );
    }

    #[test]
    fn every_row_takes_memory() {
        let (bytes, _) = lockstep_bytes(&GeneratedRows::Random, 100).unwrap();
        assert!(bytes > 100 * 150, "{bytes}");
    }
}
