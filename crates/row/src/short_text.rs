//! Short texts as values of fixed size: the cells of records, which are compared and hashed as two
//! words.

use std::{cmp::Ordering, fmt};

/// Bytes of a [`ShortText`].
pub(crate) const CELL_SIZE: usize = 16;
/// The longest short text, in bytes.
pub(crate) const SHORT_SIZE_MAX: usize = CELL_SIZE - 1;

/// A text of at most 15 bytes: its bytes, zeros, and in the last byte how many there are. Two are
/// equal when their bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct ShortText([u8; CELL_SIZE]);

impl ShortText {
    /// Makes a short text, unless the text is too long.
    #[inline]
    pub fn new(text: &str) -> Option<Self> {
        Self::of_bytes(text.as_bytes())
    }

    /// Makes a short text of the bytes of a text.
    #[inline]
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let size = u8::try_from(bytes.len()).ok()?;
        if bytes.len() > SHORT_SIZE_MAX {
            return None;
        }
        let mut cell = [0; CELL_SIZE];
        match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
            // Both ends, which overlap: no call to copy so little.
            (Some(head), Some(tail)) => {
                cell[..8].copy_from_slice(head);
                let at = bytes.len() - 8;
                cell[at..at + 8].copy_from_slice(tail);
            }
            _ => {
                for (to, from) in cell.iter_mut().zip(bytes) {
                    *to = *from;
                }
            }
        }
        cell[SHORT_SIZE_MAX] = size;
        Some(Self(cell))
    }

    /// Makes the short text whose cell is this number ([`Self::word`]).
    #[inline]
    pub fn of_word(word: u128) -> Self {
        let cell = word.to_le_bytes();
        debug_assert!(usize::from(cell[SHORT_SIZE_MAX]) <= SHORT_SIZE_MAX, "the text fits");
        Self(cell)
    }

    /// Returns cells, which were made of short texts, as short texts.
    #[inline]
    pub(crate) fn from_cells(cells: &[[u8; CELL_SIZE]]) -> &[Self] {
        // SAFETY: a short text is nothing but its cell.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
    }

    /// Returns the cell.
    pub(crate) fn as_cell(&self) -> &[u8; CELL_SIZE] {
        &self.0
    }

    /// Returns the text. Linear in its size.
    #[inline]
    pub fn as_str(&self) -> &str {
        debug_assert!(usize::from(self.0[SHORT_SIZE_MAX]) <= SHORT_SIZE_MAX, "the text fits");
        let bytes = &self.0[..usize::from(self.0[SHORT_SIZE_MAX])];
        std::str::from_utf8(bytes).expect("they were copied from a text")
    }

    /// Returns the cell as a number; different texts have different numbers.
    #[inline]
    pub fn word(self) -> u128 {
        u128::from_le_bytes(self.0)
    }
}

impl Ord for ShortText {
    /// Compares the texts, byte by byte: a text is before those that it is the beginning of, whose size
    /// is greater.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        u128::from_be_bytes(self.0).cmp(&u128::from_be_bytes(other.0))
    }
}

impl PartialOrd for ShortText {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::ShortText;

    #[test]
    fn a_short_text_gives_back_the_text() {
        for size in 0..=15 {
            let text: String = ('a'..).take(size).collect();
            let short = ShortText::new(&text).unwrap();
            assert_eq!(short.as_str(), text);
            assert_eq!(ShortText::new(&text), Some(short));
        }
        assert_eq!(ShortText::new("ééééééé").unwrap().as_str(), "ééééééé");
        assert_eq!(ShortText::new("abcdefghijklmnop"), None);
        assert_ne!(ShortText::new("a").unwrap().word(), ShortText::new("a\0").unwrap().word());
    }

    #[test]
    fn short_texts_order_as_texts_do() {
        let mut texts = vec!["", "\0", "a", "a\0", "a\0\0", "aa", "ab", "b", "é", "\u{10ffff}"];
        texts.extend(["abcdefghijklmno", "abcdefghijklmn", "abcdefghijklmnp", "abcdefghijklmn\0"]);
        for left in &texts {
            for right in &texts {
                let short = |text| ShortText::new(text).unwrap();
                assert_eq!(short(left).cmp(&short(right)), left.cmp(right), "{left:?}, {right:?}");
            }
        }
    }
}
