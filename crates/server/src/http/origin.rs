//! Web pages that call the server from a browser: only pages of the server itself may.
//!
//! A page of any site can make a browser send a POST to this machine. The browser says so in `Origin`.
//! Its host must be the one that was called, and a name or address of this machine, since a name that
//! the site itself resolves to this machine would be equal, too.

use std::net::IpAddr;

use axum::http::{HeaderMap, StatusCode, header};

use super::error::{HttpError, HttpResult};

/// Fails where a page of another site makes the call.
pub(crate) fn check_origin(headers: &HeaderMap) -> HttpResult<()> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let called = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let page = origin.split_once("://").map(|(_, host)| host);
    if page.is_some() && page == called && page.is_some_and(is_this_machine) {
        return Ok(());
    }
    let message = "calls from web pages of other sites are refused";
    Err(HttpError::protocol(StatusCode::FORBIDDEN, message))
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
    use axum::http::{HeaderMap, HeaderValue};

    use super::check_origin;

    #[test]
    fn only_pages_of_the_server_may_call_it() {
        let check = |origin: &'static str, host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("origin", HeaderValue::from_static(origin));
            headers.insert("host", HeaderValue::from_static(host));
            check_origin(&headers).is_ok()
        };
        assert!(check_origin(&HeaderMap::new()).is_ok());
        assert!(check("http://localhost:7431", "localhost:7431"));
        assert!(check("https://127.0.0.1:7431", "127.0.0.1:7431"));
        assert!(check("http://[::1]:7431", "[::1]:7431"));
        assert!(!check("http://localhost:3000", "localhost:7431"));
        assert!(!check("http://evil.example", "localhost:7431"));
        assert!(!check("http://evil.example:7431", "evil.example:7431"));
        assert!(!check("null", "localhost:7431"));
        assert!(!check("", ""));
    }
}
