//! A schema registry: the schemas behind the ids in messages, and ids for new schemas.
//!
//! The REST interface is that of Confluent's registry, which others have as well.

use std::{collections::BTreeMap, fmt, path::Path, time::Duration};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::disk;
use reqwest::{Certificate, Client, Method, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{error::sentence, runtime::wait};

/// How long a client waits for a connection, and for an answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A schema has so many others at most that it refers to, directly or not.
const REFERENCES_MAX: usize = 256;
const MEDIA_TYPE: &str = "application/vnd.schemaregistry.v1+json";

/// A schema registry, and how a client connects to it.
#[derive(Clone, PartialEq, Eq)]
pub struct SchemaRegistry {
    /// Its addresses, which are tried in turn: `http://host:port`, separated by commas.
    pub addresses: String,
    /// The user and the password; `None`: the client does not log in.
    pub login: Option<(String, String)>,
    /// A PEM file with certificates that are trusted beside those of the system.
    pub authorities: Option<String>,
}

impl fmt::Debug for SchemaRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addresses, login, authorities } = self;
        let username = login.as_ref().map(|(username, _)| username);
        f.debug_struct("SchemaRegistry")
            .field("addresses", addresses)
            .field("username", &username)
            .field("authorities", authorities)
            .finish_non_exhaustive()
    }
}

/// The language of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaLanguage {
    /// Avro.
    Avro,
    /// Protobuf.
    Protobuf,
}

impl SchemaLanguage {
    /// Returns its name in the registry's interface.
    fn name(self) -> &'static str {
        match self {
            Self::Avro => "AVRO",
            Self::Protobuf => "PROTOBUF",
        }
    }
}

impl fmt::Display for SchemaLanguage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A schema of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredSchema {
    /// Its language: `AVRO`, `PROTOBUF` or another one.
    pub language: String,
    /// Its text.
    pub text: String,
    /// The schemas that it refers to, directly or not: the names by which it does, and their texts.
    pub references: Vec<(String, String)>,
}

impl RegisteredSchema {
    /// Returns whether it is of a language.
    pub fn is(&self, language: SchemaLanguage) -> bool {
        self.language == language.name()
    }
}

/// A schema as the registry answers it.
#[derive(Deserialize)]
struct SchemaAnswer {
    schema: String,
    /// Absent for Avro.
    #[serde(rename = "schemaType")]
    language: Option<String>,
    #[serde(default)]
    references: Vec<ReferenceAnswer>,
}

#[derive(Deserialize)]
struct ReferenceAnswer {
    name: String,
    subject: String,
    version: i64,
}

/// A client of a schema registry.
#[derive(Debug)]
pub struct RegistryClient {
    registry: SchemaRegistry,
    urls: Vec<Url>,
    client: Client,
}

/// What a registry has answered.
struct RegistryAnswer {
    status: StatusCode,
    body: Vec<u8>,
}

impl SchemaRegistry {
    /// Makes a client. It connects with the first call.
    pub fn client(&self) -> Result<RegistryClient> {
        let urls = self.addresses.split(',').map(|address| parse_url(address.trim()));
        let urls: Vec<Url> = urls.collect::<Result<_>>()?;
        let mut builder = Client::builder()
            .user_agent("lockstep")
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT);
        if let Some(path) = &self.authorities {
            for certificate in read_certificates(path)? {
                builder = builder.add_root_certificate(certificate);
            }
        }
        let client = builder.build().map_err(|error| self.not_reached(&error.to_string()))?;
        Ok(RegistryClient { registry: self.clone(), urls, client })
    }

    fn not_reached(&self, why: &str) -> Box<Diagnostic> {
        let message = format!("could not reach the schema registry at `{}`", self.addresses);
        let diagnostic = Diagnostic::new(code::NOT_CONNECTED, message).with_kind(Kind::Retry);
        Box::new(
            diagnostic
                .with_detail(sentence(&why))
                .with_hint("Check that a registry runs there, and whether it expects https."),
        )
    }
}

impl RegistryClient {
    /// Returns the schema with an id. Fails with [`code::UNDEFINED_OBJECT`] if there is none.
    pub fn schema(&self, id: u32) -> Result<RegisteredSchema> {
        wait(async {
            let answer = self.call(Method::GET, &["schemas", "ids", &id.to_string()], None).await?;
            let missing = || format!("schema {id} does not exist in the schema registry");
            let found = self.schema_of(&answer, missing)?;
            self.with_references(found).await
        })
    }

    /// Returns the newest schema of a subject; `None` if it has none.
    pub fn latest(&self, subject: &str) -> Result<Option<RegisteredSchema>> {
        wait(async {
            let path = ["subjects", subject, "versions", "latest"];
            let answer = self.call(Method::GET, &path, None).await?;
            if answer.status == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            let found = self.schema_of(&answer, String::new)?;
            self.with_references(found).await.map(Some)
        })
    }

    /// Returns the id of a schema, which is registered in a subject if it is new there.
    pub fn register(&self, subject: &str, language: SchemaLanguage, schema: &str) -> Result<u32> {
        let body = json!({ "schemaType": language.name(), "schema": schema });
        wait(async {
            let path = ["subjects", subject, "versions"];
            let answer = self.call(Method::POST, &path, Some(&body)).await?;
            if !answer.status.is_success() {
                let message =
                    format!("the schema registry refuses the schema of subject `{subject}`");
                return Err(self.refused(&answer, code::INVALID_PARAMETER, message));
            }
            let id = serde_json::from_slice(&answer.body)
                .ok()
                .and_then(|body: Value| body.get("id")?.as_u64())
                .and_then(|id| u32::try_from(id).ok());
            id.ok_or_else(|| self.not_reached_by(&answer))
        })
    }

    /// Adds what a schema refers to, what that refers to, and so on.
    async fn with_references(&self, found: SchemaAnswer) -> Result<RegisteredSchema> {
        let mut references = BTreeMap::new();
        let mut open = found.references;
        while let Some(ReferenceAnswer { name, subject, version }) = open.pop() {
            if references.contains_key(&name) {
                continue;
            }
            if references.len() == REFERENCES_MAX {
                let message =
                    format!("a schema of the registry has more than {REFERENCES_MAX} references");
                return Diagnostic::new(code::STATEMENT_TOO_COMPLEX, message)
                    .with_kind(Kind::FixData)
                    .err();
            }
            let path = ["subjects", &subject, "versions", &version.to_string()];
            let answer = self.call(Method::GET, &path, None).await?;
            let missing = || {
                format!(
                    "version {version} of subject `{subject}`, which a schema refers to, does not exist \
                     in the schema registry"
                )
            };
            let referenced = self.schema_of(&answer, missing)?;
            references.insert(name, referenced.schema);
            open.extend(referenced.references);
        }
        Ok(RegisteredSchema {
            language: found.language.unwrap_or_else(|| SchemaLanguage::Avro.name().to_owned()),
            text: found.schema,
            references: references.into_iter().collect(),
        })
    }

    /// Reads a schema of an answer; `missing` is the message of one that does not exist.
    fn schema_of(
        &self,
        answer: &RegistryAnswer,
        missing: impl FnOnce() -> String,
    ) -> Result<SchemaAnswer> {
        if answer.status == StatusCode::NOT_FOUND {
            let diagnostic = Diagnostic::new(code::UNDEFINED_OBJECT, missing());
            return diagnostic.with_kind(Kind::FixData).err();
        }
        if !answer.status.is_success() {
            let message = "the schema registry refuses to give a schema".to_owned();
            return Err(self.refused(answer, code::CONNECTION_FAILURE, message));
        }
        serde_json::from_slice(&answer.body).map_err(|_other| self.not_reached_by(answer))
    }

    /// Calls the registry at its first address that answers.
    async fn call(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&Value>,
    ) -> Result<RegistryAnswer> {
        let mut failed = "it has no address".to_owned();
        for url in &self.urls {
            let mut url = url.clone();
            if let Ok(mut segments) = url.path_segments_mut() {
                segments.pop_if_empty().extend(path);
            }
            let mut request = self.client.request(method.clone(), url).header("accept", MEDIA_TYPE);
            if let Some((username, password)) = &self.registry.login {
                request = request.basic_auth(username, Some(password));
            }
            if let Some(body) = body {
                request = request.header("content-type", MEDIA_TYPE).body(body.to_string());
            }
            match send(request).await {
                Ok(answer) if answer.status.is_server_error() => failed = answer.reason(),
                Ok(answer) => return Ok(answer),
                Err(error) => failed = with_causes(&error),
            }
        }
        Err(self.registry.not_reached(&failed))
    }

    /// Makes the error of an answer that refuses something.
    fn refused(
        &self,
        answer: &RegistryAnswer,
        code: &'static str,
        message: String,
    ) -> Box<Diagnostic> {
        debug_assert!(!answer.status.is_success(), "it refuses");
        let denied = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
        let diagnostic = if denied.contains(&answer.status) {
            Diagnostic::new(code::INVALID_AUTHORIZATION, "the schema registry refuses the login")
                .with_hint("Check `schema_registry_username` and `schema_registry_password`.")
        } else {
            Diagnostic::new(code, message).with_kind(Kind::FixData)
        };
        Box::new(diagnostic.with_detail(sentence(&answer.reason())))
    }

    /// Makes the error of an answer that is not a registry's.
    fn not_reached_by(&self, answer: &RegistryAnswer) -> Box<Diagnostic> {
        let why = format!("what answers there is not a schema registry: {}", answer.reason());
        self.registry.not_reached(&why)
    }
}

impl RegistryAnswer {
    /// Returns what the registry says, or the status.
    fn reason(&self) -> String {
        let message = serde_json::from_slice(&self.body)
            .ok()
            .and_then(|body: Value| body.get("message")?.as_str().map(str::to_owned));
        message.unwrap_or_else(|| format!("the status is {}", self.status))
    }
}

async fn send(request: reqwest::RequestBuilder) -> reqwest::Result<RegistryAnswer> {
    let response = request.send().await?;
    let status = response.status();
    Ok(RegistryAnswer { status, body: response.bytes().await?.to_vec() })
}

fn parse_url(address: &str) -> Result<Url> {
    let parsed = Url::parse(address).ok();
    let usable = parsed.filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
    usable.ok_or_else(|| {
        let message = format!("`{address}` is not an address of a schema registry");
        let diagnostic = Diagnostic::new(code::INVALID_PARAMETER, message);
        Box::new(diagnostic.with_hint("Use the form http://host:port or https://host:port."))
    })
}

fn read_certificates(path: &str) -> Result<Vec<Certificate>> {
    let read = disk::read(Path::new(path)).map_err(|error| error.to_string());
    let read =
        read.and_then(|pem| Certificate::from_pem_bundle(&pem).map_err(|error| error.to_string()));
    read.map_err(|why| {
        let message = format!("could not read the certificates of file `{path}`");
        Box::new(Diagnostic::new(code::INVALID_PARAMETER, message).with_detail(sentence(&why)))
    })
}

/// Returns the text of an error with those of its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
