//! Seeded random numbers, for generators of text.
//!
//! Used by fuzzing and by the generator of queries. Uses no clock and no randomness of the system.

/// A small random number generator (`SplitMix64`): a seed gives the same sequence on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        assert!(end > 0, "no number is below 0");
        let end = u64::try_from(end).expect("a length fits");
        usize::try_from(self.number() % end).expect("less than a length")
    }

    /// Returns whether an event of the given probability, in percent, happens.
    pub fn chance(&mut self, percent: usize) -> bool {
        assert!(percent <= 100, "{percent} percent");
        self.below(100) < percent
    }

    /// Picks one of `things`, which is not empty.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        assert!(!things.is_empty(), "there is something to pick");
        &things[self.below(things.len())]
    }
}
