//! A filter of entity keys: excludes most keys that a run does not have.
//!
//! A split block Bloom filter, as in F. Putze, P. Sanders, J. Singler: "Cache-, Hash- and
//! Space-Efficient Bloom Filters" (2007) and in Parquet: a key sets eight bits in one block of 256, so
//! that a question costs one cache miss. With [`BITS_PER_KEY`] bits for each key, about one in a hundred
//! absent keys is taken for one that may be there; a key that is there is never denied.
//!
//! # Layout
//!
//! Blocks of eight u32, little-endian. The high half of a key's hash decides its block, the low half
//! its bits. The hash is XXH64 with seed 0.

use twox_hash::XxHash64;

/// Bits for each key.
const BITS_PER_KEY: u64 = 10;
/// Words of a block.
const WORDS: usize = 8;
/// Bytes of a block.
const BLOCK_BYTES: usize = WORDS * size_of::<u32>();
/// Odd numbers that spread the bits of a key over the words of its block: those of Parquet's filters.
const SALTS: [u32; WORDS] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// The filter of the keys of a run.
#[derive(Debug)]
pub(crate) struct KeyFilter {
    blocks: Vec<[u32; WORDS]>,
}

/// Returns the bytes of the filter of so many keys.
pub(crate) fn filter_bytes(keys: u64) -> u64 {
    block_count(keys).saturating_mul(BLOCK_BYTES as u64)
}

fn block_count(keys: u64) -> u64 {
    BITS_PER_KEY.saturating_mul(keys).div_ceil(BLOCK_BYTES as u64 * 8).max(1)
}

/// Returns the hash of a key.
pub(crate) fn hash(key: &[u8]) -> u64 {
    XxHash64::oneshot(0, key)
}

impl KeyFilter {
    /// Makes an empty filter with space for `keys` keys.
    pub(crate) fn new(keys: u64) -> Self {
        let blocks = usize::try_from(block_count(keys)).expect("a filter fits into memory");
        Self { blocks: vec![[0; WORDS]; blocks] }
    }

    /// Adds a key with this hash.
    pub(crate) fn insert(&mut self, hash: u64) {
        let at = self.block_of(hash);
        for (word, mask) in self.blocks[at].iter_mut().zip(masks(hash)) {
            *word |= mask;
        }
    }

    /// Returns whether a key with this hash may be among them.
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let block = &self.blocks[self.block_of(hash)];
        block.iter().zip(masks(hash)).all(|(word, mask)| word & mask != 0)
    }

    /// Appends the bytes of the filter.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        let words = self.blocks.iter().flatten();
        bytes.extend(words.flat_map(|word| word.to_le_bytes()));
    }

    /// Reads the bytes of a filter; `None` when they are not such.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let blocks = bytes.chunks_exact(BLOCK_BYTES);
        if bytes.is_empty() || !blocks.remainder().is_empty() {
            return None;
        }
        let block = |bytes: &[u8]| {
            let mut words = bytes.chunks_exact(size_of::<u32>());
            [(); WORDS].map(|()| {
                let word = words.next().expect("a block has eight words");
                u32::from_le_bytes(word.try_into().expect("four bytes"))
            })
        };
        Some(Self { blocks: blocks.map(block).collect() })
    }

    /// Returns the bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * BLOCK_BYTES
    }

    fn block_of(&self, hash: u64) -> usize {
        // The high half, scaled to the number of blocks, without a division.
        debug_assert!(!self.blocks.is_empty(), "a filter has a block");
        let block = (u128::from(hash >> 32) * self.blocks.len() as u128) >> 32;
        usize::try_from(block).expect("less than the number of blocks")
    }
}

/// Returns the bit of a hash in each word of its block.
fn masks(hash: u64) -> [u32; WORDS] {
    let low = u32::try_from(hash & u64::from(u32::MAX)).expect("masked");
    SALTS.map(|salt| 1 << (low.wrapping_mul(salt) >> 27))
}

#[cfg(test)]
mod tests {
    use super::{KeyFilter, hash};

    fn hashes(from: u32, count: u32) -> Vec<u64> {
        (from..from + count).map(|number| hash(&number.to_le_bytes())).collect()
    }

    fn written(hashes: &[u64]) -> Vec<u8> {
        let (mut filter, mut bytes) = (KeyFilter::new(hashes.len() as u64), Vec::new());
        hashes.iter().for_each(|hash| filter.insert(*hash));
        filter.write(&mut bytes);
        bytes
    }

    #[test]
    fn a_key_that_is_there_is_never_denied_and_few_others_are_accepted() {
        for count in [0, 1, 100, 20_000] {
            let there = hashes(0, count);
            let bytes = written(&there);
            let filter = KeyFilter::read(&bytes).unwrap();
            assert!(filter.memory_bytes() >= bytes.len());
            assert!(there.iter().all(|hash| filter.may_contain(*hash)));
            let others = hashes(1 << 20, 20_000);
            let accepted = others.iter().filter(|hash| filter.may_contain(**hash)).count();
            assert!(accepted < 20_000 / 40, "{accepted} of 20,000 absent keys beside {count}");
        }
    }

    #[test]
    fn bytes_that_are_no_filter_are_refused() {
        assert!(KeyFilter::read(&[]).is_none() && KeyFilter::read(&[0; 31]).is_none());
    }

    #[test]
    fn the_bytes_of_a_filter_stay_what_they_are() {
        let bytes = written(&[hash(b"a"), hash(b"b")]);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
    }

    const GOLDEN: &str = "0080040000000208030000000010000100000220400000010000800800200080";
}
