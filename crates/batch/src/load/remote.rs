//! Files in object stores: `s3://`, `gs://`, `az://`, `http://` and their other spellings.
//!
//! Credentials come from where the stores' own tools look for them: environment variables
//! (`AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME`, …) and the
//! identity of the machine. `AWS_ENDPOINT` names another server that speaks S3. A store is made once
//! for each bucket and process; requests are repeated after failures that may pass.
//!
//! Readers run on threads that may block, and wait there for the network.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt,
    io::{self, Read},
    ops::Range,
    sync::Arc,
};

use bytes::{Buf, Bytes};
use futures::{StreamExt, TryStreamExt};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{PerProcess, sync::Mutex};
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt, aws::AmazonS3Builder, azure::MicrosoftAzureBuilder,
    gcp::GoogleCloudStorageBuilder, http::HttpBuilder, path::Path as ObjectPath,
};

use crate::execute::runtime;

/// The bytes that a reader of a text asks for at once.
const READ_BYTES: u64 = 8 << 20;

/// The most objects that one pattern may list.
const OBJECTS_MAX: usize = 1_000_000;

/// A file in an object store.
#[derive(Clone)]
pub(crate) struct RemoteFile {
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
    url: String,
    size: u64,
    /// When it was changed, in nanoseconds since the epoch, if that is known.
    modified_ns: Option<i64>,
}

impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteFile").field("url", &self.url).finish_non_exhaustive()
    }
}

impl RemoteFile {
    /// Returns its URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns its size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns when it was changed, in nanoseconds since the epoch, if that is known.
    pub(crate) fn modified_ns(&self) -> Option<i64> {
        self.modified_ns
    }

    /// Reads a part of it. Waits for the network.
    pub(crate) fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        debug_assert!(range.start <= range.end && range.end <= self.size, "a part of the file");
        let wait = runtime().map_err(|error| io::Error::other(error.message))?;
        wait.block_on(self.store.get_range(&self.path, range)).map_err(io::Error::other)
    }

    /// Reads it from a position to its end.
    pub(crate) fn reader(&self, start: u64) -> RemoteReader {
        RemoteReader { file: self.clone(), at: start, buffer: Bytes::new() }
    }
}

/// Reads a file of an object store in large parts, one after the other.
#[derive(Debug)]
pub(crate) struct RemoteReader {
    file: RemoteFile,
    at: u64,
    buffer: Bytes,
}

impl Read for RemoteReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        debug_assert!(self.at <= self.file.size, "the reader stays within the file");
        if self.buffer.is_empty() && self.at < self.file.size {
            let end = self.file.size.min(self.at + READ_BYTES);
            self.buffer = self.file.read(self.at..end)?;
            self.at = end;
        }
        let count = to.len().min(self.buffer.len());
        self.buffer.copy_to_slice(&mut to[..count]);
        Ok(count)
    }
}

/// Returns whether a path is a URL of an object store.
pub(crate) fn is_remote(path: &str) -> bool {
    scheme_of(path).is_some()
}

fn scheme_of(path: &str) -> Option<&'static str> {
    const SCHEMES: &[&str] =
        &["s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "http", "https"];
    let (scheme, _) = path.split_once("://")?;
    SCHEMES.iter().find(|known| scheme.eq_ignore_ascii_case(known)).copied()
}

/// A bucket, or the root of a web server, and the rest of a URL.
struct StoreUrl<'u> {
    scheme: &'static str,
    /// With the scheme, without a slash at its end.
    root: &'u str,
    path: &'u str,
}

fn split(url: &str) -> Result<StoreUrl<'_>> {
    let Some(scheme) = scheme_of(url) else {
        return Err(failed(url, "is not an object store URL"));
    };
    let start = scheme.len() + "://".len();
    let end = url[start..].find('/').map_or(url.len(), |at| start + at);
    if end == start {
        return Err(failed(url, "does not contain a bucket name"));
    }
    Ok(StoreUrl { scheme, root: &url[..end], path: url[end..].trim_start_matches('/') })
}

/// Lists the files of a URL: one file, or those below the longest folder of a pattern that has no
/// `*` or `?` in it. The caller chooses among them.
pub(crate) fn list(url: &str) -> Result<Vec<(String, RemoteFile)>> {
    let parts = split(url)?;
    let store = store_of(&parts)?;
    let is_pattern = parts.path.contains(['*', '?']) || parts.path.ends_with('/');
    let made = |ObjectMeta { location, size, last_modified, .. }| {
        let text = location.to_string();
        let url = format!("{}/{text}", parts.root);
        let modified_ns = last_modified.timestamp_nanos_opt();
        (text, RemoteFile { store: Arc::clone(&store), path: location, url, size, modified_ns })
    };
    let parsed = |text: &str| {
        ObjectPath::parse(text.trim_end_matches('/'))
            .map_err(|error| failed(url, &format!("is not a valid object path: {error}")))
    };
    let wait = runtime()?;
    if !is_pattern {
        let path = parsed(parts.path)?;
        match wait.block_on(store.head(&path)) {
            Ok(found) => return Ok(vec![made(found)]),
            Err(object_store::Error::NotFound { .. }) if !parts.scheme.starts_with("http") => {}
            Err(error) => return Err(store_error(url, &error)),
        }
    }
    let fixed = match parts.path.find(['*', '?']) {
        Some(at) => parts.path[..at].rfind('/').map_or("", |slash| &parts.path[..slash]),
        None => parts.path,
    };
    let prefix = parsed(fixed)?;
    let listed = store.list(Some(&prefix)).take(OBJECTS_MAX).try_collect::<Vec<_>>();
    let listed = wait.block_on(listed).map_err(|error| store_error(url, &error))?;
    Ok(listed.into_iter().map(made).collect())
}

/// Returns a file of a known size, without a request.
pub(crate) fn file(url: &str, size: u64) -> Result<RemoteFile> {
    let parts = split(url)?;
    let path = ObjectPath::parse(parts.path)
        .map_err(|error| failed(url, &format!("is not a valid object path: {error}")))?;
    Ok(RemoteFile { store: store_of(&parts)?, path, url: url.to_owned(), size, modified_ns: None })
}

/// Finds a file. Waits for the network.
pub(crate) fn find(url: &str) -> Result<RemoteFile> {
    let found = file(url, 0)?;
    let size = runtime()?
        .block_on(found.store.head(&found.path))
        .map_err(|error| store_error(url, &error))?
        .size;
    Ok(RemoteFile { size, ..found })
}

/// The stores by their roots and endpoints.
type Stores = HashMap<String, Arc<dyn ObjectStore>>;

/// Returns the store of a bucket, which is made at its first use.
fn store_of(url: &StoreUrl<'_>) -> Result<Arc<dyn ObjectStore>> {
    static STORES: PerProcess<Mutex<Stores>> = PerProcess::new();
    let key = format!("{}|{}", url.root, endpoint().unwrap_or_default());
    let stores = STORES.get_or_make(|| Ok::<_, Infallible>(Mutex::default()));
    let Ok(stores) = stores;
    let mut stores = stores.lock();
    if let Some(store) = stores.get(&key) {
        return Ok(Arc::clone(store));
    }
    let made = make_store(url).map_err(|error| store_error(url.root, &error))?;
    stores.insert(key, Arc::clone(&made));
    Ok(made)
}

/// Returns the server that is used instead of the one of S3.
#[expect(
    clippy::disallowed_methods,
    reason = "the variables that S3 tools read, in addition to credentials"
)]
fn endpoint() -> Option<String> {
    ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
}

fn make_store(url: &StoreUrl<'_>) -> object_store::Result<Arc<dyn ObjectStore>> {
    Ok(match url.scheme {
        "s3" | "s3a" => {
            let mut builder = AmazonS3Builder::from_env().with_url(url.root);
            if let Some(endpoint) = endpoint() {
                let is_plain = endpoint.starts_with("http://");
                builder = builder.with_endpoint(endpoint).with_allow_http(is_plain);
            }
            Arc::new(builder.build()?)
        }
        "gs" | "gcs" => {
            let bucket = url.root.rsplit('/').next().unwrap_or_default();
            Arc::new(GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).build()?)
        }
        "http" | "https" => {
            let options = object_store::ClientOptions::new().with_allow_http(url.scheme == "http");
            Arc::new(HttpBuilder::new().with_url(url.root).with_client_options(options).build()?)
        }
        _ => Arc::new(MicrosoftAzureBuilder::from_env().with_url(url.root).build()?),
    })
}

/// Returns the error of a URL that does not name what it should.
fn failed(url: &str, what: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::new(code::UNDEFINED_FILE, format!("`{url}` {what}")))
}

/// Returns the error of an object store, with what can be done about it.
fn store_error(url: &str, error: &object_store::Error) -> Box<Diagnostic> {
    use object_store::Error;
    let diagnostic = match error {
        Error::NotFound { .. } => {
            return Box::new(Diagnostic::new(
                code::UNDEFINED_FILE,
                format!("`{url}` does not exist"),
            ));
        }
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            Diagnostic::new(code::INSUFFICIENT_PRIVILEGE, format!("permission denied for `{url}`"))
                .with_hint(
                    "Check the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
                            GOOGLE_APPLICATION_CREDENTIALS, or AZURE_STORAGE_ACCOUNT_KEY.",
                )
        }
        // A list of the files of a bucket that does not exist has no error of its own.
        _ if error.to_string().contains("NoSuchBucket") => {
            let message = format!("the bucket of `{url}` does not exist");
            return Box::new(Diagnostic::new(code::UNDEFINED_FILE, message));
        }
        _ => Diagnostic::new(code::IO_ERROR, format!("could not read `{url}`"))
            .with_kind(Kind::FreeResources),
    };
    // The whole chain is on one line; the store's own answer is at its end.
    let detail = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let detail: String = detail.chars().take(DETAIL_CHARS_MAX).collect();
    Box::new(diagnostic.with_detail(format!("The object store returned: {detail}.")))
}

/// The most characters of a store's own message.
const DETAIL_CHARS_MAX: usize = 500;
