//! How many rows a second the log takes, at each level, beside a copy into memory.
//!
//! Beside rows a second, which depend on what else the machine does, it shows the time that a row
//! takes on a processor, the machine's part of it included, without the log's own thread.
//!
//! `append_rate DIRECTORY [SECONDS]`: the directory exists; a log is made in it and removed again.
#![expect(clippy::print_stdout, reason = "a program speaks through its output")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use lockstep_host::{
    Clock, SystemClock,
    file::{Disk, SystemDisk},
    sync::Mutex,
};
use lockstep_wal::{Durability, Entries, Group, Log, Options, SegmentedLog};

const PAYLOAD_BYTES: usize = 100;
/// What the copy into memory goes around in, in bytes.
const MEMORY_BYTES: usize = 64 << 20;
const LEVELS: [Durability; 3] = [Durability::Memory, Durability::Os, Durability::Disk];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().expect("the directory is the first argument"));
    let seconds = arguments.next().map_or(1.0, |seconds| seconds.parse().expect("a number"));
    println!("level    threads  rows/group       rows/s   ns/row   share of a copy");
    for threads in [1, 2, 8] {
        for rows in [1, 100] {
            let copied = copy_rate(threads, rows, seconds);
            let show = |name: &str, rate: Rate| {
                let share = rate.per_second / copied.per_second;
                let Rate { per_second, cpu_ns } = rate;
                println!(
                    "{name:8} {threads:7} {rows:11} {per_second:12.0} {cpu_ns:8.0}   {share:.4}"
                );
            };
            show("copy", copied);
            for level in LEVELS {
                let rate = log_rate(&directory, level, (threads, rows), seconds);
                show(&format!("{level:?}").to_lowercase(), rate);
            }
        }
    }
    let Rate { per_second, cpu_ns } = open_rate(&directory);
    println!("open                         {per_second:12.0} {cpu_ns:8.0}");
}

/// Opens a log of 100,000 groups of ten rows each in a record of its own: rows a second.
fn open_rate(directory: &Path) -> Rate {
    let (log, path) = new_log(directory);
    let payload = vec![7_u8; PAYLOAD_BYTES];
    for _ in 0..100_000 {
        let mut group = Group::new();
        (0..10).for_each(|_| group.push(1, 1, &payload));
        log.append(&group, &mut |_| ()).expect("there is space");
    }
    log.close().expect("the disk works");
    let (clock, mut rows) = (SystemClock::new(), 0_u32);
    let (begin_ns, before_ns) = (clock.monotonic_ns(), thread_cpu_ns());
    let visit = &mut |entries: Entries<'_>| entries.for_each(|entry| rows += entry.rows);
    let opened = SegmentedLog::open(Arc::new(SystemDisk), &path, Options::new([1; 16]), visit);
    let seconds = elapsed(&clock, begin_ns);
    let cpu_ns = std::time::Duration::from_nanos(thread_cpu_ns() - before_ns).as_secs_f64() * 1e9;
    drop(opened.expect("it was closed"));
    fs::remove_dir_all(&path).expect("the log's directory is ours");
    Rate { per_second: f64::from(rows) / seconds, cpu_ns: cpu_ns / f64::from(rows) }
}

/// Makes a log in a directory of its own.
fn new_log(directory: &Path) -> (SegmentedLog, PathBuf) {
    let path = directory.join(format!("append_rate-{}", std::process::id()));
    SystemDisk.create_directory(&path).expect("the directory is writable");
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
    let opened = SegmentedLog::open(disk, &path, Options::new([1; 16]), &mut |_| ());
    (opened.expect("an empty directory becomes a log").0, path)
}

/// What all threads did together.
#[derive(Clone, Copy)]
struct Rate {
    /// Rows a second.
    per_second: f64,
    /// Nanoseconds that a row took on a processor.
    cpu_ns: f64,
}

/// Runs `body`, which takes so many rows, in threads for some seconds.
fn rate(threads: usize, rows: u32, seconds: f64, body: impl Fn() + Send + Sync) -> Rate {
    let (clock, is_over, count) = (SystemClock::new(), AtomicBool::new(false), AtomicU64::new(0));
    let cpu_ns = AtomicU64::new(0);
    let begin_ns = clock.monotonic_ns();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (mut done, before_ns) = (0, thread_cpu_ns());
                while !is_over.load(Ordering::Relaxed) {
                    body();
                    done += 1;
                }
                count.fetch_add(done, Ordering::Relaxed);
                cpu_ns.fetch_add(thread_cpu_ns() - before_ns, Ordering::Relaxed);
            });
        }
        while elapsed(&clock, begin_ns) < seconds {
            lockstep_host::pause(5);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let done = u32::try_from(count.into_inner()).expect("a benchmark is short");
    let rows = f64::from(done) * f64::from(rows);
    let cpu_ns = std::time::Duration::from_nanos(cpu_ns.into_inner()).as_secs_f64() * 1e9 / rows;
    Rate { per_second: rows / elapsed(&clock, begin_ns), cpu_ns }
}

/// How long this thread has run on a processor.
fn thread_cpu_ns() -> u64 {
    let text = lockstep_host::disk::read_to_string(Path::new("/proc/thread-self/schedstat"));
    let text = text.expect("this is Linux");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("it begins with a number")
}

fn elapsed(clock: &SystemClock, begin_ns: u64) -> f64 {
    std::time::Duration::from_nanos(clock.monotonic_ns() - begin_ns).as_secs_f64()
}

/// The same bytes copied into memory under a lock, without a log: rows a second.
fn copy_rate(threads: usize, rows: u32, seconds: f64) -> Rate {
    let payload = vec![7_u8; PAYLOAD_BYTES];
    let memory = Mutex::new((vec![0_u8; MEMORY_BYTES], 0_usize));
    let copy = || {
        let (bytes, offset) = &mut *memory.lock();
        for _ in 0..rows {
            let end = *offset + PAYLOAD_BYTES;
            let begin = if end > bytes.len() { 0 } else { *offset };
            bytes[begin..begin + PAYLOAD_BYTES].copy_from_slice(std::hint::black_box(&payload));
            *offset = begin + PAYLOAD_BYTES;
        }
    };
    rate(threads, rows, seconds, copy)
}

fn log_rate(directory: &Path, level: Durability, shape: (usize, u32), seconds: f64) -> Rate {
    let (log, path) = new_log(directory);
    let (threads, rows) = shape;
    let payload = vec![7_u8; PAYLOAD_BYTES];
    let append = || {
        let mut group = Group::new();
        for _ in 0..rows {
            group.push(1, 1, &payload);
        }
        let appended = log.append(&group, &mut |_| ()).expect("there is space");
        log.wait(appended.end, level).expect("the disk works");
    };
    let rate = rate(threads, rows, seconds, append);
    drop(log);
    fs::remove_dir_all(&path).expect("the log's directory is ours");
    rate
}
