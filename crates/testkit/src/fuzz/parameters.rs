//! Replaces constants of a drawn statement by `?`, with the constants as values.
//!
//! So the grammar also covers the entry points that take values, and its statements keep their
//! meaning there.

use lockstep_engine::Parameter;
use lockstep_row::{DataType, Value};

use super::mutate::tokens;
use crate::random::Random;

/// Longer texts keep their constants, in bytes: they test length.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Words before a number that must stay a literal.
const BEFORE_NUMBERS: [&str; 5] = ["LIMIT", "MAXSIZE", "BETWEEN", "TTL", "OPTIONS"];

/// Replaces some of the constants of a statement that takes values; returns them in the order of
/// `?`.
pub(super) fn draw(text: &mut String, random: &mut Random) -> Vec<Parameter> {
    let takes_values = ["SELECT", "WITH", "INSERT", "DELETE", "EXPLAIN"]
        .iter()
        .any(|word| text.trim_start().starts_with(word));
    let has_other = text.contains(['?', ';']) || text.contains(" CONFIG(");
    if !takes_values || has_other || text.len() > TEXT_BYTES_MAX {
        return Vec::new();
    }
    let all: Vec<&str> = tokens(text).into_iter().collect();
    let share = *random.pick(&[20, 50, 100]);
    let (mut values, mut written) = (Vec::new(), String::with_capacity(text.len()));
    for (at, token) in all.iter().enumerate() {
        let value = constant(token).filter(|_| !is_written_out(&all, at) && random.chance(share));
        match value {
            Some(value) => {
                written.push('?');
                values.push(bent(value, random));
            }
            None => written.push_str(token),
        }
    }
    *text = written;
    values
}

/// Parses a number or a text without quotes in it.
fn constant(token: &str) -> Option<Parameter> {
    if let Some(text) = token.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return Some((Value::String(text.into()), DataType::String));
    }
    if !token.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match (token.parse(), token.parse()) {
        (Ok(small), _) => Some((Value::Int(small), DataType::Int)),
        (_, Ok(number)) => Some((Value::BigInt(number), DataType::BigInt)),
        _ => None,
    }
}

/// Returns the constant, or seldom NULL or a value of another type.
fn bent(value: Parameter, random: &mut Random) -> Parameter {
    match random.below(20) {
        0 => (Value::Null, DataType::Null),
        1 => (Value::Double(f64::MAX), DataType::Double),
        2 => (Value::Timestamp(1_500), DataType::Timestamp),
        _ => value,
    }
}

/// Returns whether a constant must stay a literal: in a number, a frame, an option or a type.
fn is_written_out(tokens: &[&str], at: usize) -> bool {
    let is_space = |token: &&&str| !token.trim().is_empty();
    let before = tokens[..at].iter().rev().find(is_space).copied().unwrap_or_default();
    let after = tokens[at + 1..].iter().find(is_space).copied().unwrap_or_default();
    let is_of_frame = after == "PRECEDING" || after == "OPEN" || BEFORE_NUMBERS.contains(&before);
    let touches = tokens.get(at + 1).is_some_and(|next| next.starts_with(['.', '\'']));
    is_of_frame || touches || before == "."
}

#[cfg(test)]
mod tests {
    use lockstep_row::Value;

    use super::{Random, draw};

    #[test]
    fn constants_become_values_in_the_order_of_the_text() {
        let sql = "SELECT c3 + 1, 'a' FROM t1 WHERE x < 2147483648 AND x <> 1.5 LIMIT 5";
        let mut drawn = 0;
        for seed in 0..200 {
            let mut text = sql.to_owned();
            let values = draw(&mut text, &mut Random::new(seed));
            assert_eq!(text.matches('?').count(), values.len(), "{text}");
            assert!(text.ends_with("x <> 1.5 LIMIT 5"), "{text}");
            if text.starts_with("SELECT c3 + ?, ? FROM t1 WHERE x < ?") {
                drawn += usize::from(matches!(
                    values.as_slice(),
                    [(Value::Int(1), _), (Value::String(_), _), (Value::BigInt(2_147_483_648), _)]
                ));
            }
        }
        assert!(drawn > 10, "{drawn}");
    }

    #[test]
    fn what_takes_no_values_stays_as_it_is() {
        for sql in ["DEPLOY d AS SELECT 1", "SELECT ? + 1", "SELECT 1; SELECT 2", "SET a = 1"] {
            let mut text = sql.to_owned();
            assert!(draw(&mut text, &mut Random::new(1)).is_empty());
            assert_eq!(text, sql);
        }
    }
}
