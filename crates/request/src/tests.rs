//! Tests of whole programs: against an evaluator that rescans everything, and case by case.

mod fold;
mod join;
mod window;
