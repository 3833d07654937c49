//! Which calls of a window share a state.
//!
//! Calls that fold the same values of the same rows in the same way have equal states at every row,
//! such as a sum and an average: the state is computed once, and each call answers from it.

use lockstep_function::{
    StateForm,
    aggregate::state::{FoldSource, StateKind},
};

use crate::lower::GroupShape;

/// A state of a window, and the positions of the calls that it answers among those of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SharedState {
    pub(super) calls: Vec<usize>,
}

/// Returns the states of a window; each call has one.
pub(super) fn shared_states(shape: &GroupShape) -> Vec<SharedState> {
    let mut states: Vec<SharedState> = Vec::new();
    for call in 0..shape.group.calls.len() {
        let folded = folded(shape, call);
        let is_same = |state: &&mut SharedState| {
            folded.is_some() && self::folded(shape, state.calls[0]) == folded
        };
        match states.iter_mut().find(is_same) {
            Some(state) => state.calls.push(call),
            None => states.push(SharedState { calls: vec![call] }),
        }
    }
    states
}

/// Returns what a call folds, by the expressions of its arguments, and into what; `None` where it needs
/// whole rows.
fn folded(shape: &GroupShape, call: usize) -> Option<(StateKind, FoldSource<usize>)> {
    match &shape.group.calls[call].bound.state {
        StateForm::Fold(fold) => Some((fold.state, fold.source(&shape.arguments[call])?)),
        StateForm::Rows(_) => None,
    }
}
