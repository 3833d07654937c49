//! EXPLAIN STREAM: the sources of a continuous query, its LAST JOINs and windows, and how each call is computed.

use datafusion::logical_expr::LogicalPlan;
use lockstep_diagnostic::Result;
use lockstep_function::aggregate::state::StateClass;
use lockstep_plan::{BoundQuery, Frame, FrameAhead, Window, lineage::leftmost_table};

use super::{
    last_join::{JoinChain, topmost_join},
    one_level::at_one_level,
    plan::{ContinuousPlan, parts_of, planning},
};

/// Describes a query whose rows are given when they are final.
pub(crate) fn explain(query: &BoundQuery) -> Result<Vec<String>> {
    let plan = at_one_level(&query.plan).map_err(planning)?;
    let node = parts_of(&plan)?;
    let mut lines = Vec::new();
    let inputs = std::iter::once(node.input).chain(node.unions);
    for (at, input) in inputs.enumerate() {
        let table = name_of_table(input);
        lines.push(match at {
            0 => format!("main rows of {table}"),
            number => format!("union {number}, rows of {table}"),
        });
        let plan = input.display_indent().to_string();
        lines.extend(plan.lines().map(|line| format!("  {line}")));
    }
    let below = topmost_join(node.input).map(JoinChain::of).transpose()?;
    let chains = below.iter().chain(std::iter::once(&node.output_joins));
    for (at, (right, end)) in chains.flat_map(JoinChain::described).enumerate() {
        let number = at + 1;
        lines.push(format!("last join {number}, rows of {}", name_of_table(right)));
        lines.push(format!("  the newest row of each key {end} the main row"));
        lines.push("  final when the watermark has passed the row".to_owned());
    }
    for group in node.groups {
        let mut line = format!("window {}", group.window);
        if !group.unions.is_empty() {
            let unions: Vec<String> =
                group.unions.iter().map(|union| (union + 1).to_string()).collect();
            line.push_str(&format!(" union {}", unions.join(", ")));
        }
        lines.push(line);
        lines.push(format!("  final {}", finality(&group.window)));
        for call in &group.calls {
            lines.push(format!("  {call}: {}", computation(&group.window, call.bound.class())));
        }
    }
    lines.extend(division(&ContinuousPlan::new(query)?));
    Ok(lines)
}

/// Says how several joiners divide the rows.
fn division(plan: &ContinuousPlan) -> Vec<String> {
    let Some(columns) = plan.join.divided_by() else {
        return vec![
            "joiners: each has all rows and computes a part of the main rows".to_owned(),
            "  no column of the main rows is in each PARTITION BY and each LAST JOIN".to_owned(),
        ];
    };
    let schema = plan.sources[0].plan.schema();
    let names: Vec<&str> =
        columns[0].iter().map(|column| schema.field(*column).name().as_str()).collect();
    let shared = match plan.join.is_shareable() {
        true => "frequent keys are shared by several",
        false => "each key has one, since a frame has no beginning",
    };
    vec![format!("joiners: rows are divided by {}", names.join(", ")), format!("  {shared}")]
}

/// Returns the name of the table whose rows a plan reads.
fn name_of_table(plan: &LogicalPlan) -> String {
    let table = leftmost_table(plan);
    table.map_or_else(String::new, |table| format!("{}.{}", table.database, table.name))
}

/// Says when the results of a window are final.
fn finality(window: &Window) -> String {
    match (window.frame, window.ahead) {
        (_, None) => "when the watermark has passed the row".to_owned(),
        (_, Some(FrameAhead { farthest: None, .. })) => "never".to_owned(),
        (Frame::Rows { .. }, Some(FrameAhead { farthest: Some(rows), .. })) => {
            format!("when the watermark has passed {rows} rows after the row")
        }
        (Frame::Range { .. }, Some(FrameAhead { farthest: Some(ms), .. })) => {
            format!("when the watermark has passed the row by {ms} ms")
        }
    }
}

/// Says how the results of a call are computed from one row of a key to the next.
fn computation(window: &Window, class: StateClass) -> String {
    let has_hole = window.exclude_current_row || window.exclude_current_time;
    let any_order = matches!(class, StateClass::Retractable | StateClass::Mergeable);
    let is_between = window.instance_not_in_window && !any_order;
    match class {
        _ if window.ahead.is_some() && has_hole => {
            "recomputed for each row: its frame leaves rows out in the middle".to_owned()
        }
        _ if window.ahead.is_some() && is_between => {
            "recomputed for each row: the current row is in the middle of its frame".to_owned()
        }
        StateClass::Rows(reason) => format!("slides over the rows of its frame: {reason}"),
        class => format!("slides ({})", class.name()),
    }
}
