//! Tells the service manager that started the process (systemd) how far it is.
//!
//! The protocol of `sd_notify`: one datagram to the socket that `$NOTIFY_SOCKET` names. Without the
//! variable nothing is sent.

use std::io;

/// What a service manager is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    /// It serves.
    Ready,
    /// It drains.
    Stopping,
}

impl ServiceState {
    fn message(self) -> &'static [u8] {
        match self {
            Self::Ready => b"READY=1",
            Self::Stopping => b"STOPPING=1",
        }
    }

    /// Tells the service manager, if there is one.
    pub fn notify(self) -> io::Result<()> {
        #[expect(clippy::disallowed_methods, reason = "the service manager's own way to say where")]
        let Ok(path) = std::env::var("NOTIFY_SOCKET") else { return Ok(()) };
        self.send(&path)
    }

    /// Sends the message to a socket; a name that begins with `@` is no file.
    #[cfg(target_os = "linux")]
    fn send(self, path: &str) -> io::Result<()> {
        use std::os::{
            linux::net::SocketAddrExt,
            unix::net::{SocketAddr, UnixDatagram},
        };

        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(path)?,
        };
        UnixDatagram::unbound()?.send_to_addr(self.message(), &address).map(|_| ())
    }

    /// Does nothing: there is no such service manager.
    #[cfg(not(target_os = "linux"))]
    fn send(self, _path: &str) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    };

    use super::ServiceState;

    #[test]
    fn the_service_manager_gets_a_datagram() {
        let name = format!("lockstep-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        ServiceState::Ready.send(&format!("@{name}")).unwrap();
        let mut bytes = [0; 64];
        let count = socket.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"READY=1");
        assert!(ServiceState::Stopping.send("/nowhere/at/all").is_err());
    }
}
