//! The output: one line per figure, with tabs between its columns.

use std::fmt::Display;

use crate::{draw::Distribution, engine::Configuration};

/// Prints the names of the columns.
pub(crate) fn print_header() {
    println!("engine\tconfiguration\tphase\tkeys\trows\tmeasure\tvalue");
}

/// A phase of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Writing all rows.
    Build,
    /// The pages of all keys that are read are in the engine's cache.
    Warm,
    /// The files are in the operating system's cache.
    OsWarm,
    /// Nothing is in a cache.
    Cold,
    /// Nothing is in the engine's cache; the operating system's cache could not be dropped.
    Reopened,
}

/// The queries that a figure is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) phase: Phase,
    /// Distribution of keys.
    pub(crate) distribution: Distribution,
    /// Number of rows of each query.
    pub(crate) newest: usize,
}

/// Prints figures of an engine in one configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) configuration: Configuration,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Warm => "warm",
            Self::OsWarm => "os-warm",
            Self::Cold => "cold",
            Self::Reopened => "reopened",
        }
    }
}

impl Figures {
    /// Prints a figure of queries.
    pub(crate) fn print_case(self, case: Case, measure: &str, value: impl Display) {
        let Case { phase, distribution, newest } = case;
        self.print(phase, &format!("{distribution}\t{newest}"), measure, value);
    }

    /// Prints a figure of the build.
    pub(crate) fn print_build(self, measure: &str, value: impl Display) {
        self.print(Phase::Build, "-\t-", measure, value);
    }

    fn print(self, phase: Phase, queries: &str, measure: &str, value: impl Display) {
        let (engine, name) = (self.configuration.engine(), self.configuration.name());
        println!("{engine}\t{name}\t{}\t{queries}\t{measure}\t{value}", phase.name());
    }
}
