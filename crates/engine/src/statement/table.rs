//! DROP TABLE, ALTER TABLE and TRUNCATE TABLE.
//!
//! The catalog is locked for a look-up or a change, never while rows are read.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_sql::ast::{AlterTableAction, ObjectName, OptionItem};

use super::{at_name, with_cascade_hint};
use crate::{
    Output, Session,
    append::table_error,
    catalog::{Cascade, CatalogCommand, DroppedObject, Objects},
    entrance::ReadObjects,
    offline_data::{OfflineChange, PathChange},
    session::retried,
};

/// The options of DROP TABLE and DROP VIEW.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DropOptions {
    /// IF EXISTS.
    pub(crate) if_exists: bool,
    /// CASCADE.
    pub(crate) cascade: bool,
}

impl Session {
    /// Runs DROP TABLE. Each table is dropped for itself; all are checked before the first is dropped.
    pub(crate) fn drop_tables(&self, names: &[ObjectName], drop: DropOptions) -> Result<Output> {
        if let [name] = names {
            return self.drop_table(name, drop);
        }
        self.check_dropped(names, drop)?;
        let mut all = Output::of_message("DROP TABLE");
        // A table that has changed meanwhile is tried again by itself: others are dropped already.
        for name in names {
            let dropped = retried(|| self.drop_table(name, drop))?;
            all.warnings.extend(dropped.warnings);
        }
        Ok(all)
    }

    /// Fails where one of several tables cannot be dropped. Costs a copy of the catalog.
    fn check_dropped(&self, names: &[ObjectName], drop: DropOptions) -> Result<()> {
        let mut objects = self.database.objects().clone();
        for name in names {
            let named = self.qualified(name);
            let external = objects.find_view(&named).cloned();
            let command = match external.filter(|view| view.is_external_table()) {
                Some(_) => {
                    let readers = match drop.cascade {
                        true => objects.readers_of_view(&named),
                        false => Vec::new(),
                    };
                    let with = self.cascade_of(&objects, readers)?;
                    CatalogCommand::DropView { name: named, with }
                }
                None => {
                    let id = self.find_entry(name).map_or(0, |entry| entry.id);
                    let readers = match drop.cascade {
                        true => objects.readers_of_table(id),
                        false => Vec::new(),
                    };
                    let with = self.cascade_of(&objects, readers)?;
                    CatalogCommand::DropTable { name: named, id, with }
                }
            };
            match objects.apply(&command) {
                Err(error) if !drop.if_exists || !is_missing(&error) => {
                    return at_name(*with_cascade_hint(error), name).err();
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn drop_table(&self, name: &ObjectName, drop: DropOptions) -> Result<Output> {
        let named = self.qualified(name);
        let external = self.database.objects().find_view(&named).cloned();
        if external.is_some_and(|view| view.is_external_table()) {
            return self.drop_view_as(name, drop, "DROP TABLE");
        }
        let dropped = self.find_entry(name);
        let id = dropped.as_ref().map_or(0, |entry| entry.id);
        let with = match drop.cascade {
            true => self.cascade(|objects| objects.readers_of_table(id))?,
            false => Cascade::default(),
        };
        let warnings = with.warnings();
        let command = CatalogCommand::DropTable { name: named, id, with };
        match self.database.commit(&command) {
            Err(error) if !drop.if_exists || !is_missing(&error) => {
                at_name(*with_cascade_hint(error), name).err()
            }
            _ => {
                // Whoever still holds the table can neither add rows to it nor keep its memory.
                if let Ok(entry) = dropped {
                    entry.table.close();
                }
                Ok(Output { warnings, ..Output::of_message("DROP TABLE") })
            }
        }
    }

    /// Returns the objects that a DROP … CASCADE drops as well. Fails if the caller may not drop one.
    pub(crate) fn cascade(
        &self,
        readers: impl FnOnce(&Objects) -> Vec<DroppedObject>,
    ) -> Result<Cascade> {
        let objects = self.database.objects();
        self.cascade_of(&objects, readers(&objects))
    }

    fn cascade_of(&self, objects: &Objects, dropped: Vec<DroppedObject>) -> Result<Cascade> {
        for object in &dropped {
            let requirement = object.drop_requirement();
            self.caller().check_object(objects, &requirement)?;
            ReadObjects::note(&requirement.object);
        }
        Ok(Cascade { dropped, seen: objects.epoch() })
    }

    /// Runs ALTER TABLE: all of its actions or none.
    pub(crate) fn alter_table(
        &self,
        name: &ObjectName,
        actions: &[AlterTableAction],
    ) -> Result<Output> {
        if let [AlterTableAction::SetOptions { options, .. }] = actions {
            return self.set_table_options(name, options);
        }
        let path = |action: &AlterTableAction| match action {
            AlterTableAction::OfflinePath { add, path, span } => {
                Some(PathChange { add: *add, path: path.clone(), span: *span })
            }
            _ => None,
        };
        match actions.iter().map(path).collect::<Option<Vec<PathChange>>>() {
            Some(paths) => {
                let change = OfflineChange::Paths(paths);
                self.database.commit(&self.find_entry(name)?.offline_command(change))?;
            }
            None => self.alter_columns(name, actions)?,
        }
        Ok(Output::of_message("ALTER TABLE"))
    }

    /// Runs ALTER TABLE … SET OPTIONS. The rows move while the table serves.
    fn set_table_options(&self, name: &ObjectName, items: &[OptionItem]) -> Result<Output> {
        let entry = self.find_entry(name)?;
        let options = entry.options.changed(items)?;
        let table_error = |error| table_error(&error);
        if !options.is_on_disk() {
            // First, since memory may not suffice.
            entry.table.move_to_memory().map_err(table_error)?;
        }
        self.database.commit(&entry.options_command(options.clone()))?;
        if options.is_on_disk() {
            entry.table.move_to_disk().map_err(table_error)?;
        }
        let warnings = self.storage_warning(items, &options).into_iter().collect();
        Ok(Output { warnings, ..Output::of_message("ALTER TABLE") })
    }

    /// Runs TRUNCATE TABLE: all tables exist before the first is emptied.
    pub(crate) fn truncate(&self, names: &[ObjectName]) -> Result<Output> {
        let entries: Vec<_> =
            names.iter().map(|name| self.find_entry(name)).collect::<Result<_>>()?;
        for entry in entries {
            entry.write(|table| table.truncate().map_err(|error| table_error(&error)))?;
        }
        Ok(Output::of_message("TRUNCATE TABLE"))
    }
}

fn is_missing(error: &Diagnostic) -> bool {
    matches!(error.code, code::UNDEFINED_TABLE | code::UNDEFINED_DATABASE)
}
