//! Which rows of a table are replayed when only a sample is verified.

/// Chooses the rows that are replayed.
pub(crate) struct RowSample {
    /// The size of the sample.
    size: u64,
    /// The number of rows of the table.
    pub(crate) rows: u64,
    /// The number of rows drawn so far.
    drawn: u64,
    /// The next row of the sample.
    next: u64,
}

impl RowSample {
    /// Draws `size` of `rows` rows; all of them for `None`.
    pub(crate) fn new(size: Option<u64>, rows: u64) -> Self {
        let size = size.unwrap_or(rows).min(rows);
        debug_assert!(size <= rows, "a sample is a part of the rows");
        let mut sample = Self { size, rows, drawn: 0, next: 0 };
        sample.next = sample.draw();
        sample
    }

    /// Whether a row is in the sample. Called once for each row, in order, from 0.
    pub(crate) fn contains(&mut self, row: u64) -> bool {
        debug_assert!(row < self.rows, "rows are numbered from 0");
        if self.drawn == self.size || row != self.next {
            return false;
        }
        self.drawn += 1;
        self.next = self.draw();
        true
    }

    /// Draws one row of the next part of the table, of as many equal parts as the sample has rows.
    /// The row within its part is pseudo-random, so that the sample does not follow a pattern of
    /// the data.
    fn draw(&self) -> u64 {
        debug_assert!(self.drawn <= self.size, "a sample has no more rows than its size");
        if self.drawn == self.size {
            return u64::MAX;
        }
        let bound = |part: u64| {
            let bound = u128::from(self.rows) * u128::from(part) / u128::from(self.size);
            u64::try_from(bound).expect("a part of a 64-bit count")
        };
        let (start, end) = (bound(self.drawn), bound(self.drawn + 1));
        start + scattered(self.drawn) % (end - start)
    }
}

/// Returns a pseudo-random number (the finalizer of `SplitMix64`).
fn scattered(number: u64) -> u64 {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
