//! The process: what has to be made again in a forked child.
//!
//! A child has one thread, the one that forked. Whatever relies on other threads (a pool, a thread
//! that collects) is kept in a [`PerProcess`] and made again by the first who asks.

use std::{fmt, process, sync::OnceLock};

/// A value that each process makes for itself, when it is first asked for. The value of the parent
/// is never touched in the child: its threads are not there to be waited for.
pub struct PerProcess<T: 'static> {
    /// The oldest process first, which is the one that forked the others.
    first: Link<T>,
}

type Link<T> = OnceLock<Box<Made<T>>>;

/// A value and the process that made it.
struct Made<T: 'static> {
    process: u32,
    value: T,
    next: Link<T>,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// Makes a place without a value.
    pub const fn new() -> Self {
        Self { first: OnceLock::new() }
    }

    /// The value of this process; `make` makes it, unless another thread is faster. Fails when
    /// `make` does.
    pub fn get_or_make<E>(
        &'static self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&'static T, E> {
        let process = process::id();
        if let Ok(value) = self.find(process) {
            return Ok(value);
        }
        let mut own = Some(Box::new(Made { process, value: make()?, next: OnceLock::new() }));
        loop {
            match self.find(process) {
                Ok(value) => return Ok(value),
                Err(end) => own = own.and_then(|own| end.set(own).err()),
            }
        }
    }

    /// The value of this process, or the end of the list.
    fn find(&'static self, process: u32) -> Result<&'static T, &'static Link<T>> {
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
        static PLACE: PerProcess<u32> = PerProcess::new();
        assert_eq!(PLACE.get_or_make(|| Err("no")), Err("no"));
        assert_eq!(PLACE.get_or_make(|| Ok::<_, ()>(1)), Ok(&1));
        assert_eq!(PLACE.get_or_make(|| Ok::<_, ()>(2)), Ok(&1));
    }
}
