//! The files of a folder, each of which is read once.
//!
//! A [`FileWatch`] looks for files now and then. It knows those that were read, by their paths and marks, each under a
//! number: the rows of the source's progress with these numbers make it know them again. A file that has been gone for a
//! week is forgotten, and its number is given to another one.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use lockstep_batch::load::{FileMark, FoundFile, find_files};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::Clock;
use serde::{Deserialize, Serialize};

use crate::connector::options::{ChangeRule, FileOptions};

/// How often the folder is looked at, and a bucket of an object store, where each look costs.
const LOOK_NS: u64 = 250_000_000;
const LOOK_REMOTE_NS: u64 = 5_000_000_000;
/// A look takes a twentieth of the time at most.
const LOOK_SHARE: u64 = 20;
/// After how long a file that is gone is forgotten.
const FORGET_NS: u64 = 7 * 24 * 3_600 * 1_000_000_000;
/// The first number of a file. The progress itself has the one before.
pub(super) const FIRST_NUMBER: i32 = 2;

/// A file that was read, as it is stored under its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownFile {
    pub(super) path: String,
    pub(super) mark: FileMark,
}

/// The files that a path names.
pub(super) struct FileWatch {
    /// The files that were read, with their numbers.
    known: BTreeMap<String, (i32, FileMark)>,
    /// Numbers below the next one that no file has.
    free: BTreeSet<i32>,
    next_number: i32,
    /// Files to read, in the order of their names.
    due: VecDeque<FoundFile>,
    /// Files that may still change, with the time since which they have not.
    settling: HashMap<String, (FileMark, u64)>,
    /// Files that were read and are gone, with the time since which they are.
    gone: HashMap<String, u64>,
    look_at_ns: u64,
}

impl FileWatch {
    /// Knows files that were read, as they were stored under their numbers.
    pub(super) fn new(stored: &BTreeMap<i32, String>) -> Result<Self> {
        let mut known = BTreeMap::new();
        for (number, text) in stored.range(FIRST_NUMBER..) {
            let KnownFile { path, mark } = serde_json::from_str(text)
                .map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
            known.insert(path, (*number, mark));
        }
        let used: BTreeSet<i32> = known.values().map(|(number, _)| *number).collect();
        let next_number = used.last().map_or(FIRST_NUMBER, |last| last + 1);
        let free = (FIRST_NUMBER..next_number).filter(|number| !used.contains(number)).collect();
        Ok(Self {
            known,
            free,
            next_number,
            due: VecDeque::new(),
            settling: HashMap::new(),
            gone: HashMap::new(),
            look_at_ns: 0,
        })
    }

    /// Returns how many files there are still to read, as far as it has looked.
    pub(super) fn waiting(&self) -> u64 {
        u64::try_from(self.due.len() + self.settling.len()).unwrap_or(u64::MAX)
    }

    /// Returns the next file to read; `None` if there is none, for now.
    pub(super) fn next(
        &mut self,
        options: &FileOptions,
        clock: &dyn Clock,
    ) -> Result<Option<FoundFile>> {
        if self.due.is_empty() && clock.monotonic_ns() >= self.look_at_ns {
            self.look(options, clock)?;
        }
        while let Some(found) = self.due.pop_front() {
            // Others were read since it was found; what has changed meanwhile is found again.
            if found.is_as_found() {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Looks for files.
    fn look(&mut self, options: &FileOptions, clock: &dyn Clock) -> Result<()> {
        let now_ns = clock.monotonic_ns();
        let found = find_files(&options.path);
        let took_ns = clock.monotonic_ns() - now_ns;
        let is_remote = options.path.contains("://") && !options.path.starts_with("file://");
        let least_ns = if is_remote { LOOK_REMOTE_NS } else { LOOK_NS };
        self.look_at_ns = now_ns + took_ns.saturating_mul(LOOK_SHARE).max(least_ns);
        let found = found?;
        self.forget_gone(&found, now_ns);
        let mut settling = HashMap::new();
        for file in found {
            let (path, mark) = (file.path(), file.mark());
            match self.known.get(&path) {
                Some((_, known)) if *known == mark => continue,
                Some(_) if options.on_change == ChangeRule::Stop => {
                    return changed(&path, "has changed after it was read").err();
                }
                Some(_) if options.on_change == ChangeRule::Skip => continue,
                _ => {}
            }
            let since = match self.settling.get(&path) {
                Some((before, since)) if *before == mark => *since,
                _ => now_ns,
            };
            let is_settled = now_ns - since >= options.settle_ms * 1_000_000;
            match is_settled || file.is_object() {
                true => self.due.push_back(file),
                false => drop(settling.insert(path, (mark, since))),
            }
        }
        self.settling = settling;
        debug_assert!(
            self.due.iter().is_sorted_by_key(|file| file.path()),
            "in the order of names"
        );
        Ok(())
    }

    /// Forgets files that have been gone for long.
    fn forget_gone(&mut self, found: &[FoundFile], now_ns: u64) {
        let there: BTreeSet<String> = found.iter().map(FoundFile::path).collect();
        self.gone.retain(|path, _| !there.contains(path));
        for path in self.known.keys().filter(|path| !there.contains(*path)) {
            if !self.gone.contains_key(path) {
                self.gone.insert(path.clone(), now_ns);
            }
        }
        let is_long = |since: &u64| now_ns - since >= FORGET_NS;
        let forgotten: Vec<String> =
            self.gone.iter().filter(|(_, since)| is_long(since)).map(|(p, _)| p.clone()).collect();
        for path in forgotten {
            self.gone.remove(&path);
            if let Some((number, _)) = self.known.remove(&path) {
                self.free.insert(number);
            }
        }
    }

    /// Returns a number for a file: its own if it was read before.
    pub(super) fn number(&mut self, path: &str) -> i32 {
        if let Some((number, _)) = self.known.get(path) {
            return *number;
        }
        if let Some(free) = self.free.pop_first() {
            return free;
        }
        let number = self.next_number;
        debug_assert!(self.known.values().all(|(known, _)| *known != number), "it is free");
        self.next_number += 1;
        number
    }

    /// Takes back the number of a file of which nothing was stored.
    pub(super) fn give_back(&mut self, number: i32) {
        if self.known.values().all(|(known, _)| *known != number) {
            self.free.insert(number);
        }
    }

    /// Notes the number of a file that is read and not known yet.
    pub(super) fn take_number(&mut self, number: i32) {
        self.free.remove(&number);
        if number >= self.next_number {
            self.free.extend(self.next_number..number);
            self.next_number = number + 1;
        }
    }

    /// Notes that a file was read.
    pub(super) fn know(&mut self, file: &KnownFile, number: i32) {
        debug_assert!(number >= FIRST_NUMBER, "the progress has the one before");
        self.known.insert(file.path.clone(), (number, file.mark));
    }
}

/// Makes the error of a file that is not what it was.
pub(super) fn changed(path: &str, what: &str) -> Diagnostic {
    Diagnostic::new(code::STALE_DEFINITION, format!("file `{path}` {what}"))
        .with_kind(Kind::FixData)
        .with_detail("A source reads each file once.")
        .with_hint(
            "Set on_change = 'skip' to continue with the other files, or 'read' to read it again from \
             its beginning.",
        )
}
