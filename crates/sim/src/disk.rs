//! The simulated disk: the calls, their count, and their failures.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_host::{
    file::{Disk, Error, File, Lock, LockMode, Mapping, OpenMode, Operation},
    sync::{Condvar, Mutex, MutexGuard},
};

use crate::{
    CrashImage, Random,
    state::{Content, NameChange, Node, State},
};

/// A disk in memory that can crash and fail. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimulatedDisk {
    inner: Arc<Mutex<DiskState>>,
    stall: Arc<ReadStall>,
}

/// Whether reads wait.
#[derive(Debug, Default)]
struct ReadStall {
    is_stalled: Mutex<bool>,
    changed: Condvar,
}

/// While it exists, no read of the disk ends, as if the device did not answer.
#[derive(Debug)]
pub struct StalledReads(Arc<ReadStall>);

impl Drop for StalledReads {
    fn drop(&mut self) {
        *self.0.is_stalled.lock() = false;
        self.0.changed.notify_all();
    }
}

#[derive(Debug)]
struct DiskState {
    state: State,
    /// Calls so far, of each kind.
    counts: BTreeMap<Operation, u64>,
    fault: Option<DiskFault>,
    /// Bytes that all files together may take.
    space: usize,
    /// Draws how much of a read is given, when reads are short.
    short_reads: Option<Random>,
    /// Images taken after each call so far, when calls are recorded.
    images: Option<Vec<CrashImage>>,
    /// Whether images are taken before syncs as well.
    records_before_syncs: bool,
    locked: Vec<(PathBuf, LockMode)>,
}

/// A call that is to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskFault {
    /// Which call fails: the first one from now on is 1.
    pub nth: u64,
    /// Of which kind of call; `None` counts all.
    pub operation: Option<Operation>,
    /// How it fails.
    pub failure: Failure,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The device reports an error: EIO.
    Device,
    /// There is no space: ENOSPC.
    Full,
    /// The file system has no such call: ENOTSUP.
    Unsupported,
    /// This user may not: EACCES.
    Denied,
}

impl Failure {
    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Self::Device => 5,
            Self::Full => 28,
            Self::Unsupported => 95,
            Self::Denied => 13,
        })
    }
}

impl SimulatedDisk {
    /// Makes a disk that has the directory `/` and nothing else.
    pub fn new() -> Self {
        let mut state = State::default();
        state.names.insert(PathBuf::from("/"), Node::Directory);
        state.durable_names.clone_from(&state.names);
        Self::of(state)
    }

    pub(crate) fn of(state: State) -> Self {
        let inner = DiskState {
            state,
            counts: BTreeMap::new(),
            fault: None,
            space: usize::MAX,
            short_reads: None,
            images: None,
            records_before_syncs: false,
            locked: Vec::new(),
        };
        Self { inner: Arc::new(Mutex::new(inner)), stall: Arc::default() }
    }

    /// Copies what is on the disk and what may be, as if the machine stopped now.
    pub fn image(&self) -> CrashImage {
        CrashImage::of(&self.inner.lock().state)
    }

    /// Takes an image after each call from now on; those that failed count as well.
    pub fn record(&self) {
        self.inner.lock().images = Some(Vec::new());
    }

    /// Takes an image after each call from now on, and before each sync of a file: what is written to a
    /// mapping is no call.
    pub fn record_before_syncs(&self) {
        self.record();
        self.inner.lock().records_before_syncs = true;
    }

    /// Gives the images taken since the last time they were given.
    pub fn take_images(&self) -> Vec<CrashImage> {
        self.inner.lock().images.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Lets a call fail. What failed once does not fail again.
    pub fn fail(&self, fault: DiskFault) {
        self.inner.lock().fault = Some(fault);
    }

    /// Tells whether a fault was set that no call has reached.
    pub fn has_fault(&self) -> bool {
        self.inner.lock().fault.is_some()
    }

    /// Limits what all files together may take, in bytes.
    pub fn set_space(&self, bytes: usize) {
        self.inner.lock().space = bytes;
    }

    /// Lets every read give fewer bytes than were requested, drawn by `seed`.
    pub fn shorten_reads(&self, seed: u64) {
        self.inner.lock().short_reads = Some(Random::new(seed));
    }

    /// Lets reads wait until the result is dropped.
    pub fn stall_reads(&self) -> StalledReads {
        let was_stalled = std::mem::replace(&mut *self.stall.is_stalled.lock(), true);
        debug_assert!(!was_stalled, "reads wait for one who lets them go on");
        StalledReads(Arc::clone(&self.stall))
    }

    fn wait_for_reads(&self) {
        let mut is_stalled = self.stall.is_stalled.lock();
        while *is_stalled {
            is_stalled = self.stall.changed.wait(is_stalled);
        }
    }

    /// Counts the calls so far, of one kind or of all.
    pub fn calls(&self, operation: Option<Operation>) -> u64 {
        let inner = self.inner.lock();
        let counts = inner.counts.iter();
        counts.filter(|(kind, _)| operation.is_none_or(|o| o == **kind)).map(|(_, n)| n).sum()
    }

    /// Puts a drawn page of each changed file on the disk, as machines do when they have time.
    pub fn write_back(&self, random: &mut Random) {
        for content in &mut self.inner.lock().state.files {
            content.write_back_early(|count| random.index(count));
        }
    }

    /// Copies the content of a file, for tests that damage it.
    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        let inner = self.inner.lock();
        let number = inner.state.find(path).expect("the test names a file that exists");
        inner.state.files[number].bytes()
    }

    /// Puts other content into a file, on the disk at once. The file is not open.
    pub fn replace(&self, path: &Path, bytes: Vec<u8>) {
        let mut inner = self.inner.lock();
        let number = inner.state.find(path).expect("the test names a file that exists");
        inner.state.files[number] = Content::new(bytes);
    }

    /// Runs one call: counts it, lets it fail when it is its turn, and takes the image.
    fn call<T>(
        &self,
        operation: Operation,
        path: &Path,
        body: impl FnOnce(&mut DiskState) -> io::Result<T>,
    ) -> Result<T, Error> {
        let mut inner = self.inner.lock();
        let result = match inner.count(operation) {
            Ok(()) => body(&mut inner),
            Err(error) => Err(error),
        };
        inner.take_image();
        result.map_err(|source| Error::io(operation, path, source))
    }

    fn lock_inner(&self) -> MutexGuard<'_, DiskState> {
        self.inner.lock()
    }
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl DiskState {
    fn count(&mut self, operation: Operation) -> io::Result<()> {
        *self.counts.entry(operation).or_default() += 1;
        let Some(fault) = &mut self.fault else { return Ok(()) };
        if fault.operation.is_some_and(|kind| kind != operation) {
            return Ok(());
        }
        fault.nth -= 1;
        if fault.nth > 0 {
            return Ok(());
        }
        let failure = fault.failure;
        self.fault = None;
        Err(failure.error())
    }

    /// Takes an image.
    fn take_image(&mut self) {
        if let Some(images) = &mut self.images {
            images.push(CrashImage::of(&self.state));
        }
    }

    /// Fails when a file that grows to `length` finds no space.
    fn check_space(&self, number: usize, length: usize) -> io::Result<()> {
        let growth = length.saturating_sub(self.state.files[number].length);
        if growth > self.space.saturating_sub(self.state.bytes_used()) {
            return Err(Failure::Full.error());
        }
        Ok(())
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>, Error> {
        let number = self.call(Operation::Open, path, |inner| {
            let state = &mut inner.state;
            match (state.find(path), mode) {
                (Ok(_), OpenMode::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
                (Ok(number), OpenMode::Create) => {
                    state.files[number].set_length(0);
                    Ok(number)
                }
                (Err(error), OpenMode::Create | OpenMode::CreateNew)
                    if error.kind() == io::ErrorKind::NotFound =>
                {
                    state.create(path)
                }
                (found, _) => found,
            }
        })?;
        Ok(Arc::new(SimulatedFile { disk: self.clone(), number, path: path.to_owned() }))
    }

    fn create_directory(&self, path: &Path) -> Result<(), Error> {
        self.call(Operation::CreateDirectory, path, |inner| {
            if inner.state.names.contains_key(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            inner.state.check_parent(path)?;
            let change = NameChange::Create { path: path.to_owned(), node: Node::Directory };
            inner.state.change(change);
            Ok(())
        })
    }

    fn list(&self, path: &Path) -> Result<Vec<String>, Error> {
        self.call(Operation::List, path, |inner| {
            match inner.state.names.get(path) {
                Some(Node::Directory) => {}
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => return Err(io::ErrorKind::NotFound.into()),
            }
            let inside = inner.state.names.keys().filter(|name| name.parent() == Some(path));
            let names = inside.filter_map(|name| name.file_name());
            Ok(names.map(|name| name.to_string_lossy().into_owned()).collect())
        })
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<(), Error> {
        self.call(Operation::Rename, source, |inner| {
            let node = Node::File(inner.state.find(source)?);
            inner.state.check_parent(target)?;
            let (source, target) = (source.to_owned(), target.to_owned());
            inner.state.change(NameChange::Rename { source, target, node });
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        self.call(Operation::Remove, path, |inner| {
            inner.state.find(path)?;
            inner.state.change(NameChange::Remove { path: path.to_owned() });
            Ok(())
        })
    }

    fn remove_directory(&self, path: &Path) -> Result<(), Error> {
        self.call(Operation::Remove, path, |inner| {
            match inner.state.names.get(path) {
                Some(Node::Directory) => {}
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => return Err(io::ErrorKind::NotFound.into()),
            }
            if inner.state.names.keys().any(|name| name.parent() == Some(path)) {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            inner.state.change(NameChange::Remove { path: path.to_owned() });
            Ok(())
        })
    }

    fn sync_directory(&self, path: &Path) -> Result<(), Error> {
        self.call(Operation::SyncDirectory, path, |inner| {
            inner.state.sync_directory(path);
            Ok(())
        })
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn Lock>, Error> {
        let holder = self.call(Operation::Lock, path, |inner| {
            let excludes = |held: LockMode| held == LockMode::Exclusive || mode != held;
            let mut locks = inner.locked.iter();
            let holder = locks.find(|(locked, held)| locked == path && excludes(*held));
            if let Some((_, held)) = holder {
                return Ok(Some(*held));
            }
            if inner.state.find(path).is_err() {
                if mode == LockMode::Shared {
                    return Err(io::ErrorKind::NotFound.into());
                }
                inner.state.create(path)?;
            }
            inner.locked.push((path.to_owned(), mode));
            Ok(None)
        })?;
        let path = path.to_owned();
        match holder {
            None => Ok(Box::new(SimulatedLock { disk: self.clone(), path, mode })),
            Some(mode) => {
                let is_exclusive = mode == LockMode::Exclusive;
                let process_id = is_exclusive.then(std::process::id);
                Err(Error::Locked { path, process_id, mode })
            }
        }
    }

    fn free_space(&self, path: &Path) -> Result<u64, Error> {
        self.call(Operation::FreeSpace, path, |inner| {
            Ok(inner.space.saturating_sub(inner.state.bytes_used()) as u64)
        })
    }
}

#[derive(Debug)]
struct SimulatedLock {
    disk: SimulatedDisk,
    path: PathBuf,
    mode: LockMode,
}

impl Lock for SimulatedLock {}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let locked = &mut self.disk.lock_inner().locked;
        let is_this = |(path, mode): &(PathBuf, LockMode)| *path == self.path && *mode == self.mode;
        let index = locked.iter().position(is_this).expect("a lock is held until it is dropped");
        locked.swap_remove(index);
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    number: usize,
    path: PathBuf,
}

impl SimulatedFile {
    fn call<T>(
        &self,
        operation: Operation,
        body: impl FnOnce(&mut DiskState) -> io::Result<T>,
    ) -> Result<T, Error> {
        self.disk.call(operation, &self.path, body)
    }

    /// Lengthens the file to `length` when there is space.
    fn grow(&self, inner: &mut DiskState, length: usize) -> io::Result<()> {
        inner.check_space(self.number, length)?;
        let content = &mut inner.state.files[self.number];
        if length > content.length {
            content.set_length(length);
        }
        Ok(())
    }
}

/// An offset or a length; no simulated file is longer than memory.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a simulated file fits into memory")
}

impl File for SimulatedFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn length(&self) -> Result<u64, Error> {
        self.call(Operation::Length, |inner| Ok(inner.state.files[self.number].length as u64))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        self.disk.wait_for_reads();
        self.call(Operation::Read, |inner| {
            let requested = match &mut inner.short_reads {
                Some(random) if buffer.len() > 1 => 1 + random.index(buffer.len() - 1),
                _ => buffer.len(),
            };
            Ok(inner.state.files[self.number].read(offset, &mut buffer[..requested]))
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.call(Operation::Write, |inner| {
            self.grow(inner, size(offset) + bytes.len())?;
            inner.state.files[self.number].write(size(offset), bytes);
            Ok(())
        })
    }

    fn set_length(&self, length: u64) -> Result<(), Error> {
        self.call(Operation::SetLength, |inner| {
            self.grow(inner, size(length))?;
            inner.state.files[self.number].set_length(size(length));
            Ok(())
        })
    }

    fn allocate(&self, length: u64) -> Result<(), Error> {
        self.call(Operation::Allocate, |inner| self.grow(inner, size(length)))
    }

    fn sync_data(&self) -> Result<(), Error> {
        let mut inner = self.disk.lock_inner();
        if inner.records_before_syncs {
            inner.take_image();
        }
        let counted = inner.count(Operation::SyncData);
        let content = &mut inner.state.files[self.number];
        match counted {
            Ok(()) => content.sync(),
            Err(_) => content.fail_sync(),
        }
        inner.take_image();
        counted.map_err(|source| Error::io(Operation::SyncData, &self.path, source))
    }

    fn map(&self, length: usize) -> Result<Mapping, Error> {
        self.call(Operation::Map, |inner| {
            let content = &inner.state.files[self.number];
            assert!(length <= content.length, "a mapping ends where its file ends");
            Ok(Mapping::of_memory(Arc::clone(&content.memory), length / 8))
        })
    }
}
