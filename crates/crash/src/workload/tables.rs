//! Operations on tables, indexes and databases.

use lockstep_testkit::random::Random;

use super::{Draft, Writer, pick};
use crate::{
    objects::{Effect, OwnTable, SHARED_READ},
    rows::COLUMNS,
};

/// The indexes with which tables are created, and whether there is one over `k` and `ts`.
const INDEXES: &[(&str, bool)] = &[
    (", INDEX(KEY=k, TS=ts)", true),
    (", INDEX(KEY=k, TS=ts, TTL=3, TTL_TYPE=latest)", true),
    (", INDEX(KEY=k, TS=ts, TTL=12d, TTL_TYPE=absolute)", true),
    (", INDEX(KEY=k, TS=ts, TTL=(12d, 4), TTL_TYPE=absorlat)", true),
    (", INDEX(KEY=k, TS=ts, TTL=(12d, 4), TTL_TYPE=absandlat)", true),
    (", INDEX(KEY=k, TTL=3h, TTL_TYPE=absolute)", false),
    (", INDEX(KEY=k, TS=ts, TTL=2, TTL_TYPE=latest), INDEX(KEY=w, TS=ts, TTL=9d)", true),
    ("", false),
];

/// The options with which tables are created.
const OPTIONS: &[&str] = &[
    "",
    "",
    " OPTIONS(DURABILITY='os')",
    " OPTIONS(DURABILITY='memory')",
    " OPTIONS(DURABILITY='disk')",
    ON_DISK,
    ON_DISK,
    ON_DISK,
];

/// The option of a disk table.
const ON_DISK: &str = " OPTIONS(storage_mode='disk')";

/// The indexes that CREATE INDEX makes: what it calls them, and their columns and rules.
const CREATED: &[(&str, &str)] = &[
    ("by_w", "(w) OPTIONS (ts=ts, ttl=15d, ttl_type=absolute)"),
    ("by_n", "(n) OPTIONS (ts=ts, ttl=2, ttl_type=latest)"),
    ("by_both", "(w, k) OPTIONS (ts=ts, ttl=(8d, 3), ttl_type=absorlat)"),
    ("by_all", "(n, k) OPTIONS (ts=ts, ttl=0m, ttl_type=absolute)"),
];

/// The definition of a table of a query's rows.
pub(super) const OF_QUERY: usize = INDEXES.len();

/// The number of tables of a writer in each of its databases.
const TABLES: usize = 3;

pub(super) fn create_table(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let mut name = format!("w{}_t{}", writer.number, random.below(TABLES));
    if let Some(database) = pick(writer.objects.databases.iter(), random)
        && random.chance(50)
    {
        name = format!("{database}.{name}");
    }
    if writer.objects.tables.contains_key(&name) {
        return None;
    }
    let definition = random.below(INDEXES.len());
    let (indexes, has_event_time) = INDEXES[definition];
    let options = *random.pick(OPTIONS);
    let is_on_disk = options == ON_DISK;
    let own = OwnTable { definition, has_event_time, is_on_disk, ..OwnTable::default() };
    let draft = Draft::script(format!("CREATE TABLE {name} ({COLUMNS}{indexes}){options}"));
    let draft = Draft { needs_directory: false, ..draft };
    let seen = format!("SHOW CREATE TABLE {name}");
    Some(draft.with_effect(Effect::Table(name, own)).seen_in(seen, ""))
}

/// Draws a CREATE OR REPLACE TABLE of a table that there is, with another definition, so that it is
/// seen whether it was done.
pub(super) fn replace_table(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let table = writer.own_table(random).filter(|table| !writer.objects.is_read(table))?;
    let definition = random.below(INDEXES.len());
    if writer.objects.tables[&table].definition == definition {
        return None;
    }
    let (indexes, has_event_time) = INDEXES[definition];
    let is_on_disk = random.chance(30);
    let own = OwnTable { definition, has_event_time, is_on_disk, ..OwnTable::default() };
    let options = if is_on_disk { ON_DISK } else { "" };
    let sql = format!("CREATE OR REPLACE TABLE {table} ({COLUMNS}{indexes}){options}");
    let draft = Draft::script(sql);
    let seen = format!("SHOW CREATE TABLE {table}");
    Some(draft.with_effect(Effect::Table(table, own)).seen_in(seen, ""))
}

/// Draws a CREATE OR REPLACE TABLE of the rows of a table, its own ones or those of another.
pub(super) fn replace_table_as(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let table = writer.own_table(random).filter(|table| !writer.objects.is_read(table))?;
    if writer.objects.tables[&table].definition == OF_QUERY {
        return None;
    }
    let source = writer.own_table(random)?;
    let own = OwnTable { definition: OF_QUERY, ..OwnTable::default() };
    let sql = format!("CREATE OR REPLACE TABLE {table} AS SELECT * FROM {source}");
    let seen = format!("SHOW CREATE TABLE {table}");
    Some(Draft::script(sql).with_effect(Effect::Table(table, own)).seen_in(seen, ""))
}

/// Draws an ALTER TABLE that drops the last column and adds it again, with another default, which its
/// rows then have.
pub(super) fn alter_table(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let table = writer.own_table(random).filter(|table| !writer.objects.is_read(table))?;
    let own = writer.objects.tables[&table].clone();
    let is_offline = own.has_offline_rows || !own.links.is_empty();
    // Elsewhere an index counts from the arrival of its rows.
    let is_timed = own.has_event_time || own.definition == OF_QUERY;
    if is_offline || !is_timed {
        return None;
    }
    let (year, month, day) = (2000 + random.below(20), 1 + random.below(12), 1 + random.below(28));
    let sql = format!(
        "ALTER TABLE {table} DROP COLUMN d, ADD COLUMN d DATE DEFAULT '{year}-{month:02}-{day:02}'"
    );
    let seen = format!("SHOW CREATE TABLE {table}");
    Some(Draft::script(sql).with_effect(Effect::Table(table, own)).seen_in(seen, ""))
}

/// Draws an ALTER TABLE that puts the rows onto the disk or into memory.
pub(super) fn move_table(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let table = writer.own_table(random)?;
    let mut own = writer.objects.tables[&table].clone();
    own.is_on_disk = !own.is_on_disk;
    let mode = if own.is_on_disk { "disk" } else { "memory" };
    let sql = format!("ALTER TABLE {table} SET OPTIONS(storage_mode='{mode}')");
    let seen = format!("SHOW CREATE TABLE {table}");
    Some(Draft::script(sql).with_effect(Effect::Table(table, own)).seen_in(seen, ""))
}

/// Draws a CREATE TABLE of a table that there is.
pub(super) fn create_table_refused(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let table = writer.own_table(random)?;
    Some(Draft::script(format!("CREATE TABLE {table} (a INT)")))
}

pub(super) fn drop_table(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let table = writer.own_table(random).filter(|table| !writer.objects.is_read(table))?;
    let draft = Draft::script(format!("DROP TABLE {table}"));
    let seen = format!("SHOW CREATE TABLE {table}");
    Some(draft.with_effect(Effect::DropTable(table)).seen_in(seen, ""))
}

pub(super) fn create_index(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let (name, definition) = *random.pick(CREATED);
    let is_shared = writer.number == 0 && random.chance(20);
    let (table, name, definition, indexes) = if is_shared {
        let indexes = &writer.objects.shared_indexes;
        (SHARED_READ.to_owned(), "by_n", "(n) OPTIONS (ts=ts, ttl=0m)", indexes)
    } else {
        let table = writer.own_table(random)?;
        let own = &writer.objects.tables[&table];
        (table, name, definition, &own.indexes)
    };
    if indexes.contains(name) {
        return None;
    }
    let draft = Draft::script(format!("CREATE INDEX {name} ON {table} {definition}"));
    let seen = format!("SHOW CREATE TABLE {table}");
    Some(draft.with_effect(Effect::Index(table, name.to_owned())).seen_in(seen, ""))
}

pub(super) fn drop_index(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let own = writer.own_table(random).filter(|_| random.chance(80));
    let table = own.unwrap_or_else(|| SHARED_READ.to_owned());
    let indexes = match writer.objects.tables.get(&table) {
        Some(own) => &own.indexes,
        None => &writer.objects.shared_indexes,
    };
    let name = pick(indexes.iter(), random)?;
    let draft = Draft::script(format!("DROP INDEX {table}.{name}"));
    let seen = format!("SHOW CREATE TABLE {table}");
    Some(draft.with_effect(Effect::DropIndex(table, name)).seen_in(seen, ""))
}

pub(super) fn create_database(writer: &mut Writer, _random: &mut Random) -> Option<Draft> {
    let name = format!("w{}_db", writer.number);
    if writer.objects.databases.contains(&name) {
        return None;
    }
    let draft = Draft::script(format!("CREATE DATABASE {name}"));
    let seen = name.clone();
    Some(draft.with_effect(Effect::Database(name)).seen_in("SHOW DATABASES", seen))
}

pub(super) fn drop_database(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = pick(writer.objects.databases.iter(), random)?;
    if writer.objects.tables.keys().any(|table| table.starts_with(&name)) {
        return None;
    }
    let draft = Draft::script(format!("DROP DATABASE {name}"));
    let seen = name.clone();
    Some(draft.with_effect(Effect::DropDatabase(name)).seen_in("SHOW DATABASES", seen))
}
