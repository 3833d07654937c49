//! Random numbers from a seed.

use lockstep_host::{RandomSource, sync::Mutex};

/// A generator of random numbers (`SplitMix64`), the same on every machine and in every version.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Makes a generator.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws any number.
    pub const fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws a number below `limit`, which is not zero.
    pub const fn below(&mut self, limit: u64) -> u64 {
        assert!(limit > 0, "there is a number below the limit");
        self.any() % limit
    }

    /// Draws an index of a list of `count` elements.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("it is below a usize")
    }

    /// Draws yes once in `of` times.
    pub const fn once_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// Draws `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).flat_map(|_| self.any().to_le_bytes());
        words.take(count).collect()
    }
}

/// Random bytes of a machine that are the same in each run of a seed.
#[derive(Debug)]
pub struct SimulatedRandom(Mutex<Random>);

impl SimulatedRandom {
    /// Makes a source.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(Random::new(seed)))
    }
}

impl RandomSource for SimulatedRandom {
    fn id(&self) -> [u8; 16] {
        let mut random = self.0.lock();
        let id = u128::from(random.any()) << 64 | u128::from(random.any());
        assert_ne!(id, 0, "an id is not the one of nothing");
        id.to_le_bytes()
    }
}
