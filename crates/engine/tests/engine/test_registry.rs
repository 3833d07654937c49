//! A schema registry for tests: its REST interface over HTTP, with a login and with failures on demand.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use lockstep_host::sync::Mutex;
use serde_json::{Value, json};

/// A registry that runs until the process ends.
#[derive(Clone)]
pub(crate) struct TestRegistry {
    port: u16,
    state: Arc<RegistryState>,
}

#[derive(Default)]
struct RegistryState {
    /// The schemas, whose ids are their places, from 1.
    schemas: Mutex<Vec<Value>>,
    /// The ids of each subject, by version.
    subjects: Mutex<BTreeMap<String, Vec<usize>>>,
    /// The value of the header `authorization` that a call needs.
    login: Mutex<Option<String>>,
    /// How many calls are still to fail.
    failures: AtomicUsize,
    calls: AtomicUsize,
    /// Whether a new schema of a subject that has one is refused.
    is_strict: Mutex<bool>,
}

impl TestRegistry {
    /// Starts a registry without schemas.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let registry = Self { port, state: Arc::default() };
        let of_thread = registry.clone();
        let serve = move || {
            for stream in listener.incoming().flatten() {
                // A client that has gone needs no answer.
                drop(of_thread.answer(&stream));
            }
        };
        drop(lockstep_host::spawn("test-registry", serve).expect("the machine has threads"));
        registry
    }

    /// Returns its address.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Requires a login: the user and the password in Base64, as `user:password`.
    pub(crate) fn require_login(&self, base64: &str) {
        *self.state.login.lock() = Some(format!("Basic {base64}"));
    }

    /// Refuses new schemas of subjects that have one.
    pub(crate) fn refuse_changes(&self) {
        *self.state.is_strict.lock() = true;
    }

    /// Fails the next calls.
    pub(crate) fn fail(&self, calls: usize) {
        // Relaxed, here and below: numbers alone.
        self.state.failures.store(calls, Ordering::Relaxed);
    }

    /// Returns how often it was called.
    pub(crate) fn calls(&self) -> usize {
        self.state.calls.load(Ordering::Relaxed)
    }

    /// Registers a schema, and returns its id.
    pub(crate) fn register(
        &self,
        subject: &str,
        language: &str,
        schema: &str,
        references: &Value,
    ) -> usize {
        let new = json!({ "schemaType": language, "schema": schema, "references": references });
        let mut schemas = self.state.schemas.lock();
        let known = schemas.iter().position(|known| *known == new);
        let id = known.unwrap_or(schemas.len()) + 1;
        if known.is_none() {
            schemas.push(new);
        }
        let mut subjects = self.state.subjects.lock();
        let versions = subjects.entry(subject.to_owned()).or_default();
        if !versions.contains(&id) {
            versions.push(id);
        }
        id
    }

    /// Returns the newest schema of a subject.
    pub(crate) fn latest(&self, subject: &str) -> Option<String> {
        let id = *self.state.subjects.lock().get(subject)?.last()?;
        let schemas = self.state.schemas.lock();
        schemas[id - 1]["schema"].as_str().map(str::to_owned)
    }

    fn answer(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (mut length, mut login) = (0, None);
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap_or(0),
                "authorization" => login = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let (status, answer) = self.answer_of(&method, &path, &body, login.as_ref());
        let answer = answer.to_string();
        write!(
            &mut &*stream,
            "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{answer}",
            answer.len()
        )
    }

    fn answer_of(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        login: Option<&String>,
    ) -> (u16, Value) {
        let state = &self.state;
        state.calls.fetch_add(1, Ordering::Relaxed);
        let fails = |left: usize| left.checked_sub(1);
        if state.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fails).is_ok() {
            return (503, json!({ "message": "out of order" }));
        }
        if state.login.lock().as_ref().is_some_and(|needed| login != Some(needed)) {
            return (401, json!({ "error_code": 401, "message": "Unauthorized" }));
        }
        let missing = (404, json!({ "error_code": 40403, "message": "Schema not found" }));
        let schemas = || state.schemas.lock().clone();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (method, parts.as_slice()) {
            ("GET", ["schemas", "ids", id]) => {
                let at = id.parse::<usize>().ok().and_then(|id| id.checked_sub(1));
                at.and_then(|at| schemas().get(at).cloned()).map_or(missing, |found| (200, found))
            }
            ("GET", ["subjects", subject, "versions", version]) => {
                let ids = state.subjects.lock().get(*subject).cloned().unwrap_or_default();
                let at = match version.parse::<usize>() {
                    Ok(version) => version.checked_sub(1),
                    Err(_latest) => ids.len().checked_sub(1),
                };
                let id = at.and_then(|at| ids.get(at).copied());
                id.map_or(missing, |id| (200, schemas()[id - 1].clone()))
            }
            ("POST", ["subjects", subject, "versions"]) => {
                let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
                let is_new = self.latest(subject).is_some_and(|known| known != text("schema"));
                if is_new && *state.is_strict.lock() {
                    let message = "Schema being registered is incompatible with an earlier schema";
                    return (409, json!({ "error_code": 409, "message": message }));
                }
                let id = self.register(subject, &text("schemaType"), &text("schema"), &json!([]));
                (200, json!({ "id": id }))
            }
            _ => missing,
        }
    }
}
