//! The query of M1 in Lockstep's SQL: scalars over the request, the windows, scalars over the
//! joins.
//!
//! The aggregates are the report's: a distinct count, a sum, a count, a mean, and two counts behind
//! a test of the newest value. The mean is over doubles, so that exact summation (L2) is in it.

use super::{Data, M1Shape, data};
use crate::statement::PeerType;

/// Aggregates of each window.
pub(crate) const AGGREGATES: usize = 6;
/// Scalars over the request.
pub(crate) const OWN_SCALARS: usize = 7;

/// Returns how many scalar expressions a shape has.
pub(crate) fn scalar_count(shape: M1Shape) -> usize {
    OWN_SCALARS + (0..shape.joins).map(|join| if join == 0 { 4 } else { 3 }).sum::<usize>()
}

/// Returns how many outputs a shape has.
pub(crate) fn output_count(shape: M1Shape) -> usize {
    shape.windows * AGGREGATES + scalar_count(shape)
}

/// Returns the statements that create the tables and their indexes.
pub(crate) fn schema(data: Data) -> String {
    let type_name = |kind: PeerType| match kind {
        PeerType::Text(_) => "STRING",
        PeerType::Int => "BIGINT",
        PeerType::Double => "DOUBLE",
        PeerType::Time => "TIMESTAMP",
    };
    let columns: Vec<String> =
        data::columns().map(|(name, kind)| format!("{name} {}", type_name(kind))).collect();
    let create = |table: data::TableName| {
        let index = |column: usize| {
            format!("INDEX(KEY=col_s{column}, TS=col_t0, TTL=0m, TTL_TYPE=absolute)")
        };
        let indexes: Vec<String> = data.index_columns(table).map(index).collect();
        format!("CREATE TABLE {} ({}, {});", table.name(), columns.join(", "), indexes.join(", "))
    };
    let tables: Vec<String> = data.tables().map(create).collect();
    tables.join("\n")
}

/// Returns the query.
pub(crate) fn query(shape: M1Shape) -> String {
    let mut outputs: Vec<String> = [
        "mt.col_s0",
        "concat(mt.col_s1, string(mt.col_d0))",
        "upper(mt.col_s2)",
        "substr(mt.col_s3, 3)",
        "year(mt.col_t0)",
        "string(mt.col_i2)",
        "mt.col_i1 + mt.col_i3",
    ]
    .map(str::to_owned)
    .into();
    for window in 0..shape.windows {
        let over = format!("OVER w{window}");
        outputs.extend([
            format!("distinct_count(mt.col_s13) {over}"),
            format!("sum(mt.col_i1) {over}"),
            format!("count(mt.col_s11) {over}"),
            format!("avg(mt.col_d4) {over}"),
            newest_then_count("col_s12", &over),
            newest_then_count("col_i3", &over),
        ]);
    }
    for join in 0..shape.joins {
        outputs.extend(join_scalars(join));
    }
    let outputs: Vec<String> =
        outputs.iter().enumerate().map(|(n, output)| format!("{output} AS f{n}")).collect();
    let joins: String = (0..shape.joins)
        .map(|n| format!("\nLAST JOIN lt{n} ORDER BY lt{n}.col_t0 ON mt.col_s0 = lt{n}.col_s0"))
        .collect();
    let windows: Vec<String> = (0..shape.windows).map(|window| frame(window, shape)).collect();
    format!(
        "SELECT\n  {}\nFROM mt{joins}\nWINDOW\n  {}",
        outputs.join(",\n  "),
        windows.join(",\n  ")
    )
}

fn newest_then_count(column: &str, over: &str) -> String {
    format!(
        "CASE WHEN NOT isnull(at(mt.{column}, 0) {over}) THEN count(mt.{column}) {over} ELSE NULL END"
    )
}

fn join_scalars(join: usize) -> Vec<String> {
    if join == 0 {
        return vec![
            "lt0.col_s3".to_owned(),
            "concat(lt0.col_s1, mt.col_s2)".to_owned(),
            "year(lt0.col_t1)".to_owned(),
            "lt0.col_i1 + mt.col_i1".to_owned(),
        ];
    }
    vec![
        format!("upper(lt{join}.col_s2)"),
        format!("lt{join}.col_d0 * 2.0"),
        format!("string(lt{join}.col_i2)"),
    ]
}

fn frame(window: usize, shape: M1Shape) -> String {
    format!(
        "w{window} AS (PARTITION BY mt.col_s{window} ORDER BY mt.col_t0 ROWS_RANGE BETWEEN 30d \
         PRECEDING AND CURRENT ROW MAXSIZE {})",
        shape.window_rows
    )
}
