//! Values that a forked child has to make again.
//!
//! A child has one thread, the one that forked. A value that relies on other threads (a pool, a
//! background thread) is stored in a [`PerProcess`] and made again when the child first uses it.

use std::{fmt, process, sync::OnceLock};

/// A value that each process makes when it is first used. The value of the parent is never touched in
/// the child, which does not have its threads.
pub struct PerProcess<T: 'static> {
    /// A list that begins with the value of the oldest process, which forked the others.
    first: ListEnd<T>,
}

/// The rest of the list; not set at its end.
type ListEnd<T> = OnceLock<Box<ProcessValue<T>>>;

/// A value and the process that made it.
struct ProcessValue<T: 'static> {
    process: u32,
    value: T,
    next: ListEnd<T>,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// Makes it without a value.
    pub const fn new() -> Self {
        Self { first: OnceLock::new() }
    }

    /// Returns the value of this process; `make` makes it, unless another thread is faster. Fails when
    /// `make` does.
    pub fn get_or_make<E>(
        &'static self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&'static T, E> {
        let process = process::id();
        if let Ok(value) = self.find(process) {
            return Ok(value);
        }
        let mut own =
            Some(Box::new(ProcessValue { process, value: make()?, next: OnceLock::new() }));
        loop {
            match self.find(process) {
                Ok(value) => return Ok(value),
                Err(end) => own = own.and_then(|own| end.set(own).err()),
            }
        }
    }

    /// Finds the value of this process, or the end of the list.
    fn find(&'static self, process: u32) -> Result<&'static T, &'static ListEnd<T>> {
        let mut link = &self.first;
        while let Some(made) = link.get() {
            if made.process == process {
                return Ok(&made.value);
            }
            link = &made.next;
        }
        Err(link)
    }
}

impl<T: Send + Sync + 'static> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::PerProcess;

    #[test]
    fn a_value_is_made_once_and_not_by_a_failure() {
        static VALUE: PerProcess<u32> = PerProcess::new();
        assert_eq!(VALUE.get_or_make(|| Err("no")), Err("no"));
        assert_eq!(VALUE.get_or_make(|| Ok::<_, ()>(1)), Ok(&1));
        assert_eq!(VALUE.get_or_make(|| Ok::<_, ()>(2)), Ok(&1));
    }
}
