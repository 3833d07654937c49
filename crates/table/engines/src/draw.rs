//! Random ranks of keys, uniform or by Zipf's law, from a seed.

use std::{collections::BTreeSet, fmt};

use crate::workload::mix;

/// The exponent of Zipf's law.
const EXPONENT: f64 = 0.99;

/// Probabilities of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Distribution {
    /// Equal probabilities.
    Uniform,
    /// Zipf's law with the exponent 0.99.
    Zipf,
}

/// The generator splitmix64.
struct Random {
    state: u64,
}

/// Draws by Zipf's law, as in J. Gray et al.: "Quickly Generating Billion-Record Synthetic Databases"
/// (1994).
struct Zipf {
    ranks: f64,
    zeta: f64,
    eta: f64,
}

/// Draws `count` ranks that are less than `ranks`.
pub(crate) fn draw(distribution: Distribution, ranks: u64, seed: u64, count: usize) -> Vec<u64> {
    let mut random = Random { state: mix(seed) };
    match distribution {
        Distribution::Uniform => (0..count).map(|_| random.number() % ranks).collect(),
        Distribution::Zipf => {
            let zipf = Zipf::new(ranks);
            (0..count).map(|_| zipf.rank(random.fraction()).min(ranks - 1)).collect()
        }
    }
}

/// Draws `count` different ranks that are less than `ranks`, or all ranks if there are fewer.
pub(crate) fn draw_distinct(ranks: u64, seed: u64, count: usize) -> Vec<u64> {
    let mut random = Random { state: mix(seed) };
    let (mut drawn, mut seen) = (Vec::new(), BTreeSet::new());
    let count = count.min(usize::try_from(ranks).unwrap_or(usize::MAX));
    while drawn.len() < count {
        let rank = random.number() % ranks;
        if seen.insert(rank) {
            drawn.push(rank);
        }
    }
    drawn
}

impl Random {
    fn number(&mut self) -> u64 {
        let number = mix(self.state);
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        number
    }

    /// Returns a number from 0 to less than 1.
    fn fraction(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Zipf {
    fn new(ranks: u64) -> Self {
        let zeta: f64 = (1..=ranks).map(|rank| libm::pow(rank as f64, -EXPONENT)).sum();
        let ranks = ranks as f64;
        let eta = (1.0 - libm::pow(2.0 / ranks, 1.0 - EXPONENT)) / (1.0 - zeta_of_two() / zeta);
        Self { ranks, zeta, eta }
    }

    fn rank(&self, fraction: f64) -> u64 {
        let scaled = fraction * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < zeta_of_two() {
            return 1;
        }
        let base = self.eta * fraction - self.eta + 1.0;
        (self.ranks * libm::pow(base, 1.0 / (1.0 - EXPONENT))) as u64
    }
}

/// Returns the sum of the weights of the first two ranks.
fn zeta_of_two() -> f64 {
    1.0 + libm::pow(0.5, EXPONENT)
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Distribution, draw, draw_distinct};

    #[test]
    fn ranks_are_less_than_their_number() {
        for distribution in [Distribution::Uniform, Distribution::Zipf] {
            for ranks in [1, 2, 3, 1_000] {
                let drawn = draw(distribution, ranks, 7, 10_000);
                assert_eq!(drawn.len(), 10_000);
                assert!(drawn.iter().all(|rank| *rank < ranks), "{distribution} {ranks}");
            }
        }
    }

    #[test]
    fn zipf_draws_the_first_rank_most_often() {
        let drawn = draw(Distribution::Zipf, 1_000, 7, 100_000);
        let count = |wanted: u64| drawn.iter().filter(|rank| **rank == wanted).count();
        // The weights of 1,000 ranks sum up to 7.7.
        assert!((12_000..14_000).contains(&count(0)), "{}", count(0));
        assert!(count(0) > count(1) && count(1) > count(10) && count(10) > count(500));
    }

    #[test]
    fn distinct_ranks_differ_and_may_be_all() {
        let distinct = |ranks| draw_distinct(ranks, 7, 200).into_iter().collect::<BTreeSet<u64>>();
        assert_eq!(distinct(1_000).len(), 200);
        assert_eq!(distinct(5).len(), 5);
    }
}
