//! Long two's-complement integers as slices of 64-bit limbs, least significant first, and their
//! rounding to floats.
//!
//! Only the parent uses it. Lengths are chosen there so that nothing overflows.

use std::cmp::Ordering;

use crate::aggregate::StateReader;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    Positive,
    Negative,
}

impl Sign {
    pub(super) fn flipped(self) -> Self {
        match self {
            Self::Positive => Self::Negative,
            Self::Negative => Self::Positive,
        }
    }
}

/// A binary interchange format of IEEE 754.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    /// Bits of the significand, the leading one included.
    precision: u32,
    /// The exponent of the last place of a subnormal.
    last_place_min: i32,
    /// The exponent field of an infinity.
    infinity: u64,
    sign_bit: u32,
}

impl Format {
    pub(super) const DOUBLE: Self =
        Self { precision: 53, last_place_min: -1074, infinity: 0x7ff, sign_bit: 63 };
    pub(super) const FLOAT: Self =
        Self { precision: 24, last_place_min: -149, infinity: 0xff, sign_bit: 31 };
}

/// Adds another number of the same length.
pub(super) fn add(target: &mut [u64], other: &[u64]) {
    let mut carry = false;
    for (target, other) in target.iter_mut().zip(other) {
        (*target, carry) = target.carrying_add_(*other, carry);
    }
}

/// Returns the limbs without those at the top that only repeat the sign of the ones below.
pub(super) fn significant(limbs: &[u64]) -> &[u64] {
    let mut length = limbs.len();
    while length > 0 {
        let below = length.checked_sub(2).map_or(0, |below| limbs[below]);
        if limbs[length - 1] != sign_limb(below) {
            break;
        }
        length -= 1;
    }
    &limbs[..length]
}

/// Reads a number of limbs into a longer number, with the sign of the highest one above them.
pub(super) fn decode(reader: &mut StateReader<'_>, count: usize, target: &mut [u64]) -> Option<()> {
    let (read, above) = target.split_at_mut_checked(count)?;
    for limb in read.iter_mut() {
        *limb = u64::from_le_bytes(reader.array()?);
    }
    above.fill(sign_limb(read.last().copied().unwrap_or(0)));
    Some(())
}

/// Returns a limb of copies of the highest bit.
fn sign_limb(limb: u64) -> u64 {
    if limb >> 63 == 1 { u64::MAX } else { 0 }
}

/// Subtracts another number of the same length.
pub(super) fn subtract(target: &mut [u64], other: &[u64]) {
    let mut borrow = false;
    for (target, other) in target.iter_mut().zip(other) {
        (*target, borrow) = target.borrowing_sub_(*other, borrow);
    }
}

/// Adds `± magnitude * 2^shift`.
pub(super) fn accumulate(target: &mut [u64], magnitude: u128, shift: u32, sign: Sign) {
    let first = (shift / 64) as usize;
    let parts = spread(magnitude, shift % 64);
    let mut carry = false;
    for (index, limb) in target[first..].iter_mut().enumerate() {
        let part = parts.get(index).copied().unwrap_or(0);
        if index >= parts.len() && !carry {
            break;
        }
        (*limb, carry) = match sign {
            Sign::Positive => limb.carrying_add_(part, carry),
            Sign::Negative => limb.borrowing_sub_(part, carry),
        };
    }
}

#[expect(clippy::cast_possible_truncation, reason = "cuts the number into its limbs")]
fn spread(magnitude: u128, bits: u32) -> [u64; 3] {
    let top = if bits == 0 { 0 } else { magnitude >> (128 - bits) };
    let low = magnitude << bits;
    [low as u64, (low >> 64) as u64, top as u64]
}

/// Adds a signed number, shifted left, to a longer one.
pub(super) fn add_shifted<const N: usize>(target: &mut [u64], mut source: [u64; N], shift: i32) {
    let shift = u32::try_from(shift).expect("the longer number has the lower last place");
    let sign = if negate_if_negative(&mut source) { Sign::Negative } else { Sign::Positive };
    for (limb, place) in source.into_iter().zip((shift..).step_by(64)) {
        accumulate(target, limb.into(), place, sign);
    }
}

/// Makes a number its own magnitude and says whether it was negative.
pub(super) fn negate_if_negative(limbs: &mut [u64]) -> bool {
    let is_negative = limbs.last().is_some_and(|top| top >> 63 == 1);
    if is_negative {
        let mut carry = true;
        for limb in limbs {
            (*limb, carry) = (!*limb).overflowing_add(u64::from(carry));
        }
    }
    is_negative
}

/// Multiplies a magnitude, which must have a limb to spare, by a factor.
pub(super) fn multiply(limbs: &mut [u64], factor: u64) {
    let mut carry = 0;
    for limb in limbs {
        let product = u128::from(*limb) * u128::from(factor) + u128::from(carry);
        (*limb, carry) = split(product);
    }
}

/// The square of a magnitude, into a number at least twice as long that is zero.
pub(super) fn square(magnitude: &[u64], target: &mut [u64]) {
    for (row, left) in magnitude.iter().enumerate() {
        let mut carry = 0;
        for (column, right) in magnitude.iter().enumerate() {
            let limb = &mut target[row + column];
            let product = u128::from(*left) * u128::from(*right);
            (*limb, carry) = split(product + u128::from(*limb) + u128::from(carry));
        }
        target[row + magnitude.len()] = carry;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "cuts the number into its limbs")]
fn split(wide: u128) -> (u64, u64) {
    (wide as u64, (wide >> 64) as u64)
}

/// Rounds a signed number, whose last place is `2^last_place`, to the nearest float, ties to
/// even; gives its bits. Destroys the number.
pub(super) fn round_signed(limbs: &mut [u64], last_place: i32, format: Format) -> u64 {
    let is_negative = negate_if_negative(limbs);
    round(limbs, last_place, format) | (u64::from(is_negative) << format.sign_bit)
}

fn round(magnitude: &[u64], last_place: i32, format: Format) -> u64 {
    let Some(top) = top_bit(magnitude) else { return 0 };
    let precision = i32::try_from(format.precision).expect("at most 53");
    let unit = (top + last_place - (precision - 1)).max(format.last_place_min);
    let significand = shifted_rounded(magnitude, unit - last_place);
    let fraction_bits = format.precision - 1;
    // A significand that rounding made one bit longer carries into the exponent field, where it
    // belongs: its fraction is zero then.
    let field = u64::try_from(unit - format.last_place_min).expect("unit is at least that");
    let bits = (field << fraction_bits) + significand;
    bits.min(format.infinity << fraction_bits)
}

/// A magnitude as `significand * 2^exponent` with 53 significant bits, rounded to nearest, ties to
/// even. Zero is `(0.0, 0)`.
pub(super) fn round_scaled(magnitude: &[u64], last_place: i32) -> (f64, i32) {
    let Some(top) = top_bit(magnitude) else { return (0.0, 0) };
    let shift = top - 52;
    let significand = shifted_rounded(magnitude, shift);
    #[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
    let significand = significand as f64;
    (significand, last_place + shift)
}

/// The position of the highest bit that is set.
fn top_bit(magnitude: &[u64]) -> Option<i32> {
    let (index, limb) = magnitude.iter().enumerate().rfind(|(_, limb)| **limb != 0)?;
    let bits = index * 64 + 63;
    i32::try_from(bits).ok()?.checked_sub_unsigned(limb.leading_zeros())
}

/// `magnitude / 2^shift`, which must be below 2^54, to the nearest integer, ties to even.
fn shifted_rounded(magnitude: &[u64], shift: i32) -> u64 {
    let Ok(dropped) = u32::try_from(shift) else {
        return magnitude[0] << shift.unsigned_abs();
    };
    let (index, bits) = ((dropped / 64) as usize, dropped % 64);
    let limb = |index: usize| magnitude.get(index).copied().unwrap_or(0);
    let kept = match bits {
        0 => limb(index),
        _ => (limb(index) >> bits) | (limb(index + 1) << (64 - bits)),
    };
    let rest = limb(index) & ((1 << bits) - 1);
    let is_lower_zero = magnitude[..index.min(magnitude.len())].iter().all(|limb| *limb == 0);
    let below_half = match (bits, index) {
        (0, 0) => Ordering::Less,
        (0, _) => (magnitude[index - 1])
            .cmp(&(1 << 63))
            .then_with(|| sticky(magnitude[..index - 1].iter().all(|limb| *limb == 0))),
        _ => rest.cmp(&(1 << (bits - 1))).then_with(|| sticky(is_lower_zero)),
    };
    let round_up = match below_half {
        Ordering::Less => 0,
        Ordering::Equal => kept & 1,
        Ordering::Greater => 1,
    };
    kept + round_up
}

fn sticky(is_zero: bool) -> Ordering {
    if is_zero { Ordering::Equal } else { Ordering::Greater }
}

/// Addition and subtraction of limbs with the carry between them.
trait Limb: Sized {
    fn carrying_add_(self, other: Self, carry: bool) -> (Self, bool);
    fn borrowing_sub_(self, other: Self, borrow: bool) -> (Self, bool);
}

impl Limb for u64 {
    fn carrying_add_(self, other: Self, carry: bool) -> (Self, bool) {
        let (sum, first) = self.overflowing_add(other);
        let (sum, second) = sum.overflowing_add(Self::from(carry));
        (sum, first | second)
    }

    fn borrowing_sub_(self, other: Self, borrow: bool) -> (Self, bool) {
        let (difference, first) = self.overflowing_sub(other);
        let (difference, second) = difference.overflowing_sub(Self::from(borrow));
        (difference, first | second)
    }
}
