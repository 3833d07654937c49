//! Names of types that are defined more than once: one word, one meaning.

use std::collections::BTreeMap;

use super::ratchet::{Direction, Measure};
use crate::source::{SourceFile, SourceToken, tokens};

/// Names that each crate may define: its errors, and what a function of it returns.
const OF_EACH_CRATE: &[&str] = &["Error", "ErrorKind", "Result"];

/// Counts the definitions of types whose name is already taken, outside tests.
pub(crate) fn measure(files: &[SourceFile]) -> Measure {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in files {
        for name in defined(&tokens(&file.code)) {
            places.entry(name.text).or_default().push(file.place(name.offset));
        }
    }
    places.retain(|name, places| places.len() > 1 && !OF_EACH_CRATE.contains(name));
    let value = places.values().map(|places| places.len() as u64 - 1).sum();
    let places = places.iter().map(|(name, places)| format!("`{name}`: {}", places.join(", ")));
    Measure {
        name: "repeated-type-names",
        scope: "workspace".to_owned(),
        value,
        direction: Direction::Falls,
        places: places.collect(),
    }
}

/// Finds the names of structs, enums, traits and type aliases; a type inside an `impl` or a `trait`
/// is no alias.
fn defined<'a>(tokens: &[SourceToken<'a>]) -> Vec<SourceToken<'a>> {
    let mut names = Vec::new();
    let mut blocks = Vec::new();
    let mut is_of_types = false;
    for (index, token) in tokens.iter().enumerate() {
        let next = tokens.get(index + 1).filter(|next| next.text.starts_with(char::is_alphabetic));
        match token.text {
            "impl" => is_of_types = true,
            ";" => is_of_types = false,
            "{" => {
                blocks.push(is_of_types);
                is_of_types = false;
            }
            "}" => drop(blocks.pop()),
            "struct" | "enum" | "trait" => names.extend(next),
            "type" if blocks.last() != Some(&true) => names.extend(next),
            _ => {}
        }
        is_of_types |= token.text == "trait";
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{defined, measure};
    use crate::source::{SourceFile, tokens};

    #[test]
    fn the_second_definition_of_a_name_counts() {
        let files = [
            SourceFile::of("row/src/key.rs", "pub struct Gizmo;\nenum Other {}\nstruct Error;"),
            SourceFile::of(
                "sql/src/lex.rs",
                "type Gizmo = u8;\n#[cfg(test)] mod t { struct Other; }",
            ),
            SourceFile::of("sql/src/lib.rs", "enum Gizmo {}\nenum Error {}"),
        ];
        let measure = measure(&files);
        assert_eq!(measure.value, 2);
        let at =
            "`Gizmo`: crates/row/src/key.rs:1, crates/sql/src/lex.rs:1, crates/sql/src/lib.rs:1";
        assert_eq!(measure.places, [at]);
    }

    #[test]
    fn a_type_of_a_trait_is_no_alias() {
        let code = "impl Iterator for A { type Item = u8; } trait B { type C; } \
                    fn d() -> impl E { type F = u8; } type G = H;";
        let tokens = tokens(code);
        let names: Vec<&str> = defined(&tokens).iter().map(|name| name.text).collect();
        assert_eq!(names, ["B", "G"]);
    }
}
