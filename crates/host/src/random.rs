//! Random bytes from the machine, for ids that no two databases share.

/// Returns 16 random bytes. Panics when the machine has none, which it always has once it has started.
pub fn id() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system provides random bytes");
    bytes
}
