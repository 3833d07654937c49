//! The frames of HTTP/2 as they arrive, as far as it takes to see that a client does not finish one.
//!
//! Reads the lengths and flags of frames and nothing else: the library that serves the connection has no
//! limit for the time that a frame, or the headers of a stream over several frames, may take.
//!
//! # Layout
//!
//! A connection begins with [`PREFACE`]; then frames follow: length (3 bytes), type (1), flags (1),
//! stream (4), payload (RFC 9113, 4.1). HEADERS without the flag `END_HEADERS` is followed by
//! CONTINUATION frames, the last of which has it.

/// What a connection of HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The bytes of a frame before its payload.
const HEAD_BYTES: usize = 9;

/// The types of frames that may begin or go on with headers: HEADERS, `PUSH_PROMISE`, CONTINUATION.
const HEADER_FRAMES: [u8; 3] = [1, 5, 9];

/// The flag of a frame after which the headers of its stream are complete.
const END_HEADERS: u8 = 4;

/// What the bytes of a connection so far are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpFrameProgress {
    /// The protocol has no frames, or the preface is not complete.
    NoFrames,
    /// All frames are complete, and so are the headers of all streams.
    Complete,
    /// A frame, or the headers of a stream, has begun and is not complete.
    Incomplete,
}

/// Follows the frames that a client sends.
#[derive(Debug)]
pub(super) struct FrameReader {
    place: FramePlace,
    /// Whether headers have begun that no frame has completed.
    has_open_headers: bool,
}

#[derive(Debug, Clone, Copy)]
enum FramePlace {
    /// So many bytes of the preface were read.
    Preface(usize),
    /// So many bytes of a frame's head were read.
    Head([u8; HEAD_BYTES], usize),
    /// So many bytes of the payload are missing.
    Payload(usize),
    /// The connection does not begin with the preface.
    OtherProtocol,
}

/// The place before a frame.
const BEFORE_FRAME: FramePlace = FramePlace::Head([0; HEAD_BYTES], 0);

impl FrameReader {
    /// Makes a reader of a connection of which nothing was read.
    pub(super) const fn new() -> Self {
        Self { place: FramePlace::Preface(0), has_open_headers: false }
    }

    /// Takes the next bytes of the connection.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> HttpFrameProgress {
        while !bytes.is_empty() && !matches!(self.place, FramePlace::OtherProtocol) {
            let taken = self.step(bytes);
            debug_assert!(taken <= bytes.len(), "no more is taken than there is");
            bytes = &bytes[taken..];
        }
        match self.place {
            FramePlace::OtherProtocol | FramePlace::Preface(_) => HttpFrameProgress::NoFrames,
            FramePlace::Head(_, 0) if !self.has_open_headers => HttpFrameProgress::Complete,
            FramePlace::Head(..) | FramePlace::Payload(_) => HttpFrameProgress::Incomplete,
        }
    }

    /// Takes some bytes, at least one, and returns how many.
    fn step(&mut self, bytes: &[u8]) -> usize {
        match &mut self.place {
            FramePlace::OtherProtocol => bytes.len(),
            FramePlace::Preface(read) => {
                let taken = bytes.len().min(PREFACE.len() - *read);
                let is_preface = bytes[..taken] == PREFACE[*read..*read + taken];
                *read += taken;
                match (is_preface, *read == PREFACE.len()) {
                    (false, _) => self.place = FramePlace::OtherProtocol,
                    (true, true) => self.place = BEFORE_FRAME,
                    (true, false) => {}
                }
                taken
            }
            FramePlace::Head(head, read) => {
                let taken = bytes.len().min(HEAD_BYTES - *read);
                head[*read..*read + taken].copy_from_slice(&bytes[..taken]);
                *read += taken;
                if *read == HEAD_BYTES {
                    let head = *head;
                    self.begin_payload(head);
                }
                taken
            }
            FramePlace::Payload(missing) => {
                let taken = bytes.len().min(*missing);
                *missing -= taken;
                if *missing == 0 {
                    self.place = BEFORE_FRAME;
                }
                taken
            }
        }
    }

    fn begin_payload(&mut self, [l0, l1, l2, kind, flags, ..]: [u8; HEAD_BYTES]) {
        if HEADER_FRAMES.contains(&kind) {
            self.has_open_headers = flags & END_HEADERS == 0;
        }
        let length = usize::from(l0) << 16 | usize::from(l1) << 8 | usize::from(l2);
        self.place = if length == 0 { BEFORE_FRAME } else { FramePlace::Payload(length) };
    }
}

#[cfg(test)]
mod tests {
    use super::{FrameReader, HttpFrameProgress, PREFACE};

    /// Makes a frame of a type with flags and a payload of so many bytes.
    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        bytes.resize(9 + usize::from(length), 0);
        bytes
    }

    #[test]
    fn frames_are_followed_however_they_are_split() {
        let settings = frame(4, 0, 6);
        let (headers, continuation) = (frame(1, 0, 3), frame(9, 4, 2));
        let data = frame(0, 1, 4);
        let all = [PREFACE, &settings, &headers, &continuation, &data, &frame(6, 0, 0)].concat();
        // Behind how many bytes everything that has begun is complete.
        let complete = [
            PREFACE.len(),
            PREFACE.len() + 15,
            PREFACE.len() + 15 + 12 + 11,
            PREFACE.len() + 15 + 12 + 11 + 13,
            all.len(),
        ];
        let mut reader = FrameReader::new();
        for (at, byte) in all.iter().enumerate() {
            let expected = match at + 1 {
                read if read < PREFACE.len() => HttpFrameProgress::NoFrames,
                read if complete.contains(&read) => HttpFrameProgress::Complete,
                _ => HttpFrameProgress::Incomplete,
            };
            assert_eq!(reader.read(&[*byte]), expected, "behind {} bytes", at + 1);
        }
        for size in 1..all.len() {
            let mut reader = FrameReader::new();
            let last = all.chunks(size).map(|part| reader.read(part)).last();
            assert_eq!(last, Some(HttpFrameProgress::Complete), "in parts of {size} bytes");
        }
    }

    #[test]
    fn another_protocol_has_no_frames() {
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.1", b"", &[0; 100]] {
            assert_eq!(FrameReader::new().read(bytes), HttpFrameProgress::NoFrames);
        }
    }
}
