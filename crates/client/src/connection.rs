//! A session with a server.

use std::{
    fmt,
    net::IpAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use arrow_flight::{Action, HandshakeRequest, flight_service_client::FlightServiceClient};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{StreamExt, stream};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{disk, sync::Mutex};
use lockstep_protocol::{CANCEL, Cancel, REQUEST_ID_HEADER, SESSION, SessionView};
use prost::Message;
use tonic::{
    Request, Streaming,
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

use crate::{
    address::{ServerAddress, TlsMode},
    failure::{malformed, of_status},
    wait::{PendingCall, runtime},
};

/// The files in which systems keep the certificates of authorities.
const AUTHORITY_FILES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// How many bytes of a stream may be on their way to the client.
const WINDOW_BYTES: u32 = 4 << 20;

/// A session with a server. A clone is the same session. It ends with the last clone, or with
/// [`close`](Self::close).
#[derive(Clone)]
pub struct RemoteClient {
    pub(crate) state: Arc<ClientState>,
}

/// What the calls of a client share.
pub(crate) struct ClientState {
    address: ServerAddress,
    flight: FlightServiceClient<Channel>,
    /// The header `authorization` with the token of the session.
    authorization: MetadataValue<Ascii>,
    session: Mutex<SessionView>,
    /// The ids of the calls that run.
    running: Mutex<Vec<Arc<str>>>,
    prefix: String,
    calls: AtomicU64,
    is_closed: AtomicBool,
}

impl fmt::Debug for RemoteClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

impl fmt::Debug for ClientState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

impl RemoteClient {
    /// Connects to a server and logs in: `lockstep://user:password@host:port/database?tls=true`.
    pub fn connect(url: &str) -> Result<Self> {
        Self::connect_to(ServerAddress::parse(url)?)
    }

    /// Connects to a server and logs in.
    pub fn connect_to(address: ServerAddress) -> Result<Self> {
        let endpoint = endpoint(&address)?;
        let shown = shown(&address)?;
        let connected = runtime()?.block_on(async {
            let limit = Duration::from_millis(address.connect_timeout_ms);
            let channel = tokio::time::timeout(limit, endpoint.connect()).await;
            let channel = channel.map_err(|_elapsed| {
                unreachable(&address, "no response within connect_timeout_ms")
            })?;
            let channel = channel.map_err(|error| unreachable(&address, &reason_of(&error)))?;
            let flight = FlightServiceClient::new(channel).max_decoding_message_size(usize::MAX);
            let token =
                handshake(flight.clone(), shown).await.map_err(|error| match error.code {
                    // The other end speaks another protocol, such as TLS.
                    code::CONNECTION_FAILURE | code::PROTOCOL_VIOLATION => {
                        unreachable(&address, &error.message)
                    }
                    _ => error,
                })?;
            Ok::<_, Box<Diagnostic>>((flight, token))
        });
        let (flight, token) = connected?;
        let authorization = MetadataValue::try_from(format!("Bearer {token}"));
        let prefix = lockstep_host::random::id().iter().map(|byte| format!("{byte:02x}")).collect();
        let database = address.database.clone();
        let state = ClientState {
            address,
            flight,
            authorization: authorization.map_err(malformed)?,
            session: Mutex::new(SessionView::default()),
            running: Mutex::new(Vec::new()),
            prefix,
            calls: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        };
        let client = Self { state: Arc::new(state) };
        match database {
            Some(name) if name.contains('`') => {
                let message = "a database name cannot contain a backtick";
                return Diagnostic::new(code::UNDEFINED_DATABASE, message).err();
            }
            Some(name) => drop(client.execute(&format!("USE `{name}`"), None)?.collect()?),
            None => client.refresh()?,
        }
        Ok(client)
    }

    /// Returns the address, whose text has no password.
    pub fn address(&self) -> &ServerAddress {
        &self.state.address
    }

    /// Returns the settings of the session, as they were after the last call.
    pub fn session(&self) -> SessionView {
        self.state.session.lock().clone()
    }

    /// Reads the settings of the session from the server.
    fn refresh(&self) -> Result<()> {
        let view: SessionView = self.action(SESSION, &())?;
        *self.state.session.lock() = view;
        Ok(())
    }

    /// Cancels all calls of the client that run, from any thread.
    pub fn cancel(&self) {
        let running = self.state.running.lock().clone();
        let Ok(runtime) = runtime() else { return };
        for id in running {
            let state = Arc::clone(&self.state);
            runtime.spawn(async move { state.cancel_call(&id).await });
        }
    }

    /// Ends the session; calls that run are cancelled, and later ones are errors. Closing twice does
    /// nothing.
    pub fn close(&self) -> Result<()> {
        // Relaxed: the flag itself is all that is shared.
        if self.state.is_closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.cancel();
        let state = Arc::clone(&self.state);
        // Where the server is gone, the session is, too.
        runtime()?.block_on(async move { state.end().await });
        Ok(())
    }

    /// Fails where the client was closed.
    pub fn check_open(&self) -> Result<()> {
        // Relaxed: as above.
        if self.state.is_closed.load(Ordering::Relaxed) {
            return Diagnostic::new(code::DATABASE_CLOSED, "the connection is closed").err();
        }
        Ok(())
    }

    /// Begins a call.
    pub(crate) fn begin(&self) -> Result<ClientCall> {
        self.check_open()?;
        // Relaxed: the number itself is all that is shared.
        let number = self.state.calls.fetch_add(1, Ordering::Relaxed);
        let id: Arc<str> = format!("{}-{number}", self.state.prefix).into();
        self.state.running.lock().push(Arc::clone(&id));
        Ok(ClientCall { pending: PendingCall { client: Arc::clone(&self.state), id } })
    }

    /// Runs an action whose result nobody waits for.
    pub(crate) fn forget(&self, name: &str, body: &impl Message) {
        if self.check_open().is_err() {
            return;
        }
        let state = Arc::clone(&self.state);
        let request = state.request(Action::new(name, body.encode_to_vec()), "");
        if let Ok(runtime) = runtime() {
            runtime.spawn(async move { drop(state.flight.clone().do_action(request).await) });
        }
    }

    /// Runs an action with one result.
    pub(crate) fn action<M: Message + Default>(
        &self,
        name: &str,
        body: &impl Message,
    ) -> Result<M> {
        let call = self.begin()?;
        let action = Action::new(name, body.encode_to_vec());
        call.wait(async {
            let mut results = call.action(action).await?;
            let result = results.message().await.map_err(|status| of_status(&status))?;
            let result = result.ok_or_else(|| malformed("missing result of the action"))?;
            M::decode(result.body).map_err(malformed)
        })
    }
}

impl ClientState {
    /// Makes the message of a call.
    fn request<T>(&self, message: T, id: &str) -> Request<T> {
        let mut request = Request::new(message);
        let headers = request.metadata_mut();
        headers.insert("authorization", self.authorization.clone());
        if let Ok(id) = MetadataValue::try_from(id) {
            headers.insert(REQUEST_ID_HEADER, id);
        }
        request
    }

    /// Tells the server to cancel a call.
    pub(crate) async fn cancel_call(&self, id: &str) {
        let body = Cancel { request_id: id.to_owned() }.encode_to_vec();
        let request = self.request(Action::new(CANCEL, body), "");
        // The call may have ended, and so may the connection.
        drop(self.flight.clone().do_action(request).await);
    }

    /// Tells the server to forget the session.
    async fn end(&self) {
        let request = self.request(Action::new("CloseSession", Vec::new()), "");
        if let Ok(results) = self.flight.clone().do_action(request).await {
            let _closed = results.into_inner().message().await;
        }
    }

    /// Notes the settings of the session after a call.
    pub(crate) fn note_session(&self, view: Option<SessionView>) {
        if let Some(view) = view {
            *self.session.lock() = view;
        }
    }
}

impl Drop for RemoteClient {
    fn drop(&mut self) {
        let is_last = Arc::strong_count(&self.state) == 1;
        // Relaxed: as above.
        if is_last && !self.state.is_closed.swap(true, Ordering::Relaxed) {
            let state = Arc::clone(&self.state);
            if let Ok(runtime) = runtime() {
                runtime.spawn(async move { state.end().await });
            }
        }
    }
}

/// A call that runs.
#[derive(Debug)]
pub(crate) struct ClientCall {
    pending: PendingCall,
}

impl ClientCall {
    /// Waits for a part of the answer.
    pub(crate) fn wait<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        self.pending.wait(answer)
    }

    /// Returns the client's connection.
    pub(crate) fn flight(&self) -> FlightServiceClient<Channel> {
        self.pending.client.flight.clone()
    }

    /// Returns what the calls of the client share.
    pub(crate) fn state(&self) -> &ClientState {
        &self.pending.client
    }

    /// Makes the message of the call.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        self.state().request(message, &self.pending.id)
    }

    /// Runs an action.
    pub(crate) async fn action(&self, action: Action) -> Result<Streaming<arrow_flight::Result>> {
        let results = self.flight().do_action(self.request(action)).await;
        Ok(results.map_err(|status| of_status(&status))?.into_inner())
    }
}

impl Drop for ClientCall {
    fn drop(&mut self) {
        let id = &self.pending.id;
        self.pending.client.running.lock().retain(|running| running != id);
    }
}

/// Makes the endpoint of an address.
fn endpoint(address: &ServerAddress) -> Result<Endpoint> {
    let host = match address.host.contains(':') {
        true => format!("[{}]", address.host),
        false => address.host.clone(),
    };
    let scheme = if address.tls == TlsMode::Off { "http" } else { "https" };
    let url = format!("{scheme}://{host}:{}", address.port);
    let endpoint =
        Endpoint::from_shared(url).map_err(|error| unreachable(address, &reason_of(&error)))?;
    let endpoint = endpoint
        .user_agent(concat!("lockstep/", env!("CARGO_PKG_VERSION")))
        .map_err(|error| unreachable(address, &reason_of(&error)))?
        .tcp_nodelay(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(4 * WINDOW_BYTES);
    let path = match &address.tls {
        TlsMode::Off => return Ok(endpoint),
        TlsMode::Authority(path) => Path::new(path),
        TlsMode::System => {
            let found = AUTHORITY_FILES.iter().map(Path::new).find(|path| disk::exists(path));
            found.ok_or_else(|| no_authorities(address))?
        }
    };
    let pem = disk::read(path).map_err(|error| {
        let message = format!("could not read file `{}`: {error}", path.display());
        Box::new(Diagnostic::new(code::UNDEFINED_FILE, message))
    })?;
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(pem))
        .domain_name(address.host.clone());
    endpoint.tls_config(tls).map_err(|error| unreachable(address, &reason_of(&error)))
}

/// Returns what the client shows to log in; `None` for a server that asks nobody.
fn shown(address: &ServerAddress) -> Result<Option<MetadataValue<Ascii>>> {
    let ServerAddress { user, password, .. } = address;
    let text = match (user.is_empty(), password.is_empty()) {
        (true, true) => return Ok(None),
        (true, false) => format!("Bearer {password}"),
        (false, _) => format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
    };
    MetadataValue::try_from(text).map(Some).map_err(|_error| {
        // Not what it is: it is a secret.
        let message = "a token must consist of ASCII characters";
        Box::new(Diagnostic::new(code::INVALID_AUTHORIZATION, message))
    })
}

/// Logs in. Returns the token of the session.
async fn handshake(
    mut flight: FlightServiceClient<Channel>,
    shown: Option<MetadataValue<Ascii>>,
) -> Result<String> {
    let first = HandshakeRequest { protocol_version: 0, payload: Vec::new().into() };
    let mut request = Request::new(stream::iter([first]));
    if let Some(value) = shown {
        request.metadata_mut().insert("authorization", value);
    }
    let answers = flight.handshake(request).await.map_err(|status| of_status(&status))?;
    let first = answers.into_inner().next().await;
    let answer = first.ok_or_else(|| malformed("missing response to the handshake"))?;
    let answer = answer.map_err(|status| of_status(&status))?;
    String::from_utf8(answer.payload.to_vec()).map_err(malformed)
}

fn unreachable(address: &ServerAddress, reason: &str) -> Box<Diagnostic> {
    if let Some(refused) = refused_certificate(address, reason) {
        return Box::new(refused);
    }
    let message = format!("cannot connect to {address}: {reason}");
    let diagnostic = Diagnostic::new(code::NOT_CONNECTED, message).with_kind(Kind::Retry);
    Box::new(diagnostic.with_hint(
        "Check that `lockstep serve` runs and that the address matches its setting flight.listen. \
         If the server uses TLS, append ?tls=true or ?ca=FILE to the address.",
    ))
}

/// Returns the error about a certificate that TLS refuses, whose text names a type of its library, with how
/// to make one that it takes.
fn refused_certificate(address: &ServerAddress, reason: &str) -> Option<Diagnostic> {
    let host = &address.host;
    let what = match reason {
        _ if reason.contains("CaUsedAsEndEntity") => {
            "the server's certificate is an authority certificate (CA:TRUE), the default of \
             `openssl req -x509`"
        }
        _ if reason.contains("not valid for") || reason.contains("NotValidForName") => {
            "the server's certificate does not include this host in subjectAltName"
        }
        _ => return None,
    };
    let kind = if host.parse::<IpAddr>().is_ok() { "IP" } else { "DNS" };
    let message = format!("cannot connect to {address}: {what}");
    let diagnostic = Diagnostic::new(code::NOT_CONNECTED, message).with_kind(Kind::FixRequest);
    Some(diagnostic.with_hint(format!(
        "Create the certificate with `openssl req -x509 … -addext \
         basicConstraints=critical,CA:FALSE -addext subjectAltName={kind}:{host}`."
    )))
}

fn no_authorities(address: &ServerAddress) -> Box<Diagnostic> {
    let message = format!(
        "cannot connect to {address}: no file of trusted certificate authorities found on this \
         system"
    );
    let hint = "Specify the certificate of the server's authority with ?ca=FILE.";
    Box::new(Diagnostic::new(code::UNDEFINED_FILE, message).with_hint(hint))
}

/// Returns the innermost reason of an error.
fn reason_of(error: &dyn std::error::Error) -> String {
    let mut reason = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    reason.to_string()
}
