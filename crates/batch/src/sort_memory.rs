//! Memory for the sorts of one query: the optimizer rule by which each has a share of its own.
//!
//! Sorts of one query run side by side, those below a join and the one above it; one that took all there is
//! would leave nothing to the others. So each may use an equal share at most, and one share is left for
//! everything else.

use std::sync::Arc;

use datafusion::{
    common::{
        config::ConfigOptions,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    error::Result,
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{ExecutionPlan, sorts::sort::SortExec},
};

use crate::{external_sort::ExternalSort, operator::OperatorOptions};

/// The optimizer rule that gives each sort of a plan its share.
#[derive(Debug, Clone)]
pub(crate) struct SortMemory {
    /// The memory of the query.
    pub(crate) bytes: usize,
    pub(crate) options: OperatorOptions,
}

impl PhysicalOptimizerRule for SortMemory {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut sorts = 0;
        plan.apply(|node| {
            sorts += usize::from(node.downcast_ref::<SortExec>().is_some());
            Ok(TreeNodeRecursion::Continue)
        })?;
        let bytes = self.bytes / (sorts + 1);
        let rewritten = plan.transform_up(|node| {
            let sort = node.downcast_ref::<SortExec>();
            match sort.and_then(|sort| ExternalSort::of(sort, bytes, &self.options)) {
                Some(sort) => Ok(Transformed::yes(Arc::new(sort) as Arc<dyn ExecutionPlan>)),
                None => Ok(Transformed::no(node)),
            }
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &'static str {
        "SortMemory"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
