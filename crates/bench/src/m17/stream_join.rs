//! Lockstep's join of two streams: the windows of a stream, without tables.

use std::sync::Arc;

use lockstep_function::{BoundAggregate, CallArguments, Settings, aggregate};
use lockstep_host::{Clock, Threads};
use lockstep_plan::{Frame, Window};
use lockstep_row::{DataType, Datum, Value};
use lockstep_stream::{
    CallSpec, GroupSpec, JoinerOutput, JoinerParts, Lateness, ScanSpec, SimulatedTimes,
    SourceShape, StreamRow, WindowJoin, WindowJoinSpec, WindowedRow,
};

use super::{IntervalJoin, IntervalResult, IntervalWorkload, ROWS_PER_ROUND, StreamEvent};

/// Lockstep's join.
pub(super) struct StreamJoin {
    join: WindowJoin<IntervalResults>,
    /// The rows of the round.
    rows: u64,
    /// Whether this thread is the joiner.
    is_one: bool,
}

/// The results of a joiner that were not taken.
#[derive(Debug, Default)]
struct IntervalResults(Vec<IntervalResult>);

impl JoinerOutput for IntervalResults {
    type Rows = Vec<IntervalResult>;

    fn add(&mut self, row: WindowedRow<'_>) {
        self.0.push(result_of(row));
    }

    fn take(&mut self) -> lockstep_diagnostic::Result<Self::Rows> {
        Ok(std::mem::take(&mut self.0))
    }
}

/// The columns of its rows.
const TIME: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;
const NUMBER: usize = 3;

impl StreamJoin {
    pub(super) fn new(workload: &IntervalWorkload, joiners: usize) -> Self {
        let (spec, parts, times) = Self::parts(workload, joiners);
        let join = WindowJoin::new(spec, parts, times, Threads::System);
        let is_one = joiners == 1;
        Self { join: join.expect("threads are started"), rows: 0, is_one }
    }

    /// Makes a join whose joiners have cores of their own.
    pub(super) fn simulated(
        workload: &IntervalWorkload,
        joiners: usize,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (spec, parts, times) = Self::parts(workload, joiners);
        Self { join: WindowJoin::simulated(spec, parts, times, clock), rows: 0, is_one: false }
    }

    fn parts(
        workload: &IntervalWorkload,
        joiners: usize,
    ) -> (WindowJoinSpec, Vec<JoinerParts<IntervalResults>>, (Lateness, i64)) {
        let bind = |name: &str| -> BoundAggregate {
            let function = aggregate::find(name).expect("the function exists");
            let (types, constants) = ([DataType::Double], [None]);
            let settings = Settings::default();
            let arguments =
                CallArguments { types: &types, constants: &constants, settings: &settings };
            (function.bind)(&arguments).expect("it takes a DOUBLE")
        };
        let call = |output: usize, name: &str| {
            let (bound, arguments) = (bind(name), vec![VALUE]);
            CallSpec { bound, arguments, output }
        };
        let window = Window {
            partition_by: Vec::new(),
            order_by: None,
            frame: Frame::Range { from: Some(workload.window), to: 0 },
            ahead: None,
            max_size: None,
            exclude_current_time: false,
            exclude_current_row: true,
            instance_not_in_window: true,
        };
        let groups = vec![GroupSpec { window, calls: vec![call(0, "count"), call(1, "sum")] }];
        let scan = ScanSpec { keys: vec![KEY], unions: vec![1], without_main: true, groups };
        let source = SourceShape { width: 4, order: TIME };
        let spec = WindowJoinSpec {
            sources: vec![source; 2],
            lookups: Vec::new(),
            width: 4,
            main_columns: (0..4).map(Some).collect(),
            output_lookups: Vec::new(),
            scans: vec![scan],
        };
        let lateness = Lateness { lateness_ms: workload.lateness, idle_after_ms: None };
        let parts = || JoinerParts { program: None, output: IntervalResults::default() };
        (spec, (0..joiners).map(|_| parts()).collect(), (lateness, 0))
    }
}

/// Reads a result.
fn result_of(row: WindowedRow<'_>) -> IntervalResult {
    let (Value::BigInt(number), [Value::BigInt(count), sum]) = (&row.columns[NUMBER], row.results)
    else {
        unreachable!("a count and a sum of each row")
    };
    let sum = if let Value::Double(sum) = sum { *sum } else { 0.0 };
    IntervalResult { number: number.unsigned_abs(), count: *count, sum }
}

impl StreamJoin {
    /// Gives the results of the rounds that have ended, but for so many.
    fn take(&mut self, left: usize, emit: &mut dyn FnMut(IntervalResult)) {
        while self.join.rounds() > left {
            let round = self.join.take_round().expect("nothing is computed of a row");
            let rows = round.map(|round| round.rows).unwrap_or_default();
            rows.into_iter().flatten().for_each(&mut *emit);
        }
    }

    pub(super) fn times(&self) -> SimulatedTimes {
        self.join.simulated_times().unwrap_or_default()
    }
}

impl IntervalJoin for StreamJoin {
    fn push(&mut self, event: StreamEvent, _emit: &mut dyn FnMut(IntervalResult)) {
        let StreamEvent { number, is_probe, key, time, value } = event;
        let integer = |value: u64| Datum::BigInt(i64::try_from(value).unwrap_or(i64::MAX));
        let columns = [Datum::BigInt(time), integer(key), Datum::Double(value), integer(number)];
        let row = StreamRow { source: usize::from(is_probe), arrival: number, columns: &columns };
        self.join.push(row, 0);
        self.rows += 1;
    }

    fn advance(&mut self, emit: &mut dyn FnMut(IntervalResult)) {
        self.join.advance(0);
        let is_one = self.is_one;
        if is_one || self.rows >= ROWS_PER_ROUND {
            self.rows = 0;
            self.join.end_round();
            // Several joiners compute one round while the next one is passed.
            self.take(usize::from(!is_one), emit);
        }
    }

    fn flush(&mut self, emit: &mut dyn FnMut(IntervalResult)) {
        self.rows = 0;
        self.join.advance(0);
        self.join.end_round();
        self.take(0, emit);
    }

    fn effectiveness(&self) -> Option<f64> {
        None
    }
}
