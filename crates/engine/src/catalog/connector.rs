//! The commands about sources and sinks.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, code};

use super::{ObjectKind, Objects, QualifiedName, command::Removed, stale};
use crate::connector::Connector;

impl Objects {
    /// Finds a source or a sink.
    pub(crate) fn find_connector(
        &self,
        kind: ObjectKind,
        name: &QualifiedName,
    ) -> Option<&Arc<Connector>> {
        let found = self.databases.get(&name.database)?.connectors.get(&name.name)?;
        (found.definition.kind() == kind).then_some(found)
    }

    /// Returns the sources and sinks of all databases.
    pub(crate) fn connectors(&self) -> impl Iterator<Item = &Arc<Connector>> {
        self.databases.values().flat_map(|found| found.connectors.values())
    }

    /// Checks that no source or sink has a table.
    pub(super) fn check_unconnected(&self, name: &QualifiedName, id: u64) -> Result<()> {
        let has = |connector: &&Arc<Connector>| connector.tables().any(|table| table.id == id);
        let Some(connector) = self.connectors().find(has) else { return Ok(()) };
        let is_written = connector.written_tables().any(|table| table.id == id);
        let does = if is_written { "written by" } else { "read by" };
        used(&format!("table `{}` is {does}", name.name), connector).err()
    }

    /// Checks that no sink writes the results of a stream.
    pub(super) fn check_no_sink(&self, stream: &QualifiedName) -> Result<()> {
        let reads = |connector: &&Arc<Connector>| connector.stream.as_ref() == Some(stream);
        match self.connectors().find(reads) {
            Some(sink) => used(&format!("stream `{}` is read by", stream.name), sink).err(),
            None => Ok(()),
        }
    }

    pub(super) fn create_connector(&mut self, connector: &Arc<Connector>) -> Result<Removed> {
        let name = connector.name().clone();
        self.check_name_free(&name)?;
        self.check_parts(connector)?;
        let connectors = &mut self.database_mut(&name.database)?.connectors;
        let replaced = connectors.insert(name.name, Arc::clone(connector));
        debug_assert!(replaced.is_none(), "the name was free");
        Ok(Removed::Nothing)
    }

    pub(super) fn replace_connector(
        &mut self,
        connector: &Arc<Connector>,
        before: &Arc<Connector>,
    ) -> Result<Removed> {
        let (name, kind) = (connector.name().clone(), connector.definition.kind());
        if !self.find_connector(kind, &name).is_some_and(|found| Arc::ptr_eq(found, before)) {
            return stale(kind, &name).err();
        }
        self.check_parts(connector)?;
        let connectors = &mut self.database_mut(&name.database)?.connectors;
        debug_assert_eq!(before.progress.id(), connector.progress.id(), "it goes on");
        let replaced = connectors.insert(name.name, Arc::clone(connector));
        Ok(replaced.map_or(Removed::Nothing, Removed::Connector))
    }

    /// Checks that its tables and its stream are there.
    fn check_parts(&self, connector: &Connector) -> Result<()> {
        connector.tables().try_for_each(|table| self.entry(table).map(|_| ()))?;
        let Some(stream) = &connector.stream else { return Ok(()) };
        match self.find_stream(stream) {
            Some(found) if found.target == connector.table => Ok(()),
            Some(_) => stale(ObjectKind::Stream, stream).err(),
            None => self.no_stream(stream).err(),
        }
    }

    pub(super) fn drop_connector(
        &mut self,
        kind: ObjectKind,
        name: &QualifiedName,
    ) -> Result<Removed> {
        if self.find_connector(kind, name).is_none() {
            return self.no_connector(kind, name).err();
        }
        let connectors = &mut self.database_mut(&name.database)?.connectors;
        let removed = connectors.remove(&name.name).expect("it was found above");
        Ok(Removed::Connector(removed))
    }

    /// Makes the error for a source or a sink that does not exist.
    pub(crate) fn no_connector(&self, kind: ObjectKind, name: &QualifiedName) -> Diagnostic {
        let of_kind = self.connectors().filter(|found| {
            found.definition.kind() == kind && found.name().database == name.database
        });
        let names: Vec<&str> = of_kind.map(|found| found.name().name.as_str()).collect();
        let message =
            format!("{kind} `{}` does not exist in database `{}`", name.name, name.database);
        Diagnostic::new(code::UNDEFINED_OBJECT, message).with_nearest(&name.name, names)
    }
}

fn used(what: &str, connector: &Connector) -> Diagnostic {
    let kind = connector.definition.kind();
    let message = format!("{what} {kind} `{}`", connector.name().name);
    let word = kind.to_string().to_ascii_uppercase();
    Diagnostic::new(code::DEPENDENT_OBJECTS, message)
        .with_hint(format!("Drop the {kind} first with DROP {word}."))
}
