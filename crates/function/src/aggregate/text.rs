//! The text that aggregates with a list for a result return.
//!
//! Items are joined by commas. A FLOAT or DOUBLE has six decimals, unlike in CAST; every other
//! value prints as CAST prints it.

use std::fmt::Write;

use bumpalo::collections::String as ArenaString;
use lockstep_row::{Arena, Datum};

use crate::{Compatibility, Settings, cast::Printer};

/// The most bytes of a list of categories under the reference's rules.
const REFERENCE_BYTES_MAX: usize = 4096;

/// What prints items; made once per bound aggregate.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemPrinter {
    printer: Printer,
    bytes_max: usize,
}

/// A list in the making.
pub(super) struct ItemList<'a> {
    text: ArenaString<'a>,
    is_empty: bool,
    is_full: bool,
    bytes_max: usize,
}

impl ItemPrinter {
    pub(super) fn new(settings: Settings) -> Self {
        let bytes_max = match settings.compatibility {
            Compatibility::Standard => usize::MAX,
            Compatibility::OpenMldb => REFERENCE_BYTES_MAX,
        };
        Self { printer: Printer::new(&settings), bytes_max }
    }

    pub(super) fn write(&self, value: Datum<'_>, out: &mut dyn Write) {
        let result = match value {
            Datum::Float(value) => write_six_decimals(value.into(), out),
            Datum::Double(value) => write_six_decimals(value, out),
            other => self.printer.write(other, out),
        };
        result.expect("writing to memory does not fail");
    }

    /// A list that ends, under the reference's rules, with the last item that fits.
    pub(super) fn limited_list(self, arena: &Arena) -> ItemList<'_> {
        let bytes_max = self.bytes_max;
        ItemList { text: ArenaString::new_in(arena), is_empty: true, is_full: false, bytes_max }
    }

    pub(super) fn list(self, arena: &Arena) -> ItemList<'_> {
        Self { bytes_max: usize::MAX, ..self }.limited_list(arena)
    }
}

fn write_six_decimals(value: f64, out: &mut dyn Write) -> std::fmt::Result {
    if value.is_nan() { out.write_str("nan") } else { write!(out, "{value:.6}") }
}

impl<'a> ItemList<'a> {
    /// Appends what `write` writes, and a comma before it when it is not the first.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut dyn Write)) {
        if self.is_full {
            return;
        }
        let length = self.text.len();
        if !self.is_empty {
            self.text.push(',');
        }
        write(&mut self.text);
        self.is_empty = false;
        if self.text.len() > self.bytes_max {
            self.text.truncate(length);
            self.is_full = true;
        }
    }

    pub(super) fn finish(self) -> Datum<'a> {
        Datum::String(self.text.into_bump_str())
    }
}
