//! The host that a call names, and web pages that call the server from a browser: only pages of the server
//! itself may.
//!
//! A message of HTTP/1.1 has one header `Host` (RFC 9112, section 3.2): with two, this server and one in
//! front of it could take the call for different hosts.
//!
//! A page of any site can make a browser send a POST to this machine. The browser says so in `Origin`.
//! Its host must be the one that was called, and a name or address of this machine, since a name that
//! the site itself resolves to this machine would be equal, too.

use std::net::IpAddr;

use axum::{
    extract::Request,
    http::{HeaderValue, StatusCode, Version, header, uri::Authority},
};

use super::error::{HttpError, HttpResult};

/// Fails where a page of another site makes the call. Over TLS the certificate says which names are the
/// server's, so that its pages may have a name that other machines reach.
pub(crate) fn check_origin(request: &Request, has_tls: impl FnOnce() -> bool) -> HttpResult<()> {
    let headers = request.headers();
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    // HTTP/2 has the host in `:authority`, which is a part of the address here.
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let host = || headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let called = authority.or_else(host);
    let page = origin.split_once("://").map(|(_, host)| host);
    if page.is_some() && page == called && (page.is_some_and(is_this_machine) || has_tls()) {
        return Ok(());
    }
    let message = "cross-origin requests are not allowed";
    Err(HttpError::protocol(StatusCode::FORBIDDEN, message))
}

/// Fails if the call names no host, several, or one that is no host with an optional port.
pub(crate) fn check_host(request: &Request) -> HttpResult<()> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let problem = match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_11 => "missing Host header",
        (None, _) => return Ok(()),
        (Some(_), Some(_)) => "multiple Host headers",
        (Some(host), None) if is_host(host) => return Ok(()),
        (Some(_), None) => "invalid Host header",
    };
    Err(HttpError::protocol(StatusCode::BAD_REQUEST, problem))
}

/// Returns whether a value is a host with an optional port. An address without a host has an empty one.
fn is_host(host: &HeaderValue) -> bool {
    let Ok(text) = host.to_str() else { return false };
    text.is_empty() || !text.contains('@') && text.parse::<Authority>().is_ok()
}

/// Returns whether a host with its port is `localhost` or a loopback address.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, extract::Request, http::Version};

    use super::{check_host, check_origin};

    #[test]
    fn a_call_of_http_1_1_has_one_host() {
        let check = |hosts: &[&str], version: Version| {
            let request = Request::get("/v1/sql").version(version);
            let request = hosts.iter().fold(request, |request, host| request.header("host", *host));
            check_host(&request.body(Body::empty()).unwrap())
                .map_err(|error| error.status().as_u16())
        };
        for host in ["localhost", "127.0.0.1:7431", "[::1]:7431", "db.example:80", ""] {
            assert_eq!(check(&[host], Version::HTTP_11), Ok(()), "{host}");
        }
        assert_eq!(check(&[], Version::HTTP_11), Err(400));
        assert_eq!(check(&[], Version::HTTP_10), Ok(()));
        assert_eq!(check(&[], Version::HTTP_2), Ok(()));
        for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
            assert_eq!(check(&["localhost", "localhost"], version), Err(400), "{version:?}");
            for host in ["a b", "user@localhost", "localhost, other", "http://localhost"] {
                assert_eq!(check(&[host], version), Err(400), "{host}");
            }
        }
    }

    fn is_allowed(origin: &str, host: &str, has_tls: bool) -> bool {
        let over_1 = Request::get("/v1/sql").header("origin", origin).header("host", host);
        let allowed = check_origin(&over_1.body(Body::empty()).unwrap(), || has_tls).is_ok();
        if !host.is_empty() {
            let over_2 = Request::get(format!("http://{host}/v1/sql")).header("origin", origin);
            let over_2 = check_origin(&over_2.body(Body::empty()).unwrap(), || has_tls).is_ok();
            assert_eq!(allowed, over_2, "{origin} {host}");
        }
        allowed
    }

    #[test]
    fn only_pages_of_the_server_may_call_it() {
        let without = Request::get("/").body(Body::empty()).unwrap();
        assert!(check_origin(&without, || false).is_ok());
        let check = |origin, host| is_allowed(origin, host, false);
        assert!(check("http://localhost:7431", "localhost:7431"));
        assert!(check("https://127.0.0.1:7431", "127.0.0.1:7431"));
        assert!(check("http://[::1]:7431", "[::1]:7431"));
        assert!(!check("http://localhost:3000", "localhost:7431"));
        assert!(!check("http://evil.example", "localhost:7431"));
        assert!(!check("http://evil.example:7431", "evil.example:7431"));
        assert!(!check("null", "localhost:7431"));
        assert!(!check("", ""));
    }

    #[test]
    fn over_tls_the_server_may_have_a_name() {
        assert!(is_allowed("https://db.example", "db.example", true));
        assert!(!is_allowed("https://evil.example", "db.example", true));
        assert!(!is_allowed("null", "db.example", true));
    }
}
