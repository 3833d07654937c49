//! The estimate of levels against what they take. In a process of its own: the tests of the crate change
//! the number of rows of a leaf.

use std::sync::Arc;

use lockstep_series::{
    ChunkRun, HashedKey, KeyRow, LevelKeys, LevelNode, LevelRows, Levels, NodeDictionary, NodeFold,
    RowBatch, RowLog, Series,
    estimate::{LevelsShape, levels_bytes},
    pin,
};

/// Makes states of 40 bytes.
struct FixedFold;

impl NodeFold for FixedFold {
    fn begin_key(&mut self, _: Option<&Arc<dyn NodeDictionary>>) {}

    fn has_grown(&mut self) -> bool {
        false
    }

    fn end_key(&mut self) -> Option<Arc<dyn NodeDictionary>> {
        None
    }

    fn fold(&mut self, _: &[ChunkRun<'_>], states: &mut Vec<u8>) {
        states.resize(states.len() + 40, 1);
    }

    fn merge(&mut self, _: &mut dyn Iterator<Item = &LevelNode>, states: &mut Vec<u8>) {
        states.resize(states.len() + 40, 1);
    }
}

/// Inserts rows in order, of one key after the other.
fn fill(series: &Series, log: &RowLog, rows: u64, keys: u64) {
    let mut batch = RowBatch::default();
    for arrival in 0..rows {
        batch.clear();
        let pushed: Result<(), ()> = batch.push(|out| {
            out.extend([7; 20]);
            Ok(())
        });
        pushed.expect("a row fits");
        let time = i64::try_from(arrival).expect("there are few rows");
        let (position, _) = log.append(&batch, arrival, time);
        let guard = pin();
        let row = log.rows_from(position, &guard).next_row().expect("it was appended");
        let key = (arrival % keys).to_le_bytes();
        let hashed = HashedKey { hash: series.hash(&key), key: &key };
        // SAFETY: the log is dropped after the series.
        unsafe { series.insert(hashed, KeyRow { event_time: time, row }, &guard) };
    }
}

#[test]
fn an_estimate_of_levels_is_within_a_tenth_of_what_they_take() {
    for (rows, keys) in [(1, 1), (128, 1), (1_000, 10), (20_000, 7), (60_001, 300), (70_000, 1)] {
        let (log, series) = (RowLog::new(), Series::new());
        fill(&series, &log, rows, keys);
        let levels = Arc::new(Levels::new(1, LevelKeys::All, LevelRows::Series, Box::new(|| ())));
        series.add_levels(Arc::clone(&levels));
        while series.maintain(&levels, &mut FixedFold).is_some() {}
        let taken = levels.size().bytes;
        let shape = LevelsShape { key_size: 8, rows_min: 0, state_bytes: &mut |_: u64| 40_u64 };
        let estimated = levels_bytes(rows, keys, shape);
        assert!(
            estimated.abs_diff(taken) * 10 <= taken,
            "{rows} rows of {keys} keys: {estimated}, {taken} taken"
        );
        drop(series);
    }
}
