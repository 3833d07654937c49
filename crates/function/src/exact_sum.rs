//! The correctly rounded sum of floats.
//!
//! Promise L2 asks for one answer whatever the order of rows, the partitioning or the history of
//! additions and removals, so a float aggregate is defined as the *exact* sum of its values,
//! rounded once to nearest, ties to even: what Python's `math.fsum` returns. Sums, means,
//! variances and all that is built on them go through [`ExactSum`] and [`ExactMoments`].
//!
//! # How
//!
//! A double is an integer times a power of two, so a fixed-point number that is wide enough holds
//! any sum of doubles exactly. That is Kulisch's long accumulator; Neal («Fast exact summation
//! using small and large superaccumulators», 2015) shows how far it can be sped up. Here each
//! value goes to one of two fixed-point numbers, and which one depends on the value alone:
//!
//! - *ordinary* values, `2^-44 <= |x| < 2^55`, to a two's-complement number of 192 bits whose last
//!   place is 2^-96. The largest ordinary value takes 151 bits, which leaves room for 2^40 of
//!   them. Adding is a shift and three additions with carry.
//! - the others to a number of 2176 bits whose last place is 2^-1074, made when the first one
//!   comes. Its 78 spare bits take 2^77 values.
//!
//! Infinities and NaN are counted. All three parts are plain sums of integers: order does not
//! matter, removing is subtracting, merging is adding. An answer adds the parts, finds the top bit
//! and rounds; one of ordinary values alone is converted from an integer of 128 bits.
//!
//! # Cost
//!
//! 32 bytes, and 296 more once a value is not ordinary. Adding takes 4 to 9 ns where a plain float
//! sum takes 0.5 ns, rounding about 7 ns (`cargo run --example exact_sum_cost`).
//!
//! # Edge cases
//!
//! The sum of nothing, of zeros of any sign, and of values that cancel is `0.0`, never `-0.0`.
//! NaN, or infinities of both signs, give NaN (always the same one); one infinity gives itself. An
//! exact sum beyond the largest double gives an infinity; on the way there nothing overflows.

mod limbs;
mod moments;

use limbs::{Format, Sign};
pub use moments::{Divisor, ExactMoments};

use crate::aggregate::{StateReader, put_count, put_signed};

/// Biased exponents of the ordinary values.
const ORDINARY_MIN: u32 = 1023 - 44;
const ORDINARY_MAX: u32 = 1023 + 54;
/// The last places of the two numbers.
const ORDINARY_LAST_PLACE: i32 = -96;
const WIDE_LAST_PLACE: i32 = -1074;
const WIDE_LIMBS: usize = 34;
/// Values that are added together.
const BLOCK_VALUES: usize = 64;
/// By how many places the values of such a block may differ.
const SIMILAR_BITS: u32 = 56;
/// By how many places they may differ to fit 64 bits one by one.
const CLOSE_BITS: u32 = 10;
/// By how many bits an ordinary value of the least exponent is shifted into its number.
const _: () = assert!(ORDINARY_MIN.cast_signed() - 1075 == ORDINARY_LAST_PLACE);
const _: () = assert!(WIDE_LIMBS * 64 >= 1024 + 1074 + 64);

/// The exact sum of a multiset of doubles.
#[derive(Debug, Clone, Default)]
pub struct ExactSum {
    low: u128,
    high: i64,
    rare: Option<Box<Rare>>,
}

/// What ordinary values do not need.
#[derive(Debug, Clone)]
struct Rare {
    wide: [u64; WIDE_LIMBS],
    specials: Specials,
}

/// How many values were not finite.
#[derive(Debug, Clone, Copy, Default)]
struct Specials {
    nan: i64,
    positive: i64,
    negative: i64,
}

/// A finite double as `± significand * 2^(exponent - 1075)`, the exponent being at least 1.
#[derive(Clone, Copy)]
struct Parts {
    sign: Sign,
    exponent: u32,
    significand: u64,
}

impl ExactSum {
    /// The sum of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value. Allocates once, when the first value comes that is not ordinary.
    #[inline]
    pub fn add(&mut self, value: f64) {
        self.apply(value, 1);
    }

    /// Adds many values; faster than one by one where the values of a block are of similar
    /// magnitude.
    pub fn add_all(&mut self, values: &[f64]) {
        for block in values.chunks(BLOCK_VALUES) {
            if !self.add_similar(block) {
                block.iter().for_each(|value| self.add(*value));
            }
        }
    }

    /// Takes away a value that was added; the state is then as if it had never been.
    #[inline]
    pub fn remove(&mut self, value: f64) {
        self.apply(value, -1);
    }

    /// Adds all that another sum holds.
    pub fn merge(&mut self, other: &Self) {
        self.add_ordinary(other.low, other.high);
        if let Some(rare) = &other.rare {
            let own = self.rare();
            limbs::add(&mut own.wide, &rare.wide);
            own.specials.merge(rare.specials);
        }
    }

    /// Appends the state to some bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let ordinary = limbs::significant(&self.ordinary()).to_vec();
        put_count(out, ordinary.len() * 2 + usize::from(self.rare.is_some()));
        ordinary.iter().for_each(|limb| out.extend_from_slice(&limb.to_le_bytes()));
        if let Some(rare) = &self.rare {
            let wide = limbs::significant(&rare.wide);
            put_count(out, wide.len());
            wide.iter().for_each(|limb| out.extend_from_slice(&limb.to_le_bytes()));
            let Specials { nan, positive, negative } = rare.specials;
            [nan, positive, negative].iter().for_each(|count| put_signed(out, (*count).into()));
        }
    }

    /// Adds what `encode` wrote; `None` for damaged bytes.
    #[inline]
    pub(crate) fn merge_encoded(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        if reader.takes(0) {
            return Some(());
        }
        self.merge(&Self::decode(reader)?);
        Some(())
    }

    /// Reads what `encode` wrote; `None` for damaged bytes.
    pub(crate) fn decode(reader: &mut StateReader<'_>) -> Option<Self> {
        let header = reader.count()?;
        let mut sum = Self::default();
        let mut ordinary = [0; 3];
        limbs::decode(reader, header / 2, &mut ordinary)?;
        let [low, middle, high] = ordinary;
        sum.low = u128::from(low) | (u128::from(middle) << 64);
        sum.high = high.cast_signed();
        if header % 2 == 1 {
            let count = reader.count()?;
            let rare = sum.rare();
            limbs::decode(reader, count, &mut rare.wide)?;
            let mut special = || i64::try_from(reader.signed()?).ok();
            let [nan, positive, negative] = [special()?, special()?, special()?];
            rare.specials = Specials { nan, positive, negative };
        }
        Some(sum)
    }

    /// Returns the number of bytes that it has allocated.
    pub fn heap_bytes(&self) -> usize {
        if self.rare.is_some() { size_of::<Rare>() } else { 0 }
    }

    /// Forgets every value.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The sum, rounded once to the nearest double, ties to even.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "rounds to nearest, ties to even")]
    pub fn to_f64(&self) -> f64 {
        if self.rare.is_some() {
            return self.to_f64_wide();
        }
        let (number, last_place) = self.number_to_round();
        number as f64 * power_of_two(last_place)
    }

    /// The sum, rounded once to the nearest FLOAT, ties to even.
    #[expect(clippy::cast_precision_loss, reason = "rounds to nearest, ties to even")]
    pub fn to_f32(&self) -> f32 {
        if self.rare.is_some() {
            return self.to_f32_wide();
        }
        let (number, last_place) = self.number_to_round();
        #[expect(clippy::cast_possible_truncation, reason = "a FLOAT has this power of two")]
        let last_place = power_of_two(last_place) as f32;
        number as f32 * last_place
    }

    #[cold]
    fn to_f64_wide(&self) -> f64 {
        let specials = self.specials();
        specials.unwrap_or_else(|| f64::from_bits(self.round(Format::DOUBLE)))
    }

    #[cold]
    fn to_f32_wide(&self) -> f32 {
        #[expect(clippy::cast_possible_truncation, reason = "a NaN or an infinity stays one")]
        let special = self.specials().map(|special| special as f32);
        special.unwrap_or_else(|| {
            let bits = u32::try_from(self.round(Format::FLOAT));
            f32::from_bits(bits.expect("the bits of a FLOAT are 32"))
        })
    }

    fn specials(&self) -> Option<f64> {
        self.rare.as_ref().and_then(|rare| rare.specials.sum())
    }

    fn round(&self, format: Format) -> u64 {
        let wide = self.wide();
        match wide {
            None => limbs::round_signed(&mut self.ordinary(), ORDINARY_LAST_PLACE, format),
            Some(mut sum) => limbs::round_signed(&mut sum, WIDE_LAST_PLACE, format),
        }
    }

    /// The sum of ordinary values as an integer times a power of two, which rounds as the sum
    /// does: one that 128 bits hold is itself, another loses 64 bits and is made odd where they
    /// were not zero, which keeps it on its side of every double and of every middle of two.
    #[inline]
    fn number_to_round(&self) -> (i128, i32) {
        let low = self.low.cast_signed();
        if i128::from(self.high) == low >> 127 {
            return (low, ORDINARY_LAST_PLACE);
        }
        let lost = self.low << 64 != 0;
        let above = i128::from(self.high) << 64 | (self.low >> 64).cast_signed();
        (above | i128::from(lost), ORDINARY_LAST_PLACE + 64)
    }

    /// Both parts in one number, unless there are ordinary values only.
    fn wide(&self) -> Option<[u64; WIDE_LIMBS]> {
        let rare = self.rare.as_ref()?;
        let mut sum = rare.wide;
        limbs::add_shifted(&mut sum, self.ordinary(), ORDINARY_LAST_PLACE - WIDE_LAST_PLACE);
        Some(sum)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "cuts the number into its limbs"
    )]
    fn ordinary(&self) -> [u64; 3] {
        [self.low as u64, (self.low >> 64) as u64, self.high as u64]
    }

    #[inline]
    fn apply(&mut self, value: f64, direction: i64) {
        let exponent = biased_exponent(value);
        if (ORDINARY_MIN..=ORDINARY_MAX).contains(&exponent) {
            self.apply_ordinary(value, exponent, direction);
        } else if value.to_bits() << 1 != 0 {
            self.apply_rare(value, direction);
        }
    }

    /// Adds a block whose values are ordinary and within 2^56 of each other, zeros aside: in units
    /// of the last place of the smallest, 53 + 56 bits and the 6 that 64 values add fit 128.
    #[inline]
    fn add_similar(&mut self, block: &[f64]) -> bool {
        const MAGNITUDE: u64 = u64::MAX >> 1;
        let (mut least, mut greatest) = (u64::MAX, 0);
        for value in block {
            let magnitude = value.to_bits() & MAGNITUDE;
            // One less, so that zeros, which may have any place, come after everything.
            least = least.min(magnitude.wrapping_sub(1));
            greatest = greatest.max(magnitude);
        }
        if greatest == 0 {
            return true;
        }
        let exponent = |magnitude: u64| biased_exponent(f64::from_bits(magnitude));
        let (least, greatest) = (exponent(least + 1), exponent(greatest));
        if least < ORDINARY_MIN || greatest > ORDINARY_MAX || greatest - least > SIMILAR_BITS {
            return false;
        }
        let sum = if greatest - least <= CLOSE_BITS {
            sum_places(block, least, |significand, shift| i128::from(significand << shift))
        } else {
            sum_places(block, least, |significand, shift| i128::from(significand) << shift)
        };
        let magnitude = sum.unsigned_abs();
        let shift = least - ORDINARY_MIN;
        let low = magnitude << shift;
        let high = if shift == 0 { 0 } else { magnitude >> (128 - shift) };
        let high = i64::try_from(high).expect("115 bits moved by at most 98");
        if sum < 0 {
            self.subtract_ordinary(low, high);
        } else {
            self.add_ordinary(low, high);
        }
        true
    }

    #[inline]
    fn apply_ordinary(&mut self, value: f64, exponent: u32, direction: i64) {
        let significand = u128::from(Parts::of(value).significand);
        let shift = exponent - ORDINARY_MIN;
        // 53 bits moved by at most 98: what leaves the low 128 bits is at most 23 bits.
        let low = significand << shift;
        let high = if shift > 75 { significand >> (128 - shift) } else { 0 };
        let high = i64::try_from(high).expect("at most 23 bits");
        if value.is_sign_negative() == (direction < 0) {
            self.add_ordinary(low, high);
        } else {
            self.subtract_ordinary(low, high);
        }
    }

    #[inline]
    fn subtract_ordinary(&mut self, low: u128, high: i64) {
        let (low, borrow) = self.low.overflowing_sub(low);
        self.low = low;
        self.high = self.high.wrapping_sub(high).wrapping_sub(i64::from(borrow));
    }

    #[inline]
    fn add_ordinary(&mut self, low: u128, high: i64) {
        let (low, carry) = self.low.overflowing_add(low);
        self.low = low;
        self.high = self.high.wrapping_add(high).wrapping_add(i64::from(carry));
    }

    #[cold]
    fn apply_rare(&mut self, value: f64, direction: i64) {
        let rare = self.rare();
        if !value.is_finite() {
            rare.specials.apply(value, direction);
            return;
        }
        let Parts { sign, exponent, significand } = Parts::of(value);
        let sign = if direction < 0 { sign.flipped() } else { sign };
        limbs::accumulate(&mut rare.wide, significand.into(), exponent - 1, sign);
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_with(|| {
            Box::new(Rare { wide: [0; WIDE_LIMBS], specials: Specials::default() })
        })
    }
}

impl Specials {
    fn apply(&mut self, value: f64, direction: i64) {
        let count = if value.is_nan() {
            &mut self.nan
        } else if value > 0.0 {
            &mut self.positive
        } else {
            &mut self.negative
        };
        *count += direction;
    }

    fn merge(&mut self, other: Self) {
        self.nan += other.nan;
        self.positive += other.positive;
        self.negative += other.negative;
    }

    /// The sum, if it is not finite.
    fn sum(self) -> Option<f64> {
        match (self.nan, self.positive, self.negative) {
            (0, 0, 0) => None,
            (0, _, 0) => Some(f64::INFINITY),
            (0, 0, _) => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        }
    }
}

/// The sum of values in units of the last place of values with the exponent `least`, the least of
/// all. `place` moves a significand by its distance, which is below 64 or that of a zero.
#[inline]
fn sum_places(block: &[f64], least: u32, place: impl Fn(i64, u32) -> i128) -> i128 {
    let mut sum = 0_i128;
    for value in block {
        let bits = value.to_bits();
        let exponent = biased_exponent(*value);
        // A zero has no leading bit, and any place.
        let leading = u64::from(exponent != 0) << 52;
        let significand = ((bits & ((1 << 52) - 1)) | leading).cast_signed();
        let sign = -i64::from(value.is_sign_negative());
        let signed = (significand ^ sign).wrapping_sub(sign);
        sum = sum.wrapping_add(place(signed, exponent.wrapping_sub(least) & 63));
    }
    sum
}

/// `2^exponent`, which must be a normal double.
#[inline]
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(u64::from((exponent + 1023).cast_unsigned()) << 52)
}

#[inline]
fn biased_exponent(value: f64) -> u32 {
    ((value.to_bits() >> 52) & 0x7ff) as u32
}

impl Parts {
    #[inline]
    fn of(value: f64) -> Self {
        let fraction = value.to_bits() & ((1 << 52) - 1);
        let exponent = biased_exponent(value);
        let sign = if value.is_sign_negative() { Sign::Negative } else { Sign::Positive };
        if exponent == 0 {
            Self { sign, exponent: 1, significand: fraction }
        } else {
            Self { sign, exponent, significand: fraction | (1 << 52) }
        }
    }
}

#[cfg(test)]
mod tests;
