//! The address of a server: `lockstep://user:password@host:port/database?tls=true`.

use lockstep_diagnostic::{Diagnostic, Result, code};

/// The scheme of an address.
const SCHEME: &str = "lockstep://";

/// The port of Flight SQL where the address names none.
const DEFAULT_PORT: u16 = 7433;

/// The port of a server, its user, and how the connection is encrypted.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// The name or the IP address of the machine.
    pub host: String,
    /// The port of Flight SQL.
    pub port: u16,
    /// The user; empty for one without a password, or with a token.
    pub user: String,
    /// The password of the user; the token where there is no user.
    pub password: String,
    /// The database to begin in.
    pub database: Option<String>,
    /// How the connection is encrypted.
    pub tls: TlsMode,
    /// How long connecting may take.
    pub connect_timeout_ms: u64,
}

/// How a connection is encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsMode {
    /// Not at all.
    Off,
    /// With a certificate that the machine's certificate authorities vouch for.
    System,
    /// With a certificate that the authorities of a PEM file vouch for.
    Authority(String),
}

impl std::fmt::Debug for ServerAddress {
    /// Writes no password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Display for ServerAddress {
    /// Writes the address without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(SCHEME)?;
        if !self.user.is_empty() {
            write!(f, "{}@", self.user)?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)?;
        } else {
            write!(f, "{}:{}", self.host, self.port)?;
        }
        self.database.iter().try_for_each(|database| write!(f, "/{database}"))
    }
}

impl ServerAddress {
    /// Returns whether a text is meant to be an address, and not a path.
    pub fn is_address(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Reads an address. Parameters behind the question mark are `tls` (`true`, `false`), `ca` (a PEM
    /// file, which implies TLS), `token`, and `connect_timeout_ms`.
    ///
    /// ```
    /// use lockstep_client::ServerAddress;
    ///
    /// let address = ServerAddress::parse("lockstep://app:p%40ss@db.example/shop?tls=true")?;
    /// assert_eq!((address.user.as_str(), address.password.as_str()), ("app", "p@ss"));
    /// assert_eq!((address.host.as_str(), address.port), ("db.example", 7433));
    /// assert_eq!(address.to_string(), "lockstep://app@db.example:7433/shop");
    /// # Ok::<(), Box<lockstep_diagnostic::Diagnostic>>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return Err(malformed("it must start with lockstep://"));
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (login, place),
            None => ("", authority),
        };
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (host, port) = host_and_port(place)?;
        let database = Some(decoded(path)?).filter(|name| !name.is_empty());
        let mut address = Self {
            host,
            port,
            user: decoded(user)?,
            password: decoded(password)?,
            database,
            tls: TlsMode::Off,
            connect_timeout_ms: 10_000,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            address.set(name, &decoded(value)?)?;
        }
        Ok(address)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match (name, value) {
            ("tls", "true" | "1" | "") if self.tls == TlsMode::Off => self.tls = TlsMode::System,
            ("tls", "true" | "1" | "") => {}
            ("tls", "false" | "0") => self.tls = TlsMode::Off,
            ("ca", path) if !path.is_empty() => self.tls = TlsMode::Authority(path.to_owned()),
            ("token", token) => {
                self.user.clear();
                token.clone_into(&mut self.password);
            }
            ("connect_timeout_ms", text) => {
                let number = text.parse().map_err(|_error| {
                    malformed("connect_timeout_ms must be a number of milliseconds")
                })?;
                self.connect_timeout_ms = number;
            }
            _ => {
                return Err(malformed(&format!(
                    "unrecognized parameter `{name}`, or invalid value for it"
                )));
            }
        }
        Ok(())
    }
}

/// Reads `host`, `host:port`, `[::1]` or `[::1]:port`.
fn host_and_port(place: &str) -> Result<(String, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let Some((host, port)) = rest.split_once(']') else {
                return Err(malformed("the bracket around the host is not closed"));
            };
            (host, port.strip_prefix(':').unwrap_or(port))
        }
        None => place.rsplit_once(':').unwrap_or((place, "")),
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || "/?#@[]".contains(c)) {
        return Err(malformed("missing or invalid host"));
    }
    let port = match port {
        "" => DEFAULT_PORT,
        text => {
            text.parse().map_err(|_error| malformed("the port must be a number up to 65535"))?
        }
    };
    Ok((host.to_owned(), port))
}

/// Replaces `%41` by `A`.
fn decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| malformed("% must be followed by two hexadecimal digits"))?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_error| malformed("it is not valid UTF-8"))
}

fn malformed(reason: &str) -> Box<Diagnostic> {
    // Nothing of the address, which may have a password.
    let message = format!("invalid server address: {reason}");
    let hint =
        "Use lockstep://user:password@host:port/database; all parts but the host are optional.";
    Box::new(Diagnostic::new(code::INVALID_PARAMETER, message).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::{ServerAddress, TlsMode};

    #[test]
    fn the_parts_of_an_address() {
        let parse = |text: &str| ServerAddress::parse(text).unwrap();
        let plain = parse("lockstep://localhost");
        assert_eq!((plain.host.as_str(), plain.port, plain.user.as_str()), ("localhost", 7433, ""));
        assert_eq!((plain.database, plain.tls), (None, TlsMode::Off));
        let full = parse("lockstep://a%3Ab:p@q@[::1]:99/d%20b?tls=true&connect_timeout_ms=5");
        assert_eq!((full.user.as_str(), full.password.as_str()), ("a:b", "p@q"));
        assert_eq!((full.host.as_str(), full.port), ("::1", 99));
        assert_eq!(full.database.as_deref(), Some("d b"));
        assert_eq!((full.tls.clone(), full.connect_timeout_ms), (TlsMode::System, 5));
        assert_eq!(full.to_string(), "lockstep://a:b@[::1]:99/d b");
        assert!(!format!("{full:?}").contains("p@q"));
        let own = parse("lockstep://h?ca=/x.pem&tls=1&token=lockstep_t");
        assert_eq!(own.tls, TlsMode::Authority("/x.pem".to_owned()));
        assert_eq!((own.user.as_str(), own.password.as_str()), ("", "lockstep_t"));
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_password() {
        for text in [
            "http://h",
            "lockstep://",
            "lockstep://u:secret@",
            "lockstep://secret:99999",
            "lockstep://h?secret=1",
            "lockstep://h/%se",
            "lockstep://[::1",
            "lockstep://a b",
            "lockstep://h?tls=maybe",
            "lockstep://h/%ff",
        ] {
            let error = ServerAddress::parse(text).unwrap_err();
            assert_eq!(error.code, "22023", "{text}");
            assert!(!error.message.contains("u:secret"), "{error:?}");
        }
    }
}
