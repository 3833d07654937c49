//! HTTP/2 (RFC 9113) as far as one client needs it that sends one request at a time: frames, without a
//! window of its own for what it sends.
//!
//! A request is made once and sent many times, so that a connection puts the number of the stream into its
//! frames. Requests are far smaller than the windows with which a server begins, and it has read the
//! last one when it answers.

use super::connection::FramedAnswer;

/// What a client sends before its first frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The bytes before the content of a frame.
const HEAD_BYTES: usize = 9;
/// The most bytes of the content of a frame, unless the other end allows more.
const CONTENT_BYTES_MAX: usize = 16_384;
/// The largest window.
const WINDOW_MAX: u32 = i32::MAX as u32;
/// The window of a connection at its begin.
const WINDOW_AT_BEGIN: u32 = 65_535;

/// The kinds of frames that are sent or looked at.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// Flags: the last frame of a stream, also of an acknowledgement; and the end of the headers.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Settings: the size of the table of headers, and the window of a stream.
const HEADER_TABLE_SIZE: u16 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// What a connection knows between its requests.
#[derive(Debug, Default)]
pub(super) struct Http2State {
    /// Whether the settings of the server were acknowledged.
    is_settled: bool,
    /// The stream of the last request; zero before the first one.
    stream: u32,
    /// Bytes of content since the window of the connection was last enlarged.
    received: u32,
}

/// A frame.
struct Http2Frame<'b> {
    kind: u8,
    flags: u8,
    content: &'b [u8],
    /// Where the next one begins.
    end: usize,
}

/// Returns what a client sends first. The headers of answers are never kept in a table.
pub(super) fn opening() -> Vec<u8> {
    let mut settings = Vec::new();
    for (setting, value) in [(HEADER_TABLE_SIZE, 0), (INITIAL_WINDOW_SIZE, WINDOW_MAX)] {
        settings.extend_from_slice(&setting.to_be_bytes());
        settings.extend_from_slice(&u32::to_be_bytes(value));
    }
    let mut bytes = PREFACE.to_vec();
    push_frame(&mut bytes, SETTINGS, 0, &settings);
    push_frame(&mut bytes, WINDOW_UPDATE, 0, &(WINDOW_MAX - WINDOW_AT_BEGIN).to_be_bytes());
    bytes
}

/// Makes a request of headers and a body, whose stream has no number yet.
pub(super) fn request(headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    assert!(!body.is_empty(), "the last frame is one of the body");
    let mut block = Vec::new();
    for (name, value) in headers {
        // A literal that is kept in no table, with a new name.
        block.push(0);
        for text in [name, value] {
            push_length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    let mut bytes = Vec::with_capacity(block.len() + body.len() + 4 * HEAD_BYTES);
    push_frame(&mut bytes, HEADERS, END_HEADERS, &block);
    let mut parts = body.chunks(CONTENT_BYTES_MAX).peekable();
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_none() { END_STREAM } else { 0 };
        push_frame(&mut bytes, DATA, flags, part);
    }
    bytes
}

/// Writes the length of a text that has no code: seven bits, and groups of seven where it does not fit.
fn push_length(block: &mut Vec<u8>, length: usize) {
    const FIRST_MAX: usize = 127;
    let group = |rest: usize| u8::try_from(rest & 127).expect("seven bits");
    let Some(mut rest) = length.checked_sub(FIRST_MAX) else { return block.push(group(length)) };
    block.push(127);
    while rest > 127 {
        block.push(group(rest) | 128);
        rest >>= 7;
    }
    block.push(group(rest));
}

fn push_frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, content: &[u8]) {
    let length = u32::try_from(content.len()).expect("a frame is short");
    bytes.extend_from_slice(&length.to_be_bytes()[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&0_u32.to_be_bytes());
    bytes.extend_from_slice(content);
}

/// Reads the frame at a place; `None` while it is not whole.
fn frame(bytes: &[u8], at: usize) -> Option<Http2Frame<'_>> {
    let (head, rest) = bytes.get(at..)?.split_first_chunk::<HEAD_BYTES>()?;
    let [high, middle, low, kind, flags, ..] = *head;
    let length = usize::try_from(u32::from_be_bytes([0, high, middle, low])).ok()?;
    let content = rest.get(..length)?;
    Some(Http2Frame { kind, flags, content, end: at + HEAD_BYTES + length })
}

/// Finds the end of the first answer: that of its stream, or the settings with which a server begins.
pub(super) fn answer(bytes: &[u8]) -> Option<FramedAnswer> {
    let (mut at, mut has_body) = (0, false);
    loop {
        let Http2Frame { kind, flags, content, end } = frame(bytes, at)?;
        has_body |= kind == DATA && !content.is_empty();
        let ended = |is_ok| Some(FramedAnswer { body: 0, end, is_ok });
        match kind {
            // An error of gRPC has headers alone.
            DATA | HEADERS if flags & END_STREAM != 0 => return ended(has_body),
            SETTINGS if flags & ACK == 0 => return ended(true),
            RST_STREAM | GOAWAY | PING => return ended(false),
            _ => {}
        }
        at = end;
    }
}

/// Returns the body of an answer.
pub(super) fn body(bytes: &[u8]) -> Vec<u8> {
    let (mut at, mut body) = (0, Vec::new());
    while let Some(Http2Frame { kind, content, end, .. }) = frame(bytes, at) {
        if kind == DATA {
            body.extend_from_slice(content);
        }
        at = end;
    }
    body
}

impl Http2State {
    /// Writes a request with the number of its stream, and what the connection has to say before it.
    pub(super) fn write(&mut self, request: &[u8], out: &mut Vec<u8>) {
        if request.starts_with(PREFACE) {
            out.extend_from_slice(request);
            return;
        }
        if !self.is_settled {
            push_frame(out, SETTINGS, ACK, &[]);
            self.is_settled = true;
        }
        if self.received > 0 {
            push_frame(out, WINDOW_UPDATE, 0, &self.received.to_be_bytes());
            self.received = 0;
        }
        // Those of a client are odd.
        self.stream = if self.stream == 0 { 1 } else { self.stream + 2 };
        let (mut at, begin) = (0, out.len());
        out.extend_from_slice(request);
        while let Some(found) = frame(request, at) {
            let stream = begin + at + HEAD_BYTES - 4;
            out[stream..stream + 4].copy_from_slice(&self.stream.to_be_bytes());
            at = found.end;
        }
        debug_assert_eq!(at, request.len(), "a request is whole frames");
    }

    /// Notes the bytes of an answer that was read.
    pub(super) fn note(&mut self, answer: &[u8]) {
        let bytes = u32::try_from(body(answer).len()).expect("an answer fits the window");
        self.received += bytes;
    }
}
