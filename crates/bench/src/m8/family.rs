//! The aggregates of M8, in families that are deployed and measured one by one.
//!
//! Each knows its SQL for Lockstep and for the peers; the baseline binds the same functions.

use lockstep_function::{BoundAggregate, CallArguments, Settings, aggregate};
use lockstep_row::{DataType, Value};

use super::data::ITEM_MIN;

/// How many values `topn_frequency` lists.
const TOP: i32 = 3;

/// Aggregates that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// `sum`, `avg` and `count`.
    Totals,
    /// `min` and `max`.
    Extremes,
    /// `distinct_count`.
    DistinctCount,
    /// `topn_frequency`.
    TopFrequency,
    /// `sum_cate_where`.
    CategorySums,
}

impl Family {
    /// All of them.
    pub(super) const ALL: [Self; 5] =
        [Self::Totals, Self::Extremes, Self::DistinctCount, Self::TopFrequency, Self::CategorySums];

    /// Returns its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Totals => "sum_avg_count",
            Self::Extremes => "min_max",
            Self::DistinctCount => "distinct_count",
            Self::TopFrequency => "topn_frequency",
            Self::CategorySums => "sum_cate_where",
        }
    }

    /// Returns Lockstep's calls.
    pub(super) fn calls(self) -> Vec<String> {
        match self {
            Self::Totals => ["sum", "avg", "count"].map(|name| format!("{name}(amount)")).into(),
            Self::Extremes => ["min", "max"].map(|name| format!("{name}(amount)")).into(),
            Self::DistinctCount => vec!["distinct_count(item)".to_owned()],
            Self::TopFrequency => vec![format!("topn_frequency(category, {TOP})")],
            Self::CategorySums => {
                vec![format!("sum_cate_where(units, item > {ITEM_MIN}, category)")]
            }
        }
    }

    /// Returns the same for a table `events` of a peer, as a SELECT without partial results.
    pub(super) fn peer_select(self) -> String {
        let rows = "FROM events WHERE k = {k} AND ts >= {since} AND ts <= {now}";
        match self {
            Self::Totals => format!("SELECT sum(amount), avg(amount), count(amount) {rows}"),
            Self::Extremes => format!("SELECT min(amount), max(amount) {rows}"),
            Self::DistinctCount => format!("SELECT count(DISTINCT item) {rows}"),
            Self::TopFrequency => format!(
                "SELECT string_agg(category, ',' ORDER BY n DESC, category) FROM (SELECT \
                 category, count(*) AS n {rows} GROUP BY category ORDER BY n DESC, category \
                 LIMIT {TOP}) t"
            ),
            Self::CategorySums => format!(
                "SELECT string_agg(category || ':' || CAST(CAST(s AS BIGINT) AS VARCHAR), ',' \
                 ORDER BY category) FROM (SELECT category, sum(units) AS s {rows} AND item > \
                 {ITEM_MIN} GROUP BY category) t"
            ),
        }
    }

    /// Returns the bound functions, as [`Family::calls`] calls them.
    pub(super) fn aggregates(self) -> Vec<BoundAggregate> {
        let bind = |name: &str, types: &[DataType], constants: &[Option<Value>]| {
            let function = aggregate::find(name).expect("the function exists");
            let settings = Settings::default();
            let arguments = CallArguments { types, constants, settings: &settings };
            (function.bind)(&arguments).expect("the function takes these types")
        };
        let of_one = |names: &[&str], data_type: DataType| {
            let types = [data_type];
            names.iter().map(|name| bind(name, &types, &[None])).collect()
        };
        match self {
            Self::Totals => of_one(&["sum", "avg", "count"], DataType::Double),
            Self::Extremes => of_one(&["min", "max"], DataType::Double),
            Self::DistinctCount => of_one(&["distinct_count"], DataType::BigInt),
            Self::TopFrequency => {
                let types = [DataType::String, DataType::Int];
                vec![bind("topn_frequency", &types, &[None, Some(Value::Int(TOP))])]
            }
            Self::CategorySums => {
                let types = [DataType::BigInt, DataType::Bool, DataType::String];
                vec![bind("sum_cate_where", &types, &[None, None, None])]
            }
        }
    }
}
