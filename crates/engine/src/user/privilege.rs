//! Privileges and the objects that they are granted on.
//!
//! A grant names its object as text: `*.*`, `db.*`, `db.table`, `DEPLOYMENT *.*`, `DEPLOYMENT db.*` or
//! `DEPLOYMENT db.deployment`. A name that is no plain word is in back-quotes, so that two objects never
//! have one text.

use std::fmt;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::Ident;

use crate::catalog::QualifiedName;

/// Something that a statement needs on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Privilege {
    Select,
    Insert,
    Delete,
    Create,
    Drop,
    Alter,
    Index,
    Truncate,
    Deploy,
    Execute,
    CreateUser,
    AlterUser,
    DropUser,
    Admin,
}

/// The names that GRANT takes.
const NAMES: &[&str] = &[
    "ALL",
    "SELECT",
    "INSERT",
    "DELETE",
    "DDL",
    "CREATE",
    "DROP",
    "ALTER",
    "INDEX",
    "TRUNCATE",
    "DEPLOY",
    "EXECUTE",
    "ADMIN",
    "CREATE USER",
    "ALTER USER",
    "DROP USER",
    "GRANT OPTION",
];

/// What DDL includes.
const DDL: &[&str] = &["CREATE", "DROP", "ALTER", "INDEX", "TRUNCATE", "DEPLOY"];

/// What ALL includes, beside DDL.
const ALL: &[&str] = &["SELECT", "INSERT", "DELETE", "EXECUTE", "DDL"];

/// What ADMIN includes.
const ADMIN: &[&str] = &["CREATE USER", "ALTER USER", "DROP USER"];

/// What GRANT ON DEPLOYMENT takes.
const OF_DEPLOYMENTS: &[&str] = &["EXECUTE", "DEPLOY", "DROP", "DDL", "ALL", "GRANT OPTION"];

impl Privilege {
    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Select => "SELECT",
            Self::Insert => "INSERT",
            Self::Delete => "DELETE",
            Self::Create => "CREATE",
            Self::Drop => "DROP",
            Self::Alter => "ALTER",
            Self::Index => "INDEX",
            Self::Truncate => "TRUNCATE",
            Self::Deploy => "DEPLOY",
            Self::Execute => "EXECUTE",
            Self::CreateUser => "CREATE USER",
            Self::AlterUser => "ALTER USER",
            Self::DropUser => "DROP USER",
            Self::Admin => "ADMIN",
        }
    }

    /// Returns whether a granted privilege includes this one.
    pub(crate) fn is_implied_by(self, granted: &str) -> bool {
        includes(granted, self.name())
    }
}

/// Returns whether a granted privilege includes another one.
pub(super) fn includes(granted: &str, other: &str) -> bool {
    granted == other
        || match granted {
            "ALL" => ALL.contains(&other) || DDL.contains(&other),
            "DDL" => DDL.contains(&other),
            "ADMIN" => ADMIN.contains(&other),
            _ => false,
        }
}

/// Fails where a privilege does not exist.
pub(super) fn check_name(privilege: &Ident) -> Result<()> {
    if NAMES.contains(&privilege.text.as_str()) {
        return Ok(());
    }
    let message = format!("privilege `{}` does not exist", privilege.text);
    Diagnostic::new(code::UNDEFINED_OBJECT, message)
        .at(privilege.span)
        .with_nearest(&privilege.text, NAMES.iter().copied())
        .err()
}

/// What privileges are granted on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Securable {
    /// The engine with all its databases.
    Everything,
    Database(String),
    Table(QualifiedName),
    EveryDeployment,
    DeploymentsOf(String),
    /// A deployment or a procedure, which share their names.
    Deployment(QualifiedName),
}

impl Securable {
    /// Writes the object as a grant names it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Everything => "*.*".to_owned(),
            Self::Database(database) => format!("{}.*", quoted(database)),
            Self::Table(QualifiedName { database, name }) => {
                format!("{}.{}", quoted(database), quoted(name))
            }
            Self::EveryDeployment => "DEPLOYMENT *.*".to_owned(),
            Self::DeploymentsOf(database) => format!("DEPLOYMENT {}.*", quoted(database)),
            Self::Deployment(QualifiedName { database, name }) => {
                format!("DEPLOYMENT {}.{}", quoted(database), quoted(name))
            }
        }
    }

    /// Returns the objects, as text, a grant on which covers this one.
    pub(super) fn covering(&self) -> Vec<String> {
        let mut covering = vec![Self::Everything.text()];
        match self {
            Self::Everything => {}
            Self::Database(_) => covering.push(self.text()),
            Self::Table(name) => {
                covering.extend([Self::Database(name.database.clone()).text(), self.text()]);
            }
            Self::EveryDeployment => covering.push(self.text()),
            Self::DeploymentsOf(database) => covering.extend([
                Self::Database(database.clone()).text(),
                Self::EveryDeployment.text(),
                self.text(),
            ]),
            Self::Deployment(QualifiedName { database, .. }) => covering.extend([
                Self::Database(database.clone()).text(),
                Self::EveryDeployment.text(),
                Self::DeploymentsOf(database.clone()).text(),
                self.text(),
            ]),
        }
        covering
    }

    /// Returns whether a grant names something in this object.
    pub(super) fn contains(&self, granted: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Database(database) => {
                let inner = granted.strip_prefix("DEPLOYMENT ").unwrap_or(granted);
                granted == "DEPLOYMENT *.*" || inner.starts_with(&format!("{}.", quoted(database)))
            }
            _ => false,
        }
    }

    /// Fails where a privilege is none that deployments have.
    pub(crate) fn check_takes(&self, privilege: &Ident) -> Result<()> {
        let is_deployment =
            matches!(self, Self::EveryDeployment | Self::DeploymentsOf(_) | Self::Deployment(_));
        if !is_deployment || OF_DEPLOYMENTS.contains(&privilege.text.as_str()) {
            return Ok(());
        }
        let message = format!("invalid privilege type {} for a deployment", privilege.text);
        Diagnostic::new(code::INVALID_GRANT, message)
            .at(privilege.span)
            .with_hint(format!("Valid privilege types are {}.", OF_DEPLOYMENTS.join(", ")))
            .err()
    }
}

/// Writes the object as GRANT takes it.
impl fmt::Display for Securable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// Writes a name, in back-quotes unless it is a plain word.
fn quoted(name: &str) -> String {
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if is_plain { name.to_owned() } else { format!("`{}`", name.replace('`', "``")) }
}
