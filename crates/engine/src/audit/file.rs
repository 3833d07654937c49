//! The files of the record of what users did: it outlives the process in the directory of a database.
//!
//! Called by [`crate::audit`] for each event, and by `recovery` when a directory is opened. An event is a line
//! of JSON, written before its call returns and not synced: a crash of the machine may lose the last ones.
//! What cannot be written is reported once, and fails no call.
//!
//! *Bounds*: two files of at most [`FILE_BYTES_MAX`]; when the newer one is full it replaces the older one.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_host::{
    file::{Disk, Error, File, OpenMode},
    sync::Mutex,
};
use serde::{Deserialize, Serialize};

use super::{AuditEvent, EVENTS_MAX};
use crate::ClientInfo;

/// The names of the newer file and the older one.
pub(crate) const FILES: [&str; 2] = ["audit.jsonl", "audit.older.jsonl"];

/// Maximum size of each file, in bytes.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// The files of a directory.
pub(crate) struct AuditFiles {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    bytes_max: u64,
    state: Mutex<AuditFile>,
}

/// The newer file.
#[derive(Default)]
struct AuditFile {
    /// `None` before the first event.
    open: Option<(Arc<dyn File>, u64)>,
    has_failed: bool,
}

/// An event as a line of a file has it.
#[derive(Serialize, Deserialize)]
struct AuditLine<'a> {
    time_ms: i64,
    user: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    application: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protocol: Option<Cow<'a, str>>,
    session: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<Cow<'a, str>>,
    action: Cow<'a, str>,
    objects: Cow<'a, [String]>,
    outcome: Cow<'a, str>,
}

impl AuditFiles {
    /// Makes the record of a directory. Touches no file.
    pub(crate) fn new(disk: Arc<dyn Disk>, directory: &Path) -> Self {
        let directory = directory.to_owned();
        Self { disk, directory, bytes_max: FILE_BYTES_MAX, state: Mutex::default() }
    }

    /// Returns the latest events, oldest first. Lines that are not complete are left out.
    pub(crate) fn read(&self) -> Vec<AuditEvent> {
        let mut events = Vec::new();
        for name in FILES.iter().rev() {
            let bytes = read(&*self.disk, &self.directory.join(name)).unwrap_or_default();
            let lines = bytes.split(|byte| *byte == b'\n');
            events.extend(
                lines.filter_map(|line| serde_json::from_slice::<AuditLine<'_>>(line).ok()),
            );
        }
        let surplus = events.len().saturating_sub(EVENTS_MAX);
        events.into_iter().skip(surplus).map(AuditLine::into_event).collect()
    }

    /// Adds an event.
    pub(crate) fn add(&self, event: &AuditEvent) {
        let mut line = serde_json::to_vec(&AuditLine::of(event)).unwrap_or_default();
        line.push(b'\n');
        let mut state = self.state.lock();
        if let Err(error) = self.write(&mut state, &line)
            && !std::mem::replace(&mut state.has_failed, true)
        {
            lockstep_host::log::warn(&format!("could not write the audit record: {error}"));
        }
    }

    fn write(&self, state: &mut AuditFile, line: &[u8]) -> Result<(), Error> {
        let [newer, older] = FILES.map(|name| self.directory.join(name));
        let size = u64::try_from(line.len()).unwrap_or(u64::MAX);
        let (file, end) = match state.open.take() {
            Some(open) => open,
            None => self.open(&newer)?,
        };
        let (file, end) = if end > 0 && end.saturating_add(size) > self.bytes_max {
            drop(file);
            self.disk.rename(&newer, &older)?;
            (self.disk.open(&newer, OpenMode::Create)?, 0)
        } else {
            (file, end)
        };
        debug_assert!(line.ends_with(b"\n"), "an event is one line");
        file.write_at(end, line)?;
        state.open = Some((file, end + size));
        Ok(())
    }

    /// Opens the newer file, and returns where the next line begins.
    fn open(&self, path: &Path) -> Result<(Arc<dyn File>, u64), Error> {
        let names = self.disk.list(&self.directory)?;
        if !names.iter().any(|name| name == FILES[0]) {
            return Ok((self.disk.open(path, OpenMode::CreateNew)?, 0));
        }
        let file = self.disk.open(path, OpenMode::Write)?;
        let length = file.length()?;
        let mut last = [b'\n'];
        if length > 0 {
            file.read_full_at(length - 1, &mut last)?;
        }
        // A line that a crash has cut is ended, so that it costs no other one.
        if last == [b'\n'] {
            return Ok((file, length));
        }
        file.write_at(length, b"\n")?;
        Ok((file, length + 1))
    }
}

/// Reads a whole file; `None` if it cannot be read.
fn read(disk: &dyn Disk, path: &Path) -> Option<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read).ok()?;
    let mut bytes = vec![0; usize::try_from(file.length().ok()?).ok()?];
    let length = file.read_full_at(0, &mut bytes).ok()?;
    bytes.truncate(length);
    Some(bytes)
}

impl<'a> AuditLine<'a> {
    fn of(event: &'a AuditEvent) -> Self {
        let text = |text: &'a Option<String>| text.as_deref().map(Cow::Borrowed);
        let ClientInfo { address, application, protocol } = &event.client;
        Self {
            time_ms: event.time_ms,
            user: Cow::Borrowed(&event.user),
            address: text(address),
            application: text(application),
            protocol: text(protocol),
            session: event.session,
            request_id: text(&event.request_id),
            action: Cow::Borrowed(&event.action),
            objects: Cow::Borrowed(&event.objects),
            outcome: Cow::Borrowed(&event.outcome),
        }
    }

    fn into_event(self) -> AuditEvent {
        let text = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
        AuditEvent {
            time_ms: self.time_ms,
            user: self.user.into_owned(),
            client: ClientInfo {
                address: text(self.address),
                application: text(self.application),
                protocol: text(self.protocol),
            },
            session: self.session,
            request_id: text(self.request_id),
            action: Cow::Owned(self.action.into_owned()),
            objects: self.objects.into_owned(),
            outcome: Cow::Owned(self.outcome.into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{borrow::Cow, sync::Arc};

    use lockstep_host::file::SystemDisk;

    use super::{AuditEvent, AuditFiles, FILES};
    use crate::ClientInfo;

    fn event(session: u64) -> AuditEvent {
        AuditEvent {
            time_ms: 1,
            user: "ann \"\n".to_owned(),
            client: ClientInfo { protocol: Some("http".to_owned()), ..ClientInfo::default() },
            session,
            request_id: None,
            action: Cow::Borrowed("INSERT"),
            objects: vec!["table `t`".to_owned()],
            outcome: Cow::Borrowed("00000"),
        }
    }

    #[test]
    fn events_are_read_again_within_bounds_after_a_cut_line() {
        let folder = std::env::temp_dir().join(format!("lockstep-audit-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let files = || {
            let files = AuditFiles::new(Arc::new(SystemDisk), &folder);
            AuditFiles { bytes_max: 1_000, ..files }
        };
        assert_eq!(files().read(), [], "there is no file");
        let first = files();
        (1..=3).for_each(|number| first.add(&event(number)));
        assert_eq!(files().read(), [event(1), event(2), event(3)]);
        let newer = folder.join(FILES[0]);
        let bytes = std::fs::read(&newer).unwrap();
        std::fs::write(&newer, &bytes[..bytes.len() - 5]).unwrap();
        let second = files();
        second.add(&event(4));
        assert_eq!(files().read(), [event(1), event(2), event(4)]);
        (5..100).for_each(|number| second.add(&event(number)));
        for name in FILES {
            assert!(std::fs::metadata(folder.join(name)).unwrap().len() <= 1_000, "{name}");
        }
        let kept = files().read();
        assert!((4..20).contains(&kept.len()) && kept.last() == Some(&event(99)), "{kept:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
