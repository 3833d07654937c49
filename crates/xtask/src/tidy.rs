//! Properties of the source itself that no lint checks; also tests of this crate.
//!
//! Each rule is a function that returns its violations as sentences.
#![expect(clippy::print_stdout, reason = "a command line speaks through its output")]

mod assertions;
mod codes;
mod english;
mod ratchet;
mod sizes;
mod type_names;
mod words;

use std::{collections::BTreeSet, fs, path::PathBuf};

use crate::{
    source::{files_below, files_of_crates},
    workspace_dir,
};

/// The layers, lowest first. A crate may depend on the layers below its own, and on nothing else
/// in the workspace. Adding a crate means adding it to a layer here.
const LAYERS: &[(&str, &[&str])] = &[
    // No code: it only unifies the features of third-party crates.
    ("features", &["unification"]),
    ("platform", &["host", "diagnostic"]),
    ("mechanisms of rows and text", &["row", "sql"]),
    ("mechanisms of storage and transport", &["series", "wal", "kafka", "message"]),
    ("meaning of tables and functions", &["table", "function"]),
    ("meaning of queries", &["plan"]),
    ("execution", &["request", "batch", "stream"]),
    ("database", &["engine"]),
    ("messages between server and client", &["protocol"]),
    ("protocols", &["server", "client"]),
    ("front ends", &["cli"]),
    ("package", &["python"]),
];

/// Crates that may depend on all others, and on which none may depend.
const BESIDE: &[&str] = &["testkit", "xtask", "sim", "bench", "crash"];

/// Outside engines, and the crates that may name each of them. A name ending in `*` is a prefix.
const RESTRICTED: &[(&str, &[&str])] = &[
    ("datafusion*", &["function", "plan", "request", "batch", "engine"]),
    ("pyo3*", &["python"]),
    ("parquet", &["batch", "engine"]),
    ("sqlparser", &["server", "sql", "unification"]),
    ("hdrhistogram", &["bench"]),
    // `unification` has no code: it names features.
    ("libc", &["bench", "host", "unification"]),
    ("cranelift*", &["request"]),
    ("rustyline", &["cli"]),
    ("memmap2", &["host"]),
    ("crc32c", &["batch", "wal"]),
    ("krafka", &["crash", "engine", "kafka", "server"]),
    ("arrow-avro", &["message"]),
    ("prost-reflect", &["message"]),
    ("reqwest", &["kafka"]),
    ("pgwire", &["server"]),
    ("arrow-flight", &["server", "client", "protocol"]),
    ("tonic*", &["server", "client"]),
];

/// Words that name nothing.
const BANNED_NAMES: &[&str] =
    &["utils", "util", "helpers", "helper", "common", "core", "base", "manager"];

/// Past this a file holds a second idea.
const LINES_MAX: usize = 1_000;

/// How far above an atomic access the comment that names its partner may begin.
const PARTNER_LINES: usize = 6;

type Violations = Vec<String>;

/// Runs every rule and prints the violations. Returns whether there are none.
pub fn run() -> bool {
    let violations: Violations = RULES.iter().flat_map(|rule| rule()).collect();
    for violation in &violations {
        println!("{violation}");
    }
    println!("tidy: {} violations", violations.len());
    violations.is_empty()
}

/// Writes today's counts and ratios into the ratchet file where they are better than its own, then
/// runs every rule.
pub fn tighten() -> bool {
    ratchet::tighten_file();
    run()
}

/// Prints how long files and functions are, by crate, and every measure of the ratchet.
pub fn report() -> bool {
    println!("{}\n", sizes::table(&files_of_crates()));
    for measure in ratchet::measures() {
        println!("{} {} {}", measure.name, measure.scope, measure.value);
        if measure.name == "repeated-type-names" {
            measure.places.iter().for_each(|place| println!("  {place}"));
        }
    }
    true
}

const RULES: &[fn() -> Violations] = &[
    dependencies_point_down,
    outside_engines_are_restricted,
    members_take_the_workspace_lints,
    files_open_with_their_subject,
    files_hold_one_idea,
    names_name_something,
    nothing_is_left_to_fix,
    atomics_name_their_partner,
    files_are_accessed_in_host,
    codes::codes_are_declared_once,
    ratchet::ratchets_hold,
];

fn dependencies_point_down() -> Violations {
    let mut violations = Vec::new();
    let mut below: BTreeSet<&str> = BTreeSet::new();
    for (layer, crates) in LAYERS {
        for name in crates.iter().filter(|name| crate_exists(name)) {
            for dependency in dependencies(name) {
                let Some(dependency) = dependency.strip_prefix("lockstep-") else { continue };
                if !below.contains(dependency) {
                    violations.push(format!(
                        "`{name}` (layer `{layer}`) may not depend on `{dependency}`: it is not \
                         in a lower layer"
                    ));
                }
            }
        }
        below.extend(crates.iter().copied());
    }
    let placed: BTreeSet<&str> = below.into_iter().chain(BESIDE.iter().copied()).collect();
    let unplaced = crate_names().into_iter().filter(|name| !placed.contains(name.as_str()));
    violations.extend(unplaced.map(|name| format!("`{name}` is in no layer")));
    violations
}

fn outside_engines_are_restricted() -> Violations {
    let mut violations = Vec::new();
    let inside = crate_names().into_iter().filter(|name| !BESIDE.contains(&name.as_str()));
    for name in inside {
        for dependency in dependencies(&name) {
            let owners = RESTRICTED.iter().find(|(engine, _)| match engine.strip_suffix('*') {
                Some(prefix) => dependency.starts_with(prefix),
                None => dependency == *engine,
            });
            if let Some((_, owners)) = owners
                && !owners.contains(&name.as_str())
            {
                let owners = owners.join("`, `");
                violations.push(format!("`{name}` names `{dependency}`; only `{owners}` may"));
            }
        }
    }
    violations
}

fn members_take_the_workspace_lints() -> Violations {
    crate_names()
        .into_iter()
        .filter(|name| !manifest(name).contains("[lints]\nworkspace = true"))
        .map(|name| format!("crates/{name}/Cargo.toml does not say `[lints] workspace = true`"))
        .collect()
}

fn files_open_with_their_subject() -> Violations {
    each_source(|path, text| {
        if text.starts_with("//!") {
            Vec::new()
        } else {
            vec![format!("{path}: does not open with `//!`")]
        }
    })
}

fn files_hold_one_idea() -> Violations {
    each_source(|path, text| {
        let lines = text.lines().count();
        if lines <= LINES_MAX {
            Vec::new()
        } else {
            vec![format!("{path}: {lines} lines; the limit is {LINES_MAX}")]
        }
    })
}

fn names_name_something() -> Violations {
    let named =
        |name: &str| BANNED_NAMES.iter().any(|banned| name.split('_').any(|w| w == *banned));
    let crates = crate_names()
        .into_iter()
        .filter(|name| named(&name.replace('-', "_")))
        .map(|name| format!("crate `{name}`: a name that names nothing"));
    let files = each_source(|path, _| {
        let words = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
        let folder_is_banned = path.split('/').any(|part| BANNED_NAMES.contains(&part));
        if named(words) || folder_is_banned {
            vec![format!("{path}: a name that names nothing")]
        } else {
            Vec::new()
        }
    });
    crates.chain(files).collect()
}

fn nothing_is_left_to_fix() -> Violations {
    let marker = concat!("FIX", "ME");
    each_source(|path, text| lines_with(path, text, marker, "is not mergeable"))
}

/// Finds Release and Acquire accesses whose comment does not name the partner: without it they
/// cannot be reviewed.
fn atomics_name_their_partner() -> Violations {
    each_source(|path, text| {
        let lines: Vec<&str> = text.lines().collect();
        let lonely = |index: &usize| {
            let is_access = ["Ordering::Release", "Ordering::Acquire", "Ordering::AcqRel"]
                .iter()
                .any(|ordering| code_of(lines[*index]).contains(ordering));
            let nearby = &lines[index.saturating_sub(PARTNER_LINES)..=*index];
            let has_partner = nearby.iter().any(|line| {
                let comment = line.split_once("//").map_or("", |(_, comment)| comment);
                ["Release", "Acquire", "AcqRel", "airs with"].iter().any(|w| comment.contains(w))
            });
            is_access && !has_partner
        };
        (0..lines.len())
            .filter(lonely)
            .map(|index| format!("{path}:{}: an atomic that names no partner", index + 1))
            .collect()
    })
}

/// Functions of `std::fs` that read or change what is on the disk.
const FILE_FUNCTIONS: &[&str] = &[
    "canonicalize",
    "copy",
    "create_dir",
    "create_dir_all",
    "hard_link",
    "metadata",
    "read",
    "read_dir",
    "read_link",
    "read_to_string",
    "remove_dir",
    "remove_dir_all",
    "remove_file",
    "rename",
    "set_permissions",
    "symlink_metadata",
    "write",
];

/// The methods of `Path` that look at the disk.
const PATH_METHODS: &[&str] =
    &["canonicalize", "exists", "is_dir", "is_file", "read_dir", "symlink_metadata", "try_exists"];

/// What ships touches files only through `host`, where a simulated disk can take its place; tests may
/// touch files themselves.
fn files_are_accessed_in_host() -> Violations {
    let ships =
        |name: &str| name != "host" && LAYERS.iter().any(|(_, crates)| crates.contains(&name));
    let files = files_of_crates();
    let shipped = files.iter().filter(|file| ships(file.crate_name()));
    shipped.flat_map(|file| file_access_in(&file.path, &file.code)).collect()
}

fn file_access_in(path: &str, code: &str) -> Violations {
    let lines = (1..).zip(code.lines());
    let calls = lines.flat_map(|(number, line)| {
        let names = line.match_indices("fs::").filter_map(move |(at, found)| {
            let rest = &line[at + found.len()..];
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            FILE_FUNCTIONS.contains(&&rest[..end]).then_some(&rest[..end])
        });
        let called = |name: &&str| line.contains(&format!(".{name}()"));
        let methods = PATH_METHODS.iter().copied().filter(called);
        let names = names.map(|name| format!("fs::{name}"));
        names.chain(methods.map(|name| format!(".{name}()"))).map(move |name| (number, name))
    });
    let complaint = |(number, name): (usize, String)| {
        format!("{path}:{number}: `{name}` is for `host` alone: take `host::disk` or `host::file`")
    };
    calls.map(complaint).collect()
}

fn lines_with(path: &str, text: &str, word: &str, complaint: &str) -> Violations {
    let hits = text.lines().enumerate().filter(|(_, line)| line.contains(word));
    hits.map(|(index, _)| format!("{path}:{}: {word} {complaint}", index + 1)).collect()
}

/// Returns a line without its comment.
fn code_of(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

/// Applies a rule to every Rust file of the workspace, with its path below crates/.
pub(crate) fn each_source(mut rule: impl FnMut(&str, &str) -> Violations) -> Violations {
    let check = |file: &PathBuf| {
        let text = fs::read_to_string(file).expect("a source file is readable UTF-8");
        let path = file.strip_prefix(crates_dir()).expect("it was found there").display();
        rule(&path.to_string(), &text)
    };
    files_below(&crates_dir(), &["rs"]).iter().flat_map(check).collect()
}

/// Lists the names under `[dependencies]` of one crate; dev-dependencies may point anywhere.
fn dependencies(name: &str) -> Vec<String> {
    dependencies_in(&manifest(name))
}

fn dependencies_in(manifest: &str) -> Vec<String> {
    manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split([' ', '.', '=']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

fn manifest(name: &str) -> String {
    let path = crates_dir().join(name).join("Cargo.toml");
    fs::read_to_string(path).expect("a crate has a manifest")
}

fn crate_names() -> BTreeSet<String> {
    let entries = fs::read_dir(crates_dir()).expect("the workspace has a folder of crates");
    entries
        .map(|entry| entry.expect("the folder of crates is readable").file_name())
        .map(|name| name.into_string().expect("a crate's name is UTF-8"))
        .collect()
}

fn crate_exists(name: &str) -> bool {
    crates_dir().join(name).is_dir()
}

fn crates_dir() -> PathBuf {
    workspace_dir().join("crates")
}

#[cfg(test)]
mod tests {
    use super::Violations;

    fn check(violations: &Violations) {
        assert!(violations.is_empty(), "\n{}", violations.join("\n"));
    }

    #[test]
    fn dependencies_point_down() {
        check(&super::dependencies_point_down());
    }

    #[test]
    fn outside_engines_are_restricted() {
        check(&super::outside_engines_are_restricted());
    }

    #[test]
    fn members_take_the_workspace_lints() {
        check(&super::members_take_the_workspace_lints());
    }

    #[test]
    fn files_open_with_their_subject() {
        check(&super::files_open_with_their_subject());
    }

    #[test]
    fn files_hold_one_idea() {
        check(&super::files_hold_one_idea());
    }

    #[test]
    fn names_name_something() {
        check(&super::names_name_something());
    }

    #[test]
    fn nothing_is_left_to_fix() {
        check(&super::nothing_is_left_to_fix());
    }

    #[test]
    fn atomics_name_their_partner() {
        check(&super::atomics_name_their_partner());
    }

    #[test]
    fn files_are_accessed_in_host() {
        check(&super::files_are_accessed_in_host());
        let code =
            "use std::fs::File;\nlet all = std::fs::read_dir(path)?.chain(fs::rename(a, b));";
        let found = super::file_access_in("x.rs", code);
        assert_eq!(found.len(), 2, "{found:?}");
        let code = "if path.is_dir() && catalog.exists(name) { path.canonicalize()? }";
        assert_eq!(super::file_access_in("x.rs", code).len(), 2);
        assert!(found[0].starts_with("x.rs:2: `fs::read_dir`"), "{found:?}");
    }

    #[test]
    fn codes_are_declared_once() {
        check(&super::codes::codes_are_declared_once());
    }

    #[test]
    fn ratchets_hold() {
        check(&super::ratchet::ratchets_hold());
    }

    #[test]
    fn a_manifest_gives_its_dependencies_only() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\n# why\nlockstep-row.workspace = \
                        true\narrow = { version = \"1\" }\n\n[dev-dependencies]\nproptest = \"1\"";
        assert_eq!(super::dependencies_in(manifest), ["lockstep-row", "arrow"]);
    }
}
