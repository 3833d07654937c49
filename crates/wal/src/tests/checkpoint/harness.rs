//! Workloads of checkpoints, what they may leave behind, and the check of it.
//!
//! The model of a checkpoint is its generation, its body, and the blocks of its files. After a crash
//! the directory must open and have wholly one of the checkpoints that it may have.

use std::{path::Path, sync::Arc};

use lockstep_host::file::{Disk, Operation};
use lockstep_sim::{CrashImage, CrashPolicy, Random, SimulatedDisk};

use crate::{
    Access, BlockPlace, DataFile, DatabaseDirectory, Error, LogId, Manifest,
    checkpoint::{BLOCK_HEADER_BYTES, DATA_FILE_HEADER_BYTES},
};

pub(super) const DIRECTORY: &str = "/features.lockstep";
pub(super) const ID: LogId = *b"a database of ok";

/// The blocks of a file.
pub(super) type Blocks = Vec<Vec<u8>>;

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) generation: u64,
    pub(super) body: Vec<u8>,
    pub(super) files: Vec<Blocks>,
}

impl Model {
    /// What a database has that was just created.
    pub(super) fn first() -> Self {
        Self { generation: 0, body: Vec::new(), files: Vec::new() }
    }
}

/// One thing that a program does with a directory.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Commits a checkpoint of new files, and of the files of the former one whose bit is set.
    Commit { kept: u64, new: Vec<Blocks>, body: Vec<u8> },
    /// Writes a file and does not finish it, or finishes it and does not list it.
    Write { blocks: Blocks, is_finished: bool },
    /// The machine writes some pages back.
    WriteBack(u64),
    /// The program ends and begins again.
    Reopen,
}

/// Draws a workload.
pub(super) fn workload(seed: u64, count: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    let step = |_| match random.below(8) {
        0 => Step::Reopen,
        1 => Step::WriteBack(random.any()),
        2 => Step::Write { blocks: blocks(&mut random), is_finished: random.once_in(2) },
        _ => {
            let new = (0..random.index(3)).map(|_| blocks(&mut random)).collect();
            // Mostly small, now and then longer than a page.
            let length = if random.once_in(6) { 5_000 } else { random.index(90) };
            Step::Commit { kept: random.any(), new, body: random.bytes(length) }
        }
    };
    (0..count).map(step).collect()
}

fn blocks(random: &mut Random) -> Blocks {
    let length = |random: &mut Random| match random.below(12) {
        0 => 5_000,
        1..=3 => 600,
        4 => 0,
        _ => 40,
    };
    (0..random.index(4))
        .map(|_| {
            let length = length(random);
            random.bytes(length)
        })
        .collect()
}

pub(super) fn open(disk: &SimulatedDisk) -> Result<DatabaseDirectory, Error> {
    open_for(disk, Access::ReadWrite { new_id: ID })
}

pub(super) fn open_for(disk: &SimulatedDisk, access: Access) -> Result<DatabaseDirectory, Error> {
    DatabaseDirectory::open(Arc::new(disk.clone()), Path::new(DIRECTORY), access)
}

pub(super) fn write(directory: &DatabaseDirectory, blocks: &[Vec<u8>]) -> Result<DataFile, Error> {
    let mut writer = directory.create_data_file()?;
    for (block, place) in blocks.iter().zip(places(blocks)) {
        assert_eq!(writer.push_block(block)?, place);
    }
    writer.finish()
}

/// Returns where the blocks of a file are.
pub(super) fn places(blocks: &[Vec<u8>]) -> Vec<BlockPlace> {
    let mut offset = DATA_FILE_HEADER_BYTES as u64;
    let place = |(index, block): (u32, &Vec<u8>)| {
        let length = u32::try_from(block.len()).unwrap();
        let place = BlockPlace { offset, index, length };
        offset += BLOCK_HEADER_BYTES as u64 + u64::from(length);
        place
    };
    (0..).zip(blocks).map(place).collect()
}

/// Reads all blocks of a file, one after the other and singly.
pub(super) fn read(directory: &DatabaseDirectory, file: DataFile) -> Result<Blocks, Error> {
    let mut reader = directory.read_data_file(file)?;
    let mut blocks = Vec::new();
    while let Some(block) = reader.next_block()? {
        blocks.push(block.to_vec());
    }
    let single = directory.open_blocks(file)?;
    for (place, block) in places(&blocks).into_iter().zip(&blocks).rev() {
        assert_eq!(&single.read(place)?, block);
    }
    Ok(blocks)
}

/// Reads the current checkpoint.
pub(super) fn found(directory: &DatabaseDirectory) -> Result<Model, Error> {
    let manifest = directory.manifest();
    let files = manifest.files.iter().map(|file| read(directory, *file));
    let files = files.collect::<Result<_, _>>()?;
    Ok(Model { generation: manifest.generation, body: manifest.body.clone(), files })
}

/// A directory, the program that writes it, and what it may have.
pub(super) struct Run {
    pub(super) disk: SimulatedDisk,
    directory: Option<DatabaseDirectory>,
    /// The checkpoints that may be on the disk now.
    pub(super) allowed: Vec<Model>,
    is_stopped: bool,
}

impl Run {
    pub(super) fn new() -> Self {
        let disk = SimulatedDisk::new();
        Self { disk, directory: None, allowed: vec![Model::first()], is_stopped: false }
    }

    /// Does one step. What fails is taken note of; what must not happen is an error. Gives the
    /// checkpoints that a crash during the step may leave.
    pub(super) fn step(&mut self, step: &Step) -> Result<Vec<Model>, String> {
        if self.directory.is_none() {
            self.open()?;
        }
        let mut during = self.allowed.clone();
        let Some(directory) = self.directory.take() else { return Ok(during) };
        match step {
            Step::Commit { kept, new, body } => {
                if let Some((model, manifest)) = self.prepare(&directory, *kept, new, body)? {
                    during.push(model.clone());
                    self.commit(&directory, model, manifest)?;
                }
            }
            Step::Write { blocks, is_finished: true } => {
                let _may_fail = write(&directory, blocks);
            }
            Step::Write { blocks, is_finished: false } => {
                if let Ok(mut writer) = directory.create_data_file() {
                    let _may_fail =
                        blocks.iter().try_for_each(|block| writer.push_block(block).map(drop));
                }
            }
            Step::WriteBack(seed) => self.disk.write_back(&mut Random::new(*seed)),
            Step::Reopen => {
                self.is_stopped = false;
                return Ok(during);
            }
        }
        self.directory = Some(directory);
        Ok(during)
    }

    /// Writes the files of a checkpoint; `None` when that fails.
    fn prepare(
        &self,
        directory: &DatabaseDirectory,
        kept: u64,
        new: &[Blocks],
        body: &[u8],
    ) -> Result<Option<(Model, Manifest)>, String> {
        let current = directory.manifest();
        let model = self.allowed.iter().find(|model| model.generation == current.generation);
        let model = model.ok_or("the directory has another checkpoint than it may have")?;
        let is_kept = |index: &usize| kept >> (index % 64) & 1 == 1;
        let chosen = (0..current.files.len()).filter(is_kept);
        let (mut files, mut contents) = (Vec::new(), Vec::new());
        for index in chosen {
            files.push(current.files[index]);
            contents.push(model.files[index].clone());
        }
        for blocks in new {
            let Ok(file) = write(directory, blocks) else { return Ok(None) };
            files.push(file);
            contents.push(blocks.clone());
        }
        let generation = current.generation + 1;
        let model = Model { generation, body: body.to_vec(), files: contents };
        Ok(Some((model, current.successor(0, files, body.to_vec()))))
    }

    fn commit(
        &mut self,
        directory: &DatabaseDirectory,
        model: Model,
        manifest: Manifest,
    ) -> Result<(), String> {
        match directory.commit(manifest) {
            Ok(()) if self.is_stopped => return Err("committed after a failed sync".into()),
            Ok(()) => self.allowed = vec![model],
            Err(Error::CheckpointsStopped { .. }) if self.is_stopped => {}
            Err(Error::CheckpointsStopped { .. }) => {
                self.is_stopped = true;
                self.allowed.push(model);
            }
            Err(Error::Disk { .. } | Error::Full { .. }) => {}
            Err(error) => return Err(format!("not committed: {error}")),
        }
        Ok(())
    }

    /// Opens the directory again after the program ended.
    fn open(&mut self) -> Result<(), String> {
        match open(&self.disk) {
            Ok(directory) => {
                match found(&directory) {
                    // The fault was that of a read.
                    Err(Error::Disk { .. }) => return Ok(()),
                    model => self.allowed = vec![check_model(model, &self.allowed)?],
                }
                self.directory = Some(directory);
                Ok(())
            }
            // The fault that was set; the next step tries again.
            Err(Error::Disk { .. } | Error::Full { .. }) => Ok(()),
            Err(error) => Err(format!("not opened: {error}")),
        }
    }

    /// Ends the program; gives the disk, which goes on, and the checkpoints that may be on it.
    pub(super) fn end(self) -> (SimulatedDisk, Vec<Model>) {
        (self.disk, self.allowed)
    }
}

/// Reads the checkpoint that is there, which must be one of those that may be.
fn check_found(directory: &DatabaseDirectory, allowed: &[Model]) -> Result<Model, String> {
    check_model(found(directory), allowed)
}

fn check_model(found: Result<Model, Error>, allowed: &[Model]) -> Result<Model, String> {
    let model = found.map_err(|error| format!("not read: {error}"))?;
    if allowed.contains(&model) {
        return Ok(model);
    }
    Err(format!("generation {} is not what may be found", model.generation))
}

/// Opens what a crash left, to read and to write, and compares; then commits a checkpoint that keeps
/// all files, crashes again, and compares again.
pub(super) fn check(disk: &SimulatedDisk, allowed: &[Model]) -> Result<(), String> {
    check_reading(disk, allowed)?;
    let directory = open(disk).map_err(|error| format!("not opened: {error}"))?;
    let mut model = check_found(&directory, allowed)?;
    check_names(disk, &directory)?;
    let current = directory.manifest();
    let block = b"written after the crash".to_vec();
    let blocks = vec![block.clone(), block];
    let file = write(&directory, &blocks).map_err(|error| format!("not written: {error}"))?;
    let files = current.files.iter().copied().chain([file]).collect();
    model.files.push(blocks);
    model.generation += 1;
    let manifest = current.successor(0, files, model.body.clone());
    directory.commit(manifest).map_err(|error| format!("not committed: {error}"))?;
    let image = disk.image();
    for policy in [CrashPolicy::AllLost, CrashPolicy::Random(model.generation)] {
        let again = image.disk(policy);
        let directory = open(&again).map_err(|error| format!("not opened again: {error}"))?;
        check_found(&directory, std::slice::from_ref(&model))?;
    }
    Ok(())
}

/// Opens a directory for reading, if it holds a database: nothing on the disk is changed.
fn check_reading(disk: &SimulatedDisk, allowed: &[Model]) -> Result<(), String> {
    let changes = || -> u64 {
        let reads =
            [Operation::Open, Operation::Length, Operation::Read, Operation::List, Operation::Lock];
        disk.calls(None) - reads.iter().map(|read| disk.calls(Some(*read))).sum::<u64>()
    };
    let before = changes();
    match open_for(disk, Access::ReadOnly) {
        Ok(directory) => {
            check_found(&directory, allowed)?;
            directory.read_log(&mut |_| ()).map_err(|error| format!("the log: {error}"))?;
        }
        Err(Error::NoDatabase { .. }) if allowed.contains(&Model::first()) => {}
        Err(error) => return Err(format!("not opened for reading: {error}")),
    }
    if changes() > before {
        return Err("opening for reading has changed the disk".into());
    }
    Ok(())
}

/// After opening there are only the files of the checkpoint.
fn check_names(disk: &SimulatedDisk, directory: &DatabaseDirectory) -> Result<(), String> {
    let count = disk.list(&Path::new(DIRECTORY).join("data")).map_err(|e| e.to_string())?.len();
    let listed = directory.manifest().files.len();
    let names = disk.list(Path::new(DIRECTORY)).map_err(|error| error.to_string())?;
    if count != listed || names != ["LOCK", "MANIFEST", "data", "log"] {
        return Err(format!("{count} data files and not {listed}, beside {names:?}"));
    }
    Ok(())
}

/// Checks every crash that an image can have, and some random ones; gives how many.
pub(super) fn check_image(image: &CrashImage, allowed: &[Model], seed: u64) -> Result<u64, String> {
    let mut states = image.states();
    states.extend((0..4).map(|number| CrashPolicy::Random(seed.wrapping_mul(31) + number)));
    for policy in &states {
        let checked = check(&image.disk(*policy), allowed);
        checked.map_err(|what| format!("{policy:?}: {what}"))?;
    }
    Ok(states.len() as u64)
}

/// Runs a workload and checks every crash after every call; gives how many crashes.
pub(super) fn check_workload(seed: u64, count: usize) -> Result<u64, String> {
    let named = |what: String| format!("seed {seed}, {count} steps: {what}");
    let mut run = Run::new();
    run.disk.record();
    let mut states = 0;
    for (index, step) in workload(seed, count).iter().enumerate() {
        let during = run.step(step).map_err(named)?;
        for (call, image) in run.disk.take_images().iter().enumerate() {
            let checked = check_image(image, &during, seed + call as u64);
            let place = |what| named(format!("step {index}, call {call}, {what}"));
            states += checked.map_err(place)?;
        }
        let checked = check_image(&run.disk.image(), &run.allowed, seed);
        states += checked.map_err(|what| named(format!("after step {index}, {what}")))?;
    }
    Ok(states)
}
