//! Running work that recurses into a statement on a large stack.
//!
//! Plans and expressions are trees of limited height, and are walked by recursion, here and in the
//! libraries. How much of the caller's stack is used, and how large it is (2 MiB for a thread of a
//! user's program), must not decide whether a statement succeeds.

/// The stack that a statement within the limits of `plan` may need, in builds without optimisation too.
pub(crate) const STACK_BYTES: usize = 64 << 20;

/// Runs `work` with at least half of [`STACK_BYTES`] of stack: on a new one where the caller's has less
/// left. Its memory is only reserved: what is not touched costs nothing. Making it takes microseconds.
pub fn with_large_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_BYTES / 2, STACK_BYTES, work)
}

#[cfg(test)]
mod tests {
    use super::with_large_stack;

    /// Takes at least a kibibyte of stack at each level.
    fn descend(levels: usize) -> usize {
        let frame = std::hint::black_box([levels; 128]);
        if levels == 0 { frame[0] } else { descend(levels - 1) + frame[1] - levels + 1 }
    }

    #[test]
    fn recursion_goes_deeper_than_the_stack_of_its_thread() {
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        let deep = thread.spawn(|| with_large_stack(|| descend(16_000))).unwrap();
        assert_eq!(deep.join().unwrap(), 16_000);
    }
}
