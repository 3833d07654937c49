//! Texts that are drawn from the grammar: each from a number, so that a failure can be repeated.

use std::collections::{BTreeMap, BTreeSet};

use lockstep_sql::grammar::{Notation, RULES, STATEMENTS, TOKENS};

/// A text of this many tokens or more has nothing more that may be left out; each text draws its limit
/// below it.
const TOKENS_MAX: usize = 120;

/// The most rules within each other after which what may be left out is left out.
const DEPTH_MAX: usize = 60;

/// The rules by their names.
pub(crate) struct Grammar {
    rules: BTreeMap<&'static str, Notation<'static>>,
    samples: BTreeMap<&'static str, &'static [&'static str]>,
    /// How many rules the shortest text of a rule has within each other.
    heights: BTreeMap<&'static str, usize>,
}

impl Grammar {
    /// Reads the shared rules; panics where one cannot be read.
    pub(crate) fn read() -> Self {
        let shared = RULES.iter().flat_map(|chapter| chapter.rules);
        let parsed = |text| Notation::parse(text).unwrap_or_else(|error| panic!("{error}"));
        let mut grammar = Self {
            rules: shared.map(|rule| (rule.name, parsed(rule.grammar))).collect(),
            samples: TOKENS.iter().map(|rule| (rule.name, rule.samples)).collect(),
            heights: TOKENS.iter().map(|rule| (rule.name, 0)).collect(),
        };
        let mut is_changed = true;
        while is_changed {
            is_changed = false;
            for (name, rule) in &grammar.rules {
                let height = height(rule, &grammar.heights).map(|height| height + 1);
                if let Some(height) = height
                    && grammar.heights.get(name).is_none_or(|known| *known > height)
                {
                    grammar.heights.insert(name, height);
                    is_changed = true;
                }
            }
        }
        grammar
    }

    /// Returns a shared rule; `None` for a rule of one token.
    pub(crate) fn rule(&self, name: &str) -> Option<&Notation<'static>> {
        self.rules.get(name)
    }

    /// Whether the name is that of a rule, from which a text can be drawn.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.heights.contains_key(name)
    }

    /// Returns the names of all rules but those of statements.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.rules.keys().chain(self.samples.keys()).copied()
    }
}

/// Returns how many rules the shortest text has within each other; `None` while it is not known.
fn height(part: &Notation<'_>, heights: &BTreeMap<&str, usize>) -> Option<usize> {
    match part {
        Notation::Keyword(_)
        | Notation::Sign(_)
        | Notation::Optional(_)
        | Notation::Repeated(_) => Some(0),
        Notation::Rule(name) => heights.get(name).copied(),
        Notation::Sequence(parts) => parts
            .iter()
            .map(|part| height(part, heights))
            .try_fold(0, |max, height| Some(max.max(height?))),
        Notation::Choice(parts) => parts.iter().filter_map(|part| height(part, heights)).min(),
    }
}

/// Draws texts, and counts what it drew.
pub(crate) struct Draw<'g> {
    grammar: &'g Grammar,
    state: u64,
    tokens: Vec<&'static str>,
    tokens_max: usize,
    /// How many times each rule was drawn.
    pub(crate) counts: BTreeMap<&'static str, usize>,
    /// The parts of rules that were drawn, by their addresses.
    parts: BTreeSet<usize>,
}

impl<'g> Draw<'g> {
    /// Draws from a grammar.
    pub(crate) fn new(grammar: &'g Grammar, seed: u64) -> Self {
        Self {
            grammar,
            state: seed,
            tokens: Vec::new(),
            tokens_max: 0,
            counts: BTreeMap::new(),
            parts: BTreeSet::new(),
        }
    }

    /// Draws a text of a rule, its tokens with a space between them.
    pub(crate) fn text(&mut self, rule: &Notation<'static>) -> String {
        self.tokens.clear();
        self.tokens_max = self.below(TOKENS_MAX);
        self.expand(rule, 0);
        self.tokens.join(" ")
    }

    /// Returns the parts of a rule that were never drawn.
    pub(crate) fn missing<'r>(&self, rule: &'r Notation<'static>) -> Vec<&'r Notation<'static>> {
        if !self.parts.contains(&address(rule)) {
            return vec![rule];
        }
        match rule {
            Notation::Keyword(_) | Notation::Sign(_) | Notation::Rule(_) => Vec::new(),
            Notation::Sequence(parts) | Notation::Choice(parts) => {
                parts.iter().flat_map(|part| self.missing(part)).collect()
            }
            Notation::Optional(part) | Notation::Repeated(part) => self.missing(part),
        }
    }

    fn expand(&mut self, part: &Notation<'static>, depth: usize) {
        self.parts.insert(address(part));
        let is_small = self.is_small(depth);
        match part {
            Notation::Keyword(text) | Notation::Sign(text) => self.tokens.push(text),
            Notation::Rule(name) => self.expand_rule(name, depth + 1),
            Notation::Sequence(parts) => parts.iter().for_each(|part| self.expand(part, depth)),
            Notation::Choice(parts) => {
                let grammar = self.grammar;
                let shortest = || {
                    parts
                        .iter()
                        .min_by_key(|part| height(part, &grammar.heights).unwrap_or(usize::MAX))
                };
                let chosen = if is_small { parts.get(self.below(parts.len())) } else { shortest() };
                self.expand(chosen.expect("a choice has parts"), depth);
            }
            Notation::Optional(part) => {
                if is_small && self.below(2) == 0 {
                    self.expand(part, depth);
                }
            }
            Notation::Repeated(part) => {
                while self.is_small(depth) && self.below(5) == 0 {
                    self.expand(part, depth);
                }
            }
        }
    }

    fn is_small(&self, depth: usize) -> bool {
        self.tokens.len() < self.tokens_max && depth < DEPTH_MAX
    }

    fn expand_rule(&mut self, name: &'static str, depth: usize) {
        *self.counts.entry(name).or_default() += 1;
        let grammar = self.grammar;
        if let Some(samples) = grammar.samples.get(name) {
            let token = samples[self.below(samples.len())];
            self.tokens.push(token);
        } else {
            self.expand(&grammar.rules[name], depth);
        }
    }

    /// Returns a number below a count: `SplitMix64`.
    fn below(&mut self, count: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = (mixed ^ (mixed >> 31)) % u64::try_from(count).expect("a count fits 64 bits");
        usize::try_from(drawn).expect("it is below the count")
    }
}

/// Tells a part of a rule from others that are equal to it.
fn address(part: &Notation<'_>) -> usize {
    std::ptr::from_ref(part).addr()
}

/// Returns the grammar of each statement.
pub(crate) fn statements() -> Vec<(&'static str, Notation<'static>)> {
    let all = STATEMENTS.iter().flat_map(|chapter| chapter.rules);
    let parsed = |text| Notation::parse(text).unwrap_or_else(|error| panic!("{error}"));
    all.map(|rule| (rule.name, parsed(rule.grammar))).collect()
}
