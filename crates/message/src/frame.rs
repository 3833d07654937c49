//! The frame around a value.

/// The bytes before a value: a zero byte and the id of the schema.
pub(crate) const FRAME_BYTES: usize = 5;

/// Returns the id of the schema that a message was written with; `None` if the message has no frame.
pub fn schema_id(message: &[u8]) -> Option<u32> {
    let (frame, _) = message.split_first_chunk::<FRAME_BYTES>()?;
    let [0, id @ ..] = frame else { return None };
    Some(u32::from_be_bytes(*id))
}

/// Returns what is behind the id of the schema.
pub(crate) fn body(message: &[u8]) -> Result<&[u8], String> {
    let body = schema_id(message).map(|_| &message[FRAME_BYTES..]);
    body.ok_or_else(|| "the value does not begin with the id of a schema".to_owned())
}

/// Writes a zero byte and the id of a schema.
pub(crate) fn write_frame(id: u32, out: &mut Vec<u8>) {
    out.push(0);
    out.extend_from_slice(&id.to_be_bytes());
}
