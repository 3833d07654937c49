//! Tests of whole programs: against an evaluator that rescans everything, and case by case.

mod aggregates;
mod join;
mod window;
