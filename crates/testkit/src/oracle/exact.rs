//! The correctly rounded sum of doubles, computed in one long integer.
//!
//! A double is an integer times 2^-1074. The sum of all of them is one integer of some two
//! thousand bits, which is rounded once.

/// Bits of a limb.
const LIMB_BITS: usize = 32;

/// 2046 binades of 53 bits, and space for the carries of 2^30 values.
const LIMBS: usize = 68;

/// Exponent of the unit: the smallest positive double is 2^-1074.
const UNIT_EXPONENT: usize = 1_074;

/// Rounds the exact sum to a double, ties to even. NaN when there is one, or both infinities. The
/// sum of no values, and of zeros of any sign, is 0.0.
pub fn sum_to_f64(values: &[f64]) -> f64 {
    special(values).unwrap_or_else(|| Exact::of(values).round(53, 0))
}

/// Rounds the exact sum to a float, once.
#[expect(clippy::cast_possible_truncation, reason = "already rounded to a float, or beyond all")]
pub fn sum_to_f32(values: &[f64]) -> f32 {
    let smallest = UNIT_EXPONENT - 149;
    special(values).unwrap_or_else(|| Exact::of(values).round(24, smallest)) as f32
}

/// Returns the sum if NaN or infinity determines it.
fn special(values: &[f64]) -> Option<f64> {
    let has = |wanted: f64| values.iter().any(|value| value.total_cmp(&wanted).is_eq());
    if values.iter().any(|value| value.is_nan()) || (has(f64::INFINITY) && has(f64::NEG_INFINITY)) {
        return Some(f64::NAN);
    }
    [f64::INFINITY, f64::NEG_INFINITY].into_iter().find(|infinity| has(*infinity))
}

/// A long integer; limb i has the weight 2^(32 i - 1074). While values are added, limbs may have
/// any sign.
struct Exact {
    limbs: [i64; LIMBS],
}

impl Exact {
    fn of(values: &[f64]) -> Self {
        let mut exact = Self { limbs: [0; LIMBS] };
        for value in values {
            exact.add(*value);
        }
        exact
    }

    fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let exponent = usize::try_from((bits >> 52) & 0x7ff).expect("eleven bits");
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, shift) =
            if exponent == 0 { (fraction, 0) } else { (fraction | (1 << 52), exponent - 1) };
        let mut rest = u128::from(mantissa) << (shift % LIMB_BITS);
        let mut limb = shift / LIMB_BITS;
        while rest != 0 {
            let part = i64::try_from(rest & 0xffff_ffff).expect("one limb");
            self.limbs[limb] += if value.is_sign_negative() { -part } else { part };
            rest >>= LIMB_BITS;
            limb += 1;
        }
    }

    /// Rounds to `precision` bits, the last of which weighs at least 2^(smallest - 1074).
    fn round(mut self, precision: usize, smallest: usize) -> f64 {
        let is_negative = self.carry();
        if is_negative {
            for limb in &mut self.limbs {
                *limb = -*limb;
            }
            let is_still_negative = self.carry();
            assert!(!is_still_negative, "the negative of a negative number is positive");
        }
        let Some(highest) = (0..LIMBS * LIMB_BITS).rev().find(|bit| self.bit(*bit)) else {
            return 0.0;
        };
        let last = (highest + 1).saturating_sub(precision).max(smallest);
        let mut mantissa =
            (last..=highest).rev().fold(0_u64, |sum, bit| sum * 2 + u64::from(self.bit(bit)));
        let half = last > 0 && self.bit(last - 1);
        let beyond = (0..last.saturating_sub(1)).any(|bit| self.bit(bit));
        if half && (beyond || mantissa % 2 == 1) {
            mantissa += 1;
        }
        let magnitude = scale(mantissa, last);
        if is_negative { -magnitude } else { magnitude }
    }

    /// Carries, so that every limb but the last is in 0..2^32; returns whether the sum is negative.
    fn carry(&mut self) -> bool {
        for limb in 0..LIMBS - 1 {
            let carry = self.limbs[limb].div_euclid(1 << LIMB_BITS);
            self.limbs[limb] -= carry << LIMB_BITS;
            self.limbs[limb + 1] += carry;
            debug_assert!((0..1 << LIMB_BITS).contains(&self.limbs[limb]), "limb {limb}");
        }
        self.limbs[LIMBS - 1] < 0
    }

    fn bit(&self, bit: usize) -> bool {
        debug_assert!(bit < LIMBS * LIMB_BITS, "bit {bit}");
        (self.limbs[bit / LIMB_BITS] >> (bit % LIMB_BITS)) & 1 == 1
    }
}

/// Computes `mantissa` times 2^(last - 1074), exactly at every step, since the result is a double.
#[expect(clippy::cast_precision_loss, reason = "a mantissa has at most 53 bits")]
fn scale(mantissa: u64, last: usize) -> f64 {
    let mut value = mantissa as f64;
    for _ in last..UNIT_EXPONENT {
        value *= 0.5;
    }
    for _ in UNIT_EXPONENT..last {
        value *= 2.0;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::{sum_to_f32, sum_to_f64};

    fn check(values: &[f64], expected: f64) {
        assert_eq!(sum_to_f64(values).to_bits(), expected.to_bits(), "{values:?}");
        let mut reversed = values.to_vec();
        reversed.reverse();
        assert_eq!(sum_to_f64(&reversed).to_bits(), expected.to_bits(), "{values:?} reversed");
    }

    #[test]
    fn a_value_is_its_own_sum() {
        for value in
            [1.5, -0.1, f64::MAX, f64::MIN_POSITIVE, 5e-324, -1e-310, 4_503_599_627_370_497.0]
        {
            check(&[value], value);
            check(&[value, 1e300, -1e300], value);
        }
    }

    #[test]
    fn small_values_survive_large_ones() {
        check(&[1e100, 1.0, -1e100], 1.0);
        check(&[0.1; 10], 1.0);
        check(&[1e16, 1.0, 1e-16], 10_000_000_000_000_002.0);
    }

    #[test]
    fn ties_go_to_the_even_neighbour() {
        let two_53 = 9_007_199_254_740_992.0;
        check(&[two_53, 1.0], two_53);
        check(&[two_53, 1.0, 5e-324], two_53 + 2.0);
        check(&[two_53 + 2.0, 1.0], two_53 + 4.0);
        check(&[-two_53, -1.0], -two_53);
    }

    #[test]
    fn zeros_sum_to_zero() {
        check(&[], 0.0);
        check(&[-0.0, -0.0], 0.0);
        check(&[1.0, -1.0], 0.0);
    }

    #[test]
    fn infinities_and_nan_decide() {
        check(&[f64::INFINITY, -1.0], f64::INFINITY);
        check(&[f64::MAX, f64::MAX], f64::INFINITY);
        check(&[f64::MAX, f64::MAX, -f64::MAX], f64::MAX);
        assert!(sum_to_f64(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        assert!(sum_to_f64(&[f64::NAN, 1.0]).is_nan());
    }

    #[test]
    fn a_float_is_rounded_once() {
        // Rounding to a double first would give 1 + 2^-24, which then goes to the even 1.
        let values = [1.0, 1.0 / 16_777_216.0, 1.0 / 16_777_216.0 / 16_777_216.0 / 4_294_967_296.0];
        assert_eq!(sum_to_f32(&values).to_bits(), (1.0_f32 + f32::EPSILON).to_bits());
        assert!(sum_to_f32(&[f64::from(f32::MAX); 2]).is_infinite());
        assert_eq!(sum_to_f32(&[1e-45]).to_bits(), 1);
    }
}
