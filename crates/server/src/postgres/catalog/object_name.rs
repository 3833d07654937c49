//! Names of objects in texts: `'public.t'::regclass`, `to_regclass('"T"')`, `has_table_privilege('t', …)`.
//!
//! A name is looked up where its schema says: tables and views are in `public`, the catalogs in
//! `pg_catalog`. Without a schema it is a catalog's, or else that of a table.

use lockstep_diagnostic::{Diagnostic, Result, code};

use super::{
    cluster::SCHEMAS,
    evaluation::Evaluator,
    function::{catalog_number, catalog_of},
    value::CatalogValue,
};

/// A part of a name, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamePart {
    text: String,
    is_quoted: bool,
}

impl NamePart {
    /// Returns whether it names an object that PostgreSQL has under this name, in lower case.
    fn is(&self, name: &str) -> bool {
        if self.is_quoted { self.text == name } else { self.text.eq_ignore_ascii_case(name) }
    }
}

/// The name of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectPath {
    text: String,
    database: Option<NamePart>,
    schema: Option<NamePart>,
    name: NamePart,
}

impl ObjectPath {
    /// Reads a name: parts between points, of which those in quotes are exact.
    pub(super) fn read(text: &str) -> Result<Self> {
        let mut parts = parts_of(text)?;
        let name = parts.pop();
        let (schema, database) = (parts.pop(), parts.pop());
        match (name, parts.is_empty()) {
            (Some(name), true) => Ok(Self { text: text.to_owned(), database, schema, name }),
            _ => invalid(text),
        }
    }

    /// Makes the error for a relation that does not exist.
    fn missing(&self) -> Diagnostic {
        let message = format!("relation \"{}\" does not exist", self.text);
        Diagnostic::new(code::UNDEFINED_TABLE, message)
    }

    /// Returns whether the name may be one of a schema: it names this one or none.
    fn is_in(&self, schema: &str) -> bool {
        self.schema.as_ref().is_none_or(|written| written.is(schema))
    }
}

fn invalid<T>(text: &str) -> Result<T> {
    Diagnostic::new(code::INVALID_NAME, format!("invalid name syntax: \"{text}\"")).err()
}

/// Reads the parts of a name.
fn parts_of(text: &str) -> Result<Vec<NamePart>> {
    let mut parts = Vec::new();
    let mut rest = text.trim();
    loop {
        let (part, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_part(quoted).map_or_else(|| invalid(text), Ok)?,
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                let part = rest[..end].trim();
                if part.is_empty() || part.contains('"') {
                    return invalid(text);
                }
                (NamePart { text: part.to_owned(), is_quoted: false }, &rest[end..])
            }
        };
        parts.push(part);
        let after = after.trim_start();
        if after.is_empty() {
            return Ok(parts);
        }
        match after.strip_prefix('.') {
            Some(next) if parts.len() < 4 => rest = next.trim_start(),
            _ => return invalid(text),
        }
    }
}

/// Reads a part behind its first quote. Returns it with what is behind the last one.
fn quoted_part(text: &str) -> Option<(NamePart, &str)> {
    let mut part = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        part.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                part.push('"');
                rest = after;
            }
            None if part.is_empty() => return None,
            None => return Some((NamePart { text: part, is_quoted: true }, rest)),
        }
    }
}

impl Evaluator<'_> {
    /// Returns the number and the name of a relation. Fails if there is none, or no such schema.
    pub(super) fn relation_of_name(&mut self, path: &ObjectPath) -> Result<(i64, String)> {
        self.check_schema(path)?;
        let is_catalog = path.is_in("pg_catalog");
        let lower = path.name.text.to_lowercase();
        let plain = if path.name.is_quoted { &path.name.text } else { &lower };
        if let Some(number) = catalog_number(plain).filter(|_| is_catalog) {
            return Ok((number, plain.clone()));
        }
        let found = match path.is_in("public") {
            true => self.number_of("pg_class", &path.name)?,
            false => None,
        };
        found.map_or_else(|| path.missing().err(), Ok)
    }

    /// Returns the number and the name of an object of a catalog that has this name: the name as it is
    /// written, or else in lower case unless it is in quotes.
    fn number_of(&mut self, catalog: &str, name: &NamePart) -> Result<Option<(i64, String)>> {
        let table = self.relation(catalog)?;
        let find = |name: &str| {
            let row = table.rows.iter().find(|row| row[1].shown() == name)?;
            Some((row[0].number()?, name.to_owned()))
        };
        let lower = || find(&name.text.to_lowercase()).filter(|_| !name.is_quoted);
        Ok(find(&name.text).or_else(lower))
    }

    /// Fails if a name is one of another database, or of a schema that does not exist.
    pub(super) fn check_schema(&self, path: &ObjectPath) -> Result<()> {
        if let Some(database) = &path.database
            && !database.is(&self.session.current_database())
        {
            let message = format!("cross-database references are not implemented: {}", path.text);
            return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message).err();
        }
        match &path.schema {
            Some(schema) if !SCHEMAS.iter().any(|known| schema.is(known)) => {
                let message = format!("schema \"{}\" does not exist", schema.text);
                Diagnostic::new(code::UNDEFINED_SCHEMA, message)
                    .with_hint("Use the schema public, which contains all tables and views.")
                    .err()
            }
            _ => Ok(()),
        }
    }

    /// Returns an object that is not a relation or a type: a function, a schema, a user.
    pub(super) fn other_object(&mut self, path: &ObjectPath, word: &str) -> Result<CatalogValue> {
        self.check_schema(path)?;
        let catalog = catalog_of(word);
        let found = match catalog == "pg_proc" && !path.is_in("public") {
            true => None,
            false => self.number_of(catalog, &path.name)?,
        };
        if let Some((number, name)) = found {
            return Ok(CatalogValue::Object(number, name.as_str().into()));
        }
        if catalog == "pg_proc" && path.is_in("pg_catalog") {
            // A function of PostgreSQL, which has a name and no row.
            return Ok(CatalogValue::Object(0, path.name.text.as_str().into()));
        }
        match catalog {
            "pg_proc" => {
                let message = format!("function \"{}\" does not exist", path.text);
                Diagnostic::new(code::UNDEFINED_FUNCTION, message).err()
            }
            "pg_namespace" => {
                let message = format!("schema \"{}\" does not exist", path.text);
                Diagnostic::new(code::UNDEFINED_SCHEMA, message).err()
            }
            _ => {
                let message = format!("role \"{}\" does not exist", path.text);
                Diagnostic::new(code::UNDEFINED_OBJECT, message).err()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ObjectPath, parts_of};

    #[test]
    fn names_have_parts_in_quotes_or_without() {
        let texts = |text: &str| -> Option<Vec<(String, bool)>> {
            let parts = parts_of(text).ok()?;
            Some(parts.into_iter().map(|part| (part.text, part.is_quoted)).collect())
        };
        let part = |text: &str, is_quoted: bool| (text.to_owned(), is_quoted);
        assert_eq!(texts("t"), Some(vec![part("t", false)]));
        assert_eq!(texts(" public . T "), Some(vec![part("public", false), part("T", false)]));
        let quoted = texts("\"a.b\".\"say \"\"x\"\"\"");
        assert_eq!(quoted, Some(vec![part("a.b", true), part("say \"x\"", true)]));
        for text in ["", ".", "a.", ".a", "a..b", "\"a", "\"\"", "\"a\"b", "a\"b\"", "a.b.c.d.e"] {
            assert_eq!(texts(text), None, "{text}");
        }
        assert_eq!(ObjectPath::read("a.b.c.d").unwrap_err().code, "42602");
    }
}
