//! The query that serves requests: that of a deployment without its labels, which a request does not have.

use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::{Compatibility, scalar::feature_role::FeatureRole};
use lockstep_plan::BoundQuery;

/// Returns a query without the columns that are labels. Those stay if there is no other column, and with
/// compatibility = 'openmldb', whose answers have them.
pub(super) fn without_labels(query: &BoundQuery) -> Result<BoundQuery> {
    let roles = query.roles();
    let is_kept = |at: &usize| roles[*at] != Some(FeatureRole::Label);
    let kept: Vec<usize> = (0..roles.len()).filter(is_kept).collect();
    let is_openmldb = query.settings.compatibility == Compatibility::OpenMldb;
    if is_openmldb || kept.is_empty() || kept.len() == roles.len() {
        return Ok(query.clone());
    }
    let columns = kept.iter().map(|at| query.columns[*at].clone()).collect();
    let builder = match &query.plan {
        LogicalPlan::Projection(node) => {
            let exprs = kept.iter().map(|at| node.expr[*at].clone());
            LogicalPlanBuilder::from(node.input.as_ref().clone()).project(exprs)
        }
        plan => {
            let all = plan.schema().columns();
            let exprs = kept.iter().map(|at| Expr::Column(all[*at].clone()));
            LogicalPlanBuilder::from(plan.clone()).project(exprs)
        }
    };
    let plan = builder.and_then(LogicalPlanBuilder::build);
    let plan = plan.map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
    debug_assert_eq!(plan.schema().fields().len(), kept.len(), "a column for each that is kept");
    Ok(BoundQuery { plan, columns, ..query.clone() })
}
