//! Windows: binds the WINDOW clause and OVER, and checks their definitions.

use std::collections::HashMap;

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::Compatibility;
use lockstep_row::DataType;
use lockstep_sql::ast::{self, FrameBoundKind, FrameUnit, WindowAttribute};

use crate::{
    Frame, FrameAhead, Window,
    binder::{Binder, BoundRelation},
    expression::TypedExpr,
    last_join::{is_order_type, order_hint},
    scope::NameScope,
};

/// A bound window, before its input plan is known.
#[derive(Debug, Clone)]
pub(crate) struct BoundWindow {
    pub(crate) window: Window,
    /// The UNION sources.
    pub(crate) unions: Vec<UnionSource>,
    /// As written, with what it takes from the window that it extends.
    pub(crate) spec: ast::WindowSpec,
}

/// A UNION source of a window.
#[derive(Debug, Clone)]
pub(crate) struct UnionSource {
    /// Equal for equal sources of one SELECT.
    pub(crate) identity: String,
    pub(crate) relation: BoundRelation,
}

impl Binder<'_> {
    /// Binds a window. Names are looked up in the first scope and then in the second: a key belongs
    /// to the main table even where a joined table has a column of that name. `named` are the
    /// windows that it may extend.
    pub(crate) fn window(
        &self,
        spec: &ast::WindowSpec,
        named: &NamedWindows<'_>,
        scopes: [&NameScope; 2],
    ) -> Result<BoundWindow> {
        let spec = &extended(spec, named)?;
        if spec.partition_by.is_empty() && self.settings.compatibility == Compatibility::OpenMldb {
            return windowing("a window requires PARTITION BY", spec.span);
        }
        let mut partition_by = Vec::new();
        for key in &spec.partition_by {
            let bound = self.window_column(key, scopes)?;
            if bound.data_type.is_float()
                || matches!(bound.data_type, DataType::Map(..) | DataType::Array(_))
            {
                let message = format!("cannot partition a window by type {}", bound.data_type);
                return windowing(&message, key.span);
            }
            partition_by.push(bound.expr);
        }
        let order_by = self.window_order(&spec.order_by, scopes)?;
        let has = |attribute| spec.attributes.contains(&attribute);
        let Reach { frame, ahead } = reach(spec, order_by.is_some(), self.settings.compatibility)?;
        let window = Window {
            partition_by,
            frame,
            ahead,
            order_by,
            max_size: max_size(spec)?,
            exclude_current_time: has(WindowAttribute::ExcludeCurrentTime),
            exclude_current_row: has(WindowAttribute::ExcludeCurrentRow),
            instance_not_in_window: has(WindowAttribute::InstanceNotInWindow),
        };
        if window.exclude_current_time && window.order_by.is_none() {
            return windowing("EXCLUDE CURRENT_TIME requires ORDER BY", spec.span);
        }
        let unions = spec.unions.iter().map(|source| self.union_source(source));
        let unions = unions.collect::<Result<_>>()?;
        Ok(BoundWindow { window, unions, spec: spec.clone() })
    }

    fn window_column(&self, expr: &ast::Expr, [main, all]: [&NameScope; 2]) -> Result<TypedExpr> {
        match self.scalar_binder(main).bind(expr) {
            Ok(bound) => Ok(bound),
            Err(_) => self.scalar_binder(all).bind(expr),
        }
    }

    fn window_order(
        &self,
        order_by: &[ast::OrderBy],
        scopes: [&NameScope; 2],
    ) -> Result<Option<datafusion::logical_expr::Expr>> {
        let Some(item) = order_by.first() else { return Ok(None) };
        if let Some(second) = order_by.get(1) {
            return windowing("a window must have at most one ORDER BY column", second.expr.span);
        }
        if item.descending {
            return windowing("a window must be ordered by ascending event time", item.expr.span);
        }
        if item.moves_nulls() {
            let message = "a window must sort NULL event times last";
            return windowing(message, item.expr.span);
        }
        let bound = self.window_column(&item.expr, scopes)?;
        if !is_order_type(&bound.data_type) {
            let message = format!(
                "ORDER BY of a window must be of type SMALLINT, INT, BIGINT or TIMESTAMP, not {}",
                bound.data_type
            );
            let error = Diagnostic::new(code::WINDOWING_ERROR, message).at(item.expr.span);
            return match order_hint(&bound.data_type) {
                Some(hint) => error.with_hint(hint).err(),
                None => error.err(),
            };
        }
        Ok(Some(bound.expr))
    }

    fn union_source(&self, source: &ast::TableRef) -> Result<UnionSource> {
        let identity = match source {
            ast::TableRef::Table { name, .. } => {
                let database = name.database.as_ref().map_or("", |database| &database.text);
                format!("{database}.{}", name.name.text)
            }
            // Sub-queries are identified by their position in the text.
            ast::TableRef::Subquery { query, .. } => format!("({})", query.span.start),
            ast::TableRef::Files { files, .. } => format!("({})", files.span.start),
            ast::TableRef::Renamed { columns, .. } => format!("({})", columns[0].span.start),
            ast::TableRef::Join(join) => format!("({})", join.span.start),
        };
        Ok(UnionSource { identity, relation: self.size.beside(|| self.relation(source))? })
    }
}

/// The longest chain of windows that extend each other.
const EXTENSIONS_MAX: usize = 64;

/// Resolves the windows that `spec` extends.
fn extended(spec: &ast::WindowSpec, named: &NamedWindows<'_>) -> Result<ast::WindowSpec> {
    let mut chain = vec![spec];
    let mut top = spec;
    while let Some(base) = &top.base {
        top = &named.find(base)?.spec;
        if chain.len() > named.by_name.len() {
            return windowing("window definitions are circular", base.span);
        }
        if chain.len() > EXTENSIONS_MAX {
            let message = "chain of window definitions is too long";
            return Diagnostic::new(code::STATEMENT_TOO_COMPLEX, message)
                .with_detail(format!(
                    "The limit is {EXTENSIONS_MAX} windows that extend each other."
                ))
                .at(base.span)
                .err();
        }
        chain.push(top);
    }
    let extend = |result: ast::WindowSpec, own: &ast::WindowSpec| extend(result, own.clone());
    Ok(chain.into_iter().rev().fold(ast::WindowSpec::default(), extend))
}

/// Returns a window with the clauses of another one added or replaced.
fn extend(mut result: ast::WindowSpec, own: ast::WindowSpec) -> ast::WindowSpec {
    if !own.partition_by.is_empty() {
        result.partition_by = own.partition_by;
    }
    if !own.order_by.is_empty() {
        result.order_by = own.order_by;
    }
    if !own.unions.is_empty() {
        result.unions = own.unions;
    }
    result.frame = own.frame.or(result.frame);
    result.max_size = own.max_size.or(result.max_size);
    result.attributes.extend(own.attributes);
    result.span = own.span;
    result
}

/// The windows of a WINDOW clause by name.
#[derive(Debug)]
pub(crate) struct NamedWindows<'w> {
    by_name: HashMap<&'w str, &'w ast::NamedWindow>,
}

impl<'w> NamedWindows<'w> {
    pub(crate) fn new(windows: &'w [ast::NamedWindow]) -> Self {
        Self { by_name: windows.iter().map(|w| (w.name.text.as_str(), w)).collect() }
    }

    /// Finds a window by its name.
    pub(crate) fn find(&self, name: &ast::Ident) -> Result<&'w ast::NamedWindow> {
        if let Some(window) = self.by_name.get(name.text.as_str()) {
            return Ok(window);
        }
        let mut names: Vec<&str> = self.by_name.keys().copied().collect();
        names.sort_unstable();
        Diagnostic::new(code::UNDEFINED_OBJECT, format!("window `{}` does not exist", name.text))
            .at(name.span)
            .with_nearest(&name.text, names)
            .err()
    }
}

fn max_size(spec: &ast::WindowSpec) -> Result<Option<u64>> {
    let Some(limit) = &spec.max_size else { return Ok(None) };
    if limit.count == 0 {
        return windowing("MAXSIZE must be at least 1", limit.span);
    }
    let is_rows = spec.frame.as_ref().is_some_and(|frame| frame.unit == FrameUnit::Rows);
    if is_rows {
        return windowing("MAXSIZE requires a ROWS_RANGE frame", limit.span);
    }
    Ok(Some(limit.count))
}

/// One end of a frame.
#[derive(Debug, Clone, Copy)]
struct FrameEnd {
    place: EndPlace,
    open: bool,
    span: Span,
}

/// Where a frame ends, in rows or in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndPlace {
    UnboundedPreceding,
    /// A distance back from the current row; negative after it.
    Back(i64),
    UnboundedFollowing,
}

/// The rows that a window covers before and after the current row.
#[derive(Debug, Clone, Copy)]
struct Reach {
    frame: Frame,
    ahead: Option<FrameAhead>,
}

/// What to write for a window without a frame and without an order.
const FRAMELESS: &str = "A feature reads only the rows up to its own. Add ORDER BY the event \
    time, or ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW; to aggregate over all rows, omit \
    OVER.";

/// Returns what a window without a written frame covers.
fn unwritten(span: Span, has_order: bool, compatibility: Compatibility) -> Result<Reach> {
    if has_order && compatibility == Compatibility::Standard {
        return Ok(Reach { frame: Frame::Range { from: None, to: 0 }, ahead: None });
    }
    let hint = match compatibility {
        Compatibility::Standard => FRAMELESS,
        Compatibility::OpenMldb => {
            "Write, for example, ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW, or ROWS \
             BETWEEN 10 PRECEDING AND CURRENT ROW."
        }
    };
    Diagnostic::new(code::WINDOWING_ERROR, "a window requires a frame")
        .at(span)
        .with_hint(hint)
        .err()
}

/// Binds the frame. As in standard SQL one that is not written, over an order, is that of all rows up to
/// this one, and RANGE is over event time, as `ROWS_RANGE` is; OpenMLDB has neither.
fn reach(spec: &ast::WindowSpec, has_order: bool, compatibility: Compatibility) -> Result<Reach> {
    let is_standard = compatibility == Compatibility::Standard;
    let Some(frame) = &spec.frame else { return unwritten(spec.span, has_order, compatibility) };
    let unit = match frame.unit {
        FrameUnit::Range if is_standard => FrameUnit::RowsRange,
        unit => unit,
    };
    if unit == FrameUnit::Range {
        return Diagnostic::new(code::WINDOWING_ERROR, "a RANGE frame is not supported")
            .at(frame.span)
            .with_hint("Use ROWS_RANGE for a frame over event time.")
            .err();
    }
    if is_standard {
        not_negative(&frame.start, "start")?;
        not_negative(&frame.end, "end")?;
    }
    let [start, end] = [end(&frame.start, unit)?, end(&frame.end, unit)?];
    if !is_standard {
        [start, end].iter().try_for_each(FrameEnd::check_known)?;
    }
    // Beyond all rows there are none.
    let moved_by = |distance: i64, by: i64| match unit {
        FrameUnit::Rows => Some(distance.saturating_add(by)),
        FrameUnit::RowsRange | FrameUnit::Range => distance.checked_add(by),
    };
    let oldest = match start.place {
        EndPlace::UnboundedPreceding => None,
        // One that is open is one nearer to the current row, or further after it.
        EndPlace::Back(distance) => Some((distance, moved_by(distance, -i64::from(start.open)))),
        EndPlace::UnboundedFollowing => {
            return windowing("frame start cannot be UNBOUNDED FOLLOWING", start.span);
        }
    };
    let newest = match end.place {
        EndPlace::UnboundedPreceding => {
            return windowing("frame end cannot be UNBOUNDED PRECEDING", end.span);
        }
        EndPlace::Back(distance) => Some((distance, moved_by(distance, end.open.into()))),
        EndPlace::UnboundedFollowing => None,
    };
    if let (Some((start, _)), Some((end, _))) = (oldest, newest)
        && start < end
    {
        return windowing("frame start cannot be after frame end", frame.span);
    }
    let has_offset = |place: Option<(i64, _)>| place.is_some_and(|(distance, _)| distance != 0);
    let has_offset = has_offset(oldest) || has_offset(newest);
    if unit == FrameUnit::RowsRange && has_offset && !has_order {
        return windowing("a ROWS_RANGE frame with a distance requires ORDER BY", frame.span);
    }
    let moved = |place: Option<(i64, Option<i64>)>, which: &str, span| match place {
        None => Ok(None),
        Some((_, Some(distance))) => Ok(Some(distance)),
        Some((_, None)) => {
            windowing(&format!("frame {which} is out of range for type BIGINT"), span)
        }
    };
    let from = moved(oldest, "start", start.span)?;
    let to = moved(newest, "end", end.span)?;
    Ok(Reach::new(unit, (from, to), newest.is_none_or(|(distance, _)| distance < 0)))
}

impl Reach {
    /// Divides a frame from a distance back up to and with another one, of which `None` is unbounded.
    /// `goes_ahead` says whether its end is written as FOLLOWING.
    fn new(unit: FrameUnit, (from, to): (Option<i64>, Option<i64>), goes_ahead: bool) -> Self {
        let begins_ahead = from.is_some_and(|from| from < 0) && goes_ahead;
        debug_assert!(goes_ahead || to.is_some(), "an unbounded end is ahead");
        let frame = match unit {
            FrameUnit::Rows if begins_ahead => Frame::Rows { from: Some(0), to: 1 },
            FrameUnit::Rows => rows_frame(from, to.map_or(0, |to| to.max(0)).unsigned_abs()),
            FrameUnit::RowsRange | FrameUnit::Range if begins_ahead => {
                Frame::Range { from: Some(0), to: 1 }
            }
            FrameUnit::RowsRange | FrameUnit::Range => {
                Frame::Range { from, to: to.map_or(0, |to| to.max(0)) }
            }
        };
        let first = i64::from(unit == FrameUnit::Rows);
        let after = |back: i64| back.checked_neg().unwrap_or(i64::MAX);
        let ahead = FrameAhead {
            nearest: from.filter(|_| begins_ahead).map_or(first, after).max(first),
            farthest: to.map(after),
        };
        let is_empty = ahead.farthest.is_some_and(|farthest| farthest < ahead.nearest);
        debug_assert!(ahead.nearest >= first, "what is ahead begins after the current row");
        Self { frame, ahead: Some(ahead).filter(|_| goes_ahead && !is_empty) }
    }
}

impl FrameEnd {
    /// Refuses an end after the current row, as OpenMLDB does.
    fn check_known(&self) -> Result<()> {
        match self.place {
            EndPlace::UnboundedPreceding | EndPlace::Back(0..) => Ok(()),
            EndPlace::Back(_) | EndPlace::UnboundedFollowing => future_frame().at(self.span).err(),
        }
    }
}

/// Makes the error of a window that covers rows after the current one, where these are not known.
pub fn future_frame() -> Diagnostic {
    Diagnostic::new(code::WINDOWING_ERROR, "a window frame cannot extend past the current row")
        .with_hint(
            "A feature can use only data that is known at its row: end the frame at CURRENT ROW.",
        )
}

/// Returns a ROWS frame. One that OPEN makes empty has `from < to`.
fn rows_frame(from: Option<i64>, to: u64) -> Frame {
    match from.map(u64::try_from) {
        None => Frame::Rows { from: None, to },
        Some(Ok(from)) => Frame::Rows { from: Some(from), to },
        Some(Err(_)) => Frame::Rows { from: Some(0), to: to.max(1) },
    }
}

/// Refuses a distance that is negative; in OpenMLDB it is the current row.
fn not_negative(bound: &ast::FrameBound, which: &str) -> Result<()> {
    let (is_negative, hint) = match bound.kind {
        FrameBoundKind::Preceding(count) => (count < 0, LATER),
        FrameBoundKind::PrecedingInterval(interval) => (interval.amount < 0, LATER),
        FrameBoundKind::Following(count) => (count < 0, EARLIER),
        FrameBoundKind::FollowingInterval(interval) => (interval.amount < 0, EARLIER),
        FrameBoundKind::UnboundedPreceding
        | FrameBoundKind::UnboundedFollowing
        | FrameBoundKind::CurrentRow => (false, ""),
    };
    if !is_negative {
        return Ok(());
    }
    let message = format!("distance of the frame {which} must not be negative");
    Diagnostic::new(code::INVALID_FRAME_DISTANCE, message).at(bound.span).with_hint(hint).err()
}

/// What to write in place of a negative distance.
const LATER: &str = "Use FOLLOWING for rows after the current row.";
const EARLIER: &str = "Use PRECEDING for rows before the current row.";

/// Binds one end of a frame. A negative distance is the current row.
fn end(bound: &ast::FrameBound, unit: FrameUnit) -> Result<FrameEnd> {
    let of_interval = |interval: ast::Interval| {
        if unit == FrameUnit::Rows {
            let message = "a ROWS frame requires a number of rows, not a duration";
            return windowing(message, bound.span);
        }
        match interval.milliseconds() {
            Some(milliseconds) => Ok(milliseconds.max(0)),
            None => Diagnostic::internal("a duration that is too long was parsed").err(),
        }
    };
    let place = match bound.kind {
        FrameBoundKind::UnboundedPreceding => EndPlace::UnboundedPreceding,
        FrameBoundKind::UnboundedFollowing => EndPlace::UnboundedFollowing,
        FrameBoundKind::CurrentRow => EndPlace::Back(0),
        FrameBoundKind::Preceding(count) => EndPlace::Back(count.max(0)),
        FrameBoundKind::PrecedingInterval(interval) => EndPlace::Back(of_interval(interval)?),
        FrameBoundKind::Following(count) => EndPlace::Back(-count.max(0)),
        FrameBoundKind::FollowingInterval(interval) => EndPlace::Back(-of_interval(interval)?),
    };
    let open = bound.open && matches!(place, EndPlace::Back(_));
    Ok(FrameEnd { place, open, span: bound.span })
}

/// Returns the error of a window that breaks a rule.
pub(crate) fn windowing<T>(message: &str, span: Span) -> Result<T> {
    Diagnostic::new(code::WINDOWING_ERROR, message).at(span).err()
}
