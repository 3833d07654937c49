//! Count, sum and sum of squares, exact: what a variance is made of.
//!
//! The variance of n values is `(n·Σx² − (Σx)²) / (n·(n−d))`, d being 0 for the population and 1
//! for a sample. The numerator is computed exactly, whatever cancels in it, and rounded to 53
//! bits; the division and the square root round once each. Squares use the same split into
//! ordinary and other values as the parent, with last places of 2^-192 and 2^-2148.

use super::{
    ExactSum, ORDINARY_LAST_PLACE, ORDINARY_MAX, ORDINARY_MIN, Parts, WIDE_LAST_PLACE, WIDE_LIMBS,
    limbs::{self, Sign},
};
use crate::aggregate::{StateReader, put_count, put_unsigned};

/// A square of an ordinary value takes 302 bits; with 2^40 values, and the factor n, 382.
const SQUARE_LIMBS: usize = 7;
const WIDE_SQUARE_LIMBS: usize = 2 * WIDE_LIMBS + 1;

/// Exact count, sum and sum of squares of a multiset of doubles.
#[derive(Debug, Clone, Default)]
pub struct ExactMoments {
    count: u64,
    sum: ExactSum,
    squares: [u64; SQUARE_LIMBS],
    wide_squares: Option<Box<[u64; WIDE_SQUARE_LIMBS]>>,
}

/// What the squared deviations are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divisor {
    /// The number of values.
    Population,
    /// One less.
    Sample,
}

impl ExactMoments {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum.add(value);
        self.apply_square(value, Sign::Positive);
    }

    /// Takes away a value that was added.
    pub fn remove(&mut self, value: f64) {
        self.count -= 1;
        self.sum.remove(value);
        self.apply_square(value, Sign::Negative);
    }

    /// Adds all that other moments have.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum.merge(&other.sum);
        limbs::add(&mut self.squares, &other.squares);
        if let Some(others) = &other.wide_squares {
            let own = self.wide_squares.get_or_insert_with(|| Box::new([0; WIDE_SQUARE_LIMBS]));
            limbs::add(own.as_mut_slice(), others.as_slice());
        }
    }

    /// Appends the state to some bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_unsigned(out, self.count.into());
        self.sum.encode(out);
        let wide = self.wide_squares.as_ref().map(|wide| wide.as_slice());
        for squares in [Some(self.squares.as_slice()), wide] {
            let squares = limbs::significant(squares.unwrap_or(&[]));
            put_count(out, squares.len());
            squares.iter().for_each(|limb| out.extend_from_slice(&limb.to_le_bytes()));
        }
    }

    /// Reads what `encode` wrote; `None` for damaged bytes.
    pub(crate) fn decode(reader: &mut StateReader<'_>) -> Option<Self> {
        let count = reader.rows()?;
        let mut moments = Self { count, sum: ExactSum::decode(reader)?, ..Self::default() };
        let limbs = reader.count()?;
        limbs::decode(reader, limbs, &mut moments.squares)?;
        let limbs = reader.count()?;
        if limbs > 0 {
            let wide = moments.wide_squares.insert(Box::new([0; WIDE_SQUARE_LIMBS]));
            limbs::decode(reader, limbs, wide.as_mut_slice())?;
        }
        Some(moments)
    }

    /// Forgets every value.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The variance; `None` when there are too few values. NaN when a value is not finite.
    pub fn variance(&self, divisor: Divisor) -> Option<f64> {
        let (significand, exponent) = self.scaled_variance(divisor)?;
        Some(scale(significand, exponent))
    }

    /// The square root of the variance, which may be finite where the variance overflows.
    pub fn deviation(&self, divisor: Divisor) -> Option<f64> {
        let (significand, exponent) = self.scaled_variance(divisor)?;
        let odd = exponent.rem_euclid(2);
        Some(scale((significand * f64::from(1 + odd)).sqrt(), (exponent - odd) / 2))
    }

    fn scaled_variance(&self, divisor: Divisor) -> Option<(f64, i32)> {
        let least = if divisor == Divisor::Sample { 2 } else { 1 };
        if self.count < least {
            return None;
        }
        if self.sum.specials().is_some() {
            return Some((f64::NAN, 0));
        }
        let (numerator, exponent) = self.numerator();
        let count = u128::from(self.count);
        let pairs = count * (count - u128::from(least - 1));
        #[expect(clippy::cast_precision_loss, reason = "a count of rows is below 2^53")]
        let pairs = pairs as f64;
        Some((numerator / pairs, exponent))
    }

    /// `n·Σx² − (Σx)²` to 53 bits.
    fn numerator(&self) -> (f64, i32) {
        match self.sum.wide() {
            None => {
                let last_place = 2 * ORDINARY_LAST_PLACE;
                numerator(self.squares, &mut self.sum.ordinary(), self.count, last_place)
            }
            Some(mut sum) => {
                let mut squares = match &self.wide_squares {
                    Some(wide) => **wide,
                    None => [0; WIDE_SQUARE_LIMBS],
                };
                let shift = 2 * (ORDINARY_LAST_PLACE - WIDE_LAST_PLACE);
                limbs::add_shifted(&mut squares, self.squares, shift);
                numerator(squares, &mut sum, self.count, 2 * WIDE_LAST_PLACE)
            }
        }
    }

    fn apply_square(&mut self, value: f64, sign: Sign) {
        if !value.is_finite() {
            return;
        }
        let Parts { exponent, significand, .. } = Parts::of(value);
        let square = u128::from(significand) * u128::from(significand);
        if (ORDINARY_MIN..=ORDINARY_MAX).contains(&exponent) {
            let shift = 2 * (exponent - ORDINARY_MIN);
            limbs::accumulate(&mut self.squares, square, shift, sign);
        } else if square != 0 {
            let wide = self.wide_squares.get_or_insert_with(|| Box::new([0; WIDE_SQUARE_LIMBS]));
            limbs::accumulate(wide.as_mut_slice(), square, 2 * (exponent - 1), sign);
        }
    }
}

fn numerator<const N: usize>(
    mut squares: [u64; N],
    sum: &mut [u64],
    count: u64,
    last_place: i32,
) -> (f64, i32) {
    limbs::negate_if_negative(sum);
    limbs::multiply(&mut squares, count);
    let mut square_of_sum = [0; N];
    limbs::square(sum, &mut square_of_sum);
    limbs::subtract(&mut squares, &square_of_sum);
    limbs::round_scaled(&squares, last_place)
}

/// `significand * 2^exponent`. Two steps, so that the powers themselves are in range; the first
/// is exact.
fn scale(significand: f64, exponent: i32) -> f64 {
    let first = exponent.clamp(-960, 960);
    let second = (exponent - first).clamp(-1020, 1020);
    significand * libm::scalbn(1.0, first) * libm::scalbn(1.0, second)
}
