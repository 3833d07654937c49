//! What is in a directory beside the database: foreign files, and leftovers that mean nothing.

use std::path::Path;

use lockstep_wal::{CheckReport, data_file_numbers};

use crate::{OpenOptions, audit::AUDIT_FILES};

/// The names in the directory of a database.
const OWN: [&str; 5] = ["LOCK", "MANIFEST", "MANIFEST.new", "data", "log"];

/// Returns what is unusual about a directory and harms nothing.
pub(super) fn of(path: &Path, options: &OpenOptions, report: &CheckReport) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(cut) = &report.log.cut {
        remarks.push(format!(
            "{}: {} bytes starting at byte {} were not written completely ({}); they were never \
             acknowledged, and opening the directory removes them",
            cut.file.display(),
            cut.bytes,
            cut.offset,
            cut.what
        ));
    }
    let names = |directory: &Path| options.host.disk.list(directory).unwrap_or_default();
    let mut foreign = |directory: &Path, is_own: &dyn Fn(&str) -> bool| {
        for name in names(directory).iter().filter(|name| !is_own(name)) {
            let file = directory.join(name);
            remarks.push(format!("{} does not belong to the database", file.display()));
        }
    };
    foreign(path, &|name| OWN.contains(&name) || AUDIT_FILES.contains(&name));
    foreign(&path.join("log"), &|name| {
        let number = name.strip_suffix(".new").unwrap_or(name).strip_suffix(".wal");
        let is_segment =
            number.is_some_and(|number| number.len() == 20 && number.parse::<u64>().is_ok());
        is_segment || ["CLOSED", "CLOSED.new"].contains(&name)
    });
    foreign(&path.join("data"), &|name| {
        let number = name.strip_suffix(".data");
        number.is_some_and(|number| number.len() == 20 && number.parse::<u64>().is_ok())
    });
    let Some(manifest) = &report.manifest else { return remarks };
    let numbers = data_file_numbers(&*options.host.disk, path).unwrap_or_default();
    let is_listed = |number: u64| manifest.files.iter().any(|file| file.number == number);
    for number in numbers.into_iter().filter(|number| !is_listed(*number)) {
        remarks.push(format!(
            "data file {number} belongs to no checkpoint; opening the directory removes it"
        ));
    }
    remarks
}
