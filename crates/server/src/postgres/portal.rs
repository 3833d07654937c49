//! Prepared statements and portals of a session.

use std::{collections::HashMap, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::{Parameter, PreparedStatement};

use super::{
    command::ClientCommand,
    response::{ResultColumn, STALE_PLAN},
    rows::RowCursor,
    subscription::FollowedRows,
    types::Oid,
    value_input::WireFormat,
};

/// The most statements that a session keeps.
const STATEMENTS_MAX: usize = 4_096;

/// The most portals that a session keeps.
const PORTALS_MAX: usize = 256;

/// A prepared statement.
#[derive(Debug)]
pub(crate) struct NamedStatement {
    /// The text of the client.
    pub(crate) sql: Arc<str>,
    /// None: the text is empty.
    pub(crate) command: Option<ClientCommand>,
    /// The types of its parameters.
    pub(crate) parameter_types: Vec<Oid>,
    /// The statement of the engine, where it is one.
    pub(crate) engine: Option<Arc<PreparedStatement>>,
}

/// A statement with values for its parameters, and how much of it has run.
#[derive(Debug)]
pub(crate) struct Portal {
    pub(crate) prepared: Arc<NamedStatement>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) formats: Vec<WireFormat>,
    /// The columns that the client was told.
    pub(crate) described: Option<Arc<[ResultColumn]>>,
    pub(crate) progress: PortalProgress,
}

/// How much of a portal has run.
#[derive(Debug)]
pub(crate) enum PortalProgress {
    New,
    /// It has rows, of which some were sent.
    Rows(RowCursor),
    /// It is a SUBSCRIBE, which has no end.
    Following(Box<FollowedRows>),
    Done,
}

/// A statement, and its columns where the client was told them.
type DescribedStatement = (Arc<NamedStatement>, Option<Arc<[ResultColumn]>>);

/// The statements and portals of a session, by name.
#[derive(Debug, Default)]
pub(crate) struct PreparedObjects {
    statements: HashMap<String, DescribedStatement>,
    portals: HashMap<String, Portal>,
}

impl PreparedObjects {
    /// Keeps a statement. Only the unnamed one may be there already.
    pub(crate) fn insert_statement(
        &mut self,
        name: String,
        prepared: NamedStatement,
    ) -> Result<()> {
        if !name.is_empty() && self.statements.contains_key(&name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Diagnostic::new(code::DUPLICATE_STATEMENT, message).err();
        }
        if self.statements.len() >= STATEMENTS_MAX && !self.statements.contains_key(&name) {
            return too_many("prepared statements", STATEMENTS_MAX);
        }
        self.statements.insert(name, (Arc::new(prepared), None));
        Ok(())
    }

    /// Returns a statement, and its columns where they were described.
    pub(crate) fn statement(&self, name: &str) -> Result<DescribedStatement> {
        self.statements.get(name).cloned().map_or_else(
            || {
                let message = format!("prepared statement \"{name}\" does not exist");
                Diagnostic::new(code::UNDEFINED_STATEMENT, message).err()
            },
            Ok,
        )
    }

    /// Notes the columns that a client was told of a statement.
    pub(crate) fn note_columns(&mut self, name: &str, columns: Arc<[ResultColumn]>) {
        if let Some((_, described)) = self.statements.get_mut(name) {
            *described = Some(columns);
        }
    }

    /// Forgets a statement; one that is not there is forgotten already.
    pub(crate) fn remove_statement(&mut self, name: &str) -> bool {
        self.statements.remove(name).is_some()
    }

    /// Forgets all statements.
    pub(crate) fn clear_statements(&mut self) {
        self.statements.clear();
    }

    /// Keeps a portal. Only the unnamed one may be there already.
    pub(crate) fn insert_portal(&mut self, name: String, portal: Portal) -> Result<()> {
        if !name.is_empty() && self.portals.contains_key(&name) {
            let message = format!("cursor \"{name}\" already exists");
            return Diagnostic::new(code::DUPLICATE_PORTAL, message).err();
        }
        if self.portals.len() >= PORTALS_MAX && !self.portals.contains_key(&name) {
            return too_many("portals", PORTALS_MAX);
        }
        self.portals.insert(name, portal);
        Ok(())
    }

    /// Takes a portal, which has to be given back where it stays.
    pub(crate) fn take_portal(&mut self, name: &str) -> Result<Portal> {
        self.portals.remove(name).map_or_else(
            || {
                Diagnostic::new(code::UNDEFINED_PORTAL, format!("portal \"{name}\" does not exist"))
                    .err()
            },
            Ok,
        )
    }

    /// Gives a portal back.
    pub(crate) fn restore_portal(&mut self, name: String, portal: Portal) {
        debug_assert!(self.portals.len() < PORTALS_MAX, "it was taken from its place");
        self.portals.insert(name, portal);
    }

    /// Forgets a portal.
    pub(crate) fn remove_portal(&mut self, name: &str) {
        self.portals.remove(name);
    }

    /// Forgets all portals.
    pub(crate) fn clear_portals(&mut self) {
        self.portals.clear();
    }
}

/// Fails where an answer has other columns than the client was told: it would misread the values.
pub(crate) fn check_described(described: &[ResultColumn], found: &[ResultColumn]) -> Result<()> {
    let is_same = described.len() == found.len()
        && described.iter().zip(found).all(|(told, found)| told.oid == found.oid);
    if is_same {
        return Ok(());
    }
    Diagnostic::unsupported(STALE_PLAN).with_hint("Prepare the statement again.").err()
}

fn too_many<T>(what: &str, most: usize) -> Result<T> {
    let message = format!("number of {what} exceeds the session limit of {most}");
    Diagnostic::new(code::TOO_MANY_OBJECTS, message)
        .with_hint("Close unused prepared statements and portals.")
        .err()
}

#[cfg(test)]
mod tests {
    use super::{NamedStatement, PORTALS_MAX, Portal, PortalProgress, PreparedObjects};
    use std::sync::Arc;

    fn prepared() -> NamedStatement {
        NamedStatement { sql: "".into(), command: None, parameter_types: Vec::new(), engine: None }
    }

    fn portal() -> Portal {
        Portal {
            prepared: Arc::new(prepared()),
            parameters: Vec::new(),
            formats: Vec::new(),
            described: None,
            progress: PortalProgress::New,
        }
    }

    #[test]
    fn names_are_used_once_and_the_unnamed_again() {
        let mut objects = PreparedObjects::default();
        objects.insert_statement("a".to_owned(), prepared()).unwrap();
        objects.insert_statement(String::new(), prepared()).unwrap();
        objects.insert_statement(String::new(), prepared()).unwrap();
        assert_eq!(objects.insert_statement("a".to_owned(), prepared()).unwrap_err().code, "42P05");
        assert_eq!(objects.statement("b").unwrap_err().code, "26000");
        assert!(objects.remove_statement("a") && !objects.remove_statement("a"));
        assert_eq!(objects.take_portal("").unwrap_err().code, "34000");
    }

    #[test]
    fn there_is_a_limit_of_portals() {
        let mut objects = PreparedObjects::default();
        for number in 0..PORTALS_MAX {
            objects.insert_portal(format!("{number}"), portal()).unwrap();
        }
        assert_eq!(objects.insert_portal("x".to_owned(), portal()).unwrap_err().code, "53400");
        objects.clear_portals();
        objects.insert_portal("x".to_owned(), portal()).unwrap();
    }
}
