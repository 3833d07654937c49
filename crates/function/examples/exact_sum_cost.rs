//! What an exact sum costs: nanoseconds per value beside a naive float sum and beside reading the
//! values with nothing else.
//!
//! `cargo run -p lockstep-function --example exact_sum_cost`
#![expect(clippy::print_stdout, reason = "the program's output")]
#![expect(clippy::disallowed_methods, reason = "a measurement needs the machine's clock")]
#![expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]

use std::{hint::black_box, time::Instant};

use lockstep_function::exact_sum::{ExactMoments, ExactSum};

const VALUES: usize = 1 << 16;
const ROUNDS: usize = 200;

fn measure(name: &str, values: &[f64], mut pass: impl FnMut(&[f64]) -> f64) {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(pass(black_box(values)));
    }
    let nanoseconds = start.elapsed().as_nanos() as f64 / (ROUNDS * VALUES) as f64;
    println!("{name:<34} {nanoseconds:>7.2} ns/value");
}

fn main() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let prices: Vec<f64> = (0..VALUES).map(|_| (random() * 1e6).round() / 100.0).collect();
    let signed: Vec<f64> = (0..VALUES).map(|_| (random() - 0.5) * 1e9).collect();
    let tiny: Vec<f64> = (0..VALUES).map(|_| random() * 1e-30).collect();

    let bits = |values: &[f64]| values.iter().fold(0, |all, value| all ^ value.to_bits()) as f64;
    measure("read only", &prices, bits);
    measure("naive sum", &prices, |values| values.iter().sum());
    for (name, values) in [("prices", &prices), ("mixed signs", &signed), ("1e-30 (wide)", &tiny)] {
        measure(&format!("exact sum, {name}"), values, |values| {
            let mut sum = ExactSum::new();
            values.iter().for_each(|value| sum.add(*value));
            sum.to_f64()
        });
    }
    measure("exact sum, sliding over 100 rows", &prices, |values| {
        let mut sum = ExactSum::new();
        let mut last = 0.0;
        for (row, value) in values.iter().enumerate() {
            sum.add(*value);
            if row >= 100 {
                sum.remove(values[row - 100]);
            }
            last = sum.to_f64();
        }
        last
    });
    measure("exact moments, prices", &prices, |values| {
        let mut moments = ExactMoments::default();
        values.iter().for_each(|value| moments.add(*value));
        moments.count() as f64
    });
}
