//! Changes of a conversation: of its bytes, its parts, and of the messages inside them.
//!
//! A body of gRPC is changed as a message of Protocol Buffers: a field, or the bytes of a field, with
//! all lengths around it written again, so that changes reach the readers of what is inside.

use lockstep_testkit::random::Random;

use super::wire_part::{ConversationForm, PartForm, WirePart, join, split};

/// Numbers at which readers go wrong.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    4,
    8,
    127,
    128,
    255,
    65_535,
    65_536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

/// Texts that mean something to one of the protocols.
const WORDS: [&str; 20] = [
    "null",
    "-1",
    "1e999",
    "9223372036854775808",
    "\"\\ud800\"",
    "[[[[[[[[[[[[[[[[",
    "{\"sql\":",
    "Transfer-Encoding: chunked\r\n",
    "Content-Length: 5\r\n",
    "Accept: application/vnd.apache.arrow.stream\r\n",
    "?timeout_ms=0",
    "%ff%00",
    "SELECT ",
    " FROM t",
    " PARTITION BY k ORDER BY ts ",
    "COPY t FROM STDIN (FORMAT binary)\0",
    "PGCOPY\n\u{b}\r\n\0",
    "\0\0\0\0",
    "'; ",
    "$1::bigint[]",
];

/// The type of a frame of HTTP/2 with a body.
const DATA_FRAME: u8 = 0;

/// How deep messages of Protocol Buffers are looked for inside each other.
const DEPTH_MAX: usize = 6;

/// Changes a conversation. `others` are conversations from which parts may be taken.
pub(super) fn mutate(
    form: ConversationForm,
    bytes: &[u8],
    others: &[Vec<u8>],
    random: &mut Random,
) -> Vec<u8> {
    let mut parts = split(form, bytes);
    let other = split(form, random.pick::<Vec<u8>>(others));
    if random.chance(15) {
        mutate_short_field(&mut parts, random);
    }
    for _ in 0..=random.below(3) {
        mutate_parts(&mut parts, &other, random);
    }
    let mut bytes = join(&parts);
    if random.chance(20) {
        mutate_bytes(&mut bytes, random);
    }
    if random.chance(8) {
        let length = random.below(bytes.len() + 1);
        bytes.truncate(length);
    }
    bytes
}

fn mutate_parts(parts: &mut Vec<WirePart>, other: &[WirePart], random: &mut Random) {
    if parts.is_empty() || random.chance(8) {
        let part = random.pick(other).clone();
        let at = random.below(parts.len() + 1);
        parts.insert(at, part);
        return;
    }
    let at = random.below(parts.len());
    match random.below(20) {
        0 => drop(parts.remove(at)),
        1 => parts.insert(at, parts[at].clone()),
        2 => {
            let next = (at + 1) % parts.len();
            parts.swap(at, next);
        }
        3 | 4 => mutate_bytes(&mut parts[at].head, random),
        _ => {
            // The begin of a connection matters less than what follows.
            let body = &mut parts[at];
            if body.body.is_empty() {
                mutate_text(&mut body.head, random);
            } else {
                mutate_body(body, random);
            }
        }
    }
}

fn mutate_body(part: &mut WirePart, random: &mut Random) {
    let is_data = part.form == PartForm::HttpFrame && part.head.first() == Some(&DATA_FRAME);
    if is_data && random.chance(90) && mutate_grpc(&mut part.body, random) {
        return;
    }
    if random.chance(40) {
        mutate_text(&mut part.body, random);
    } else {
        mutate_bytes(&mut part.body, random);
    }
}

/// A message of a gRPC body, with the flag before it.
type GrpcMessage = (u8, Vec<u8>);

/// Changes a message among those of a gRPC body. Returns whether it has whole messages.
fn mutate_grpc(body: &mut Vec<u8>, random: &mut Random) -> bool {
    let Some(mut messages) = grpc_messages(body) else { return false };
    let at = random.below(messages.len());
    mutate_message(&mut messages[at].1, random, DEPTH_MAX);
    *body = grpc_body(messages);
    true
}

/// Gives a field of four bytes another number: a position in binary, which text and other fields
/// outnumber by far.
fn mutate_short_field(parts: &mut [WirePart], random: &mut Random) {
    let is_short =
        |value: &FieldValue| matches!(value, FieldValue::Bytes(bytes) if bytes.len() == 4);
    let mut places = Vec::new();
    for (part, body) in parts.iter().enumerate() {
        let messages = grpc_messages(&body.body).unwrap_or_default();
        for (message, (_, bytes)) in messages.iter().enumerate() {
            let fields = fields_of(bytes).unwrap_or_default();
            let short = fields.iter().enumerate().filter(|(_, (_, value))| is_short(value));
            places.extend(short.map(|(field, _)| (part, message, field)));
        }
    }
    if places.is_empty() {
        return;
    }
    let (part, message, field) = *random.pick(&places);
    let mut messages = grpc_messages(&parts[part].body).expect("the place was found in it");
    let mut fields = fields_of(&messages[message].1).expect("the place was found in it");
    let number = random.pick(&NUMBERS).to_le_bytes();
    fields[field].1 = FieldValue::Bytes(number[..4].to_vec());
    messages[message].1 = bytes_of(&fields);
    parts[part].body = grpc_body(messages);
}

/// Splits a gRPC body; `None` where it has no messages, or a part of one.
fn grpc_messages(body: &[u8]) -> Option<Vec<GrpcMessage>> {
    let (mut messages, mut rest) = (Vec::new(), body);
    while let Some([flag, length @ ..]) = rest.first_chunk::<5>() {
        let length = u32::from_be_bytes(*length) as usize;
        let message = rest.get(5..5 + length)?;
        messages.push((*flag, message.to_vec()));
        rest = &rest[5 + length..];
    }
    (!messages.is_empty() && rest.is_empty()).then_some(messages)
}

fn grpc_body(messages: Vec<GrpcMessage>) -> Vec<u8> {
    let mut body = Vec::new();
    for (flag, message) in messages {
        body.push(flag);
        body.extend(u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
        body.extend(message);
    }
    body
}

/// The value of a field of Protocol Buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldValue {
    Number(u64),
    Bytes(Vec<u8>),
    Fixed(Vec<u8>),
}

/// A field: its number and type, and its value.
type MessageField = (u64, FieldValue);

/// Changes a message of Protocol Buffers, or its bytes where it is none.
fn mutate_message(message: &mut Vec<u8>, random: &mut Random, depth: usize) {
    let fields = if depth == 0 { None } else { fields_of(message) };
    let Some(mut fields) = fields.filter(|_| random.chance(90)) else {
        return if random.chance(30) {
            mutate_text(message, random);
        } else {
            mutate_bytes(message, random);
        };
    };
    let at = random.below(fields.len());
    match random.below(14) {
        0 => drop(fields.remove(at)),
        1 => fields.push(fields[at].clone()),
        2 => fields[at].0 = *random.pick(&NUMBERS),
        _ => match &mut fields[at].1 {
            FieldValue::Number(number) => *number = *random.pick(&NUMBERS),
            FieldValue::Bytes(bytes) => mutate_message(bytes, random, depth - 1),
            FieldValue::Fixed(bytes) => mutate_bytes(bytes, random),
        },
    }
    *message = bytes_of(&fields);
}

/// Reads the fields of a message; `None` where it is none, or has none.
fn fields_of(bytes: &[u8]) -> Option<Vec<MessageField>> {
    let (mut fields, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let key = read_number(&mut rest)?;
        if key >> 3 == 0 || key >> 3 > 100_000 {
            return None;
        }
        let value = match key & 7 {
            0 => FieldValue::Number(read_number(&mut rest)?),
            1 => FieldValue::Fixed(split_off(&mut rest, 8)?),
            2 => {
                let length = usize::try_from(read_number(&mut rest)?).ok()?;
                FieldValue::Bytes(split_off(&mut rest, length)?)
            }
            5 => FieldValue::Fixed(split_off(&mut rest, 4)?),
            _ => return None,
        };
        fields.push((key, value));
    }
    Some(fields).filter(|fields| !fields.is_empty())
}

fn split_off(rest: &mut &[u8], length: usize) -> Option<Vec<u8>> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken.to_vec())
}

fn read_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in 0..10 {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        number |= u64::from(byte & 0x7f) << (7 * shift).min(63);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = number.to_le_bytes()[0] & 0x7f;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

fn bytes_of(fields: &[MessageField]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in fields {
        push_number(&mut bytes, *key);
        match value {
            FieldValue::Number(number) => push_number(&mut bytes, *number),
            FieldValue::Fixed(fixed) => bytes.extend(fixed),
            FieldValue::Bytes(content) => {
                push_number(&mut bytes, u64::try_from(content.len()).unwrap_or(u64::MAX));
                bytes.extend(content);
            }
        }
    }
    bytes
}

/// Changes a number, puts a word in, or removes or repeats a range.
fn mutate_text(bytes: &mut Vec<u8>, random: &mut Random) {
    let digits: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at].is_ascii_digit()).collect();
    if random.chance(40) && !digits.is_empty() {
        let from = *random.pick(&digits);
        let end = (from..bytes.len()).find(|at| !bytes[*at].is_ascii_digit());
        let number = random.pick(&NUMBERS).to_string();
        drop(bytes.splice(from..end.unwrap_or(bytes.len()), number.into_bytes()));
    } else if random.chance(50) {
        let at = random.below(bytes.len() + 1);
        drop(bytes.splice(at..at, random.pick(&WORDS).bytes()));
    } else {
        mutate_bytes(bytes, random);
    }
}

/// Flips, overwrites, cuts, repeats or inserts bytes.
fn mutate_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        bytes.push(random.number().to_le_bytes()[0]);
        return;
    }
    let at = random.below(bytes.len());
    let end = (at + 1 + random.below(32)).min(bytes.len());
    debug_assert!(at < end, "a range has a byte");
    match random.below(10) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => {
            let range = bytes[at..end].to_vec();
            drop(bytes.splice(at..at, range));
        }
        3 => bytes.insert(at, random.number().to_le_bytes()[0]),
        4..7 => {
            // A number of some width, more often where numbers of its width are.
            let width = *random.pick(&[1_usize, 2, 4, 8]);
            let at = if random.chance(70) { at / width * width } else { at };
            let number = *random.pick(&NUMBERS);
            let number = if random.chance(30) { number.wrapping_neg() } else { number };
            let is_little = random.chance(60);
            for (offset, target) in bytes[at..].iter_mut().take(width).enumerate() {
                let place = if is_little { offset } else { width - 1 - offset };
                *target = number.to_le_bytes()[place];
            }
        }
        _ => bytes[at] ^= 1 << random.below(8),
    }
}

#[cfg(test)]
mod tests {
    use lockstep_testkit::random::Random;

    use super::{ConversationForm, bytes_of, fields_of, mutate, mutate_grpc};

    /// A message: field 1 is the number 300, field 2 a message whose field 1 is a text.
    const MESSAGE: &[u8] = b"\x08\xac\x02\x12\x07\x0a\x05hello";

    #[test]
    fn a_message_is_read_and_written() {
        let fields = fields_of(MESSAGE).unwrap();
        assert_eq!(fields.len(), 2);
        assert_eq!(bytes_of(&fields), MESSAGE);
        for cut in 1..MESSAGE.len() {
            let is_whole = [3].contains(&cut);
            assert_eq!(fields_of(&MESSAGE[..cut]).is_some(), is_whole, "{cut}");
        }
    }

    #[test]
    fn lengths_of_grpc_are_right_after_a_change() {
        let length = u32::try_from(MESSAGE.len()).unwrap().to_be_bytes();
        let body = [&[0][..], &length, MESSAGE].concat();
        let mut changed = 0;
        for seed in 0..200 {
            let mut mutant = body.clone();
            assert!(mutate_grpc(&mut mutant, &mut Random::new(seed)));
            let length = u32::from_be_bytes(*mutant[1..].first_chunk().unwrap());
            assert_eq!(usize::try_from(length).unwrap(), mutant.len() - 5);
            changed += usize::from(mutant != body);
        }
        assert!(changed > 180, "{changed}");
        assert!(!mutate_grpc(&mut vec![0, 0, 0, 0, 9, 1], &mut Random::new(1)), "it is cut");
    }

    #[test]
    fn a_seed_gives_one_mutant() {
        let session = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
        let drawn = |seed| {
            let others = std::slice::from_ref(&session);
            mutate(ConversationForm::Http, &session, others, &mut Random::new(seed))
        };
        assert_eq!(drawn(7), drawn(7));
        assert!((0..50).filter(|seed| drawn(*seed) != session).count() > 40);
    }
}
