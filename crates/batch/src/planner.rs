//! Logical to physical plan: the nodes of `lower` and the scans of stored tables.

use std::{collections::HashMap, sync::Arc};

use arrow::datatypes::Schema;
use async_trait::async_trait;
use datafusion::{
    catalog::Session,
    common::{DFSchema, Result, internal_err},
    execution::context::QueryPlanner,
    logical_expr::{
        Expr, LogicalPlan, TableScan, UserDefinedLogicalNode,
        physical_planning_context::PhysicalPlanningContext, utils::conjunction,
    },
    physical_expr::PhysicalExpr,
    physical_plan::ExecutionPlan,
    physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner},
};
use lockstep_host::sync::Mutex;
use lockstep_plan::CatalogTable;

use crate::{
    boundary::Boundary,
    last_join::{LastJoinExec, LastJoinSpec},
    lower::{BatchLastJoin, BatchWindow},
    operator::OperatorOptions,
    scan::projection,
    shared_rows::{SharedPart, SharedSource},
    source::{ExternalRows, SourceScan},
    table_reads::TableReads,
    window::{WindowExec, WindowOperatorSpec},
};

/// The physical planner of one query.
#[derive(Debug, Clone)]
pub(crate) struct BatchPlanner {
    /// The rows of the query's tables.
    pub(crate) tables: Arc<TableReads>,
    /// The optimised parts that several scans read.
    pub(crate) parts: Arc<Vec<LogicalPlan>>,
    /// The physical parts, which the first scan of each makes.
    pub(crate) shared: Arc<Mutex<HashMap<usize, Arc<SharedPart>>>>,
    /// The options of the operators.
    pub(crate) options: OperatorOptions,
}

#[async_trait]
impl QueryPlanner for BatchPlanner {
    async fn create_physical_plan(
        &self,
        logical_plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // A plan that is made again has parts of its own.
        let own = Self { shared: Arc::default(), ..self.clone() };
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(own)]);
        planner.create_physical_plan(logical_plan, session).await
    }
}

#[async_trait]
impl ExtensionPlanner for BatchPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let exprs = ExprPlanner { planner, session, context };
        if let Some(node) = node.as_any().downcast_ref::<BatchWindow>() {
            return self.plan_window(node, inputs, &exprs).map(Some);
        }
        if let Some(node) = node.as_any().downcast_ref::<BatchLastJoin>() {
            return self.plan_last_join(node, inputs, &exprs).map(Some);
        }
        if node.as_any().is::<Boundary>() {
            return Ok(inputs.first().cloned());
        }
        Ok(None)
    }

    async fn plan_table_scan(
        &self,
        planner: &dyn PhysicalPlanner,
        scan: &TableScan,
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(source) = SharedSource::of(scan) {
            let shared = self.shared_part(source.part, planner, session).await?;
            return shared.read(scan).map(Some);
        }
        let Some(table) = CatalogTable::of(scan.source.as_ref()) else { return Ok(None) };
        if let Some(source) = source_of(table) {
            let exprs = ExprPlanner { planner, session, context };
            let schema = DFSchema::try_from_qualified_schema(
                scan.table_name.clone(),
                source.arrow_schema(),
            )?;
            let filter = conjunction(scan.filters.iter().cloned());
            let filter = filter.map(|filter| exprs.plan(&filter, &schema)).transpose()?;
            let wanted = SourceScan { columns: projection(scan), filter, limit: scan.fetch };
            return source.plan(wanted, &self.options).map(Some);
        }
        self.tables.plan(table, scan, session.runtime_env(), &self.options).map(Some)
    }
}

/// Returns the source of a table that is not stored.
fn source_of(table: &CatalogTable) -> Option<Arc<ExternalRows>> {
    Arc::clone(table.source.as_ref()?).downcast().ok()
}

/// The physical planner of a node's expressions.
struct ExprPlanner<'a> {
    planner: &'a dyn PhysicalPlanner,
    session: &'a dyn Session,
    context: &'a PhysicalPlanningContext,
}

impl ExprPlanner<'_> {
    fn plan(&self, expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
        self.planner.create_physical_expr(expr, schema, self.session, self.context)
    }

    fn plan_all<'e>(
        &self,
        exprs: impl IntoIterator<Item = &'e Expr>,
        schema: &DFSchema,
    ) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        exprs.into_iter().map(|expr| self.plan(expr, schema)).collect()
    }
}

impl BatchPlanner {
    /// Returns a part that several scans read, planned by the first of them.
    async fn shared_part(
        &self,
        part: usize,
        planner: &dyn PhysicalPlanner,
        session: &dyn Session,
    ) -> Result<Arc<SharedPart>> {
        let known = self.shared.lock().get(&part).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let Some(plan) = self.parts.get(part) else {
            return internal_err!("a scan reads a part that the plan has");
        };
        let physical = planner.create_physical_plan(plan, session).await?;
        let made = Arc::new(SharedPart::new(physical, self.options.clone()));
        Ok(Arc::clone(self.shared.lock().entry(part).or_insert(made)))
    }

    fn plan_window(
        &self,
        node: &BatchWindow,
        inputs: &[Arc<dyn ExecutionPlan>],
        exprs: &ExprPlanner<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let spec = WindowOperatorSpec {
            exprs: exprs.plan_all(&node.exprs, node.input.schema())?,
            union_exprs: node.union_exprs.clone(),
            groups: node.groups.clone(),
            options: self.options.clone(),
        };
        let schema = output_schema(&node_schema(node));
        Ok(Arc::new(WindowExec::new(Arc::new(spec), inputs.to_vec(), schema)))
    }

    fn plan_last_join(
        &self,
        node: &BatchLastJoin,
        inputs: &[Arc<dyn ExecutionPlan>],
        exprs: &ExprPlanner<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let join = &node.join;
        let (left, right) = (join.left.schema(), join.right.schema());
        let bound = match &join.time_bound {
            Some(bound) => Some((exprs.plan(&bound.left, left)?, bound.inclusive)),
            None => None,
        };
        let spec = LastJoinSpec {
            left_keys: exprs.plan_all(join.keys.iter().map(|(left, _)| left), left)?,
            right_keys: exprs.plan_all(join.keys.iter().map(|(_, right)| right), right)?,
            order_by: join.order_by.as_ref().map(|expr| exprs.plan(expr, right)).transpose()?,
            time_bound: bound,
            filter: join
                .filter
                .as_ref()
                .map(|expr| exprs.plan(expr, node.pair_schema()))
                .transpose()?,
            pair_schema: output_schema(node.pair_schema()),
            options: self.options.clone(),
        };
        let [left, right] = inputs else { return internal_err!("a LAST JOIN has two inputs") };
        let inputs = [Arc::clone(left), Arc::clone(right)];
        Ok(Arc::new(LastJoinExec::new(Arc::new(spec), inputs)))
    }
}

fn node_schema(node: &BatchWindow) -> Arc<DFSchema> {
    Arc::clone(datafusion::logical_expr::UserDefinedLogicalNodeCore::schema(node))
}

fn output_schema(schema: &DFSchema) -> Arc<Schema> {
    Arc::clone(schema.inner())
}
