//! The outline of a feature query: where its parts are in the text, for those who run it in pieces.
//!
//! `lockstep.spark` calls it: it runs the windows and LAST JOINs of a query in several steps, each with
//! its own partitioning, and needs for each expression the columns and the windows that it reads. A query
//! of another form than SELECT … FROM table LAST JOIN table … WHERE … WINDOW … is refused here, with its
//! position, so that no executor guesses. Resolves no name and runs nothing.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{aggregate, scalar};
use lockstep_sql::ast::{
    self, BinaryOperator, Call, Expr, ExprKind, Join, JoinKind, Over, Query, Select, SelectItem,
    SetExpr, Statement, TableRef, WindowSpec,
};
use serde_json::{Value, json};

/// Returns the parts of a query, as JSON: `items`, `base`, `joins`, `filter`, `windows`. Positions are in
/// bytes. Fails with [`code::FEATURE_NOT_SUPPORTED`] for a query of another form.
///
/// ```
/// let sql = "SELECT k, sum(v) OVER w AS s FROM t WINDOW w AS (PARTITION BY k ORDER BY ts
///            ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)";
/// let outline: serde_json::Value = serde_json::from_str(&lockstep_engine::outline(sql)?).unwrap();
/// assert_eq!(outline["base"]["name"], "t");
/// assert_eq!(outline["items"][1]["alias"], "s");
/// assert!(lockstep_engine::outline("SELECT count(*) FROM t").is_err());
/// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
/// ```
pub fn outline(sql: &str) -> Result<String> {
    let statements = lockstep_sql::parse(sql)?;
    let [parsed] = statements.as_slice() else {
        return refused("a script", Span::new(0, sql.len()), "Pass a single SELECT.");
    };
    let Statement::Query(query) = &parsed.statement else {
        return refused("a statement other than a query", parsed.span, "Pass a single SELECT.");
    };
    if parsed.parameter_count > 0 {
        return refused("a parameter `?`", parsed.span, "Replace it with its value.");
    }
    Ok(select(query)?.to_string())
}

/// Makes the error of a part that is not split.
fn refused<T>(what: &str, span: Span, hint: &str) -> Result<T> {
    let message = format!("{what} cannot be split into stages");
    Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message).at(span).with_hint(hint).err()
}

fn select(query: &Query) -> Result<Value> {
    let SetExpr::Select(body) = &query.body else {
        return refused("UNION", query.span, "Run each side separately, and union the results.");
    };
    let hint = "Apply it to the returned DataFrame, or to the input DataFrame.";
    let clauses = [
        (!query.with.is_empty(), "WITH"),
        (!query.order_by.is_empty(), "ORDER BY"),
        (query.limit.is_some(), "LIMIT"),
        (query.offset.is_some(), "OFFSET"),
        (query.into_outfile.is_some(), "INTO OUTFILE"),
        (!query.config.is_empty(), "CONFIG"),
        (body.distinct, "DISTINCT"),
        (!body.group_by.is_empty(), "GROUP BY"),
        (body.having.is_some(), "HAVING"),
    ];
    if let Some((_, what)) = clauses.into_iter().find(|(is_there, _)| *is_there) {
        return refused(what, query.span, hint);
    }
    let Some(from) = &body.from else {
        return refused("a query without FROM", query.span, "Add FROM with a table.");
    };
    let mut joins = Vec::new();
    let base = leftmost(from, &mut joins)?;
    let windows = body.windows.iter().map(|window| {
        Ok(json!({"name": window.name.text, "span": range(window.name.span.to(window.spec.span)),
                  "spec": spec(&window.spec)?}))
    });
    Ok(json!({
        "items": items(body)?,
        "base": table(base)?,
        "joins": joins,
        "filter": body.filter.as_ref().map(expression).transpose()?,
        "windows": windows.collect::<Result<Vec<_>>>()?,
    }))
}

fn items(select: &Select) -> Result<Vec<Value>> {
    let item = |item: &SelectItem| match item {
        SelectItem::Star { qualifier, .. } => {
            Ok(json!({"star": true, "of": qualifier.as_ref().map(|name| &name.name.text)}))
        }
        SelectItem::Expr { expr, alias } => {
            Ok(json!({"expr": expression(expr)?, "alias": alias.as_ref().map(|alias| &alias.text)}))
        }
    };
    select.items.iter().map(item).collect()
}

/// Returns the leftmost table of FROM, and adds the joins from left to right.
fn leftmost<'t>(from: &'t TableRef, joins: &mut Vec<Value>) -> Result<&'t TableRef> {
    let TableRef::Join(join) = from else { return Ok(from) };
    let base = leftmost(&join.left, joins)?;
    joins.push(last_join(join)?);
    Ok(base)
}

fn last_join(join: &Join) -> Result<Value> {
    if join.kind != JoinKind::Last {
        let hint = "Use LAST JOIN, or join the DataFrames in Spark first.";
        return refused("a join other than LAST JOIN", join.span, hint);
    }
    let Some(on) = &join.on else {
        return refused(
            "a join without ON",
            join.span,
            "Add ON with equality conditions on the keys.",
        );
    };
    let mut pairs = Vec::new();
    let mut rest = vec![on];
    while let Some(expr) = rest.pop() {
        match &expr.kind {
            ExprKind::Binary { operator: BinaryOperator::And, left, right } => {
                rest.extend([right.as_ref(), left.as_ref()]);
            }
            ExprKind::Binary { operator: BinaryOperator::Equal, left, right } => {
                pairs.push(json!([expression(left)?, expression(right)?]));
            }
            _ => {}
        }
    }
    Ok(json!({
        "right": table(&join.right)?,
        "span": range(join.span),
        "on": expression(on)?,
        "equal": pairs,
        "order_by": order_by(&join.order_by)?,
    }))
}

fn order_by(keys: &[ast::OrderBy]) -> Result<Vec<Value>> {
    keys.iter()
        .map(|key| {
            if key.moves_nulls() {
                let hint = "Omit NULLS FIRST or NULLS LAST.";
                return refused("NULLS FIRST or LAST", key.expr.span, hint);
            }
            Ok(json!({"expr": expression(&key.expr)?, "descending": key.descending}))
        })
        .collect()
}

fn table(table: &TableRef) -> Result<Value> {
    let (what, span, hint) = match table {
        TableRef::Table { name, alias } if name.database.is_none() => {
            let end = alias.as_ref().map_or(name.name.span, |alias| alias.span);
            return Ok(json!({"name": name.name.text, "span": range(name.name.span.to(end)),
                             "alias": alias.as_ref().map(|alias| &alias.text)}));
        }
        TableRef::Table { name, .. } => {
            let span = name.database.as_ref().map_or(name.name.span, |database| database.span);
            (
                "a table name with a database",
                span,
                "Use a name without a database for each table in `tables`.",
            )
        }
        TableRef::Subquery { query, .. } => {
            let hint = "Create a DataFrame from it, and pass the DataFrame as a table.";
            ("a subquery in FROM or UNION", query.span, hint)
        }
        TableRef::Files { files, .. } => {
            let hint = "Read it with Spark, and pass the DataFrame as a table.";
            ("a file in FROM", files.span, hint)
        }
        TableRef::Renamed { columns, .. } => {
            ("a list of column names", columns[0].span, "Rename the columns in Spark first.")
        }
        TableRef::Join(join) => {
            ("a join in parentheses", join.span, "Write the joins without parentheses.")
        }
    };
    refused(what, span, hint)
}

fn range(span: Span) -> Value {
    json!([span.start, span.end])
}

fn spec(spec: &WindowSpec) -> Result<Value> {
    Ok(json!({
        "span": range(spec.span),
        "base": spec.base.as_ref().map(|base| &base.text),
        "unions": spec.unions.iter().map(table).collect::<Result<Vec<_>>>()?,
        "partition_by": spec.partition_by.iter().map(expression).collect::<Result<Vec<_>>>()?,
        "order_by": order_by(&spec.order_by)?,
    }))
}

/// What an expression reads.
#[derive(Default)]
struct Reads {
    columns: Vec<Value>,
    /// The outermost calls with OVER.
    calls: Vec<Value>,
}

fn expression(expr: &Expr) -> Result<Value> {
    let mut reads = Reads::default();
    reads.add(expr, false)?;
    let Reads { columns, calls } = reads;
    Ok(json!({"span": range(expr.span), "columns": columns, "calls": calls,
              "is_column": matches!(expr.kind, ExprKind::Column(_))}))
}

impl Reads {
    fn add(&mut self, expr: &Expr, is_within_window: bool) -> Result<()> {
        match &expr.kind {
            ExprKind::Column(path) => {
                let path: Vec<&str> = path.iter().map(|part| part.text.as_str()).collect();
                self.columns.push(json!({"span": range(expr.span), "path": path}));
                Ok(())
            }
            ExprKind::SubQuery { .. } => {
                let hint = "Use LAST JOIN, or create a DataFrame from it.";
                refused("a subquery in an expression", expr.span, hint)
            }
            ExprKind::Call(call) => self.add_call(call, expr.span, is_within_window),
            kind => {
                children(kind).into_iter().try_for_each(|child| self.add(child, is_within_window))
            }
        }
    }

    fn add_call(&mut self, call: &Call, span: Span, is_within_window: bool) -> Result<()> {
        let name = call.name.text.as_str();
        let is_aggregate = aggregate::find(name).is_some() && scalar::find(name).is_none();
        if call.over.is_none() && is_aggregate && !is_within_window {
            let hint = "Add a window with OVER, or aggregate whole tables in Spark.";
            return refused("an aggregate without OVER", span, hint);
        }
        if let Some(over) = &call.over {
            let over = match over {
                Over::Named(name) => json!({"name": name.text}),
                Over::Spec(inline) => {
                    self.add_spec(inline)?;
                    json!({"spec": spec(inline)?})
                }
            };
            self.calls.push(json!({"span": range(span), "function": name, "over": over,
                                   "is_nested": is_within_window}));
        }
        let is_within_window = is_within_window || call.over.is_some();
        call.arguments.iter().try_for_each(|argument| self.add(argument, is_within_window))
    }

    /// Adds the columns of a window after OVER, which are part of the expression's text.
    fn add_spec(&mut self, spec: &WindowSpec) -> Result<()> {
        let keys = spec.order_by.iter().map(|key| &key.expr);
        spec.partition_by.iter().chain(keys).try_for_each(|key| self.add(key, true))
    }
}

/// Returns the operands of an expression other than a column, a call and a sub-query.
fn children(kind: &ExprKind) -> Vec<&Expr> {
    match kind {
        ExprKind::Unary { operand, .. }
        | ExprKind::IsNull { operand, .. }
        | ExprKind::Cast { operand, .. } => vec![operand],
        ExprKind::Binary { left, right, .. } => vec![left, right],
        ExprKind::Between { operand, low, high, .. } => vec![operand, low, high],
        ExprKind::InList { operand, items, .. } => {
            std::iter::once(operand.as_ref()).chain(items).collect()
        }
        ExprKind::Like { operand, pattern, escape, .. } => {
            [operand.as_ref(), pattern.as_ref()].into_iter().chain(escape.as_deref()).collect()
        }
        ExprKind::Case { operand, branches, otherwise } => operand
            .as_deref()
            .into_iter()
            .chain(branches.iter().flat_map(|(when, then)| [when, then]))
            .chain(otherwise.as_deref())
            .collect(),
        ExprKind::Index { operand, index } => vec![operand, index],
        ExprKind::Array { items, .. } => items.iter().collect(),
        ExprKind::Column(_)
        | ExprKind::Literal(_)
        | ExprKind::QuotedText(_)
        | ExprKind::Parameter(_)
        | ExprKind::Call(_)
        | ExprKind::SubQuery { .. } => Vec::new(),
    }
}
