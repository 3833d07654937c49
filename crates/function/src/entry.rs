//! The list of function names, for completion and documentation.
//!
//! Derived from the declarations of [`crate::scalar`] and [`crate::aggregate`]; front ends and the
//! generator of `docs/reference` read it.

use crate::{aggregate, scalar};

/// A function name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionEntry {
    /// The name or alias, in lower case.
    pub name: &'static str,
    /// The name of the declaration; the same unless `name` is an alias.
    pub function: &'static str,
    /// The section of the function reference.
    pub category: &'static str,
    /// The signature as documented.
    pub signature: &'static str,
    /// Whether it needs a window or a group.
    pub is_aggregate: bool,
}

/// Returns every name and alias, sorted by name; an aggregate comes after a scalar function of its
/// name.
pub fn entries() -> Vec<FunctionEntry> {
    let scalars = scalar::all().flat_map(|function| {
        std::iter::once(function.name).chain(function.aliases.iter().copied()).map(|name| {
            FunctionEntry {
                name,
                function: function.name,
                category: function.category,
                signature: function.signature,
                is_aggregate: false,
            }
        })
    });
    let aggregates = aggregate::all().flat_map(|function| {
        function.names().map(|name| FunctionEntry {
            name,
            function: function.name,
            category: function.category,
            signature: function.signature,
            is_aggregate: true,
        })
    });
    let mut entries: Vec<FunctionEntry> = scalars.chain(aggregates).collect();
    entries.sort_unstable_by_key(|entry| (entry.name, entry.is_aggregate));
    entries
}

/// Returns an example of a declaration as SQL, with `op_negate(x)` and its like as operators.
pub fn example_sql(example: &str) -> String {
    let prefixes = [("op_negate(", "-"), ("op_bit_not(", "~"), ("op_plus(", "+")];
    for (name, sign) in prefixes {
        if let Some(operand) = example.strip_prefix(name).and_then(|rest| rest.strip_suffix(')')) {
            return format!("{sign}{operand}");
        }
    }
    match example.strip_prefix("to_bool(").and_then(|rest| rest.strip_suffix(')')) {
        Some(operand) => format!("{operand} AND true"),
        None => example.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{entries, example_sql};

    #[test]
    fn every_listed_function_is_declared() {
        let Ok(list) = std::fs::read_to_string("../../../shared/functions.csv") else {
            eprintln!("skipped: there is no list of OpenMLDB's functions here");
            return;
        };
        let entries = entries();
        // A tuple is no value of the dialect.
        let absent = ["make_tuple"];
        for name in list.lines().skip(1).filter_map(|line| line.split(',').next()) {
            let is_declared = entries.iter().any(|entry| entry.name == name);
            assert!(is_declared || absent.contains(&name), "`{name}` is declared");
        }
    }

    #[test]
    fn an_alias_leads_to_its_function() {
        let entries = entries();
        let find = |name: &str| entries.iter().find(|entry| entry.name == name).unwrap();
        assert_eq!(find("substr").function, "substring");
        assert!(find("variance").is_aggregate);
        let at: Vec<_> = entries.iter().filter(|entry| entry.name == "at").collect();
        assert_eq!(at.len(), 2, "of lists and of rows");
    }

    #[test]
    fn examples_are_written_with_operators() {
        assert_eq!(example_sql("op_negate(3)"), "-3");
        assert_eq!(example_sql("to_bool('')"), "'' AND true");
        assert_eq!(example_sql("abs(-2)"), "abs(-2)");
    }
}
