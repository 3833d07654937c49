//! The workload: a table of operations, and how often each is drawn.
//!
//! An operation is drawn for a writer from what the writer knows to exist, so that it succeeds, unless
//! it is one that is to be refused. A further statement is a line in [`WORKLOAD`] and a function.

mod queries;
mod tables;
mod writes;

use std::{collections::VecDeque, path::PathBuf};

use lockstep_testkit::random::Random;

use crate::{
    objects::{Effect, WriterObjects},
    operation::{Action, AddedRows, DrawnOperation, Witness},
    rows::RowRange,
};

/// An operation of the workload.
#[derive(Debug)]
pub struct WorkloadEntry {
    /// Its name.
    pub name: &'static str,
    /// How often it is drawn, compared with the others.
    pub weight: usize,
    /// Draws one; `None` when it makes no sense now.
    draw: fn(&mut Writer, &mut Random) -> Option<Draft>,
}

/// The operations.
pub const WORKLOAD: &[WorkloadEntry] = &[
    entry("append", 40, writes::append),
    entry("append disk", 12, writes::append_disk),
    entry("append os", 24, writes::append_os),
    entry("append memory", 24, writes::append_memory),
    entry("append to several tables", 10, writes::append_to_several),
    entry("batches over several tables", 12, writes::append_tables),
    entry("INSERT", 20, writes::insert),
    entry("INSERT, refused", 4, writes::insert_refused),
    entry("LOAD DATA", 6, writes::load),
    entry("LOAD DATA in parts", 6, writes::load_in_parts),
    entry("LOAD DATA, offline", 4, writes::load_offline),
    entry("LOAD DATA, linked", 3, writes::link_offline),
    entry("ALTER TABLE, offline path", 2, writes::drop_link),
    entry("DELETE", 8, writes::delete),
    entry("TRUNCATE", 8, writes::truncate),
    entry("CHECKPOINT", 4, writes::checkpoint),
    entry("BACKUP", 1, writes::backup),
    entry("CREATE TABLE", 12, tables::create_table),
    entry("CREATE TABLE, refused", 2, tables::create_table_refused),
    entry("CREATE OR REPLACE TABLE", 5, tables::replace_table),
    entry("CREATE OR REPLACE TABLE … AS", 5, tables::replace_table_as),
    entry("ALTER TABLE, column", 5, tables::alter_table),
    entry("ALTER TABLE, storage", 6, tables::move_table),
    entry("CREATE VIEW", 5, queries::create_view),
    entry("CREATE OR REPLACE VIEW", 2, queries::replace_view),
    entry("DROP VIEW", 3, queries::drop_view),
    entry("DEPLOY over a view", 3, queries::deploy_view),
    entry("DROP TABLE", 5, tables::drop_table),
    entry("CREATE INDEX", 8, tables::create_index),
    entry("DROP INDEX", 5, tables::drop_index),
    entry("CREATE DATABASE", 6, tables::create_database),
    entry("DROP DATABASE", 2, tables::drop_database),
    entry("DEPLOY", 12, queries::deploy),
    entry("DEPLOY, refused", 1, queries::deploy_refused),
    entry("DEPLOY OR REPLACE", 5, queries::replace_deployment),
    entry("DROP DEPLOYMENT", 5, queries::drop_deployment),
    entry("CREATE PROCEDURE", 3, queries::create_procedure),
    entry("DROP PROCEDURE", 2, queries::drop_procedure),
    entry("CREATE USER", 4, queries::create_user),
    entry("GRANT", 4, queries::grant),
    entry("REVOKE", 2, queries::revoke),
    entry("DROP USER", 2, queries::drop_user),
    entry("SET GLOBAL", 4, queries::set_global),
    entry("SET durability", 6, queries::set_durability),
];

const fn entry(
    name: &'static str,
    weight: usize,
    draw: fn(&mut Writer, &mut Random) -> Option<Draft>,
) -> WorkloadEntry {
    WorkloadEntry { name, weight, draw }
}

/// An operation that is being drawn.
pub(crate) struct Draft {
    action: Action,
    added: Vec<AddedRows>,
    effect: Effect,
    witness: Option<Witness>,
    needs_directory: bool,
}

impl Draft {
    /// Makes a draft of a script.
    fn script(sql: impl Into<String>) -> Self {
        Self {
            action: Action::Script(sql.into()),
            added: Vec::new(),
            effect: Effect::Nothing,
            witness: None,
            needs_directory: false,
        }
    }

    fn with_effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    /// Says in which observed text, and in which of its lines, a difference is seen when it was done.
    fn seen_in(self, name: impl Into<String>, contains: impl Into<String>) -> Self {
        Self { witness: Some(Witness { name: name.into(), contains: contains.into() }), ..self }
    }

    fn adding(self, table: &str, rows: RowRange) -> Self {
        Self { added: vec![AddedRows { table: table.to_owned(), rows }], ..self }
    }
}

/// A writer: draws its operations one after the other.
#[derive(Debug)]
pub struct Writer {
    /// Its number; the first one does what only one may do.
    pub number: usize,
    /// What exists when everything that was drawn is done.
    pub objects: WriterObjects,
    /// Milliseconds since the epoch.
    pub now_ms: i64,
    /// Where files for LOAD DATA are written.
    files: PathBuf,
    rows_drawn: u64,
    names_drawn: u64,
    /// Operations that were drawn together and are not given out yet.
    ahead: VecDeque<DrawnOperation>,
}

impl Writer {
    /// Makes a writer that has nothing.
    pub fn new(number: usize, files: PathBuf) -> Self {
        Self {
            number,
            objects: WriterObjects::default(),
            now_ms: 0,
            files,
            rows_drawn: 0,
            names_drawn: 0,
            ahead: VecDeque::new(),
        }
    }

    /// Draws the next operation.
    pub fn draw(&mut self, random: &mut Random) -> DrawnOperation {
        if let Some(ahead) = self.ahead.pop_front() {
            return ahead;
        }
        let total = WORKLOAD.iter().map(|entry| entry.weight).sum();
        loop {
            let mut left = random.below(total);
            let drawn = WORKLOAD.iter().find(|entry| {
                let is_drawn = left < entry.weight;
                left = left.saturating_sub(entry.weight);
                is_drawn
            });
            let entry = drawn.expect("the number is below the sum of the weights");
            if let Some(draft) = (entry.draw)(self, random) {
                return self.finish(entry.name, draft);
            }
        }
    }

    /// Forgets what was drawn and not given out, and what was given out and not done.
    pub fn reset(&mut self, objects: WriterObjects) {
        self.ahead.clear();
        self.objects = objects;
    }

    fn finish(&mut self, kind: &'static str, draft: Draft) -> DrawnOperation {
        let Draft { action, added, effect, witness, needs_directory } = draft;
        self.objects.apply(&effect);
        DrawnOperation { kind, action, added, effect, witness, needs_directory }
    }

    /// Draws some rows.
    fn rows(&mut self, count: usize) -> RowRange {
        let first = self.rows_drawn;
        let count = u64::try_from(count).expect("they are few");
        self.rows_drawn += count;
        let writer = u64::try_from(self.number).expect("there are few writers");
        RowRange { writer, first, count, now_ms: self.now_ms }
    }

    /// Returns a new number for a name.
    fn next_name(&mut self) -> u64 {
        self.names_drawn += 1;
        self.names_drawn
    }

    /// Draws one of the writer's tables.
    fn own_table(&self, random: &mut Random) -> Option<String> {
        let names: Vec<&String> = self.objects.tables.keys().collect();
        (!names.is_empty()).then(|| (*random.pick(&names)).clone())
    }

    /// Draws a table to which the writer may append.
    fn any_table(&self, random: &mut Random) -> String {
        let shared = || crate::objects::SHARED.iter().map(|(name, ..)| (*name).to_owned());
        let names: Vec<String> = shared().chain(self.objects.tables.keys().cloned()).collect();
        random.pick(&names).clone()
    }
}

/// Draws one of some names.
fn pick<'a>(names: impl Iterator<Item = &'a String>, random: &mut Random) -> Option<String> {
    let names: Vec<&String> = names.collect();
    (!names.is_empty()).then(|| (*random.pick(&names)).clone())
}
