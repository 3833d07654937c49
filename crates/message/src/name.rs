//! Names of columns and tables in schemas. Avro and Protobuf allow the same ones.

/// Returns a name with an underscore in place of each character that is not allowed.
pub(crate) fn as_name(name: &str) -> String {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut out: String = name.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect();
    if out.chars().next().is_none_or(|first| first.is_ascii_digit()) {
        out.insert(0, '_');
    }
    out
}

/// Fails where a column has a name that is not allowed; `format` is what does not allow it.
pub(crate) fn check_column(name: &str, format: &str) -> Result<(), String> {
    if as_name(name) == name {
        return Ok(());
    }
    Err(format!("column `{name}` has a name that {format} does not allow"))
}
