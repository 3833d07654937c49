//! The load of M14: connections of one thread, in a closed loop or at a rate.
//!
//! Each connection is a task. Requests are bytes that were made before; of an answer only its frame is
//! read, and that it is no error. In a closed loop the next request is sent when the answer is there; at
//! a rate each has its time (`timer`), and its latency begins then, whether or not the connection was
//! free.

use std::{cell::RefCell, io::ErrorKind, pin::pin, rc::Rc, sync::Arc};

use futures::future::{Either, select, try_join_all};
use lockstep_host::{Clock, SystemClock};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    runtime::Builder,
    sync::Barrier,
    task::LocalSet,
    time::Duration,
};

use super::{
    connection::{Endpoint, Exchanges, ListenAddress},
    timer::LoadTimer,
};
use crate::{
    error::{Result, Trying},
    measure::{Measured, latencies, record},
};

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pace {
    /// When the last one was answered.
    AsAnswered,
    /// So many in a second, of all connections together.
    PerSecond(f64),
}

/// A load.
#[derive(Debug, Clone, Copy)]
pub(super) struct NetworkLoad {
    pub(super) connections: usize,
    pub(super) warm_ms: u64,
    pub(super) run_ms: u64,
    pub(super) pace: Pace,
}

/// What all connections share.
struct LoadState<'a> {
    load: NetworkLoad,
    requests: &'a [Vec<u8>],
    clock: SystemClock,
    timer: LoadTimer,
    measured: RefCell<Measured>,
}

trait ByteStream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream for S {}

/// Puts a load on a server.
pub(super) fn run_load(
    endpoint: &Endpoint,
    requests: &[Vec<u8>],
    load: NetworkLoad,
) -> Result<Measured> {
    assert!(load.connections > 0 && !requests.is_empty(), "there is something to send");
    let runtime = Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.trying(|| "start the client".to_owned())?;
    let measured = Measured { latency_ns: latencies(), ops_per_s: 0.0 };
    let clock = SystemClock::new();
    let timer = {
        let _entered = runtime.enter();
        LoadTimer::new(clock)?
    };
    let state =
        Rc::new(LoadState { load, requests, clock, timer, measured: RefCell::new(measured) });
    let ready = Arc::new(Barrier::new(load.connections));
    let tasks = LocalSet::new();
    let done = runtime.block_on(tasks.run_until(async {
        let connections = (0..load.connections)
            .map(|number| run_connection(endpoint, Rc::clone(&state), Arc::clone(&ready), number));
        match select(pin!(try_join_all(connections)), pin!(state.timer.run())).await {
            Either::Left((done, _)) => done.map(|_| ()),
            Either::Right((failed, _)) => failed.map(|never| match never {}),
        }
    }));
    done?;
    let mut measured = state.measured.borrow().clone();
    measured.ops_per_s = measured.latency_ns.len() as f64 * 1_000.0 / load.run_ms.max(1) as f64;
    Ok(measured)
}

async fn run_connection(
    endpoint: &Endpoint,
    state: Rc<LoadState<'_>>,
    ready: Arc<Barrier>,
    number: usize,
) -> Result<()> {
    let connection = LoadConnection::open(endpoint).await;
    // Also after a failure: the others wait here.
    ready.wait().await;
    let mut connection = connection?;
    let load = state.load;
    let mut next = number * state.requests.len() / load.connections;
    let begin_ns = state.clock.monotonic_ns();
    let record_ns = begin_ns + load.warm_ms * 1_000_000;
    let end_ns = record_ns + load.run_ms * 1_000_000;
    let mut due_ns = begin_ns;
    let interval_ns = match load.pace {
        Pace::AsAnswered => 0,
        Pace::PerSecond(rate) => nanoseconds(load.connections as f64 / rate.max(1.0)),
    };
    // Connections are due one after the other.
    let offset_ns = interval_ns / whole(load.connections) * whole(number);
    let mut sent = 0_u64;
    loop {
        if load.pace != Pace::AsAnswered {
            due_ns = begin_ns + offset_ns + sent * interval_ns;
            state.timer.wait_until(due_ns, number).await?;
        }
        connection.exchange(&state.requests[next % state.requests.len()]).await?;
        (next, sent) = (next + 1, sent + 1);
        let now_ns = state.clock.monotonic_ns();
        if (record_ns..end_ns).contains(&now_ns) {
            record(&mut state.measured.borrow_mut().latency_ns, now_ns.saturating_sub(due_ns));
        }
        if now_ns >= end_ns {
            return Ok(());
        }
        due_ns = now_ns;
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    u64::try_from(Duration::from_secs_f64(seconds).as_nanos()).unwrap_or(u64::MAX)
}

fn whole(count: usize) -> u64 {
    u64::try_from(count).expect("a count fits 64 bits")
}

async fn connect(address: &ListenAddress) -> Result<Box<dyn ByteStream>> {
    match address {
        ListenAddress::Tcp(address) => {
            let stream = TcpStream::connect(address).await;
            let stream = stream.trying(|| format!("connect to {address}"))?;
            stream.set_nodelay(true).trying(|| "send without delay".to_owned())?;
            Ok(Box::new(stream))
        }
        ListenAddress::Unix(path) => {
            // The queue of a socket in the file system is short, and who does not fit is refused.
            loop {
                match UnixStream::connect(path).await {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    stream => {
                        let stream = stream.trying(|| format!("connect to {}", path.display()));
                        return Ok(Box::new(stream?));
                    }
                }
            }
        }
    }
}

/// An open connection.
struct LoadConnection {
    stream: Box<dyn ByteStream>,
    exchanges: Exchanges,
}

impl LoadConnection {
    async fn open(endpoint: &Endpoint) -> Result<Self> {
        let stream = connect(&endpoint.address).await?;
        let mut connection = Self { stream, exchanges: Exchanges::new(endpoint.framing) };
        for part in &endpoint.setup {
            connection.exchange(part).await?;
        }
        Ok(connection)
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<()> {
        let trying = || "exchange with the server".to_owned();
        let Self { stream, exchanges } = self;
        stream.write_all(exchanges.begin(request)).await.trying(trying)?;
        loop {
            let count = stream.read_buf(&mut exchanges.received).await.trying(trying)?;
            match exchanges.end()? {
                Some(_) => return Ok(()),
                None if count > 0 => {}
                None => return Err(exchanges.no_answer()),
            }
        }
    }
}
