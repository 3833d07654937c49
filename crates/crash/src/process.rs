//! The driver's handle of a child process.

use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use crate::{
    child::ChildOptions,
    operation::{ChildAnswer, ChildRequest},
};

/// A child that answers nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A child process.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<ChildAnswer>,
}

impl ChildProcess {
    /// Starts a child, which opens the directory. `program` is this program.
    pub fn start(program: &Path, directory: &Path, options: &ChildOptions) -> Self {
        let mut command = Command::new(program);
        command.arg("child").arg(directory);
        let mut pass = |name: &str, value: String| {
            command.arg(format!("--{name}={value}"));
        };
        pass("now-ms", options.now_ms.to_string());
        pass("segment-bytes", options.segment_bytes.to_string());
        pass("part-bytes", options.part_bytes.to_string());
        pass("chunk-rows", options.chunk_rows.to_string());
        pass("leaf-rows", options.leaf_rows.to_string());
        pass("writers", options.writers.to_string());
        if let Some((name, count)) = &options.failpoint {
            pass("failpoint", name.clone());
            pass("count", count.to_string());
        }
        if let Some(bug) = &options.bug {
            pass("bug", bug.clone());
        }
        let log = OpenOptions::new().create(true).append(true).open(errors_path(directory));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(log.expect("the folder of the directory is writable"));
        let mut child = command.spawn().expect("this program runs");
        let input = child.stdin.take();
        let output = child.stdout.take().expect("it is piped");
        let (sender, answers) = channel();
        let body = move || {
            let mut output = BufReader::new(output);
            let mut line = String::new();
            // A last line without its end was not written completely: it acknowledges nothing.
            while output.read_line(&mut line).is_ok_and(|_| line.ends_with('\n')) {
                let answer = serde_json::from_str(&line).expect("the child writes answers");
                if sender.send(answer).is_err() {
                    return;
                }
                line.clear();
            }
        };
        lockstep_host::spawn("answers", body).expect("there are few threads");
        Self { child, input, answers }
    }

    /// Sends a request. Whether the child takes requests still.
    pub fn send(&mut self, request: &ChildRequest) -> bool {
        let mut line = serde_json::to_vec(request).expect("names are text");
        line.push(b'\n');
        self.input.as_mut().is_some_and(|input| input.write_all(&line).is_ok())
    }

    /// Waits for the next answer; `None` when the child has ended.
    pub fn answer(&self) -> Option<ChildAnswer> {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the child hangs"),
        }
    }

    /// Returns the next answer if there is one.
    pub fn answer_now(&self) -> Option<ChildAnswer> {
        self.answers.try_recv().ok()
    }

    /// Kills the child with SIGKILL; returns the answers that it had written.
    pub fn kill(mut self) -> Vec<ChildAnswer> {
        // Fails when it has ended by itself.
        let _killed = self.child.kill();
        self.end()
    }

    /// Waits until the child has ended; returns the answers that it had written.
    pub fn end(&mut self) -> Vec<ChildAnswer> {
        drop(self.input.take());
        let mut answers = Vec::new();
        while let Some(answer) = self.answer() {
            answers.push(answer);
        }
        self.child.wait().expect("it was started");
        answers
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Returns the file that has what the children of a directory wrote to their standard error.
pub fn errors_path(directory: &Path) -> std::path::PathBuf {
    directory.with_extension("errors")
}
