//! Models of a value that is replaced: it is freed when its readers are gone, and not before; and a
//! reader of a table that sees a row sees the state that has it.

use loom::{cell::UnsafeCell, thread};

use crate::{
    epoch::Epochs,
    guard::{Guard, free},
    swap::Swap,
    sync::{AtomicPtr, AtomicU64, Ordering},
};

/// The part of a table's state that matters here.
struct ModelState {
    /// Read by readers and written when the state is freed: loom fails when neither comes first.
    read: UnsafeCell<()>,
    /// The arrival from which on rows are in this state only.
    first: u64,
    visible_min: u64,
}

// SAFETY: loom watches `read`.
unsafe impl Send for ModelState {}
// SAFETY: as above.
unsafe impl Sync for ModelState {}

impl ModelState {
    fn new(first: u64, visible_min: u64) -> Self {
        Self { read: UnsafeCell::new(()), first, visible_min }
    }
}

impl Drop for ModelState {
    fn drop(&mut self) {
        self.read.with_mut(|_| ());
    }
}

struct ModelTable {
    epochs: &'static Epochs<()>,
    state: Swap<ModelState>,
    /// Rows with a smaller arrival are visible.
    visible: AtomicU64,
}

impl ModelTable {
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
        self.state.replace(ModelState::new(first, visible), &guard);
        guard.leave()
    }
}

fn check(readers: usize, replaced: u64) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let epochs = Epochs { now: AtomicU64::new(1), slots: AtomicPtr::new(std::ptr::null_mut()) };
        let table: &'static ModelTable = Box::leak(Box::new(ModelTable {
            epochs: Box::leak(Box::new(epochs)),
            state: Swap::new(ModelState::new(1, 0), |_| 0),
            visible: AtomicU64::new(1),
        }));
        let readers: Vec<_> = (0..readers).map(|_| thread::spawn(move || table.read())).collect();
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
        // The last state is retired under a guard without an epoch, and never freed, which the model
        // checker accepts.
        drop(table);
    });
}

#[test]
fn a_state_is_freed_when_its_readers_have_gone() {
    check(1, 1);
    check(1, 2);
    check(2, 1);
}
