//! Regular expressions and LIKE patterns of catalog queries, such as `^(orders)$`.
//!
//! Takes characters, `.`, `[…]`, groups, `|`, `*`, `+`, `?`, `^` and `$`. *Cost*: backtracking, up to a
//! limit of steps, after which nothing matches.

/// The most steps of a match.
const STEPS_MAX: usize = 100_000;

/// A part of a pattern.
#[derive(Debug, Clone)]
enum PatternPart {
    Character(char),
    Any,
    Set { members: Vec<(char, char)>, is_negated: bool },
    Group(Vec<Vec<Self>>),
    Repeat { part: Box<Self>, least: usize, most: usize },
    Begin,
    End,
}

/// A pattern.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    alternatives: Vec<Vec<PatternPart>>,
    is_any_case: bool,
}

impl Pattern {
    /// Reads a regular expression; `None` where it is not one.
    pub(super) fn new(text: &str, is_any_case: bool) -> Option<Self> {
        let text = if is_any_case { text.to_lowercase() } else { text.to_owned() };
        let characters: Vec<char> = text.chars().collect();
        let mut at = 0;
        let alternatives = read_alternatives(&characters, &mut at, 0)?;
        (at == characters.len()).then_some(Self { alternatives, is_any_case })
    }

    /// Makes the pattern of LIKE, which matches the whole text.
    pub(super) fn like(text: &str, is_any_case: bool) -> Self {
        let text = if is_any_case { text.to_lowercase() } else { text.to_owned() };
        let mut parts = vec![PatternPart::Begin];
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            parts.push(match character {
                '%' => PatternPart::Repeat {
                    part: Box::new(PatternPart::Any),
                    least: 0,
                    most: usize::MAX,
                },
                '_' => PatternPart::Any,
                '\\' => PatternPart::Character(characters.next().unwrap_or('\\')),
                other => PatternPart::Character(other),
            });
        }
        parts.push(PatternPart::End);
        Self { alternatives: vec![parts], is_any_case }
    }

    /// Returns whether the pattern is somewhere in a text.
    pub(super) fn matches(&self, text: &str) -> bool {
        let text = if self.is_any_case { text.to_lowercase() } else { text.to_owned() };
        let characters: Vec<char> = text.chars().collect();
        let mut matcher = Matcher { text: &characters, steps: 0 };
        (0..=characters.len()).any(|start| {
            self.alternatives.iter().any(|parts| matcher.run(parts, start, &mut |_, _| true))
        })
    }
}

/// Reads alternatives up to a closing parenthesis or the end.
fn read_alternatives(text: &[char], at: &mut usize, depth: usize) -> Option<Vec<Vec<PatternPart>>> {
    if depth > 16 {
        return None;
    }
    let mut alternatives = vec![Vec::new()];
    while let Some(character) = text.get(*at).copied() {
        let part = match character {
            ')' => break,
            '|' => {
                alternatives.push(Vec::new());
                *at += 1;
                continue;
            }
            '(' => {
                *at += 1;
                let inner = read_alternatives(text, at, depth + 1)?;
                (text.get(*at) == Some(&')')).then_some(PatternPart::Group(inner))?
            }
            '[' => read_set(text, at)?,
            '.' => PatternPart::Any,
            '^' => PatternPart::Begin,
            '$' => PatternPart::End,
            '\\' => {
                *at += 1;
                PatternPart::Character(*text.get(*at)?)
            }
            '*' | '+' | '?' => return None,
            other => PatternPart::Character(other),
        };
        *at += 1;
        let (least, most) = match text.get(*at) {
            Some('*') => (0, usize::MAX),
            Some('+') => (1, usize::MAX),
            Some('?') => (0, 1),
            _ => (1, 1),
        };
        let is_repeated = (least, most) != (1, 1);
        *at += usize::from(is_repeated);
        let part = if is_repeated {
            PatternPart::Repeat { part: Box::new(part), least, most }
        } else {
            part
        };
        alternatives.last_mut()?.push(part);
    }
    Some(alternatives)
}

/// Reads `[…]`, and stays at its end.
fn read_set(text: &[char], at: &mut usize) -> Option<PatternPart> {
    *at += 1;
    let is_negated = text.get(*at) == Some(&'^');
    *at += usize::from(is_negated);
    let mut members = Vec::new();
    let first = *at;
    while *at == first || *text.get(*at)? != ']' {
        let from = *text.get(*at)?;
        let is_range =
            text.get(*at + 1) == Some(&'-') && text.get(*at + 2).is_some_and(|c| *c != ']');
        let to = if is_range { text[*at + 2] } else { from };
        members.push((from, to));
        *at += if is_range { 3 } else { 1 };
    }
    Some(PatternPart::Set { members, is_negated })
}

struct Matcher<'t> {
    text: &'t [char],
    steps: usize,
}

impl Matcher<'_> {
    /// Matches parts from a position; `then` is called with the position behind them.
    fn run(
        &mut self,
        parts: &[PatternPart],
        at: usize,
        then: &mut dyn FnMut(&mut Self, usize) -> bool,
    ) -> bool {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return false;
        }
        let Some((part, rest)) = parts.split_first() else { return then(self, at) };
        match part {
            PatternPart::Begin => at == 0 && self.run(rest, at, then),
            PatternPart::End => at == self.text.len() && self.run(rest, at, then),
            PatternPart::Group(alternatives) => alternatives
                .iter()
                .any(|inner| self.run(inner, at, &mut |matcher, at| matcher.run(rest, at, then))),
            PatternPart::Repeat { part, least, most } => {
                self.repeat((part, *least, *most), rest, at, then)
            }
            single => {
                let fits = self.text.get(at).is_some_and(|character| single.fits(*character));
                fits && self.run(rest, at + 1, then)
            }
        }
    }

    fn repeat(
        &mut self,
        (part, least, most): (&PatternPart, usize, usize),
        rest: &[PatternPart],
        at: usize,
        then: &mut dyn FnMut(&mut Self, usize) -> bool,
    ) -> bool {
        let one = std::slice::from_ref(part);
        let further = most > 0
            && self.run(one, at, &mut |matcher, next| {
                let next_bounds = (part, least.saturating_sub(1), most.saturating_sub(1));
                next > at && matcher.repeat(next_bounds, rest, next, then)
            });
        further || (least == 0 && self.run(rest, at, then))
    }
}

impl PatternPart {
    fn fits(&self, character: char) -> bool {
        match self {
            Self::Character(wanted) => *wanted == character,
            Self::Any => true,
            Self::Set { members, is_negated } => {
                members.iter().any(|(from, to)| (*from..=*to).contains(&character)) != *is_negated
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn patterns_of_psql_match() {
        for (pattern, text, expected) in [
            ("^(orders)$", "orders", true),
            ("^(orders)$", "orders2", false),
            ("^(ord.*)$", "orders", true),
            ("^pg_", "pg_class", true),
            ("^pg_", "a_pg_", false),
            ("^(a|b+)$", "bbb", true),
            ("[a-c]x?[^0-9]", "bz", true),
            ("a\\.b", "axb", false),
            ("(a*)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(Pattern::new(pattern, false).unwrap().matches(text), expected, "{pattern}");
        }
        assert!(Pattern::new("^A", true).unwrap().matches("abc"));
        for wrong in ["(", "a)", "[a", "*", "a\\"] {
            assert!(Pattern::new(wrong, false).is_none(), "{wrong}");
        }
        assert!(Pattern::like("a%_\\%", false).matches("abc%"));
        assert!(!Pattern::like("a%", false).matches("ba"));
    }
}
