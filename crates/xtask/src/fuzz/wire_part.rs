//! A conversation in the parts that its protocol has: messages, packets and frames, whose lengths are
//! written again after a change.
//!
//! Reads only what a length is found by. What is no whole part stays bytes.

/// What the bytes of a client are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConversationForm {
    /// HTTP/1.1, or HTTP/2 where it begins with the preface.
    Http,
    /// The protocol of PostgreSQL.
    Postgres,
}

/// How the length of a part is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartForm {
    /// Not at all.
    Bytes,
    /// In the header `content-length`.
    HttpMessage,
    /// In four bytes, which count themselves.
    PostgresPacket,
    /// The same, behind a type of one byte.
    PostgresFrame,
    /// In three bytes before type, flags and stream.
    HttpFrame,
}

/// A part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WirePart {
    pub(super) form: PartForm,
    /// What is before the body, without its length.
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
}

/// What a connection of HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The header that says how long a message of HTTP/1.1 is.
const CONTENT_LENGTH: &[u8] = b"content-length:";

/// The version in the first packet of a session, after which frames follow.
const SESSION_VERSION: [u8; 2] = [0, 3];

/// Splits a conversation.
pub(super) fn split(form: ConversationForm, bytes: &[u8]) -> Vec<WirePart> {
    let (mut parts, mut rest) = (Vec::new(), bytes);
    let is_framed = bytes.starts_with(PREFACE);
    if is_framed {
        parts.push(of_bytes(PREFACE));
        rest = &bytes[PREFACE.len()..];
    }
    let mut has_session = false;
    while !rest.is_empty() {
        let found = match form {
            ConversationForm::Http if is_framed => http_frame(rest),
            ConversationForm::Http => http_message(rest),
            ConversationForm::Postgres if has_session => postgres_frame(rest),
            ConversationForm::Postgres => postgres_packet(rest),
        };
        let Some((part, length)) = found else {
            parts.push(of_bytes(rest));
            break;
        };
        assert!(length > 0, "a part has bytes");
        has_session |=
            part.form == PartForm::PostgresPacket && part.body.starts_with(&SESSION_VERSION);
        parts.push(part);
        rest = &rest[length..];
    }
    parts
}

/// Writes parts one after another.
pub(super) fn join(parts: &[WirePart]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for WirePart { form, head, body } in parts {
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        match form {
            PartForm::Bytes => {}
            PartForm::HttpMessage => {
                bytes.extend(with_content_length(head, body.len()));
                bytes.extend(body);
                continue;
            }
            PartForm::PostgresPacket => bytes.extend((length + 4).to_be_bytes()),
            PartForm::PostgresFrame => {
                bytes.extend(head);
                bytes.extend((length + 4).to_be_bytes());
                bytes.extend(body);
                continue;
            }
            PartForm::HttpFrame => bytes.extend(&length.to_be_bytes()[1..]),
        }
        bytes.extend(head);
        bytes.extend(body);
    }
    bytes
}

fn of_bytes(bytes: &[u8]) -> WirePart {
    WirePart { form: PartForm::Bytes, head: Vec::new(), body: bytes.to_vec() }
}

fn http_frame(bytes: &[u8]) -> Option<(WirePart, usize)> {
    let [l0, l1, l2, ..] = *bytes.first_chunk::<9>()?;
    let length = usize::from(l0) << 16 | usize::from(l1) << 8 | usize::from(l2);
    let body = bytes.get(9..9 + length)?.to_vec();
    Some((WirePart { form: PartForm::HttpFrame, head: bytes[3..9].to_vec(), body }, 9 + length))
}

fn http_message(bytes: &[u8]) -> Option<(WirePart, usize)> {
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    let head = bytes[..end].to_vec();
    let length = content_length(&head).map_or(Some(0), |(from, to)| {
        std::str::from_utf8(&head[from..to]).ok()?.parse::<usize>().ok()
    })?;
    let body = bytes.get(end..end + length)?.to_vec();
    Some((WirePart { form: PartForm::HttpMessage, head, body }, end + length))
}

/// Finds the digits of a content length.
fn content_length(head: &[u8]) -> Option<(usize, usize)> {
    let at = head
        .windows(CONTENT_LENGTH.len())
        .position(|part| part.eq_ignore_ascii_case(CONTENT_LENGTH))?;
    let digits = |at: &usize| head[*at].is_ascii_digit();
    let from = (at + CONTENT_LENGTH.len()..head.len()).find(digits)?;
    let to = (from..head.len()).find(|at| !digits(at)).unwrap_or(head.len());
    Some((from, to))
}

fn with_content_length(head: &[u8], length: usize) -> Vec<u8> {
    let Some((from, to)) = content_length(head) else { return head.to_vec() };
    [&head[..from], length.to_string().as_bytes(), &head[to..]].concat()
}

fn postgres_packet(bytes: &[u8]) -> Option<(WirePart, usize)> {
    let length = usize::try_from(i32::from_be_bytes(*bytes.first_chunk()?)).ok()?;
    let body = bytes.get(4..length)?.to_vec();
    Some((WirePart { form: PartForm::PostgresPacket, head: Vec::new(), body }, length))
}

fn postgres_frame(bytes: &[u8]) -> Option<(WirePart, usize)> {
    let (part, length) = postgres_packet(&bytes[1..])?;
    let head = vec![bytes[0]];
    Some((WirePart { form: PartForm::PostgresFrame, head, ..part }, length + 1))
}

#[cfg(test)]
mod tests {
    use super::{ConversationForm, PREFACE, PartForm, join, split};

    fn check(form: ConversationForm, bytes: &[u8], expected: &[PartForm]) {
        let parts = split(form, bytes);
        let found: Vec<PartForm> = parts.iter().map(|part| part.form).collect();
        assert_eq!(found, expected);
        assert_eq!(join(&parts), bytes, "what is split is joined as it was");
    }

    #[test]
    fn conversations_are_split_and_joined() {
        let calls =
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
        check(ConversationForm::Http, calls, &[PartForm::HttpMessage, PartForm::HttpMessage]);
        let framed = [PREFACE, &[0, 0, 1, 6, 0, 0, 0, 0, 0, 9], b"rest"].concat();
        let forms = [PartForm::Bytes, PartForm::HttpFrame, PartForm::Bytes];
        check(ConversationForm::Http, &framed, &forms);
        let session = b"\0\0\0\x08\x04\xd2\x16\x2f\0\0\0\x09\0\x03\0\0\0Q\0\0\0\x06a\0X\0\0\0\x04";
        let packet = PartForm::PostgresPacket;
        let frame = PartForm::PostgresFrame;
        check(ConversationForm::Postgres, session, &[packet, packet, frame, frame]);
    }

    #[test]
    fn a_length_follows_its_body() {
        let mut parts =
            split(ConversationForm::Http, b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}");
        parts[0].body = b"[1, 2, 3, 4]".to_vec();
        assert_eq!(join(&parts), b"POST / HTTP/1.1\r\ncontent-length: 12\r\n\r\n[1, 2, 3, 4]");
    }
}
