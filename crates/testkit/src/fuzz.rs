//! Fuzzing: malformed SQL for every public entry point that takes text.
//!
//! [`run`] draws an input ([`input`]): a mutated text of a corpus, a statement drawn from a
//! grammar, a name, or a file. The input passes through every stage that accepts it ([`entry`]):
//! parse, bind, EXPLAIN, run, compile for request mode, answer requests, deploy and verify, over
//! tables of a few rows, on a thread with a stack of [`STACK_BYTES`]. Nothing may panic, report an
//! internal error, take long or take much memory. Used by a test with a fixed seed and by `cargo
//! xtask fuzz`, which runs it in a process of its own and continues after a process that died.
//!
//! | module | what |
//! |---|---|
//! | [`input`] | an input |
//! | [`corpus`] | the texts that are mutated |
//! | [`mutate`] | mutations of texts |
//! | [`grammar`] | statements drawn construct by construct |
//! | `parameters` | `?` in place of their constants, with values |
//! | [`constructs`] | their names and words; inputs that were found in the past |
//! | [`entry`] | the entry points |
//! | `stopwatch` | the counted time of a call |
//! | [`memory`] | an allocator that counts |

pub mod constructs;
pub mod corpus;
pub mod entry;
pub mod grammar;
pub mod input;
pub mod memory;
pub mod mutate;
mod parameters;
mod stopwatch;

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    thread,
};

use lockstep_host::{Clock, SystemClock};

use self::{
    corpus::Corpus,
    entry::{Calls, Longest, exercise},
    input::FuzzInput,
};
use crate::{panics, random::Random};

/// An input with a call that takes longer is reported, in milliseconds as `stopwatch` counts them.
pub const SLOW_MS: u64 = 1_000;

/// An input that takes more memory at any moment is reported, in bytes.
pub const MEMORY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The stack of the thread that an input runs on: the default of a thread.
pub const STACK_BYTES: usize = 2 * 1024 * 1024;

/// The tables for inputs that create none.
pub(crate) const TABLES: &str = "CREATE TABLE t1 (id INT, k STRING, c1 STRING, c3 INT, c4 BIGINT, c5 FLOAT, \
    c6 DOUBLE, ts TIMESTAMP, c8 DATE, f BOOL, s SMALLINT); \
    INSERT INTO t1 VALUES (1, 'a', 'x', 3, 4, 5.5, 6.5, 1000, '2020-02-29', true, 7), \
    (2, 'a', 'y', NULL, 9223372036854775807, NULL, -0.5, 2000, '1999-12-31', false, -32768), \
    (3, NULL, '', 2147483647, NULL, 1.5, NULL, 2000, NULL, NULL, NULL); \
    CREATE TABLE t2 (id INT, k STRING, c1 STRING, c3 INT, c4 BIGINT, c5 FLOAT, \
    c6 DOUBLE, ts TIMESTAMP, c8 DATE, f BOOL, s SMALLINT); \
    INSERT INTO t2 VALUES (4, 'a', 'z', 5, 6, 0.25, 1e308, 1500, '2024-01-01', false, 0); \
    CREATE TABLE m1 (id INT, k STRING, m MAP<STRING, INT>, ts TIMESTAMP, c3 INT, \
    INDEX(KEY=k, TS=ts), INDEX(KEY=c3, TS=ts)); \
    INSERT INTO m1 VALUES (1, 'a', map('x', 1), 1000, 1), (2, 'a', NULL, 2000, NULL)";

/// The limits of a run, and its callback.
pub struct FuzzOptions<'a> {
    /// The seed, which determines the run.
    pub seed: u64,
    /// The number of the first input, for a run that continues another one.
    pub first: u64,
    /// Stops after this many inputs.
    pub executions_max: u64,
    /// Stops after this many milliseconds.
    pub time_ms_max: u64,
    /// Skips inputs that were drawn from these constructs.
    pub without: &'a [&'a str],
    /// Receives the number and the text of each input before it runs.
    pub before: &'a dyn Fn(u64, &str),
    /// A defect that this process simulates instead of running the inputs, to show that it would be
    /// found.
    pub canary: Option<Canary>,
}

impl fmt::Debug for FuzzOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// A simulated defect, which every input drawn from a nested CASE shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// It panics.
    Panic,
    /// It needs a stack that grows with the input, without end.
    Stack,
    /// It takes all memory.
    Memory,
    /// It never ends.
    Hang,
}

/// The counts and findings of a run.
#[derive(Debug, Default)]
pub struct FuzzReport {
    /// Inputs tried.
    pub executions: u64,
    /// Inputs by the last stage that they reached.
    pub reached: BTreeMap<FuzzStage, u64>,
    /// Calls by entry point.
    pub calls: Calls,
    /// Inputs by the constructs that they were drawn from.
    pub constructs: BTreeMap<String, u64>,
    /// The defects, one of each kind.
    pub findings: Vec<FuzzFinding>,
    /// The longest time of a call, in milliseconds as `stopwatch` counts them.
    pub slowest_ms: u64,
    /// The most memory an input took, in bytes; 0 unless [`memory::Counting`] is the allocator.
    pub memory_bytes_max: usize,
}

/// The last stage that an input reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FuzzStage {
    /// It is not valid SQL.
    Refused,
    /// It was parsed; it has no query, or none that binds.
    Parsed,
    /// A query was bound and explained.
    Bound,
    /// A query was compiled for request mode.
    Compiled,
}

/// A defect and the input that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FuzzFinding {
    /// What happened.
    pub what: String,
    /// The input.
    pub input: String,
}

/// Runs until one of the limits is reached. The number of an input decides what it is, so that a
/// run can continue after an input that ended the process.
pub fn run(corpus: &Corpus, options: &FuzzOptions<'_>) -> FuzzReport {
    let clock = SystemClock::new();
    let now_ms = || clock.monotonic_ns() / 1_000_000;
    let start_ms = now_ms();
    let mut report = FuzzReport::default();
    panics::catch_text();
    while report.executions < options.executions_max && now_ms() - start_ms < options.time_ms_max {
        let number = options.first + report.executions;
        let mut random = Random::new(options.seed ^ number.wrapping_mul(0x9e37_79b9));
        let input = input::draw(corpus, &mut random);
        let text = input.to_string();
        (options.before)(number, &text);
        let before = memory::start();
        let canary = options.canary;
        let is_left_out = input.constructs().iter().any(|found| options.without.contains(found));
        let outcome = on_small_stack(|| match canary {
            _ if is_left_out => Ok(FuzzStage::Refused),
            Some(canary) => Ok(misbehave(canary, &input)),
            None => exercise(&input, &mut random, &mut report.calls),
        });
        let longest = report.calls.take_longest();
        let taken_bytes = memory::peak_since(before);
        report.executions += 1;
        report.note(&input, &outcome, Cost { longest, taken_bytes });
    }
    report
}

/// Runs `body` on a thread with a stack of [`STACK_BYTES`]; the text of its panic is the error.
fn on_small_stack<T: Send>(body: impl FnOnce() -> T + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("fuzz".to_owned()).stack_size(STACK_BYTES);
        let worker = worker.spawn_scoped(scope, || panics::caught(body));
        worker.expect("the system can start a thread").join().expect("panics are caught")
    })
}

/// Simulates the defect of a canary for the inputs that show it.
fn misbehave(canary: Canary, input: &FuzzInput) -> FuzzStage {
    if !input.constructs().contains(&"CASE with an operand") {
        return FuzzStage::Refused;
    }
    match canary {
        Canary::Panic => panic!("a canary sang"),
        Canary::Stack => {
            descend(0);
        }
        Canary::Memory => {
            let mut hoard = Vec::new();
            loop {
                hoard.push(vec![1_u8; MEMORY_BYTES_MAX / 8]);
            }
        }
        Canary::Hang => loop {
            std::hint::spin_loop();
        },
    }
    FuzzStage::Parsed
}

#[expect(unconditional_recursion, reason = "it is to end the process")]
fn descend(depth: u64) -> u64 {
    std::hint::black_box(descend(std::hint::black_box(depth + 1)) + 1)
}

/// The time and the memory of an input.
struct Cost {
    longest: Longest,
    taken_bytes: usize,
}

impl FuzzReport {
    fn note(
        &mut self,
        input: &FuzzInput,
        outcome: &Result<Result<FuzzStage, String>, String>,
        Cost { longest, taken_bytes }: Cost,
    ) {
        let (taken_ms, entry) = longest;
        self.slowest_ms = self.slowest_ms.max(taken_ms);
        self.memory_bytes_max = self.memory_bytes_max.max(taken_bytes);
        for construct in input.constructs() {
            *self.constructs.entry((*construct).to_owned()).or_default() += 1;
        }
        let what = match outcome {
            Ok(Ok(stage)) => {
                *self.reached.entry(*stage).or_default() += 1;
                None
            }
            Ok(Err(internal)) => Some(format!("internal error: {internal}")),
            Err(panic) => Some(format!("panic: {panic}")),
        };
        let slow = (taken_ms > SLOW_MS).then(|| format!("slow: {taken_ms} ms in {entry}"));
        let big = (taken_bytes > MEMORY_BYTES_MAX).then(|| format!("memory: {taken_bytes} bytes"));
        for what in [what, slow, big].into_iter().flatten() {
            self.add(what, &input.to_string());
        }
    }

    /// Keeps the shortest input of each kind of finding; of slow ones, the shortest that took about
    /// as long, so that a short input does not replace a much slower one.
    pub fn add(&mut self, what: String, input: &str) {
        let kind = |what: &str| {
            let number: String = what.chars().filter(char::is_ascii_digit).collect();
            let words: String = what.chars().filter(|c| !c.is_ascii_digit()).collect();
            let size = if what.starts_with("slow") { number.parse::<u64>().ok() } else { None };
            (words, size.map(u64::ilog2))
        };
        let known = self.findings.iter_mut().find(|found| kind(&found.what) == kind(&what));
        match known {
            Some(found) if found.input.len() <= input.len() => {}
            Some(found) => *found = FuzzFinding { what, input: input.to_owned() },
            None => self.findings.push(FuzzFinding { what, input: input.to_owned() }),
        }
    }

    /// Returns two tables: calls by entry point, inputs by construct. What was never drawn has a 0.
    pub fn tables(&self) -> String {
        let mut text = String::from("calls by entry point\n");
        for entry in entry::ENTRIES {
            let count = self.calls.counts.get(entry).copied().unwrap_or_default();
            writeln!(text, "{count:>10}  {entry}").expect("writing to memory does not fail");
        }
        text.push_str("inputs by construct\n");
        for construct in constructs::ALL {
            let count = self.constructs.get(*construct).copied().unwrap_or_default();
            writeln!(text, "{count:>10}  {construct}").expect("writing to memory does not fail");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{
        FuzzStage, Random,
        entry::{Calls, exercise},
        input::FuzzInput,
    };

    fn check(input: &str, expected: FuzzStage) {
        let sql = FuzzInput::from(input.to_owned());
        let mut calls = Calls::default();
        assert_eq!(exercise(&sql, &mut Random::new(1), &mut calls), Ok(expected), "{input}");
    }

    #[test]
    fn an_input_goes_as_far_as_it_can() {
        check("SELECT FROM WHERE", FuzzStage::Refused);
        check("SELECT a FROM nowhere", FuzzStage::Parsed);
        check("SELECT id FROM t1", FuzzStage::Compiled);
        check("CREATE TABLE t (a INT); SELECT a FROM t", FuzzStage::Compiled);
    }
}
