//! DROP … CASCADE: a table or a view with all that reads it, in one command.

use std::{collections::BTreeSet, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result, code};
use serde::{Deserialize, Serialize};

use super::{
    CatalogEpoch, ObjectKind, Objects, QualifiedName, TableReference, command::Removed, stale,
};
use crate::{
    access::Requirement,
    user::{Privilege, Securable},
    view::View,
};

/// An object that is dropped with what it reads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct DroppedObject {
    pub(crate) kind: ObjectKind,
    pub(crate) name: QualifiedName,
}

impl DroppedObject {
    /// Returns what a user needs to drop it.
    pub(crate) fn drop_requirement(&self) -> Requirement {
        let name = self.name.clone();
        let object = match self.kind {
            ObjectKind::Table
            | ObjectKind::View
            | ObjectKind::Stream
            | ObjectKind::Source
            | ObjectKind::Sink => Securable::Table(name),
            ObjectKind::Deployment | ObjectKind::Procedure => Securable::Deployment(name),
        };
        Requirement::new(Privilege::Drop, object)
    }
}

/// The objects that a command drops as well.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cascade {
    pub(crate) dropped: Vec<DroppedObject>,
    /// The catalog in which these were all.
    pub(crate) seen: CatalogEpoch,
}

impl Cascade {
    /// Returns a warning for each object.
    pub(crate) fn warnings(&self) -> Vec<Diagnostic> {
        let warning = |object: &DroppedObject| {
            let message = format!("drop cascades to {} `{}`", object.kind, object.name);
            Diagnostic::new(code::WARNING, message)
        };
        self.dropped.iter().map(warning).collect()
    }
}

impl Objects {
    /// Returns what reads a table, in the order of kinds and names.
    pub(crate) fn readers_of_table(&self, id: u64) -> Vec<DroppedObject> {
        self.readers(|tables, _| tables.iter().any(|table| table.id == id))
    }

    /// Returns what reads a view, in the order of kinds and names.
    pub(crate) fn readers_of_view(&self, name: &QualifiedName) -> Vec<DroppedObject> {
        self.readers(|_, views| views.iter().any(|view| view.name() == name))
    }

    /// Returns the objects for which `reads` is true of the tables and the views that they read. Both are
    /// complete: the tables and views behind views are among them.
    fn readers(
        &self,
        reads: impl Fn(&[TableReference], &[Arc<View>]) -> bool,
    ) -> Vec<DroppedObject> {
        let mut found = BTreeSet::new();
        let mut note = |kind: ObjectKind, name: &QualifiedName| {
            found.insert(DroppedObject { kind, name: name.clone() });
        };
        for database in self.databases.values() {
            for view in database.views.values().filter(|view| reads(&view.tables, &view.views)) {
                note(ObjectKind::View, view.name());
            }
            for stream in database.streams.values() {
                let writes: Vec<TableReference> = stream.written_tables().cloned().collect();
                if reads(&stream.tables, &stream.views) || reads(&writes, &[]) {
                    note(ObjectKind::Stream, stream.name());
                }
            }
            for connector in database.connectors.values() {
                let tables: Vec<TableReference> = connector.tables().cloned().collect();
                if reads(&tables, &[]) {
                    note(connector.definition.kind(), connector.name());
                }
            }
            for deployment in database.deployments.values() {
                let reads_it = reads(&deployment.tables, &deployment.views);
                if reads_it || reads(deployment.answers.as_slice(), &[]) {
                    note(ObjectKind::Deployment, deployment.name());
                }
            }
            for procedure in database.procedures.values() {
                if reads(&procedure.tables, &procedure.views) {
                    note(ObjectKind::Procedure, procedure.name());
                }
            }
        }
        found.into_iter().collect()
    }

    /// Drops the objects of a cascade, and then what they read. Changes nothing where it fails.
    pub(super) fn with_cascade(
        &mut self,
        with: &Cascade,
        drop: impl FnOnce(&mut Self) -> Result<Removed>,
    ) -> Result<Removed> {
        let Some(first) = with.dropped.first() else { return drop(self) };
        if with.seen != self.epoch {
            return stale(first.kind, &first.name).err();
        }
        let before = self.databases.clone();
        let dropped = self.drop_all(&with.dropped).and_then(|mut removed| {
            removed.push(drop(self)?);
            Ok(Removed::Several(removed))
        });
        if dropped.is_err() {
            self.databases = before;
        }
        dropped
    }

    fn drop_all(&mut self, dropped: &[DroppedObject]) -> Result<Vec<Removed>> {
        let mut removed = Vec::with_capacity(dropped.len());
        // Views are checked to be unread: those above others, and what reads them, go first.
        let is_view = |object: &&DroppedObject| object.kind == ObjectKind::View;
        let (views, queries): (Vec<_>, Vec<_>) = dropped.iter().partition(is_view);
        // A sink goes before its stream.
        let is_sink = |object: &&DroppedObject| object.kind == ObjectKind::Sink;
        let (sinks, others): (Vec<_>, Vec<_>) = queries.into_iter().partition(is_sink);
        for object in sinks.into_iter().chain(others) {
            removed.push(match object.kind {
                ObjectKind::Deployment => self.drop_deployment(&object.name)?,
                ObjectKind::Stream => self.drop_stream(&object.name)?,
                kind @ (ObjectKind::Source | ObjectKind::Sink) => {
                    self.drop_connector(kind, &object.name)?
                }
                _ => self.drop_procedure(&object.name)?,
            });
        }
        let height = |object: &DroppedObject| self.find_view(&object.name).map(|v| v.height());
        let mut by_height: Vec<_> = views.iter().map(|view| (height(view), &view.name)).collect();
        by_height.sort_by_key(|(height, _)| std::cmp::Reverse(*height));
        for (_, name) in by_height {
            removed.push(self.drop_view(name)?);
        }
        Ok(removed)
    }
}
