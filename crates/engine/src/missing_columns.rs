//! The error for a request row without columns that the answer depends on.

use lockstep_diagnostic::{Diagnostic, Kind, code, nearest};
use lockstep_row::DataType;

/// Makes the error for a request row that lacks columns: all of them, and which of the names that it
/// has instead was probably meant. `others` are names in the row that are no columns.
///
/// ```
/// use lockstep_engine::missing_columns;
/// use lockstep_row::DataType;
///
/// let error = missing_columns(&[("price", &DataType::Double)], ["prise"]);
/// assert_eq!(error.message, "missing value for column `price` of type DOUBLE");
/// assert!(error.hint.unwrap().starts_with("Did you mean `price` instead of `prise`?"));
/// ```
pub fn missing_columns<'a>(
    missing: &[(&str, &DataType)],
    others: impl IntoIterator<Item = &'a str>,
) -> Diagnostic {
    debug_assert!(!missing.is_empty(), "at least one column is missing");
    let message = match missing {
        [(name, data_type)] => format!("missing value for column `{name}` of type {data_type}"),
        _ => {
            let columns = missing.iter().map(|(name, data_type)| format!("`{name}` ({data_type})"));
            format!("missing values for columns {}", columns.collect::<Vec<_>>().join(", "))
        }
    };
    let names = || missing.iter().map(|(name, _)| *name);
    let mut hints: Vec<String> = Vec::new();
    for found in others {
        if let Some(name) = nearest(found, names()) {
            hints.push(format!("Did you mean `{name}` instead of `{found}`?"));
        }
        if hints.len() == NEAR_NAMES_MAX {
            break;
        }
    }
    hints.push("Use NULL for a missing value.".to_owned());
    Diagnostic::new(code::UNDEFINED_COLUMN, message)
        .with_kind(Kind::FixData)
        .with_hint(hints.join(" "))
}

/// The most names that the hint compares: a row may have thousands of other columns.
const NEAR_NAMES_MAX: usize = 5;
