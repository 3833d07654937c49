//! The memory of a query beside what limits the process: a reservation fails where the machine would not
//! give the process the memory, so that the query ends and not the process.

use std::{fmt, sync::Arc};

use datafusion::{
    common::resources_datafusion_err,
    error::Result,
    execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation},
};
use lockstep_host::memory::{self, AllocationSize};

/// The start of the error of a reservation that the machine does not have the memory for.
pub(crate) const MACHINE_FULL: &str = "The process exceeds its memory limit";

/// A pool of memory whose reservations fail where the machine would not give the memory.
#[derive(Debug)]
pub(crate) struct MachinePool(pub(crate) Arc<dyn MemoryPool>);

impl fmt::Display for MachinePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl MemoryPool for MachinePool {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.0.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.0.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.0.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.0.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let bytes = u64::try_from(additional).unwrap_or(u64::MAX);
        if memory::may_take(bytes, AllocationSize::Any) {
            return self.0.try_grow(reservation, additional);
        }
        Err(resources_datafusion_err!("{MACHINE_FULL} and cannot allocate {bytes} more bytes"))
    }

    fn reserved(&self) -> usize {
        self.0.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.0.memory_limit()
    }
}
