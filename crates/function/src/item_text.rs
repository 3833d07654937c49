//! Printing of values inside a longer text: lists that aggregates return, lines of features.
//!
//! `aggregate` and `scalar::feature` use it. A value prints as CAST prints it, except that with
//! `compatibility = 'openmldb'` a FLOAT or DOUBLE has six decimals.

use std::fmt::Write;

use bumpalo::collections::String as ArenaString;
use lockstep_row::{Arena, Datum};

use crate::{
    Compatibility, Settings,
    cast::Printer,
    value_limit::{self, TEXT_BYTES_MAX},
};

/// The most bytes of a list of categories with `compatibility = 'openmldb'`.
const OPENMLDB_BYTES_MAX: usize = 4096;

const _: () = assert!(OPENMLDB_BYTES_MAX < TEXT_BYTES_MAX);

/// A printer of items; made once per bound aggregate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ItemPrinter {
    printer: Printer,
    compatibility: Compatibility,
}

/// A list of items under construction.
pub(crate) struct ItemList<'a> {
    text: ArenaString<'a>,
    is_empty: bool,
    is_full: bool,
    bytes_max: usize,
}

impl ItemPrinter {
    /// Makes a printer with a session's settings.
    pub(crate) fn new(settings: Settings) -> Self {
        Self { printer: Printer::new(&settings), compatibility: settings.compatibility }
    }

    /// Writes one value.
    pub(crate) fn write(&self, value: Datum<'_>, out: &mut dyn Write) {
        let result = match (self.compatibility, value) {
            (Compatibility::OpenMldb, Datum::Float(value)) => write_six_decimals(value.into(), out),
            (Compatibility::OpenMldb, Datum::Double(value)) => write_six_decimals(value, out),
            _ => self.printer.write(value, out),
        };
        result.expect("writing to memory does not fail");
    }

    /// Starts a list; with `compatibility = 'openmldb'` it ends with the last item that fits.
    pub(crate) fn limited_list(self, arena: &Arena) -> ItemList<'_> {
        let bytes_max = match self.compatibility {
            Compatibility::Standard => TEXT_BYTES_MAX,
            Compatibility::OpenMldb => OPENMLDB_BYTES_MAX,
        };
        ItemList { bytes_max, ..self.list(arena) }
    }

    /// Starts a list that is limited by the size of a text.
    pub(crate) fn list(self, arena: &Arena) -> ItemList<'_> {
        let text = ArenaString::new_in(arena);
        ItemList { text, is_empty: true, is_full: false, bytes_max: TEXT_BYTES_MAX }
    }
}

fn write_six_decimals(value: f64, out: &mut dyn Write) -> std::fmt::Result {
    if value.is_nan() { out.write_str("nan") } else { write!(out, "{value:.6}") }
}

impl<'a> ItemList<'a> {
    /// Appends what `write` writes, and a comma before it when it is not the first.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut dyn Write)) {
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
            if self.bytes_max == TEXT_BYTES_MAX {
                // The list is not truncated: the caller of the row form gets an error.
                let _exceeded: Option<()> = value_limit::text(self.text.len());
            }
            self.text.truncate(length);
            self.is_full = true;
        }
        debug_assert!(self.text.len() <= self.bytes_max, "a list has a limit");
    }

    /// Returns the list as a STRING.
    pub(crate) fn finish(self) -> Datum<'a> {
        Datum::String(self.text.into_bump_str())
    }
}
