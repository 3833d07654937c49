//! A value that is replaced while somebody reads it is freed when they have gone, and not before; and
//! a reader of a table that sees a row sees the state that has it.

use loom::{cell::UnsafeCell, thread};

use crate::{
    epoch::Epochs,
    guard::{Guard, free},
    swap::Swap,
    sync::{AtomicPtr, AtomicU64, Ordering},
};

/// A state of a table, as far as it matters here.
struct State {
    /// What a reader reads, and whoever frees it writes: loom fails when neither comes first.
    read: UnsafeCell<()>,
    /// The arrival from which on rows are in this state only.
    first: u64,
    visible_min: u64,
}

// SAFETY: loom watches `read`.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl State {
    fn new(first: u64, visible_min: u64) -> Self {
        Self { read: UnsafeCell::new(()), first, visible_min }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.read.with_mut(|_| ());
    }
}

struct Table {
    epochs: &'static Epochs<()>,
    state: Swap<State>,
    /// Rows with a smaller arrival are visible.
    visible: AtomicU64,
}

impl Table {
    /// What `lockstep_table::Table::snapshot` does.
    fn read(&self) {
        let guard = Guard::enter(self.epochs);
        // Acquire: pairs with the Release in `append`.
        let visible = self.visible.load(Ordering::Acquire);
        let state = self.state.load(&guard);
        state.read.with(|_| ());
        let visible = visible.max(state.visible_min);
        assert!(visible >= state.visible_min);
        // Rows from 2 on are in the second state only, from 3 on in the third one.
        assert!(visible <= state.first + 1, "{visible} rows in the state from {}", state.first);
        state.read.with(|_| ());
        assert!(guard.leave().is_empty());
    }

    fn append(&self, visible: u64) {
        // Release: pairs with the Acquire in `read`.
        self.visible.store(visible, Ordering::Release);
    }

    /// What `lockstep_table::Table::replace_state` does.
    fn replace(&self, first: u64) -> Vec<crate::guard::Garbage> {
        let guard = Guard::enter(self.epochs);
        // Relaxed: only this thread writes it.
        let visible = self.visible.load(Ordering::Relaxed);
        self.state.replace(State::new(first, visible), &guard);
        guard.leave()
    }
}

fn check(readers: usize, replaced: u64) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let epochs = Epochs {
            now: AtomicU64::new(1),
            slots: AtomicPtr::new(std::ptr::null_mut()),
        };
        let table: &'static Table = Box::leak(Box::new(Table {
            epochs: Box::leak(Box::new(epochs)),
            state: Swap::new(State::new(1, 0), |_| 0),
            visible: AtomicU64::new(1),
        }));
        let readers: Vec<_> =
            (0..readers).map(|_| thread::spawn(move || table.read())).collect();
        let mut left = Vec::new();
        for first in 2..2 + replaced {
            left.extend(table.replace(first));
            table.append(first + 1);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        table.read();
        free(left);
        // SAFETY: the readers are gone, and the table was leaked above.
        let table = unsafe { Box::from_raw(std::ptr::from_ref(table).cast_mut()) };
        // The last state is freed by the stand-in's guard of who is alone: never, which the model
        // checker does not mind.
        drop(table);
    });
}

#[test]
fn a_state_is_freed_when_its_readers_have_gone() {
    check(1, 1);
    check(1, 2);
    check(2, 1);
}
