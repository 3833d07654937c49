//! Claims about exact sums, against Shewchuk's growing expansions (the algorithm of `math.fsum`).

#![expect(clippy::float_cmp, reason = "exact results are what is claimed")]

use proptest::{
    prelude::{Just, Strategy, any, prop_oneof},
    prop_assert_eq, proptest, sample,
};

use super::{Divisor, ExactMoments, ExactSum};
use crate::aggregate::StateReader;

/// The correctly rounded sum of finite values whose partial sums do not overflow.
fn fsum(values: &[f64]) -> f64 {
    let mut partials: Vec<f64> = Vec::new();
    for value in values {
        let mut carried = *value;
        let mut kept = Vec::new();
        for partial in partials {
            let (large, small) =
                if carried.abs() < partial.abs() { (partial, carried) } else { (carried, partial) };
            let sum = large + small;
            let error = small - (sum - large);
            if error != 0.0 {
                kept.push(error);
            }
            carried = sum;
        }
        kept.push(carried);
        partials = kept;
    }
    let Some(mut sum) = partials.pop() else { return 0.0 };
    while let Some(next) = partials.pop() {
        let before = sum;
        sum = before + next;
        let error = next - (sum - before);
        if error != 0.0 {
            // Half a unit off: the sign of what is left decides the tie.
            let doubled = error * 2.0;
            let rest = partials.last().copied().unwrap_or(0.0);
            if (error < 0.0 && rest < 0.0 || error > 0.0 && rest > 0.0)
                && (sum + doubled) - sum == doubled
            {
                sum += doubled;
            }
            break;
        }
    }
    sum + 0.0
}

fn sum_of(values: &[f64]) -> ExactSum {
    let mut sum = ExactSum::new();
    values.iter().for_each(|value| sum.add(*value));
    let mut at_once = ExactSum::new();
    at_once.add_all(values);
    assert_eq!(at_once.to_f64().to_bits(), sum.to_f64().to_bits(), "{values:?}");
    sum
}

fn check(values: &[f64], expected: f64) {
    assert_eq!(sum_of(values).to_f64().to_bits(), expected.to_bits(), "{values:?}");
}

fn finite() -> impl Strategy<Value = f64> {
    prop_oneof![
        (-1000_i32..1000).prop_map(f64::from),
        (-1e9..1e9_f64),
        any::<u64>().prop_map(|bits| {
            let value = f64::from_bits(bits);
            if value.is_finite() { value / 16_384.0 } else { 1.0 }
        }),
        (any::<i8>(), -1074_i32..900).prop_map(|(digit, exponent)| {
            f64::from(digit)
                * libm::scalbn(1.0, exponent / 2)
                * libm::scalbn(1.0, exponent - exponent / 2)
        }),
        sample::select(vec![
            0.0,
            -0.0,
            f64::MIN_POSITIVE,
            5e-324,
            -5e-324,
            1e300,
            -1e300,
            libm::scalbn(1.0, -44),
            libm::scalbn(1.0, 55),
        ]),
    ]
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        20 => finite(),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(f64::NEG_INFINITY),
    ]
}

proptest! {
    #[test]
    fn it_is_the_sum_that_fsum_gives(values in proptest::collection::vec(finite(), 0..60)) {
        let exact = sum_of(&values).to_f64();
        prop_assert_eq!(exact.to_bits(), fsum(&values).to_bits(), "{} {}", exact, fsum(&values));
    }

    #[test]
    fn a_history_leaves_no_trace(
        kept in proptest::collection::vec(any_value(), 0..30),
        passing in proptest::collection::vec(any_value(), 0..30),
        cut in 0_usize..30,
    ) {
        let expected = sum_of(&kept);
        let cut = cut.min(kept.len());
        let mut history = sum_of(&passing);
        kept[cut..].iter().for_each(|value| history.add(*value));
        passing.iter().for_each(|value| history.remove(*value));
        let mut other = ExactSum::new();
        kept[..cut].iter().rev().for_each(|value| other.add(*value));
        history.merge(&other);
        prop_assert_eq!(history.to_f64().to_bits(), expected.to_f64().to_bits());
        prop_assert_eq!(history.to_f32().to_bits(), expected.to_f32().to_bits());
    }

    #[test]
    fn one_value_is_its_own_sum(value in finite()) {
        prop_assert_eq!(sum_of(&[value]).to_f64().to_bits(), (value + 0.0).to_bits());
        #[expect(clippy::cast_possible_truncation, reason = "rounding is what is compared")]
        let float = (value + 0.0) as f32;
        // A negative value too small for a FLOAT keeps its sign, as in the cast.
        prop_assert_eq!(sum_of(&[value]).to_f32().to_bits(), float.to_bits());
    }

    /// Numbers of up to 190 bits, near the middle of two floats and not, beside the rounding of
    /// long numbers.
    #[test]
    fn a_short_number_rounds_as_a_long_one_does(
        leading in any::<u64>(),
        // Of 64 bits, 54 and 25 are kept where the last one is half a unit of a float.
        dropped_bits in prop_oneof![Just(10_u32), Just(39), 0_u32..64],
        place in 0_u32..127,
        tail in prop_oneof![Just(0_i128), Just(1), Just(-1), any::<i64>().prop_map(i128::from)],
        tail_place in 0_u32..64,
        is_negative in any::<bool>(),
    ) {
        let mut sum = ExactSum::new();
        let leading = u128::from(leading >> dropped_bits);
        let above = if place > 0 { leading >> (128 - place) } else { 0 };
        sum.add_ordinary(leading << place, i64::try_from(above).unwrap());
        let tail = tail << tail_place;
        sum.add_ordinary(tail.cast_unsigned(), if tail < 0 { -1 } else { 0 });
        if is_negative {
            let magnitude = sum;
            sum = ExactSum::new();
            sum.subtract_ordinary(magnitude.low, magnitude.high);
        }
        prop_assert_eq!(sum.to_f64().to_bits(), sum.to_f64_wide().to_bits(), "{:?}", sum);
        prop_assert_eq!(sum.to_f32().to_bits(), sum.to_f32_wide().to_bits(), "{:?}", sum);
    }

    #[test]
    fn variance_of_integers_is_the_exact_one(
        values in proptest::collection::vec(-100_000_i32..100_000, 2..40),
        exponent in -300_i32..300,
        gone in proptest::collection::vec(any_value(), 0..10),
    ) {
        let count = i128::try_from(values.len()).unwrap();
        let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
        let squares: i128 = values.iter().map(|value| i128::from(*value).pow(2)).sum();
        let numerator = (count * squares - sum * sum) as f64;
        let unit = libm::scalbn(1.0, exponent);
        let mut moments = ExactMoments::default();
        gone.iter().for_each(|value| moments.add(*value));
        values.iter().for_each(|value| moments.add(f64::from(*value) * unit));
        gone.iter().for_each(|value| moments.remove(*value));
        let population = numerator / (count * count) as f64;
        let sample = numerator / (count * (count - 1)) as f64;
        prop_assert_eq!(moments.variance(Divisor::Population), Some(population * unit * unit));
        prop_assert_eq!(moments.variance(Divisor::Sample), Some(sample * unit * unit));
        prop_assert_eq!(moments.deviation(Divisor::Sample), Some(sample.sqrt() * unit));
    }
}

#[test]
fn ties_go_to_even_unless_something_decides() {
    let half = libm::scalbn(1.0, -53);
    check(&[1.0, half], 1.0);
    check(&[1.0, half, 5e-324], 1.0 + f64::EPSILON);
    check(&[1.0 + f64::EPSILON, half], 1.0 + 2.0 * f64::EPSILON);
    check(&[1.0 + f64::EPSILON, half, -5e-324], 1.0 + f64::EPSILON);
    check(&[0.1; 10], 1.0);
}

#[test]
fn the_ends_of_the_range_round_as_they_should() {
    check(&[f64::MAX, f64::MAX], f64::INFINITY);
    check(&[f64::MAX, f64::MAX, f64::MIN, f64::MIN], 0.0);
    check(&[f64::MAX, libm::scalbn(1.0, 969)], f64::MAX);
    check(&[f64::MAX, libm::scalbn(1.0, 970)], f64::INFINITY);
    check(&[-f64::MAX, -f64::MAX], f64::NEG_INFINITY);
    check(&[5e-324, 5e-324], 1e-323);
    check(&[f64::MIN_POSITIVE, -5e-324], f64::MIN_POSITIVE - 5e-324);
    assert_eq!(sum_of(&[f64::from(f32::MAX), 1e38]).to_f32(), f32::INFINITY);
    assert_eq!(sum_of(&[1e-45, 1e-45]).to_f32(), 2e-45_f32);
}

#[test]
fn zero_has_one_sign() {
    check(&[], 0.0);
    check(&[-0.0], 0.0);
    check(&[1.5, -1.5], 0.0);
}

#[test]
fn infinities_and_nan_can_be_taken_away_again() {
    check(&[1.0, f64::INFINITY], f64::INFINITY);
    check(&[f64::INFINITY, f64::NEG_INFINITY], f64::NAN);
    check(&[f64::NEG_INFINITY, 3.0], f64::NEG_INFINITY);
    let mut sum = sum_of(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 2.0]);
    sum.remove(f64::NAN);
    assert!(sum.to_f64().is_nan());
    sum.remove(f64::NEG_INFINITY);
    assert_eq!(sum.to_f64().to_bits(), f64::INFINITY.to_bits());
    sum.remove(f64::INFINITY);
    assert_eq!(sum.to_f64().to_bits(), 2_f64.to_bits());
}

#[test]
fn a_variance_does_not_cancel() {
    let mut moments = ExactMoments::default();
    [1e15, 1e15 + 1.0, 1e15 + 2.0].iter().for_each(|value| moments.add(*value));
    assert_eq!(moments.variance(Divisor::Sample), Some(1.0));
    let mut huge = ExactMoments::default();
    [1e200, -1e200].iter().for_each(|value| huge.add(*value));
    assert_eq!(huge.variance(Divisor::Population), Some(f64::INFINITY));
    assert_eq!(huge.deviation(Divisor::Population), Some(1e200));
    assert_eq!(ExactMoments::default().variance(Divisor::Population), None);
}

/// Encodes and decodes a sum and moments, and compares every bit of what is computed from them.
fn check_encoding(values: &[f64]) {
    let sum = sum_of(values);
    let mut moments = ExactMoments::default();
    values.iter().for_each(|value| moments.add(*value));
    let mut bytes = Vec::new();
    sum.encode(&mut bytes);
    moments.encode(&mut bytes);
    let mut reader = StateReader::new(&bytes);
    let mut read = ExactSum::decode(&mut reader).unwrap();
    let read_moments = ExactMoments::decode(&mut reader).unwrap();
    assert!(reader.is_at_end());
    assert_eq!(read.to_f64().to_bits(), sum.to_f64().to_bits(), "{values:?}");
    let bits = |moments: &ExactMoments| moments.variance(Divisor::Population).map(f64::to_bits);
    assert_eq!(bits(&read_moments), bits(&moments), "{values:?}");
    // What was read goes on: all limbs are there, not only those that were rounded.
    values.iter().for_each(|value| read.remove(*value));
    assert_eq!(read.to_f64().to_bits(), 0, "{values:?}");
}

#[test]
fn an_encoded_sum_is_the_sum() {
    for power in -1074..1024 {
        let value = libm::scalbn(1.0, power);
        let almost = value - libm::scalbn(1.0, power - 60);
        for values in [vec![value], vec![-value], vec![value, -almost / 3.0], vec![-value, almost]]
        {
            check_encoding(&values);
        }
    }
    check_encoding(&[]);
    check_encoding(&[f64::INFINITY, 1.0]);
}
