//! Rewrites of plan nodes for batch mode.
//!
//! `execute` rewrites a bound plan with [`lower`] before DataFusion optimises it. The nodes here
//! mean the same as those of `lockstep_plan`, and let DataFusion remove unused columns: the output
//! schema follows the inputs, and a UNION source is projected to exactly the expressions of the
//! windows over it, so that nothing depends on the positions of its columns.

use std::{
    cmp::Ordering,
    collections::HashMap,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::datatypes::FieldRef;
use datafusion::{
    common::{
        Column, DFSchema, DFSchemaRef, Result, TableReference, internal_datafusion_err,
        internal_err,
        tree_node::{Transformed, TreeNode},
    },
    functions_window::row_number::row_number,
    logical_expr::{
        Expr, Extension, LogicalPlan, LogicalPlanBuilder, Sort, UserDefinedLogicalNode,
        UserDefinedLogicalNodeCore,
    },
};
use lockstep_plan::{LastJoin, WindowAggregate, WindowGroup, schema_of_unique};

use crate::{
    boundary::ProjectionDepth,
    join_conditions::{is_numbered, is_sort_of_joins, with_join_conditions},
};

/// Rewrites the nodes of `lockstep_plan` anywhere in the plan, moves conditions into joins, sorts the rows
/// of joins, has ORDER BY leave equal rows in their order, and limits the depth of merged projections.
pub(crate) fn lower(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut depth = ProjectionDepth::default();
    let plan = with_join_conditions(plan)?;
    let rewritten = plan.transform_up_with_subqueries(|plan| {
        let plan = depth.bound(plan)?;
        if let LogicalPlan::Join(join) = &plan {
            if is_numbered(join) {
                return Ok(Transformed::no(plan));
            }
            return join_in_order(&plan).map(Transformed::yes);
        }
        if let LogicalPlan::Sort(sort) = &plan {
            if is_sort_of_joins(sort) {
                return Ok(Transformed::no(plan));
            }
            return sort_in_order(sort).map(Transformed::yes);
        }
        let LogicalPlan::Extension(extension) = &plan else { return Ok(Transformed::yes(plan)) };
        let node: Arc<dyn UserDefinedLogicalNode> =
            if let Some(window) = extension.node.as_any().downcast_ref::<WindowAggregate>() {
                Arc::new(BatchWindow::new(window)?)
            } else if let Some(join) = extension.node.as_any().downcast_ref::<LastJoin>() {
                Arc::new(BatchLastJoin::new(join)?)
            } else {
                return Ok(Transformed::no(plan));
            };
        Ok(Transformed::yes(LogicalPlan::Extension(Extension { node })))
    })?;
    Ok(rewritten.data)
}

/// The column with the number of a row among the left rows of a join, by which its rows are sorted
/// first.
pub(crate) const LEFT_ROW: &str = "__left_row";
const RIGHT_ROW: &str = "__right_row";
/// The column with the number of a row of the input of ORDER BY.
const SORTED_ROW: &str = "__sorted_row";

/// Sorts the rows of a join by the order of the left rows, and for one left row by that of the
/// right rows; right rows without a left one are last. DataFusion's joins guarantee no order, and
/// the order of rows decides ties above.
fn join_in_order(plan: &LogicalPlan) -> Result<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    let numbered = plan.inputs().into_iter().zip([LEFT_ROW, RIGHT_ROW]).map(|(input, name)| {
        let number = row_number().alias(name);
        LogicalPlanBuilder::from(input.clone()).window([number])?.build()
    });
    let join = plan.with_new_exprs(plan.expressions(), numbered.collect::<Result<_>>()?)?;
    let by = [LEFT_ROW, RIGHT_ROW]
        .map(|name| Expr::Column(Column::new_unqualified(name)).sort(true, false));
    LogicalPlanBuilder::from(join).sort(by)?.project(columns.collect::<Vec<_>>())?.build()
}

/// Sorts rows with equal values in the order of the input: DataFusion's sorts leave it open, and it
/// differs with the memory that they have.
fn sort_in_order(sort: &Sort) -> Result<LogicalPlan> {
    let columns = sort.input.schema().columns().into_iter().map(Expr::Column);
    let number = row_number().alias(SORTED_ROW);
    let last = Expr::Column(Column::new_unqualified(SORTED_ROW)).sort(true, false);
    let by = sort.expr.iter().cloned().chain([last]).collect();
    let numbered =
        LogicalPlanBuilder::from(sort.input.as_ref().clone()).window([number])?.build()?;
    let input = Arc::new(numbered);
    let sorted = LogicalPlan::Sort(Sort { expr: by, input, fetch: sort.fetch });
    LogicalPlanBuilder::from(sorted).project(columns.collect::<Vec<_>>())?.build()
}

type QualifiedField = (Option<TableReference>, FieldRef);

/// The output name of each column of an input, which stays valid when columns are removed. Shared
/// by the copies of a node that the optimiser makes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Naming(Arc<HashMap<Column, QualifiedField>>);

/// Hashes nothing: the optimiser hashes the whole plan after each pass, and the other parts of a
/// node identify it.
impl Hash for Naming {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl Naming {
    fn new<'a>(input: &DFSchema, output: impl Iterator<Item = QualifiedField> + 'a) -> Self {
        Self(Arc::new(input.columns().into_iter().zip(output).collect()))
    }

    fn rename(&self, input: &DFSchema) -> Result<Vec<QualifiedField>> {
        let of = |column: Column| {
            self.0.get(&column).cloned().ok_or_else(|| {
                internal_datafusion_err!("the input of an operator has a new column {column}")
            })
        };
        input.columns().into_iter().map(of).collect()
    }
}

fn qualified_fields(schema: &DFSchema) -> impl Iterator<Item = QualifiedField> + '_ {
    schema.iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)))
}

fn schema_of(fields: Vec<QualifiedField>) -> Result<DFSchemaRef> {
    Ok(Arc::new(schema_of_unique(fields.into_iter())?))
}

/// One window and its calls, with their expressions as positions in [`BatchWindow::exprs`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GroupShape {
    /// The window and its calls, as bound.
    pub(crate) group: WindowGroup,
    /// The entity key.
    pub(crate) partition_by: Vec<usize>,
    /// The event time.
    pub(crate) order_by: Option<usize>,
    /// The arguments of each call.
    pub(crate) arguments: Vec<Vec<usize>>,
}

/// The node of all windows of one SELECT.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BatchWindow {
    /// The main rows.
    pub(crate) input: LogicalPlan,
    /// The UNION sources; the columns are those of `union_exprs`.
    pub(crate) unions: Vec<LogicalPlan>,
    /// The distinct expressions of all groups, over the input.
    pub(crate) exprs: Vec<Expr>,
    /// For each UNION source which expressions its columns are.
    pub(crate) union_exprs: Vec<Vec<usize>>,
    /// The windows.
    pub(crate) groups: Vec<GroupShape>,
    naming: Naming,
    calls: Vec<QualifiedField>,
    schema: DFSchemaRef,
}

impl BatchWindow {
    fn new(window: &WindowAggregate) -> Result<Self> {
        let input_width = window.input.schema().fields().len();
        let mut exprs = DistinctExprs::default();
        let groups: Vec<_> = window.groups.iter().map(|group| exprs.shape(group)).collect();
        let exprs = exprs.exprs;
        let union_exprs: Vec<_> =
            (0..window.unions.len()).map(|union| exprs_over(&groups, union)).collect();
        let input = window.input.schema();
        let mut unions = Vec::with_capacity(window.unions.len());
        for (union, needed) in window.unions.iter().zip(&union_exprs) {
            let projected = needed.iter().map(|at| {
                let expr = by_position(&exprs[*at], input, union.schema())?;
                Ok(expr.alias(format!("__window_{at}")))
            });
            let projected = projected.collect::<Result<Vec<_>>>()?;
            unions.push(LogicalPlanBuilder::from(union.clone()).project(projected)?.build()?);
        }
        debug_assert_eq!(
            window.schema.fields().len(),
            input_width + groups.iter().map(|group| group.arguments.len()).sum::<usize>(),
            "each call adds a column"
        );
        let output = qualified_fields(&window.schema);
        Ok(Self {
            naming: Naming::new(input, output),
            calls: qualified_fields(&window.schema).skip(input_width).collect(),
            input: window.input.clone(),
            unions,
            exprs,
            union_exprs,
            groups,
            schema: Arc::clone(&window.schema),
        })
    }
}

#[derive(Default)]
struct DistinctExprs {
    exprs: Vec<Expr>,
    positions: HashMap<Expr, usize>,
}

impl DistinctExprs {
    fn position(&mut self, expr: &Expr) -> usize {
        if let Some(position) = self.positions.get(expr) {
            return *position;
        }
        let position = self.exprs.len();
        self.exprs.push(expr.clone());
        self.positions.insert(expr.clone(), position);
        position
    }

    fn shape(&mut self, group: &WindowGroup) -> GroupShape {
        let window = &group.window;
        GroupShape {
            partition_by: window.partition_by.iter().map(|expr| self.position(expr)).collect(),
            order_by: window.order_by.as_ref().map(|expr| self.position(expr)),
            arguments: group
                .calls
                .iter()
                .map(|call| call.arguments.iter().map(|expr| self.position(expr)).collect())
                .collect(),
            group: group.clone(),
        }
    }
}

/// Returns the expressions of the groups that have a UNION source.
fn exprs_over(groups: &[GroupShape], union: usize) -> Vec<usize> {
    let mut needed: Vec<usize> = groups
        .iter()
        .filter(|group| group.group.unions.contains(&union))
        .flat_map(|group| {
            let window = group.partition_by.iter().chain(&group.order_by);
            window.chain(group.arguments.iter().flatten()).copied()
        })
        .collect();
    needed.sort_unstable();
    needed.dedup();
    needed
}

/// Returns the same expression over the columns at the same positions of another schema.
fn by_position(expr: &Expr, from: &DFSchema, to: &DFSchema) -> Result<Expr> {
    let rewritten = expr.clone().transform(|expr| {
        let Expr::Column(column) = &expr else { return Ok(Transformed::no(expr)) };
        let position = from.index_of_column(column)?;
        if position >= to.fields().len() {
            return internal_err!("a UNION source has too few columns");
        }
        Ok(Transformed::yes(Expr::Column(Column::from(to.qualified_field(position)))))
    })?;
    Ok(rewritten.data)
}

impl PartialOrd for BatchWindow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.exprs.partial_cmp(&other.exprs)
    }
}

impl UserDefinedLogicalNodeCore for BatchWindow {
    fn name(&self) -> &'static str {
        "WindowAggregate"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        std::iter::once(&self.input).chain(&self.unions).collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.exprs.clone()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WindowAggregate:")?;
        for group in &self.groups {
            write!(f, " {} calls over ({})", group.arguments.len(), group.group.window)?;
        }
        Ok(())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let mut inputs = inputs.into_iter();
        let input = inputs.next().expect("a window has its main input first");
        if Arc::ptr_eq(input.schema(), self.input.schema()) {
            return Ok(Self { input, unions: inputs.collect(), exprs, ..self.clone() });
        }
        let mut fields = self.naming.rename(input.schema())?;
        fields.extend(self.calls.iter().cloned());
        Ok(Self {
            input,
            unions: inputs.collect(),
            exprs,
            schema: schema_of(fields)?,
            ..self.clone()
        })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let input_width = self.input.schema().fields().len();
        let input = output_columns.iter().copied().filter(|column| *column < input_width).collect();
        let unions = self.unions.iter().map(|union| (0..union.schema().fields().len()).collect());
        Some(std::iter::once(input).chain(unions).collect())
    }
}

/// The node of a LAST JOIN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BatchLastJoin {
    /// The join, with the inputs and expressions as they are now; its schema is not maintained.
    pub(crate) join: LastJoin,
    /// The columns of the left side keep their names.
    right: Naming,
    schema: DFSchemaRef,
}

impl BatchLastJoin {
    fn new(join: &LastJoin) -> Result<Self> {
        let left_width = join.left.schema().fields().len();
        let right_width = join.right.schema().fields().len();
        if join.schema.fields().len() != left_width + right_width {
            return internal_err!("a LAST JOIN has the columns of both sides");
        }
        let output = qualified_fields(&join.schema);
        Ok(Self {
            right: Naming::new(join.right.schema(), output.skip(left_width)),
            schema: Arc::clone(&join.schema),
            join: join.clone(),
        })
    }

    /// Returns the columns of both inputs, left first, under the names that `filter` uses.
    pub(crate) fn pair_schema(&self) -> &DFSchemaRef {
        &self.schema
    }
}

/// Hashes all but the schema, which grows with each join of a chain and follows from the inputs.
impl Hash for BatchLastJoin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let LastJoin { left, right, keys, order_by, time_bound, filter, schema: _ } = &self.join;
        (left, right, keys).hash(state);
        (order_by, time_bound, filter).hash(state);
    }
}

impl PartialOrd for BatchLastJoin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.join.partial_cmp(&other.join)
    }
}

impl UserDefinedLogicalNodeCore for BatchLastJoin {
    fn name(&self) -> &'static str {
        "LastJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.join.left, &self.join.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        UserDefinedLogicalNodeCore::expressions(&self.join)
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        UserDefinedLogicalNodeCore::fmt_for_explain(&self.join, f)
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let join = UserDefinedLogicalNodeCore::with_exprs_and_inputs(&self.join, exprs, inputs)?;
        let is_same = Arc::ptr_eq(join.left.schema(), self.join.left.schema())
            && Arc::ptr_eq(join.right.schema(), self.join.right.schema());
        if is_same {
            // Most rules change no columns, and a chain of joins has many.
            let (right, schema) = (self.right.clone(), Arc::clone(&self.schema));
            return Ok(Self { join, right, schema });
        }
        let mut fields: Vec<_> = qualified_fields(join.left.schema()).collect();
        fields.extend(self.right.rename(join.right.schema())?);
        Ok(Self { join, right: self.right.clone(), schema: schema_of(fields)? })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let left_width = self.join.left.schema().fields().len();
        let (left, right): (Vec<usize>, Vec<usize>) =
            output_columns.iter().copied().partition(|column| *column < left_width);
        let right = right.into_iter().map(|column| column - left_width).collect();
        Some(vec![left, right])
    }
}
