//! SELECT: groups, window functions, the select list, DISTINCT and ORDER BY.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    sync::Arc,
};

use lockstep_diagnostic::Result;
use sqlparser::ast::{
    Distinct, Expr, Function, GroupByExpr, Select, SelectItem, SelectItemQualifiedWildcardKind,
    WindowType,
};

use super::{
    aggregate::window_values,
    analysis::{has_aggregate, has_set, object_name},
    evaluation::Evaluator,
    from::{JoinedRows, folded, unsupported},
    query::{SortTerm, compare_keys, output_column, row_key},
    relation::{CatalogRelation, CatalogRow},
    scope::{
        BoundTable, CallAddress, CatalogWindowRows, JoinedRow, Scope, SetElements, SetPosition,
    },
    static_type::{column_name, static_type},
    value::{CatalogValue, row_bytes},
};
use crate::postgres::types::{Oid, oid};

/// About how many bytes a row has in a partition, beside its keys.
const ROW_BYTES: usize = 64;

/// A column of a select list: what computes it.
enum OutputItem<'q> {
    Expr(&'q Expr),
    /// The table and the column that `*` stands for.
    Column(usize, usize),
}

/// The select list of a query, with what is sorted by.
struct SelectList<'q, 's> {
    items: Vec<OutputItem<'q>>,
    columns: Vec<(String, Oid)>,
    terms: &'s [SortTerm<'q>],
    /// The expressions of DISTINCT ON, none of DISTINCT; `None` where rows may be equal.
    distinct_on: Option<&'q [Expr]>,
    has_set: bool,
}

/// A row of the result, and by what it is sorted and distinct.
struct OutputRow {
    values: CatalogRow,
    keys: Vec<CatalogValue>,
    /// Empty where rows may be equal.
    distinct: String,
}

impl Evaluator<'_> {
    /// Runs a SELECT, whose rows are sorted by `terms`.
    pub(super) fn select<'q>(
        &mut self,
        select: &'q Select,
        terms: &[SortTerm<'q>],
        outer: Option<&Scope<'_>>,
    ) -> Result<CatalogRelation> {
        let joined = self.joined(select, outer)?;
        let list = select_list(select, terms, &joined.tables, outer)?;
        let group_by = group_terms(select, &list)?;
        let is_grouped = !group_by.is_empty()
            || select.having.is_some()
            || list.expressions().any(has_aggregate);
        let mut rows = if is_grouped {
            self.grouped_rows(select, &group_by, &list, &joined, outer)?
        } else {
            self.plain_rows(&list, &joined, outer)?
        };
        if !terms.is_empty() {
            rows.sort_by(|left, right| compare_keys(&left.keys, &right.keys, terms));
        }
        if list.distinct_on.is_some() {
            let mut seen = HashSet::new();
            rows.retain_mut(|row| seen.insert(std::mem::take(&mut row.distinct)));
        }
        let mut columns = list.columns;
        for (at, column) in columns.iter_mut().enumerate() {
            if column.1 == oid::UNKNOWN {
                column.1 = type_of_values(rows.iter().map(|row| &row.values[at]));
            }
        }
        Ok(CatalogRelation::of(columns, rows.into_iter().map(|row| row.values).collect()))
    }

    fn plain_rows(
        &mut self,
        list: &SelectList<'_, '_>,
        joined: &JoinedRows,
        outer: Option<&Scope<'_>>,
    ) -> Result<Vec<OutputRow>> {
        let windows = CatalogWindowRows { rows: &joined.rows, values: RefCell::default() };
        let mut rows = Vec::new();
        for (at, row) in joined.rows.iter().enumerate() {
            let scope = Scope::new(&joined.tables, row, outer);
            self.output_rows(list, &Scope { window: Some((&windows, at)), ..scope }, &mut rows)?;
        }
        Ok(rows)
    }

    /// Returns a row for each group. Columns that are not grouped have the value of its first row.
    fn grouped_rows(
        &mut self,
        select: &Select,
        group_by: &[&Expr],
        list: &SelectList<'_, '_>,
        joined: &JoinedRows,
        outer: Option<&Scope<'_>>,
    ) -> Result<Vec<OutputRow>> {
        let mut order: Vec<Vec<JoinedRow>> = Vec::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        for row in &joined.rows {
            self.step()?;
            let scope = Scope::new(&joined.tables, row, outer);
            let held = self.held();
            let keys = group_by.iter().map(|expr| self.value(expr, &scope));
            let key = row_key(&keys.collect::<Result<Vec<_>>>()?);
            self.release_to(held);
            self.hold(key.len() + size_of_val(row.as_slice()))?;
            let number = *numbers.entry(key).or_insert(order.len());
            if number == order.len() {
                order.push(Vec::new());
            }
            order[number].push(row.clone());
        }
        if group_by.is_empty() && order.is_empty() {
            order.push(Vec::new());
        }
        let empty: JoinedRow = vec![None; joined.tables.len()];
        let mut kept = Vec::new();
        for group in order {
            let row = group.first().unwrap_or(&empty);
            let scope = Scope { group: Some(&group), ..Scope::new(&joined.tables, row, outer) };
            let holds = match &select.having {
                Some(having) => self.moment(having, &scope)?.is_true(),
                None => true,
            };
            if holds {
                kept.push(group);
            }
        }
        let firsts: Vec<JoinedRow> =
            kept.iter().map(|group| group.first().unwrap_or(&empty).clone()).collect();
        let windows = CatalogWindowRows { rows: &firsts, values: RefCell::default() };
        let mut rows = Vec::new();
        for (at, group) in kept.iter().enumerate() {
            let scope = Scope::new(&joined.tables, &firsts[at], outer);
            let scope = Scope { group: Some(group), window: Some((&windows, at)), ..scope };
            self.output_rows(list, &scope, &mut rows)?;
        }
        Ok(rows)
    }

    /// Adds the rows that the select list makes of one row: several, where it has a function that
    /// returns a set.
    fn output_rows(
        &mut self,
        list: &SelectList<'_, '_>,
        scope: &Scope<'_>,
        rows: &mut Vec<OutputRow>,
    ) -> Result<()> {
        let mut at = 0;
        let elements = SetElements::default();
        let mut elements_bytes = 0;
        loop {
            self.step()?;
            let position = SetPosition { at, count: Cell::new(0), elements: &elements };
            let scope = Scope { set: Some(&position), ..*scope };
            let held = self.held();
            let row = self.output_row(list, &scope)?;
            self.release_to(held);
            let kept = elements.take_bytes();
            self.hold(kept)?;
            elements_bytes += kept;
            if list.has_set && at >= position.count.get() {
                self.release(u64::try_from(elements_bytes).unwrap_or(u64::MAX));
                return Ok(());
            }
            let bytes = row_bytes(&row.values) + row_bytes(&row.keys) + row.distinct.len();
            self.work(bytes)?;
            self.hold(bytes)?;
            if !list.has_set {
                rows.push(row);
                return Ok(());
            }
            rows.push(row);
            at += 1;
        }
    }

    fn output_row(&mut self, list: &SelectList<'_, '_>, scope: &Scope<'_>) -> Result<OutputRow> {
        let mut values = Vec::with_capacity(list.items.len());
        for item in &list.items {
            values.push(match item {
                OutputItem::Expr(expr) => self.value(expr, scope)?,
                OutputItem::Column(table, column) => match &scope.row[*table] {
                    Some(row) => row[*column].clone(),
                    None => CatalogValue::Null,
                },
            });
        }
        debug_assert_eq!(values.len(), list.columns.len(), "a column has a value in each row");
        let mut keys = Vec::with_capacity(list.terms.len());
        for term in list.terms {
            keys.push(match output_column(term.expr, &list.columns) {
                Some(at) => values[at].clone(),
                None => self.value(term.expr, scope)?,
            });
        }
        let distinct = match list.distinct_on {
            None => String::new(),
            Some([]) => row_key(&values),
            Some(on) => {
                let on = on.iter().map(|expr| self.value(expr, scope));
                row_key(&on.collect::<Result<Vec<_>>>()?)
            }
        };
        Ok(OutputRow { values: values.into(), keys, distinct })
    }

    /// Returns the value of a window function in the row of a scope.
    pub(super) fn window(
        &mut self,
        function: &Function,
        scope: &Scope<'_>,
    ) -> Result<CatalogValue> {
        let Some((windows, at)) = scope.window else {
            return unsupported("a window function in this position");
        };
        let key: CallAddress = function;
        let known = windows.values.borrow().get(&key).cloned();
        let values = match known {
            Some(values) => values,
            None => {
                let values = self.window_column(function, windows.rows, scope)?;
                windows.values.borrow_mut().insert(key, Arc::clone(&values));
                values
            }
        };
        Ok(values.get(at).cloned().unwrap_or(CatalogValue::Null))
    }

    /// Computes a window function for all rows.
    fn window_column(
        &mut self,
        function: &Function,
        rows: &[JoinedRow],
        scope: &Scope<'_>,
    ) -> Result<Arc<[CatalogValue]>> {
        let Some(WindowType::WindowSpec(spec)) = &function.over else {
            return unsupported("a named window");
        };
        let terms: Vec<SortTerm<'_>> = spec.order_by.iter().map(SortTerm::new).collect();
        let held = self.held();
        let mut partitions: HashMap<String, Vec<(usize, Vec<CatalogValue>)>> = HashMap::new();
        for (at, row) in rows.iter().enumerate() {
            self.step()?;
            let scope = Scope::new(scope.tables, row, scope.outer);
            let keys = spec.partition_by.iter().map(|expr| self.value(expr, &scope));
            let key = row_key(&keys.collect::<Result<Vec<_>>>()?);
            self.hold(key.len() + terms.len() * size_of::<CatalogValue>() + ROW_BYTES)?;
            let order = terms.iter().map(|term| self.value(term.expr, &scope));
            let order = order.collect::<Result<Vec<_>>>()?;
            partitions.entry(key).or_default().push((at, order));
        }
        let mut values = vec![CatalogValue::Null; rows.len()];
        let mut partitions: Vec<_> = partitions.into_values().collect();
        partitions.sort_by_key(|rows| rows.first().map(|row| row.0));
        for mut partition in partitions {
            partition.sort_by(|left, right| compare_keys(&left.1, &right.1, &terms));
            let peers: Vec<bool> = partition
                .windows(2)
                .map(|pair| compare_keys(&pair[0].1, &pair[1].1, &terms).is_eq())
                .collect();
            let members: Vec<JoinedRow> =
                partition.iter().map(|(at, _)| rows[*at].clone()).collect();
            let found = window_values(self, function, &members, &peers, scope)?;
            for ((at, _), value) in partition.iter().zip(found) {
                values[*at] = value;
            }
        }
        self.release_to(held);
        self.hold(row_bytes(&values))?;
        Ok(values.into())
    }
}

impl<'q> SelectList<'q, '_> {
    /// Returns all expressions of the list and of ORDER BY.
    fn expressions(&self) -> impl Iterator<Item = &'q Expr> {
        let items = self.items.iter().filter_map(|item| match item {
            OutputItem::Expr(expr) => Some(*expr),
            OutputItem::Column(..) => None,
        });
        items.chain(self.terms.iter().map(|term| term.expr))
    }
}

/// Makes the columns of a select list.
fn select_list<'q, 's>(
    select: &'q Select,
    terms: &'s [SortTerm<'q>],
    tables: &[BoundTable],
    outer: Option<&Scope<'_>>,
) -> Result<SelectList<'q, 's>> {
    let mut list: Vec<(OutputItem<'q>, (String, Oid))> = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::Wildcard(_) => list.extend(all_columns(tables, None)),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                list.extend(all_columns(tables, Some(&object_name(name).1)));
            }
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                let number = static_type(expr, tables, outer).unwrap_or(oid::UNKNOWN);
                let column = (item_name(item).unwrap_or_default(), number);
                list.push((OutputItem::Expr(expr), column));
            }
            other => return unsupported(&format!("{other} in a select list")),
        }
    }
    let distinct_on = match &select.distinct {
        Some(Distinct::On(list)) => Some(list.as_slice()),
        Some(Distinct::Distinct) => Some(&[][..]),
        _ => None,
    };
    let (items, columns) = list.into_iter().unzip();
    let mut list = SelectList { items, columns, terms, distinct_on, has_set: false };
    let returns_sets = list.expressions().any(has_set);
    list.has_set = returns_sets;
    Ok(list)
}

/// Returns the columns that `*` or `table.*` stands for.
fn all_columns<'q>(
    tables: &[BoundTable],
    wanted: Option<&str>,
) -> Vec<(OutputItem<'q>, (String, Oid))> {
    let tables = tables.iter().enumerate();
    let chosen = tables.filter(|(_, bound)| wanted.is_none_or(|wanted| bound.is_named(wanted)));
    chosen
        .flat_map(|(table, bound)| {
            let columns = bound.columns.list.iter().enumerate();
            columns.map(move |(at, column)| (OutputItem::Column(table, at), column.clone()))
        })
        .collect()
}

/// Returns the expressions of GROUP BY; a number or a name of the select list stands for its expression.
fn group_terms<'q>(select: &'q Select, list: &SelectList<'q, '_>) -> Result<Vec<&'q Expr>> {
    let GroupByExpr::Expressions(given, _) = &select.group_by else {
        return unsupported("GROUP BY ALL");
    };
    let term = |expr: &'q Expr| match output_column(expr, &list.columns) {
        Some(at) => match list.items[at] {
            OutputItem::Expr(item) => item,
            OutputItem::Column(..) => expr,
        },
        None => expr,
    };
    Ok(given.iter().map(term).collect())
}

/// Returns the name of a column of a select list; `None` of `*`.
pub(super) fn item_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        SelectItem::UnnamedExpr(expr) => Some(column_name(expr)),
        _ => None,
    }
}

/// Returns the type of the first values that have one.
fn type_of_values<'v>(values: impl Iterator<Item = &'v CatalogValue>) -> Oid {
    let mut found = oid::UNKNOWN;
    for value in values {
        match value.oid() {
            Some(oid::INT8) => return oid::INT8,
            Some(number) => found = number,
            None => {}
        }
    }
    found
}
