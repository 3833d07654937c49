//! The training set of the demonstration: its flights, some number of times, one after the other in time.
//!
//! The rows are those that `lockstep demo flights` derives, by the same program; each copy is some weeks
//! later than the one before, so that keys become as many times as long. Lockstep only: no peer has windows
//! over the rows of other tables.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use lockstep_engine::Session;
use lockstep_host::disk;

use crate::{
    error::{Result, Trying},
    peer::{finish, install::python_program},
};

/// The environment that has the data.
pub(super) const ENVIRONMENT: &str = "flights";

/// The query and the tables of the demonstration, and the programs that make its rows.
pub(super) const QUERY: &str = include_str!("../../../../python/lockstep/demo/flights.sql");
const SCHEMA: &str = include_str!("../../../../python/lockstep/demo/schema.sql");
const PROGRAMS: [(&str, &str); 5] = [
    ("flights_rows.py", include_str!("flights_rows.py")),
    (
        "lockstep/demo/flights_data.py",
        include_str!("../../../../python/lockstep/demo/flights_data.py"),
    ),
    ("lockstep/_error.py", "class Error(Exception):\n    pass\n"),
    ("lockstep/demo/__init__.py", ""),
    ("lockstep/__init__.py", ""),
];

/// The tables that are loaded from files of their name.
const TABLES: [&str; 4] = ["flights", "departures", "arrivals", "weather"];

/// Columns of the result whose sums are compared.
pub(super) const COLUMNS: [&str; 6] = [
    "flight_id",
    "airport_1h_departures",
    "carrier_1d_air_minutes",
    "route_7d_air_minutes_avg",
    "plane_7d_destinations",
    "temp",
];

/// Writes the rows of the tables into files of a folder, so many times. Returns the number of flights.
pub(super) fn write_rows(copies: u64, folder: &Path) -> Result<u64> {
    for (name, text) in PROGRAMS {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        let written = std::fs::create_dir_all(parent)
            .and_then(|()| disk::create(&path)?.write_all(text.as_bytes()));
        written.trying(|| format!("write {}", path.display()))?;
    }
    let mut program = Command::new(python_program(ENVIRONMENT));
    program.arg(folder.join(PROGRAMS[0].0)).arg(folder).arg(copies.to_string());
    finish(ENVIRONMENT, &mut program)?;
    let count = folder.join("count");
    let text = std::fs::read_to_string(&count).trying(|| format!("read {}", count.display()))?;
    Ok(text.trim().parse().expect("the program writes a number"))
}

/// Makes the tables, and loads their rows.
pub(super) fn fill(session: &Session, source: &Path) -> Result<()> {
    session.execute(SCHEMA)?;
    for table in TABLES {
        let path: PathBuf = source.join(format!("{table}.parquet"));
        session.execute(&format!(
            "LOAD DATA INFILE '{}' INTO TABLE {table} OPTIONS (format = 'parquet')",
            path.display()
        ))?;
    }
    let planes = source.join("planes.csv");
    session.execute(&format!(
        "LOAD DATA INFILE '{}' INTO TABLE planes OPTIONS (format = 'csv', null_value = 'NA')",
        planes.display()
    ))?;
    Ok(())
}
