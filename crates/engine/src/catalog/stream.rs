//! The commands about streams.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, code};

use super::{CatalogEpoch, ObjectKind, Objects, QualifiedName, command::Removed, stale};
use crate::stream::Stream;

impl Objects {
    /// Checks that a stream, a source or a sink may take a name.
    pub(crate) fn check_name_free(&self, name: &QualifiedName) -> Result<()> {
        let found = self.database(&name.database)?;
        let taken_by = if found.tables.contains_key(&name.name) {
            ObjectKind::Table
        } else if found.views.contains_key(&name.name) {
            ObjectKind::View
        } else {
            return self.check_no_work(name);
        };
        taken(taken_by, name).err()
    }

    /// Checks that no stream, source or sink has a name.
    pub(super) fn check_no_work(&self, name: &QualifiedName) -> Result<()> {
        let found = self.databases.get(&name.database);
        let connector = found.and_then(|found| found.connectors.get(&name.name));
        let taken_by = match connector {
            Some(connector) => connector.definition.kind(),
            None if self.find_stream(name).is_some() => ObjectKind::Stream,
            None => return Ok(()),
        };
        taken(taken_by, name).err()
    }

    /// Checks that no stream, source or sink reads a table, or writes to it.
    pub(super) fn check_unstreamed(&self, name: &QualifiedName, id: u64) -> Result<()> {
        self.check_unconnected(name, id)?;
        let reads = |stream: &&Arc<Stream>| stream.tables.iter().any(|table| table.id == id);
        let writes = |stream: &&Arc<Stream>| stream.written_tables().any(|table| table.id == id);
        let (stream, does) = match self.streams().find(reads) {
            Some(stream) => (stream, "read by"),
            None => match self.streams().find(writes) {
                Some(stream) => (stream, "written by"),
                None => return Ok(()),
            },
        };
        let message = format!("table `{}` is {does} stream `{}`", name.name, stream.name().name);
        Diagnostic::new(code::DEPENDENT_OBJECTS, message)
            .with_hint("Drop the stream first with DROP STREAM.")
            .err()
    }

    /// Checks that a stream may write to its tables: no other one does, and none that it reads depends on them.
    pub(crate) fn check_targets(&self, stream: &Stream) -> Result<()> {
        debug_assert!(stream.written_tables().count() <= 2, "results and late rows");
        let target = &stream.target;
        let others = || self.streams().filter(|other| other.name() != stream.name());
        if let Some(other) = others().find(|other| other.target.id == target.id) {
            let (table, other) = (&target.name.name, &other.name().name);
            let message = format!("stream `{other}` writes to table `{table}` already");
            return Diagnostic::new(code::DUPLICATE_OBJECT, message)
                .with_hint("Use another table, and a view with UNION ALL to read both.")
                .err();
        }
        // Whatever its rows lead to, one stream after the other.
        let mut reached: Vec<u64> = stream.written_tables().map(|table| table.id).collect();
        let mut at = 0;
        while let Some(table) = reached.get(at).copied() {
            at += 1;
            let reads = |other: &&Arc<Stream>| other.tables.iter().any(|read| read.id == table);
            for written in others().filter(reads).flat_map(|other| other.written_tables()) {
                if !reached.contains(&written.id) {
                    reached.push(written.id);
                }
            }
        }
        let circular = stream.tables.iter().find(|read| reached.contains(&read.id));
        let Some(circular) = circular else { return Ok(()) };
        let message =
            format!("the stream would read table `{}`, to which it leads", circular.name.name);
        Diagnostic::new(code::INVALID_TABLE_DEFINITION, message)
            .with_detail("Each of its rows would cause another one.")
            .err()
    }

    pub(super) fn create_stream(
        &mut self,
        stream: &Arc<Stream>,
        seen: CatalogEpoch,
    ) -> Result<Removed> {
        let name = stream.name().clone();
        self.check_name_free(&name)?;
        self.check_tables(&stream.tables, seen)?;
        stream.written_tables().try_for_each(|table| self.entry(table).map(|_| ()))?;
        self.check_views(&stream.views, seen)?;
        self.check_targets(stream)?;
        let streams = &mut self.database_mut(&name.database)?.streams;
        let replaced = streams.insert(name.name, Arc::clone(stream));
        debug_assert!(replaced.is_none(), "the name was free");
        Ok(Removed::Nothing)
    }

    pub(super) fn replace_stream(
        &mut self,
        stream: &Arc<Stream>,
        before: &Arc<Stream>,
    ) -> Result<Removed> {
        let name = stream.name().clone();
        if !self.find_stream(&name).is_some_and(|found| Arc::ptr_eq(found, before)) {
            return stale(ObjectKind::Stream, &name).err();
        }
        stream.written_tables().try_for_each(|table| self.entry(table).map(|_| ()))?;
        self.check_targets(stream)?;
        let streams = &mut self.database_mut(&name.database)?.streams;
        let replaced = streams.insert(name.name, Arc::clone(stream));
        Ok(replaced.map_or(Removed::Nothing, Removed::Stream))
    }

    pub(super) fn drop_stream(&mut self, name: &QualifiedName) -> Result<Removed> {
        self.check_no_sink(name)?;
        let found = self.databases.get_mut(&name.database);
        match found.and_then(|found| found.streams.remove(&name.name)) {
            Some(stream) => Ok(Removed::Stream(stream)),
            None => self.no_stream(name).err(),
        }
    }

    /// Makes the error for a stream that does not exist.
    pub(crate) fn no_stream(&self, name: &QualifiedName) -> Diagnostic {
        let found = self.databases.get(&name.database);
        let names = found.into_iter().flat_map(|found| found.streams.keys());
        let message =
            format!("stream `{}` does not exist in database `{}`", name.name, name.database);
        Diagnostic::new(code::UNDEFINED_OBJECT, message)
            .with_nearest(&name.name, names.map(String::as_str))
    }
}

/// Makes the error of a name that an object has already.
pub(super) fn taken(by: ObjectKind, name: &QualifiedName) -> Diagnostic {
    Diagnostic::new(code::DUPLICATE_TABLE, format!("{by} `{}` already exists", name.name))
        .with_detail("Tables, views, streams, sources and sinks share a namespace.")
}
