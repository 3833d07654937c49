//! The functions about privileges: `has_table_privilege(user, table, privilege)` and its siblings.
//!
//! The answers are those of the engine's own check. PostgreSQL's privileges that no statement of the
//! engine needs (UPDATE, REFERENCES, TRIGGER, MAINTAIN) only `root` has.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::TablePrivilege;

use super::{
    evaluation::Evaluator, from::unsupported, object_name::ObjectPath, value::CatalogValue,
};

impl Evaluator<'_> {
    /// Computes a function whose name begins with `has_` and ends with `_privilege`. NULL if an argument
    /// is, or if there is no object of a number.
    pub(super) fn has_privilege(
        &mut self,
        name: &str,
        values: &[CatalogValue],
    ) -> Result<CatalogValue> {
        // `has_column_privilege` names a column behind the table.
        let objects = if name == "has_column_privilege" { 2 } else { 1 };
        let (user, rest) = match values.len().checked_sub(objects) {
            Some(1) => (None, values),
            Some(2) => (Some(&values[0]), &values[1..]),
            _ => return unsupported(&format!("{name} with {} arguments", values.len())),
        };
        if values.iter().any(CatalogValue::is_null) {
            return Ok(CatalogValue::Null);
        }
        let Some(user) = user.map(|user| self.user_of(user)).transpose()? else {
            return self.has_privilege_as(name, None, rest);
        };
        match user {
            Some(user) => self.has_privilege_as(name, Some(&user), rest),
            None => Ok(CatalogValue::Null),
        }
    }

    fn has_privilege_as(
        &mut self,
        name: &str,
        user: Option<&str>,
        values: &[CatalogValue],
    ) -> Result<CatalogValue> {
        let privileges = values.last().map(CatalogValue::display).unwrap_or_default();
        match name {
            "has_table_privilege" | "has_any_column_privilege" | "has_column_privilege" => {
                self.has_table_privilege(user, &values[0], &privileges)
            }
            "has_schema_privilege" => match &values[0] {
                CatalogValue::Text(schema) => {
                    let schemas = self.relation("pg_namespace")?;
                    if schemas.rows.iter().any(|row| row[1].shown() == **schema) {
                        return Ok(CatalogValue::Bool(true));
                    }
                    let message = format!("schema \"{schema}\" does not exist");
                    Diagnostic::new(code::UNDEFINED_SCHEMA, message).err()
                }
                _ => Ok(CatalogValue::Bool(true)),
            },
            _ => Ok(CatalogValue::Bool(true)),
        }
    }

    /// Returns the user of a name or a number; `None` of a number that no user has.
    fn user_of(&mut self, user: &CatalogValue) -> Result<Option<String>> {
        let roles = self.relation("pg_roles")?;
        if let CatalogValue::Text(name) = user {
            if **name == *self.session.user()
                || roles.rows.iter().any(|row| row[1].shown() == **name)
            {
                return Ok(Some(name.to_string()));
            }
            let message = format!("role \"{name}\" does not exist");
            return Diagnostic::new(code::UNDEFINED_OBJECT, message).err();
        }
        let at = roles.lookup(0, user).first();
        Ok(at.map(|at| roles.rows[*at][1].display()))
    }

    fn has_table_privilege(
        &mut self,
        user: Option<&str>,
        table: &CatalogValue,
        privileges: &str,
    ) -> Result<CatalogValue> {
        let wanted = privileges.split(',').map(table_privilege).collect::<Result<Vec<_>>>()?;
        let name = match table {
            CatalogValue::Text(text) => {
                let path = ObjectPath::read(text)?;
                let (_, name) = self.relation_of_name(&path)?;
                name
            }
            number => match self.name_of("pg_class", Some(number))? {
                CatalogValue::Null if number.number().is_some_and(|n| n < FIRST_OBJECT) => {
                    "pg_class".to_owned()
                }
                CatalogValue::Null => return Ok(CatalogValue::Null),
                name => name.display(),
            },
        };
        let is_catalog = name.starts_with("pg_");
        let mut has_one = false;
        for privilege in wanted {
            let reads = privilege == WantedPrivilege::Of(TablePrivilege::Select);
            has_one |= (reads && is_catalog)
                || match privilege {
                    WantedPrivilege::Of(privilege) => {
                        self.session.has_table_privilege(user, &name, privilege)
                    }
                    WantedPrivilege::OfRoot => user.unwrap_or(self.session.user()) == "root",
                };
        }
        Ok(CatalogValue::Bool(has_one))
    }
}

/// Numbers below are those of PostgreSQL's own objects.
const FIRST_OBJECT: i64 = 16_384;

/// A privilege that a function asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WantedPrivilege {
    Of(TablePrivilege),
    OfRoot,
}

/// Reads the name of a privilege.
fn table_privilege(text: &str) -> Result<WantedPrivilege> {
    let name = text.trim().to_ascii_uppercase();
    let plain = name.strip_suffix(" WITH GRANT OPTION").unwrap_or(&name).trim_end();
    Ok(WantedPrivilege::Of(match plain {
        "SELECT" => TablePrivilege::Select,
        "INSERT" => TablePrivilege::Insert,
        "DELETE" => TablePrivilege::Delete,
        "TRUNCATE" => TablePrivilege::Truncate,
        "UPDATE" | "REFERENCES" | "TRIGGER" | "MAINTAIN" => return Ok(WantedPrivilege::OfRoot),
        _ => {
            let message = format!("unrecognized privilege type: \"{}\"", text.trim());
            return Diagnostic::new(code::INVALID_PARAMETER, message).err();
        }
    }))
}
