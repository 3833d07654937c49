//! Memory for the sorts of one query: the optimizer rule by which each has a share of its own.
//!
//! A sort goes to disk when it gets no more memory, and fails when it does not get the little that it needs
//! for that. Sorts of one query run side by side, those below a join and the one above it; one that took
//! all there is would leave nothing to the others. So each may use an equal share at most, and one share is
//! left for everything else.

use std::{fmt, sync::Arc};

use datafusion::{
    common::{
        config::ConfigOptions,
        internal_err,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    error::Result,
    execution::{
        TaskContext,
        memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool, MemoryReservation},
        runtime_env::RuntimeEnvBuilder,
    },
    physical_expr::PhysicalExpr,
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        ReplaceChildrenOptions, SendableRecordBatchStream, sorts::sort::SortExec,
    },
};

use crate::operator::{given, with_runtime};

/// What a sort sets aside for reading its files is at most this fraction of its share.
const RESERVATION_SHARE: usize = 4;

/// The optimizer rule that gives each sort of a plan its share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SortMemory {
    /// The memory of the query.
    pub(crate) bytes: usize,
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
        if sorts < 2 {
            return Ok(plan);
        }
        let bytes = self.bytes / (sorts + 1);
        let rewritten = plan.transform_up(|node| match node.downcast_ref::<SortExec>() {
            Some(sort) => Ok(Transformed::yes(Arc::new(SharedSort { sort: sort.clone(), bytes }))),
            None => Ok(Transformed::no(node)),
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

/// A sort with a share of the memory.
#[derive(Debug)]
struct SharedSort {
    sort: SortExec,
    bytes: usize,
}

impl SharedSort {
    /// Returns the same sort of another input, which has one partition as all have here.
    fn sort_of(&self, input: Arc<dyn ExecutionPlan>) -> SortExec {
        SortExec::new(self.sort.expr().clone(), input).with_fetch(self.sort.fetch())
    }

    /// Returns the context of the sort itself.
    fn context(&self, context: &TaskContext) -> Result<TaskContext> {
        let parent = Arc::clone(context.memory_pool());
        let share = Arc::new(PoolShare { own: GreedyMemoryPool::new(self.bytes), parent });
        let runtime = RuntimeEnvBuilder::from_runtime_env(&context.runtime_env())
            .with_memory_pool(share)
            .build_arc()?;
        let mut config = context.session_config().clone();
        let reserved = &mut config.options_mut().execution.sort_spill_reservation_bytes;
        *reserved = (*reserved).min(self.bytes / RESERVATION_SHARE);
        Ok(with_runtime(context, config, runtime))
    }
}

impl DisplayAs for SharedSort {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sort.fmt_as(kind, f)
    }
}

impl ExecutionPlan for SharedSort {
    fn name(&self) -> &'static str {
        "SharedSort"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.sort.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![self.sort.input()]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => {
                Ok(Arc::new(Self { sort: self.sort_of(input), bytes: self.bytes }))
            }
            _ => internal_err!("a sort has one input"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    /// Runs the input in the context of the query, and only the sort in its own.
    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let own = self.context(&context)?;
        let rows = self.sort.input().execute(partition, context)?;
        let input = given(Box::pin(rows), &self.sort.input().schema())?;
        self.sort_of(input).execute(0, Arc::new(own))
    }
}

/// A part of a pool with a limit of its own.
#[derive(Debug)]
struct PoolShare {
    own: GreedyMemoryPool,
    parent: Arc<dyn MemoryPool>,
}

impl fmt::Display for PoolShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a share of {}", self.parent)
    }
}

impl MemoryPool for PoolShare {
    fn name(&self) -> &str {
        "share"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.parent.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.parent.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.own.grow(reservation, additional);
        self.parent.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.own.shrink(reservation, shrink);
        self.parent.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.own.try_grow(reservation, additional)?;
        let grown = self.parent.try_grow(reservation, additional);
        if grown.is_err() {
            self.own.shrink(reservation, additional);
        }
        grown
    }

    fn reserved(&self) -> usize {
        self.own.reserved()
    }
}
