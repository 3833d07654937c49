//! Generated data that is computed from its position instead of stored.
//!
//! A value depends only on (purpose, key, row, column), so that every system is loaded with the
//! same rows, one row at a time.

/// Scrambles a number: the finalizer of `SplitMix64`.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The random numbers of one position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyedRandom(u64);

impl KeyedRandom {
    /// Returns the numbers of a position.
    pub(crate) fn at(place: &[u64]) -> Self {
        let step =
            |hash: u64, part: &u64| mix(hash.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ mix(*part));
        Self(place.iter().fold(0x5eed, step))
    }

    /// Returns a number below `end`, which is not 0.
    pub(crate) fn below(self, column: u64, end: u64) -> u64 {
        debug_assert!(end > 0, "no number is below 0");
        mix(self.0.wrapping_add(column.wrapping_mul(0x9e37_79b9_7f4a_7c15))) % end
    }

    /// Returns [`Self::below`] as a signed number.
    pub(crate) fn int(self, column: u64, end: u32) -> i64 {
        i64::try_from(self.below(column, u64::from(end))).expect("it is less than 32 bits")
    }

    /// Returns [`Self::below`] as an index.
    pub(crate) fn index(self, column: u64, end: usize) -> usize {
        let end = u64::try_from(end).expect("a length fits 64 bits");
        usize::try_from(self.below(column, end)).expect("it is less than a length")
    }

    /// Returns whether an event of the given probability, in percent, happens.
    pub(crate) fn chance(self, column: u64, percent: u64) -> bool {
        debug_assert!(percent <= 100, "{percent} percent");
        self.below(column, 100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::KeyedRandom;

    #[test]
    fn a_place_has_its_numbers() {
        let here = KeyedRandom::at(&[1, 2, 3]);
        assert_eq!(here.below(4, 1000), KeyedRandom::at(&[1, 2, 3]).below(4, 1000));
        let distinct: std::collections::BTreeSet<u64> =
            (0..100).map(|row| KeyedRandom::at(&[1, 2, row]).below(4, u64::MAX)).collect();
        assert_eq!(distinct.len(), 100);
        assert!((0..1000).all(|column| here.below(column, 7) < 7));
    }
}
