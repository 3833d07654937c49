//! The constructs of scenarios, by the names of the dialect, and how often each was drawn.
//!
//! The names are derived from the scenario, not recorded by the strategies. A test checks that none
//! is left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use lockstep_row::{DataType, Value};

use super::{EVENT_TIME, Indexes, KEY, Scenario, script};
use crate::oracle::{
    FrameEnd, Item, OracleJoin, OracleMode, OracleRow, OracleTable, OracleWindow, integer,
};

/// A key has rows in more than one chunk.
const LONG_KEYS: &str = "a key of several chunks";

/// The clause and the construct.
pub const CONSTRUCTS: &[(&str, &str)] = &[
    ("mode", "the default mode"),
    ("mode", "the compatibility mode"),
    ("tables", "chunks of 2 rows"),
    ("tables", "chunks of 5 rows"),
    ("tables", "chunks of 128 rows"),
    ("tables", LONG_KEYS),
    ("tables", "no declared index"),
    ("tables", "one index"),
    ("tables", "several indexes"),
    ("tables", "late rows"),
    ("tables", "rows of equal event time"),
    ("tables", "NULL as a key"),
    ("tables", "NULL as an event time"),
    ("key", "BOOL"),
    ("key", "SMALLINT"),
    ("key", "INT"),
    ("key", "BIGINT"),
    ("key", "STRING"),
    ("key", "DATE"),
    ("key", "TIMESTAMP"),
    ("order", "INT"),
    ("order", "BIGINT"),
    ("order", "TIMESTAMP"),
    ("argument", "BOOL"),
    ("argument", "SMALLINT"),
    ("argument", "INT"),
    ("argument", "BIGINT"),
    ("argument", "FLOAT"),
    ("argument", "DOUBLE"),
    ("argument", "STRING"),
    ("argument", "DATE"),
    ("argument", "TIMESTAMP"),
    ("request", "a query without DEPLOY"),
    ("request", "DEPLOY"),
    ("WINDOW", "several windows"),
    ("WINDOW", "window over a LAST JOIN"),
    ("WINDOW", "PARTITION BY two columns"),
    ("WINDOW", "window without PARTITION BY"),
    ("WINDOW", "window without ORDER BY"),
    ("WINDOW", "ROWS"),
    ("WINDOW", "ROWS_RANGE"),
    ("WINDOW", "frame without an end"),
    ("WINDOW", "frame that begins beyond all rows"),
    ("WINDOW", "frame that ends before the current row"),
    ("WINDOW", "OPEN PRECEDING"),
    ("WINDOW", "MAXSIZE"),
    ("WINDOW", "EXCLUDE CURRENT_ROW"),
    ("WINDOW", "EXCLUDE CURRENT_TIME"),
    ("WINDOW", "INSTANCE_NOT_IN_WINDOW"),
    ("WINDOW", "UNION of one"),
    ("WINDOW", "UNION of two"),
    ("JOIN", "LAST JOIN"),
    ("JOIN", "LAST JOIN of two"),
    ("JOIN", "LAST JOIN without ORDER BY"),
    ("JOIN", "LAST JOIN up to a time"),
    ("JOIN", "LAST JOIN with another condition"),
    ("JOIN", "LAST JOIN on two columns"),
    ("function", "count"),
    ("function", "sum"),
    ("function", "avg"),
    ("function", "min"),
    ("function", "max"),
    ("function", "count_where"),
    ("function", "sum_where"),
    ("function", "avg_where"),
    ("function", "min_where"),
    ("function", "max_where"),
    ("function", "distinct_count"),
    ("function", "first_value"),
    ("function", "last_value"),
    ("function", "lag"),
    ("function", "top"),
    ("function", "topn_frequency"),
    ("function", "median"),
    ("function", "stddev"),
    ("function", "var_pop"),
    ("function", "ew_avg"),
    ("function", "drawdown"),
    ("function", "entropy"),
];

/// The number of scenarios with each construct.
#[derive(Debug, Default)]
pub struct ScenarioCounts(BTreeMap<(&'static str, &'static str), ScenarioCount>);

#[derive(Debug, Default, Clone, Copy)]
struct ScenarioCount {
    compared: u64,
    /// Of these, by a deployment over a key of several chunks.
    deployed_over_long_keys: u64,
    compatible: u64,
}

impl ScenarioCounts {
    /// Counts one scenario.
    pub fn add(&mut self, scenario: &Scenario) {
        let all = of(scenario);
        let is_long = scenario.is_deployed && all.contains(&("tables", LONG_KEYS));
        for construct in all {
            let count = self.0.entry(construct).or_default();
            count.compared += 1;
            count.deployed_over_long_keys += u64::from(is_long);
            count.compatible += u64::from(scenario.query.mode == OracleMode::OpenMldb);
        }
    }

    /// Lists the constructs that no scenario had.
    pub fn missing(&self) -> Vec<&'static str> {
        let missing = CONSTRUCTS.iter().filter(|construct| !self.0.contains_key(construct));
        missing.map(|(_, construct)| *construct).collect()
    }
}

impl fmt::Display for ScenarioCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, long, compatible) = ("compared", "deployed, long keys", "compatible");
        write!(f, "{:9} {:45} {all:>9} {long:>20} {compatible:>11}", "", "construct")?;
        for construct in CONSTRUCTS {
            let count = self.0.get(construct).copied().unwrap_or_default();
            let ScenarioCount { compared, deployed_over_long_keys, compatible } = count;
            let (section, construct) = construct;
            write!(
                f,
                "\n{section:9} {construct:45} {compared:9} {deployed_over_long_keys:20} \
                 {compatible:11}"
            )?;
        }
        Ok(())
    }
}

/// Returns the constructs of a scenario. Panics for one that is not in [`CONSTRUCTS`].
fn of(scenario: &Scenario) -> BTreeSet<(&'static str, &'static str)> {
    let mut found = BTreeSet::new();
    let mut note = |section: &str, name: &str, is_so: bool| {
        if is_so {
            let listed = CONSTRUCTS.iter().find(|(of, known)| *of == section && *known == name);
            found.insert(*listed.unwrap_or_else(|| panic!("{section} {name} is listed")));
        }
    };
    let is_compatible = scenario.query.mode == OracleMode::OpenMldb;
    note("mode", "the default mode", !is_compatible);
    note("mode", "the compatibility mode", is_compatible);
    note("tables", &format!("chunks of {} rows", scenario.chunk_rows), true);
    note("tables", "no declared index", scenario.indexes == Indexes::None);
    note("tables", "one index", scenario.indexes == Indexes::One);
    note("tables", "several indexes", scenario.indexes == Indexes::Several);
    note("request", "a query without DEPLOY", !scenario.is_deployed);
    note("request", "DEPLOY", scenario.is_deployed);
    note("key", &type_name(&scenario.columns()[KEY].1), true);
    note("order", &type_name(&scenario.columns()[EVENT_TIME].1), scenario.is_ordered());
    for table in &scenario.tables {
        note_table(scenario, table, &mut note);
    }
    note("WINDOW", "several windows", scenario.query.windows.len() > 1);
    note("WINDOW", "window over a LAST JOIN", !scenario.query.joins.is_empty());
    scenario.query.windows.iter().for_each(|window| note_window(window, &mut note));
    note("JOIN", "LAST JOIN", !scenario.query.joins.is_empty());
    note("JOIN", "LAST JOIN of two", scenario.query.joins.len() > 1);
    scenario.query.joins.iter().for_each(|join| note_join(join, &mut note));
    for item in &scenario.query.items {
        let Item::Call { function, .. } = item else { continue };
        let call = script::call(scenario, function);
        let name = call.split('(').next().unwrap_or_default();
        note("function", name, true);
        if let Some(column) = function.column() {
            let columns = scenario.columns();
            note("argument", &type_name(&columns[column % columns.len()].1), true);
        }
    }
    found
}

fn note_table(scenario: &Scenario, table: &OracleTable, note: &mut impl FnMut(&str, &str, bool)) {
    let time = |row: &OracleRow| integer(&row[EVENT_TIME]);
    let times: Vec<Option<i128>> = table.rows.iter().map(time).collect();
    let distinct: BTreeSet<_> = times.iter().flatten().collect();
    note("tables", "late rows", !times.is_sorted());
    note("tables", "rows of equal event time", distinct.len() < times.iter().flatten().count());
    note("tables", "NULL as an event time", times.contains(&None));
    note("tables", "NULL as a key", table.rows.iter().any(|row| row[KEY] == Value::Null));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for row in &table.rows {
        *counts.entry(format!("{:?}", row[KEY])).or_default() += 1;
    }
    let is_long = |count: &usize| *count > scenario.chunk_rows;
    note("tables", LONG_KEYS, counts.values().any(is_long));
}

fn note_window(window: &OracleWindow, note: &mut impl FnMut(&str, &str, bool)) {
    let OracleWindow { start, end, excludes, .. } = window;
    let is_open = |end: &FrameEnd| matches!(end, FrameEnd::OpenPreceding(_));
    let far = if window.is_range { 1 << 40 } else { 1_000 };
    note("WINDOW", "PARTITION BY two columns", window.partition_by.len() > 1);
    note("WINDOW", "window without PARTITION BY", window.partition_by.is_empty());
    note("WINDOW", "window without ORDER BY", window.order_by.is_none());
    note("WINDOW", "ROWS", !window.is_range);
    note("WINDOW", "ROWS_RANGE", window.is_range);
    note("WINDOW", "frame without an end", *start == FrameEnd::Unbounded);
    let is_far = matches!(start, FrameEnd::Preceding(n) | FrameEnd::OpenPreceding(n) if *n >= far);
    note("WINDOW", "frame that begins beyond all rows", is_far);
    note("WINDOW", "frame that ends before the current row", *end != FrameEnd::CurrentRow);
    note("WINDOW", "OPEN PRECEDING", is_open(start) || is_open(end));
    note("WINDOW", "MAXSIZE", window.max_size.is_some());
    note("WINDOW", "EXCLUDE CURRENT_ROW", excludes.current_row);
    note("WINDOW", "EXCLUDE CURRENT_TIME", excludes.current_time);
    note("WINDOW", "INSTANCE_NOT_IN_WINDOW", excludes.main_rows);
    note("WINDOW", "UNION of one", window.unions.len() == 1);
    note("WINDOW", "UNION of two", window.unions.len() == 2);
}

fn note_join(join: &OracleJoin, note: &mut impl FnMut(&str, &str, bool)) {
    note("JOIN", "LAST JOIN without ORDER BY", join.order_by.is_none());
    note("JOIN", "LAST JOIN up to a time", join.bound.is_some());
    note("JOIN", "LAST JOIN with another condition", join.less.is_some());
    note("JOIN", "LAST JOIN on two columns", join.keys.len() > 1);
}

fn type_name(data_type: &DataType) -> String {
    data_type.to_string()
}
