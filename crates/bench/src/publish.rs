//! Results as tables of the manual: reads the JSON files of a folder and writes the part of
//! `docs/benchmarks/results.md` between two markers.

use std::{fmt::Write as _, path::Path};

use lockstep_host::disk;
use serde_json::{Map, Value as Json};

use crate::{
    error::{Error, Result, Trying},
    plot::point_labels,
    report::{LOCKSTEP, short},
    result_table::markdown,
};

const BEGIN: &str = "<!-- results: written by `lockstep-bench --publish` -->";
const END: &str = "<!-- end of results -->";
const IDS: [&str; 15] = [
    "M1", "M2", "M3", "M4", "M5", "M6", "M8", "M9", "M10", "M11", "M13", "M14", "M15", "M16", "M17",
];

/// Writes the results of a folder into a page.
pub(crate) fn publish(folder: &Path, page: &Path) -> Result<()> {
    let mut tables = String::new();
    for id in IDS {
        let Ok(text) = disk::read_to_string(&folder.join(format!("{id}.json"))) else { continue };
        let result: Json = serde_json::from_str(&text).map_err(|error| unreadable(id, &error))?;
        tables.push_str(&section(id, &result));
    }
    let trying = || format!("read {}", page.display());
    let text = disk::read_to_string(page).trying(trying)?;
    let parts = text
        .split_once(BEGIN)
        .and_then(|(before, rest)| rest.split_once(END).map(|(_, after)| (before, after)));
    let Some((before, after)) = parts else {
        let message = format!("{} does not contain `{BEGIN}` and `{END}`", page.display());
        return Err(Error::Page { message });
    };
    let text = format!("{before}{BEGIN}\n\n{tables}{END}{after}");
    let file = disk::create(page);
    file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .trying(|| format!("write {}", page.display()))
}

fn unreadable(id: &str, error: &serde_json::Error) -> Error {
    Error::Page { message: format!("cannot read the result of {id}: {error}") }
}

/// Returns the tables of one workload.
pub(crate) fn section(id: &str, result: &Json) -> String {
    let empty = Map::new();
    let of = |name: &str| result[name].as_object().unwrap_or(&empty);
    let params: Vec<String> =
        of("params").iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
    let machine = of("machine");
    let mut text = format!(
        "### {id}\n\nCommit `{}`, {} with {} cores, load average {} at the start.\nParameters: {}.\n\n",
        plain(&result["commit"]),
        machine.get("cpu").map(plain).unwrap_or_default(),
        machine.get("cores").map(plain).unwrap_or_default(),
        machine.get("load_average_at_start").map(plain).unwrap_or_default(),
        params.join(", ")
    );
    if !of("systems").is_empty() {
        text.push_str(&systems_table(of("systems")));
    }
    for table in result["tables"].as_array().into_iter().flatten() {
        text.push_str(&markdown(table));
    }
    let ratios: Vec<String> =
        of("ratios").iter().map(|(name, value)| format!("{name} **{}**", plain(value))).collect();
    if !ratios.is_empty() {
        writeln!(text, "\nRatios: {}.\n", ratios.join(" · ")).expect("a string takes everything");
    }
    for (name, points) in of("sweeps") {
        let points = points.as_array().map(Vec::as_slice).unwrap_or_default();
        if points.len() > 1 {
            text.push_str(&sweep_table(name, points));
        }
    }
    for (name, value) in result.as_object().unwrap_or(&empty) {
        let known = [
            "workload", "params", "commit", "machine", "systems", "ratios", "sweeps", "tables",
            "curves",
        ];
        if !known.contains(&name.as_str()) {
            writeln!(text, "`{name}`: `{value}`\n").expect("a string takes everything");
        }
    }
    text
}

fn plain(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn number(value: &Json) -> String {
    value.as_f64().map_or_else(|| "–".to_owned(), short)
}

/// Writes a line for each system and number of threads; with several runs also the least and the
/// greatest median.
fn systems_table(systems: &Map<String, Json>) -> String {
    let mut text = "| system | threads | p50 µs | p99 µs | p999 µs | p9999 µs | ops/s | bytes/row \
                    | p50 × Lockstep |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    let own = systems.get(LOCKSTEP).and_then(|system| system["p50_us"].as_f64());
    for (name, system) in systems {
        let single = Map::from_iter([(plain(&system["threads"]), system.clone())]);
        let loads = system["by_threads"].as_object().unwrap_or(&single);
        for (threads, load) in loads {
            let threads = if threads == "null" { "–" } else { threads };
            let cells = ["p50_us", "p99_us", "p999_us", "p9999_us", "ops_per_s"].map(|name| {
                let spread = &load["min_median_max"][name];
                match spread[0].as_f64().zip(spread[2].as_f64()) {
                    Some((least, greatest)) => {
                        format!("{} ({}–{})", number(&load[name]), short(least), short(greatest))
                    }
                    None => number(&load[name]),
                }
            });
            let bytes = number(&system["bytes_per_row"]);
            let times = own.zip(load["p50_us"].as_f64());
            let times = times.map_or_else(|| "–".to_owned(), |(own, p50)| short(p50 / own));
            writeln!(text, "| {name} | {threads} | {} | {bytes} | {times} |", cells.join(" | "))
                .expect("a string takes everything");
        }
    }
    text
}

/// Writes a line for each point: the p50 of each system, or its bytes where nothing was timed.
fn sweep_table(name: &str, points: &[Json]) -> String {
    let empty = Map::new();
    let systems = points[0]["systems"].as_object().unwrap_or(&empty);
    let is_timed = systems.values().any(|system| system["p50_us"].is_number());
    let measure = if is_timed { "p50_us" } else { "bytes_per_row" };
    let names: Vec<&String> = systems.keys().collect();
    let heads: Vec<String> = names.iter().map(|system| format!("{system} {measure}")).collect();
    let rule = "--:|".repeat(names.len());
    let mut text = format!("| {name} | {} |\n|---|{rule}\n", heads.join(" | "));
    for (label, point) in point_labels(points).iter().zip(points) {
        let cells: Vec<String> = names
            .iter()
            .map(|system| number(&point["systems"][system.as_str()][measure]))
            .collect();
        writeln!(text, "| {label} | {} |", cells.join(" | ")).expect("a string takes everything");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::section;

    #[test]
    fn a_result_becomes_tables() {
        let systems = json!({
            "lockstep": { "p50_us": 20.0, "threads": 1, "bytes_per_row": 300.0 },
            "redis": { "p50_us": 500.0, "threads": 1, "bytes_per_row": null },
        });
        let points = json!([
            { "params": { "joins": 0 }, "systems": systems },
            { "params": { "joins": 1 }, "systems": systems },
        ]);
        let result = json!({
            "workload": "M1", "params": { "joins": 2 }, "commit": "abc", "systems": systems,
            "ratios": { "redis/lockstep": 25.0 }, "sweeps": { "joins": points }, "note": 1,
        });
        let text = section("M1", &result);
        assert!(text.contains("| redis | 1 | 500 | – | – | – | – | – | 25.0 |"), "{text}");
        assert!(text.contains("redis/lockstep **25.0**"), "{text}");
        assert!(text.contains("| 1 | 20.0 | 500 |"), "{text}");
        assert!(text.contains("`note`: `1`"), "{text}");
    }
}
