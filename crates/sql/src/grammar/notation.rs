//! The notation of the grammar: text to a tree.
//!
//! A word in capitals is a keyword, a word in lower case the name of a rule, a text in double quotes
//! stands for itself. `[ … ]` may be left out, `{ … }` may stand any number of times or not at all,
//! `( … )` groups, and `|` separates alternatives.

/// A part of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notation<'a> {
    /// A keyword, in capitals.
    Keyword(&'a str),
    /// A text that stands for itself, without its quotes.
    Sign(&'a str),
    /// The name of another rule.
    Rule(&'a str),
    /// One after the other.
    Sequence(Vec<Self>),
    /// One of these.
    Choice(Vec<Self>),
    /// This, or nothing.
    Optional(Box<Self>),
    /// This any number of times, or nothing.
    Repeated(Box<Self>),
}

impl<'a> Notation<'a> {
    /// Reads a rule; the error is a sentence.
    ///
    /// ```
    /// use lockstep_sql::grammar::Notation;
    ///
    /// let rule = Notation::parse(r#"DROP TABLE [ IF EXISTS ] table_name { "," table_name }"#)?;
    /// assert_eq!(rule.rules(), ["table_name"]);
    /// # Ok::<(), String>(())
    /// ```
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let mut symbols = symbols(text)?;
        symbols.reverse();
        let parsed = choice(&mut symbols)?;
        match symbols.last() {
            None => Ok(parsed),
            Some(symbol) => Err(format!("`{symbol}` closes nothing in: {text}")),
        }
    }

    /// Returns the names of the rules that it names, each once, in the order of the text.
    pub fn rules(&self) -> Vec<&'a str> {
        let mut names = Vec::new();
        self.collect_rules(&mut names);
        names
    }

    fn collect_rules(&self, names: &mut Vec<&'a str>) {
        match self {
            Self::Keyword(_) | Self::Sign(_) => {}
            Self::Rule(name) => {
                if !names.contains(name) {
                    names.push(name);
                }
            }
            Self::Sequence(parts) | Self::Choice(parts) => {
                parts.iter().for_each(|part| part.collect_rules(names));
            }
            Self::Optional(part) | Self::Repeated(part) => part.collect_rules(names),
        }
    }
}

/// Splits a rule into words, texts with their quotes, and signs.
fn symbols(text: &str) -> Result<Vec<&str>, String> {
    let mut symbols = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => rest[1..].find('"').map(|at| at + 2),
            '[' | ']' | '{' | '}' | '(' | ')' | '|' => Some(1),
            _ => Some(rest.find(|c: char| !is_letter(c)).unwrap_or(rest.len())),
        };
        let Some(length) = length.filter(|length| *length > 0) else {
            return Err(format!("`{rest}` is no part of a rule"));
        };
        symbols.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    Ok(symbols)
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Reads alternatives from the end of the list, up to a closing sign.
fn choice<'a>(symbols: &mut Vec<&'a str>) -> Result<Notation<'a>, String> {
    let mut alternatives = vec![sequence(symbols)?];
    while symbols.last() == Some(&"|") {
        symbols.pop();
        alternatives.push(sequence(symbols)?);
    }
    Ok(one_or(alternatives, Notation::Choice))
}

fn sequence<'a>(symbols: &mut Vec<&'a str>) -> Result<Notation<'a>, String> {
    let mut parts = Vec::new();
    while let Some(symbol) = symbols.pop_if(|symbol| !matches!(*symbol, "]" | "}" | ")" | "|")) {
        parts.push(match symbol {
            "[" => Notation::Optional(Box::new(enclosed(symbols, "]")?)),
            "{" => Notation::Repeated(Box::new(enclosed(symbols, "}")?)),
            "(" => enclosed(symbols, ")")?,
            sign if sign.starts_with('"') => Notation::Sign(sign.trim_matches('"')),
            word if word.chars().any(|c| c.is_ascii_lowercase()) => Notation::Rule(word),
            word => Notation::Keyword(word),
        });
    }
    if parts.is_empty() {
        return Err("an alternative has no parts".to_owned());
    }
    Ok(one_or(parts, Notation::Sequence))
}

fn enclosed<'a>(symbols: &mut Vec<&'a str>, close: &str) -> Result<Notation<'a>, String> {
    let inner = choice(symbols)?;
    if symbols.pop() == Some(close) { Ok(inner) } else { Err(format!("`{close}` is missing")) }
}

fn one_or<'a>(
    mut parts: Vec<Notation<'a>>,
    several: fn(Vec<Notation<'a>>) -> Notation<'a>,
) -> Notation<'a> {
    debug_assert!(!parts.is_empty(), "a rule has parts");
    if parts.len() == 1 { parts.remove(0) } else { several(parts) }
}

#[cfg(test)]
mod tests {
    use super::Notation::{self, Choice, Keyword, Optional, Repeated, Rule, Sequence, Sign};

    #[test]
    fn alternatives_bind_looser_than_sequences() {
        let rule = Notation::parse(r#"SHOW ( A | b "," ) [ C ] { d } | E"#).unwrap();
        let group = Choice(vec![Keyword("A"), Sequence(vec![Rule("b"), Sign(",")])]);
        let first = Sequence(vec![
            Keyword("SHOW"),
            group,
            Optional(Box::new(Keyword("C"))),
            Repeated(Box::new(Rule("d"))),
        ]);
        assert_eq!(rule, Choice(vec![first, Keyword("E")]));
    }

    #[test]
    fn brackets_that_do_not_match_are_errors() {
        for text in ["[ A", "A ]", "( A ]", "A |", "", "\"(", "A # B"] {
            assert!(Notation::parse(text).is_err(), "{text}");
        }
    }
}
