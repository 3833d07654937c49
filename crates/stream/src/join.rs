//! The LAST JOINs and windows of a stream, as rows arrive and the watermark passes them.

use std::{collections::VecDeque, io, sync::Arc};

use lockstep_diagnostic::Result;
use lockstep_host::{Clock, Threads};
use lockstep_row::Datum;

use crate::{
    bug::{self, StreamBug},
    crew::JoinerCrew,
    joiner::{GivenMainRows, Joiner, JoinerOutput, JoinerParts, JoinerSize, RoundResult},
    reorder::UnsettledRow,
    schedule::{JOINERS_MAX, Schedule},
    simulation::{SimulatedCrew, SimulatedTimes},
    spec::WindowJoinSpec,
    watermark::{Lateness, PassedTimes, SourceProgress, Timeliness, Watermark},
};

/// The windows of a query over the rows of its sources: gives each main row that is not late once, with the results of
/// its windows, when they are final.
///
/// One thread passes the rows. Windows are computed there by one joiner, or by several on threads of their own. What it
/// gives depends on the rows, on their order of arrival in each source, and on what is late because a source was idle;
/// neither on when [`Self::advance`] is called nor on how many joiners there are.
///
/// # Rounds
///
/// What was joined is given in *rounds*: [`Self::end_round`] ends one, and [`Self::take_round`] waits for its rows. Between
/// the two more rows may be passed, so that the joiners always have some.
#[derive(Debug)]
pub struct WindowJoin<O: JoinerOutput> {
    spec: Arc<WindowJoinSpec>,
    watermark: Watermark,
    joiners: Joiners<O>,
    /// The rounds that have ended and were not taken, each with its watermark.
    rounds: VecDeque<Option<i64>>,
    taken: u64,
    late: u64,
    ignored: u64,
    joined: u64,
}

/// Those who compute the windows.
#[derive(Debug)]
enum Joiners<O: JoinerOutput> {
    /// One on this thread, and its rounds that have ended.
    One(Box<Joiner<O>>, VecDeque<Result<RoundResult<O::Rows>>>),
    Several(Box<JoinerCrew<O>>),
}

/// How far a join is: which main rows it has given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JoinProgress {
    /// The time before which all rows have come, if one is known.
    pub watermark: Option<i64>,
    /// The arrivals of the main rows that the watermark has passed and whose windows are not final, where the number
    /// of rows that come decides it. Empty where the watermark says when windows are final.
    pub waiting: Vec<u64>,
}

/// What was joined in a round.
#[derive(Debug)]
pub struct JoinedRound<R> {
    /// What was made of the rows, by their joiners.
    pub rows: Vec<R>,
    /// How far the join was at its end. Whoever stores it with the rows, and for each source a place from which on rows
    /// are read again, goes on in another join with [`WindowJoin::begin_replay`].
    pub progress: JoinProgress,
    /// For each source of a LAST JOIN which rows it holds, as one number: two joins that hold the same rows have the same
    /// one, others almost never. `None` for other sources.
    pub held: Vec<Option<u64>>,
}

/// A row of a source.
#[derive(Debug, Clone, Copy)]
pub struct StreamRow<'r> {
    /// The number of its source.
    pub source: usize,
    /// Its arrival: greater than those of the rows of its source before it.
    pub arrival: u64,
    /// Its columns.
    pub columns: &'r [Datum<'r>],
}

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It counts.
    Taken,
    /// It is late, and counts for nothing.
    Late,
    /// It is late because the stream did not wait for its source, which was idle; and counts for nothing.
    LateAfterIdle,
    /// It is a row of a UNION source without an event time, which no frame holds.
    Ignored,
}

/// What a join has done, and has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JoinCounts {
    /// The rows that count.
    pub taken: u64,
    /// The rows that were late.
    pub late: u64,
    /// The rows of UNION sources without an event time.
    pub ignored: u64,
    /// The main rows that were joined, up to the round that was taken last.
    pub joined: u64,
    /// The rows that the watermark has not passed.
    pub unsettled: usize,
    /// The main rows whose windows are not all computed, beside those.
    pub pending: usize,
    /// The candidates of all scans, and the rows that LAST JOINs may need; those that several joiners have count for each.
    pub candidates: usize,
    /// The keys of all scans and LAST JOINs, likewise.
    pub keys: usize,
    /// About how many bytes it has.
    pub bytes: usize,
}

/// How the rows are divided among joiners.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TeamCounts {
    /// How many joiners there are.
    pub joiners: usize,
    /// How many partitions of the keys have more than one.
    pub shared_partitions: usize,
    /// How uneven the loads of several joiners are: their standard deviation, as a part of their mean.
    pub imbalance: Option<f64>,
}

impl<O: JoinerOutput> WindowJoin<O> {
    /// Makes a join whose windows were found to be final at some time ([`WindowJoinSpec::check`]), with as many joiners as
    /// there are parts. Fails where a thread for one cannot be started.
    pub fn new(
        spec: WindowJoinSpec,
        parts: Vec<JoinerParts<O>>,
        (lateness, now_ms): (Lateness, i64),
        threads: Threads,
    ) -> io::Result<Self> {
        let spec = Arc::new(spec);
        let mut joiners = joiners(&spec, parts, lateness.lateness_ms);
        let joiners = match joiners.len() {
            1 => Joiners::One(Box::new(joiners.remove(0)), VecDeque::new()),
            count => {
                let schedule = Schedule::new(&spec, count);
                Joiners::Several(Box::new(JoinerCrew::start(schedule, joiners, threads)?))
            }
        };
        Ok(Self::of(spec, joiners, (lateness, now_ms)))
    }

    /// Makes a join whose joiners would have threads and cores of their own, which is simulated
    /// ([`Self::simulated_times`]).
    #[doc(hidden)]
    pub fn simulated(
        spec: WindowJoinSpec,
        parts: Vec<JoinerParts<O>>,
        times: (Lateness, i64),
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::with_crew(spec, parts, times, |joiners, schedule| {
            let count = joiners.len();
            JoinerCrew::new(schedule, count, Box::new(SimulatedCrew::new(joiners, clock)))
        })
    }

    /// Makes a join of some joiners that are run as the crew does it.
    pub(crate) fn with_crew(
        spec: WindowJoinSpec,
        parts: Vec<JoinerParts<O>>,
        (lateness, now_ms): (Lateness, i64),
        crew: impl FnOnce(Vec<Joiner<O>>, Schedule) -> JoinerCrew<O>,
    ) -> Self {
        let spec = Arc::new(spec);
        let joiners = joiners(&spec, parts, lateness.lateness_ms);
        let schedule = Schedule::new(&spec, joiners.len());
        let crew = Joiners::Several(Box::new(crew(joiners, schedule)));
        Self::of(spec, crew, (lateness, now_ms))
    }

    fn of(
        spec: Arc<WindowJoinSpec>,
        joiners: Joiners<O>,
        (lateness, now_ms): (Lateness, i64),
    ) -> Self {
        debug_assert_eq!(spec.check(), Ok(()), "each window is final at some time");
        let watermark = Watermark::new(spec.sources.len(), lateness, now_ms);
        let rounds = VecDeque::new();
        Self { spec, watermark, joiners, rounds, taken: 0, late: 0, ignored: 0, joined: 0 }
    }

    /// Takes a row. A main row without an event time is joined at once, since its windows have no other row.
    pub fn push(&mut self, row: StreamRow<'_>, now_ms: i64) -> Pushed {
        let StreamRow { source, arrival, columns } = row;
        let pushed = match columns[self.spec.sources[source].order].as_i64() {
            None if source == 0 => {
                self.joiners.join_unordered(arrival, columns);
                Pushed::Taken
            }
            None => Pushed::Ignored,
            Some(time) => match self.watermark.see(source, time, now_ms) {
                Timeliness::Late if !bug::is_seeded(StreamBug::LateRowCounts) => Pushed::Late,
                Timeliness::LateAfterIdle => Pushed::LateAfterIdle,
                Timeliness::InTime | Timeliness::Late => {
                    self.buffer(time, row);
                    Pushed::Taken
                }
            },
        };
        *match pushed {
            Pushed::Taken => &mut self.taken,
            Pushed::Late | Pushed::LateAfterIdle => &mut self.late,
            Pushed::Ignored => &mut self.ignored,
        } += 1;
        pushed
    }

    /// Takes note of a row of a source that a condition has left out: it counts for the watermark alone.
    pub fn pass(&mut self, source: usize, time: i64, now_ms: i64) -> Pushed {
        match self.watermark.see(source, time, now_ms) {
            Timeliness::InTime => Pushed::Ignored,
            Timeliness::Late => Pushed::Late,
            Timeliness::LateAfterIdle => Pushed::LateAfterIdle,
        }
    }

    fn buffer(&mut self, time: i64, row: StreamRow<'_>) {
        let StreamRow { source, arrival, columns } = row;
        if bug::is_seeded(StreamBug::RowDropped) && arrival % 16 == 7 {
            return;
        }
        let number = |of: usize| u16::try_from(of).expect("a query has fewer than 2^16 sources");
        // Of the rows of one time main rows are the last, and UNION sources come as most windows sort them.
        let rank = match bug::is_seeded(StreamBug::TiesByArrival) {
            true => 0,
            false => number(self.spec.sources.len() - source),
        };
        let source = number(source);
        let row =
            UnsettledRow { time, rank, arrival, source, partition: 0, is_computed: true, start: 0 };
        match &mut self.joiners {
            Joiners::One(joiner, _) => joiner.push(row, columns.iter().map(Datum::to_value)),
            Joiners::Several(crew) => crew.push(row, columns),
        }
    }

    /// Moves the watermark on as far as the sources allow. To be called after some rows were pushed, and now and then when
    /// none come.
    pub fn advance(&mut self, now_ms: i64) {
        let passed = self.watermark.advance(now_ms);
        match &mut self.joiners {
            Joiners::One(joiner, _) => joiner.advance(passed),
            Joiners::Several(crew) => crew.advance(passed, self.watermark.newest()),
        }
    }

    /// Ends a round: all main rows whose windows are final belong to it, or to those before.
    pub fn end_round(&mut self) {
        let passed = self.watermark.reached();
        self.rounds.push_back(passed.time());
        match &mut self.joiners {
            Joiners::One(joiner, ended) => ended.push_back(joiner.end_round(|_| true)),
            Joiners::Several(crew) => crew.end_round(passed),
        }
    }

    /// Returns how many rounds have ended and were not taken.
    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// Waits for what was joined in the oldest round that has ended; `None` if there is none. Fails where a row of the
    /// windows cannot be computed; then the join is of no use any more.
    pub fn take_round(&mut self) -> Result<Option<JoinedRound<O::Rows>>> {
        let Some(watermark) = self.rounds.pop_front() else { return Ok(None) };
        let results = match &mut self.joiners {
            Joiners::One(_, ended) => ended.pop_front().into_iter().collect(),
            Joiners::Several(crew) => crew.receive(),
        };
        let results: Vec<RoundResult<O::Rows>> = results.into_iter().collect::<Result<_>>()?;
        debug_assert!(!results.is_empty(), "a joiner ends each round");
        self.joined = results.iter().map(|result| result.joined).sum();
        let lookups = self.spec.lookups.iter().chain(&self.spec.output_lookups);
        let mut held = vec![None; self.spec.sources.len()];
        for (at, lookup) in lookups.enumerate() {
            let of_joiners = results.iter().map(|result| result.held[at]);
            held[lookup.source] = Some(of_joiners.fold(0_u64, u64::wrapping_add));
        }
        let mut waiting: Vec<u64> =
            results.iter().flat_map(|result| result.waiting.iter().copied()).collect();
        waiting.sort_unstable();
        let progress = JoinProgress { watermark, waiting };
        let rows = results.into_iter().map(|result| result.rows).collect();
        Ok(Some(JoinedRound { rows, progress, held }))
    }

    /// Returns the time before which rows of a source count for no main row that is still to be given; `None` as long as
    /// all count.
    pub fn needed_from(&self, source: usize) -> Option<i64> {
        if self.spec.is_of_lookup(source) {
            return None;
        }
        self.spec.needed_from(self.watermark())
    }

    /// Returns whether a source has the rows of a LAST JOIN.
    pub fn is_of_lookup(&self, source: usize) -> bool {
        self.spec.is_of_lookup(source)
    }

    /// Begins to take rows again that another join has had, which was so far; to be called before any row is pushed.
    ///
    /// `newest` has for each source the newest event time of the rows before those that are pushed again, and main rows
    /// with an arrival from `reached` on were not pushed. What was [`Pushed::LateAfterIdle`] is not pushed again.
    pub fn begin_replay(&mut self, newest: &[Option<i64>], reached: u64, progress: &JoinProgress) {
        assert_eq!((self.taken, self.late, self.ignored), (0, 0, 0), "it is new");
        let JoinProgress { watermark, waiting } = progress;
        let passed = PassedTimes::Before(watermark.unwrap_or(i64::MIN));
        self.watermark.begin_replay(newest, passed);
        let given = GivenMainRows {
            passed,
            ahead_ms: self.spec.ahead_ms(),
            waiting: waiting.iter().copied().collect(),
            before_arrival: reached,
        };
        match &mut self.joiners {
            Joiners::One(joiner, _) => joiner.begin_replay(given),
            Joiners::Several(crew) => crew.begin_replay(&given),
        }
    }

    /// Takes note that all rows were pushed again which the other join has had.
    pub fn end_replay(&mut self, now_ms: i64) {
        self.watermark.end_replay(now_ms);
    }

    /// Takes note that no row will come from a source.
    pub fn end(&mut self, source: usize) {
        self.watermark.end(source);
    }

    /// Returns whether windows are computed on the thread that passes the rows.
    pub fn has_one_joiner(&self) -> bool {
        matches!(self.joiners, Joiners::One(..))
    }

    /// Returns the newest event time of all sources.
    pub fn newest(&self) -> Option<i64> {
        self.watermark.newest()
    }

    /// Returns how far the sources are.
    pub fn sources(&self) -> &[SourceProgress] {
        self.watermark.sources()
    }

    /// Returns the time before which all rows have come; `None` as long as it is not known, and when all sources have
    /// ended.
    pub fn watermark(&self) -> Option<i64> {
        self.watermark.reached().time()
    }

    /// Returns what it has done, and has. *Cost*: a visit to each key, and a wait for all that was sent to joiners.
    pub fn counts(&mut self) -> JoinCounts {
        let sizes = match &mut self.joiners {
            Joiners::One(joiner, _) => vec![joiner.size()],
            Joiners::Several(crew) => crew.sizes(),
        };
        let sum = |of: fn(&JoinerSize) -> usize| sizes.iter().map(of).sum::<usize>();
        JoinCounts {
            taken: self.taken,
            late: self.late,
            ignored: self.ignored,
            joined: self.joined,
            unsettled: sum(|size| size.unsettled),
            pending: sum(|size| size.pending),
            candidates: sum(|size| size.candidates),
            keys: sum(|size| size.keys),
            bytes: sum(|size| size.bytes),
        }
    }

    /// Returns how long the threads were busy that are simulated.
    #[doc(hidden)]
    pub fn simulated_times(&self) -> Option<SimulatedTimes> {
        match &self.joiners {
            Joiners::One(..) => None,
            Joiners::Several(crew) => crew.simulated(),
        }
    }

    /// Returns how the rows are divided among joiners.
    pub fn teams(&self) -> TeamCounts {
        match &self.joiners {
            Joiners::One(..) => TeamCounts { joiners: 1, ..TeamCounts::default() },
            Joiners::Several(crew) => crew.teams(),
        }
    }
}

impl<O: JoinerOutput> Joiners<O> {
    fn join_unordered(&mut self, arrival: u64, columns: &[Datum<'_>]) {
        match self {
            Self::One(joiner, _) => {
                joiner.join_unordered(arrival, columns.iter().map(Datum::to_value).collect());
            }
            Self::Several(crew) => crew.join_unordered(arrival, columns),
        }
    }
}

/// Makes joiners.
fn joiners<O: JoinerOutput>(
    spec: &Arc<WindowJoinSpec>,
    parts: Vec<JoinerParts<O>>,
    lateness_ms: i64,
) -> Vec<Joiner<O>> {
    assert!((1..=JOINERS_MAX).contains(&parts.len()), "a join has from 1 to 64 joiners");
    let numbers = 0..u8::try_from(parts.len()).expect("there are at most 64");
    numbers.zip(parts).map(|parts| Joiner::new(spec, parts, lateness_ms)).collect()
}
