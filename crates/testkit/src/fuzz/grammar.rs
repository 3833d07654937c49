//! Draws statements construct by construct, each nested, chained, widened or stretched.
//!
//! [`super::mutate`] changes existing texts; this draws whole statements over the tables of
//! [`super::TABLES`], most of which bind, so that they reach the stages after the parser. The
//! constructs of a statement are recorded by name, so that a run can count them.
//!
//! | module | what |
//! |---|---|
//! | `expression` | expressions of each type |
//! | `query` | queries |
//! | `large` | deep, long and wide statements |
//! | `statement` | other statements |

mod expression;
mod large;
mod query;
mod statement;

use lockstep_engine::Parameter;

use super::{constructs, parameters};
use crate::random::Random;

/// A statement and its constructs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DrawnStatement {
    /// Its text.
    pub text: String,
    /// Names of [`constructs::ALL`], each at most once.
    pub constructs: Vec<&'static str>,
    /// Values for its `?`; none where it has none, or `?` of unknown types.
    pub parameters: Vec<Parameter>,
}

/// Percentage of statements in which constants become parameters.
const WITH_PARAMETERS_PERCENT: usize = 25;

/// Draws a statement.
pub fn statement(random: &mut Random) -> DrawnStatement {
    let mut draw = GrammarDraw { random, constructs: Vec::new() };
    let mut text = match draw.random.below(20) {
        0..=3 => draw.query(),
        4 | 5 => draw.nest(),
        6 => draw.table_chain(),
        7 => draw.stack(),
        8 => draw.used_twice(),
        9 => draw.join_chain(),
        10 => draw.wide(),
        11 => draw.many_terms(),
        12 => draw.huge_value(),
        13 => draw.pattern(),
        14 => draw.frame_query(),
        15 => draw.aliases(),
        16 => draw.nested_types(),
        17 => draw.nested_aggregates(),
        18 => draw.many_windows(),
        _ => draw.other_statement(),
    };
    let mut parameters = Vec::new();
    if draw.random.chance(WITH_PARAMETERS_PERCENT) {
        parameters = parameters::draw(&mut text, draw.random);
        if !parameters.is_empty() {
            draw.note("parameter");
        }
    }
    let mut constructs = draw.constructs;
    constructs.sort_unstable();
    constructs.dedup();
    DrawnStatement { text, constructs, parameters }
}

/// Draws a name that is hard to quote, to find or to tell from another.
pub fn name(random: &mut Random) -> String {
    match random.below(4) {
        0 => (*random.pick(&["t1", "t2", "m1", "d", "default.t1", "default.", ".", ""])).to_owned(),
        1 => constructs::ALIASES[random.below(constructs::ALIASES.len())].replace('`', ""),
        2 => "x".repeat(1 << random.below(12)),
        _ => format!("{}.{}", random.pick(&constructs::ALIASES), random.number()),
    }
}

struct GrammarDraw<'a> {
    random: &'a mut Random,
    constructs: Vec<&'static str>,
}

impl GrammarDraw<'_> {
    fn note(&mut self, construct: &'static str) {
        debug_assert!(constructs::ALL.contains(&construct), "{construct}");
        self.constructs.push(construct);
    }

    fn one(&mut self, of: &[&str]) -> String {
        (*self.random.pick(of)).to_owned()
    }

    /// Draws a count: mostly small, seldom large, at times `most`.
    fn times(&mut self, most: usize) -> usize {
        match self.random.below(20) {
            0 => most,
            1 => self.random.below(most) + 1,
            2..=5 => self.random.below(40.min(most)) + 1,
            _ => self.random.below(4.min(most)) + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Random, name, statement};
    use crate::fuzz::constructs::{ALL, FINDINGS};

    /// Enough to draw the rarest construct at its greatest size.
    const DRAWS: usize = 6_000;

    #[test]
    fn every_construct_is_drawn() {
        let mut random = Random::new(1);
        let drawn: BTreeSet<&str> =
            (0..DRAWS).flat_map(|_| statement(&mut random).constructs).collect();
        let missing: Vec<_> = ALL.iter().filter(|construct| !drawn.contains(*construct)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    /// Checks that each input that ended the process in the past is drawn.
    #[test]
    fn what_was_once_found_is_drawn_again() {
        let mut random = Random::new(1);
        let mut left: BTreeSet<&str> = FINDINGS.iter().map(|finding| finding.what).collect();
        for _ in 0..DRAWS {
            let drawn = statement(&mut random);
            for finding in FINDINGS {
                if (finding.is_in)(&drawn.text) {
                    left.remove(finding.what);
                }
            }
        }
        assert!(left.is_empty(), "never drawn: {left:?}");
    }

    #[test]
    fn a_seed_is_a_sequence_of_statements() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|_| (statement(&mut random), name(&mut random))).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
