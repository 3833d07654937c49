//! Operations on rows: appends, INSERT, LOAD DATA, DELETE, TRUNCATE.

use std::fs;

use lockstep_testkit::random::Random;

use super::{Draft, Writer, pick, tables::OF_QUERY};
use crate::{
    objects::{Effect, OwnTable, SHARED_READ, SHARED_TRUNCATED},
    operation::{Action, AddedRows, AppendLevel, DrawnOperation},
    rows::{KEYS, RowRange},
};

pub(super) fn append(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    Some(append_as(writer, random, None))
}

pub(super) fn append_disk(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    Some(append_as(writer, random, Some(AppendLevel::Disk)))
}

pub(super) fn append_os(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    Some(append_as(writer, random, Some(AppendLevel::Os)))
}

pub(super) fn append_memory(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    Some(append_as(writer, random, Some(AppendLevel::Memory)))
}

fn append_as(writer: &mut Writer, random: &mut Random, durability: Option<AppendLevel>) -> Draft {
    let table = writer.any_table(random);
    let count = if random.chance(10) { 40 } else { 1 + random.below(4) };
    let rows = writer.rows(count);
    let action = Action::Append { table: table.clone(), rows, durability };
    Draft { action, ..Draft::script("") }.adding(&table, rows)
}

/// Draws a batch for each of several tables, one after the other.
pub(super) fn append_to_several(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    for _ in 0..1 + random.below(3) {
        let Draft { action, added, effect, .. } = append_as(writer, random, Some(AppendLevel::Os));
        let (witness, needs_directory) = (None, false);
        let kind = "append to several tables";
        let more = DrawnOperation { kind, action, added, effect, witness, needs_directory };
        writer.ahead.push_back(more);
    }
    append_os(writer, random)
}

/// Draws rows for some tables, one of which may be named twice.
pub(super) fn append_tables(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let levels = [None, Some(AppendLevel::Disk), Some(AppendLevel::Os), Some(AppendLevel::Memory)];
    let durability = *random.pick(&levels);
    let added = (0..2 + random.below(3)).map(|_| {
        let table = writer.any_table(random);
        let count = if random.chance(10) { 40 } else { 1 + random.below(4) };
        AddedRows { table, rows: writer.rows(count) }
    });
    let rows: Vec<AddedRows> = added.collect();
    let action = Action::AppendTables { rows: rows.clone(), durability };
    Some(Draft { action, added: rows, ..Draft::script("") })
}

pub(super) fn insert(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let table = writer.any_table(random);
    let rows = writer.rows(1 + random.below(4));
    Some(Draft::script(rows.to_insert(&table)).adding(&table, rows))
}

/// Draws an INSERT whose last row lacks its number: none of its rows may be stored.
pub(super) fn insert_refused(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let table = writer.any_table(random);
    // The columns of a query's rows take NULL.
    if writer.objects.tables.get(&table).is_some_and(|own| own.definition == OF_QUERY) {
        return None;
    }
    let insert = writer.rows(2).to_insert(&table);
    Some(Draft::script(format!("{insert}, (0, NULL, 'x', 0, 0, 0, NULL)")))
}

/// Writes rows to a file; returns its path.
fn write_csv(writer: &mut Writer, name: &str, rows: RowRange) -> String {
    let path = writer.files.join(name);
    let folder = path.parent().expect("it is in the folder of files");
    fs::create_dir_all(folder).expect("the folder of files is writable");
    fs::write(&path, rows.to_csv()).expect("the folder of files is writable");
    path.display().to_string()
}

/// Returns whether the writer may run jobs: their order is then known.
fn has_jobs(writer: &Writer) -> bool {
    writer.number == 0
}

pub(super) fn load(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    if !has_jobs(writer) {
        return None;
    }
    let table = writer.any_table(random);
    let rows = writer.rows(1 + random.below(30));
    let name = format!("{}.csv", writer.next_name());
    let path = write_csv(writer, &name, rows);
    Some(
        Draft::script(format!("LOAD DATA INFILE '{path}' INTO TABLE {table}")).adding(&table, rows),
    )
}

/// Draws a load of several files, whose rows are in several parts in the log.
pub(super) fn load_in_parts(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    if !has_jobs(writer) {
        return None;
    }
    let table = writer.any_table(random);
    let folder = format!("{}", writer.next_name());
    let files = 2 + random.below(3);
    let rows = writer.rows(files * 20);
    for file in 0..u64::try_from(files).expect("they are few") {
        let part = RowRange { first: rows.first + file * 20, count: 20, ..rows };
        write_csv(writer, &format!("{folder}/{file}.csv"), part);
    }
    let path = writer.files.join(folder).display().to_string();
    let sql = format!("LOAD DATA INFILE '{path}' INTO TABLE {table} OPTIONS(format='csv')");
    Some(Draft::script(sql).adding(&table, rows))
}

fn offline(sql: &str) -> Draft {
    Draft::script(format!("SET @@execute_mode = 'offline'; {sql}; SET @@execute_mode = 'online'"))
}

pub(super) fn load_offline(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let table = writer.own_table(random).filter(|_| has_jobs(writer))?;
    let rows = writer.rows(1 + random.below(5));
    let name = format!("{}.csv", writer.next_name());
    let path = write_csv(writer, &name, rows);
    let mode = random.pick(&["append", "overwrite"]);
    let mut own = writer.objects.tables[&table].clone();
    own.has_offline_rows = true;
    if *mode == "overwrite" {
        own.links.clear();
    }
    let sql = format!("LOAD DATA INFILE '{path}' INTO TABLE {table} OPTIONS(mode='{mode}')");
    let draft = offline(&sql).with_effect(Effect::Table(table.clone(), own));
    Some(draft.seen_in(format!("offline rows {table}"), ""))
}

pub(super) fn link_offline(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let table = writer.own_table(random).filter(|_| has_jobs(writer))?;
    let rows = writer.rows(1 + random.below(5));
    let name = format!("{}.csv", writer.next_name());
    let path = write_csv(writer, &name, rows);
    let mut own: OwnTable = writer.objects.tables[&table].clone();
    own.links.insert(path.clone());
    let sql = format!(
        "LOAD DATA INFILE '{path}' INTO TABLE {table} OPTIONS(mode='append', deep_copy=false)"
    );
    let draft = offline(&sql).with_effect(Effect::Table(table.clone(), own));
    Some(draft.seen_in(format!("offline rows {table}"), ""))
}

pub(super) fn drop_link(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let table = writer.own_table(random)?;
    let mut own = writer.objects.tables[&table].clone();
    let path = pick(own.links.iter(), random)?;
    own.links.remove(&path);
    let draft = Draft::script(format!("ALTER TABLE {table} DROP offline_path '{path}'"));
    let draft = draft.with_effect(Effect::Table(table.clone(), own));
    Some(draft.seen_in(format!("offline rows {table}"), ""))
}

/// Draws a DELETE of the writer's own keys.
pub(super) fn delete(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let own = writer.own_table(random).filter(|_| random.chance(70));
    let table = own.unwrap_or_else(|| SHARED_READ.to_owned());
    let key = format!("{}-{}", writer.number, random.below(KEYS));
    let has_event_time = writer.objects.tables.get(&table).is_none_or(|own| own.has_event_time);
    let earlier = if has_event_time && random.chance(40) {
        format!(" AND ts < {}", writer.now_ms - 10 * 24 * 3_600_000)
    } else {
        String::new()
    };
    let draft = Draft::script(format!("DELETE FROM {table} WHERE k = '{key}'{earlier}"));
    Some(draft.seen_in(format!("rows {table}"), format!("\"{key}\"")))
}

pub(super) fn truncate(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    if writer.number == 0 && random.chance(40) {
        let table = SHARED_TRUNCATED.to_owned();
        return Some(Draft::script(format!("TRUNCATE TABLE {table}")).truncating(&table));
    }
    let table = writer.own_table(random)?;
    Some(Draft::script(format!("TRUNCATE TABLE {table}")).seen_in(format!("rows {table}"), ""))
}

pub(super) fn checkpoint(_writer: &mut Writer, _random: &mut Random) -> Option<Draft> {
    Some(Draft::script("CHECKPOINT"))
}

/// Draws a BACKUP into a directory of its own.
pub(super) fn backup(writer: &mut Writer, _random: &mut Random) -> Option<Draft> {
    let (number, name) = (writer.number, writer.next_name());
    let name = format!("w{number}_backup_{name}");
    let path = writer.files.join(name).display().to_string();
    let draft = Draft::script(format!("BACKUP TO '{path}'"));
    Some(Draft { needs_directory: true, ..draft })
}

impl Draft {
    /// Names the shared table that is truncated: rows of no writer.
    fn truncating(self, table: &str) -> Self {
        let rows = RowRange { writer: 0, first: 0, count: 0, now_ms: 0 };
        Self { added: vec![AddedRows { table: table.to_owned(), rows }], ..self }
    }
}
