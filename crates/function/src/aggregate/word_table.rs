//! A set of 128-bit words, numbered in the order in which they were inserted.
//!
//! A word represents a value of fixed width or a short text. The words are one after the other; an open
//! hash table has their numbers. Numbers are small, so that the table of a thousand words is in the
//! first-level cache, where the words would not be.

use super::word_hash::WordHash;

/// A set of words with their numbers, from 0.
#[derive(Debug, Default)]
pub(super) struct WordTable {
    hash: WordHash,
    /// An open hash table with linear probing, indexed by the low bits of the hash: for each word
    /// its number plus 1; 0 is an empty slot. Its size is a power of two; at most a quarter is occupied,
    /// so that probe chains are short.
    slots: Vec<u32>,
    /// The words in the order in which they were inserted, and space for more of them.
    words: Vec<u128>,
    /// The number of words.
    taken: usize,
}

const SLOTS_MIN: usize = 8;
/// A reset clears the whole table, unless it has more slots for each word than this.
const CLEARED_SLOTS_PER_WORD: usize = 16;
// A mask of the low bits is the position in the table.
const _: () = assert!(SLOTS_MIN.is_power_of_two());

impl WordTable {
    /// Returns the words by their numbers.
    pub(super) fn words(&self) -> &[u128] {
        &self.words[..self.taken]
    }

    /// Returns the number of words.
    pub(super) fn len(&self) -> usize {
        self.taken
    }

    /// Inserts a word, unless it is there, and returns its number. Most words of most frames are there
    /// already; then no word depends on the one before it, so that the processor looks several of them
    /// up at once.
    #[inline]
    pub(super) fn insert(&mut self, word: u128) -> usize {
        match self.find(word) {
            Ok(number) => number,
            Err(slot) => self.insert_new(word, slot),
        }
    }

    /// Returns the number of a word, or the slot at which its probe chain ends.
    #[inline]
    pub(super) fn find(&self, word: u128) -> Result<usize, usize> {
        debug_assert!(self.taken * 4 <= self.slots.len(), "at most a quarter is occupied");
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = self.first_slot(word) & mask;
        // An empty table has no slot at all.
        while let Some(&slot) = self.slots.get(at)
            && slot != 0
        {
            let number = slot as usize - 1;
            if self.words[number] == word {
                return Ok(number);
            }
            at = (at + 1) & mask;
        }
        Err(at)
    }

    /// Inserts a word that is not there, whose probe chain ends at a slot.
    fn insert_new(&mut self, word: u128, mut at: usize) -> usize {
        if self.slots.len() <= self.taken * 4 {
            self.grow();
            at = self.empty_slot(word);
        }
        debug_assert_eq!(self.slots[at], 0, "a word takes an empty slot");
        debug_assert!(self.taken < self.words.len(), "there is space for another word");
        let number = self.taken;
        self.words[number] = word;
        self.slots[at] = slot_of(number);
        self.taken += 1;
        number
    }

    /// Returns the slot for a word that is not in the table.
    #[inline]
    fn empty_slot(&self, word: u128) -> usize {
        debug_assert!(self.taken < self.slots.len(), "there is an empty slot");
        let mask = self.slots.len() - 1;
        let mut at = self.first_slot(word) & mask;
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        at
    }

    /// Returns the hash of a word, whose low bits are its home slot.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are used")]
    fn first_slot(&self, word: u128) -> usize {
        self.hash.of(word) as usize
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(SLOTS_MIN);
        debug_assert!(size.is_power_of_two(), "a mask of the low bits is the position");
        self.slots.clear();
        self.slots.resize(size, 0);
        self.words.resize(size / 4 + 1, 0);
        for number in 0..self.taken {
            let at = self.empty_slot(self.words[number]);
            self.slots[at] = slot_of(number);
        }
    }

    /// Removes every word, without freeing memory.
    pub(super) fn reset(&mut self) {
        if self.slots.len() <= self.taken * CLEARED_SLOTS_PER_WORD {
            self.slots.fill(0);
        } else {
            // Many slots of an earlier, larger set are empty already.
            for (number, word) in self.words[..self.taken].iter().enumerate() {
                let mask = self.slots.len() - 1;
                let mut at = self.first_slot(*word) & mask;
                while self.slots[at] != slot_of(number) {
                    at = (at + 1) & mask;
                }
                self.slots[at] = 0;
            }
        }
        debug_assert!(self.slots.len() > 4_096 || self.slots.iter().all(|slot| *slot == 0));
        self.taken = 0;
    }

    /// Returns the approximate number of bytes that it has allocated; a reset does not free them.
    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>() + self.words.capacity() * size_of::<u128>()
    }
}

/// Returns what a slot has for the word of a number.
#[inline]
fn slot_of(number: usize) -> u32 {
    u32::try_from(number + 1).expect("a frame has less than 2^32 rows")
}

#[cfg(test)]
mod tests {
    use super::WordTable;

    #[test]
    fn a_table_that_was_large_numbers_small_frames_again() {
        let mut table = WordTable::default();
        for words in [0..100_000, 0..10, 5..3_000, 0..1, 0..1_025, 0..0, 7..700] {
            for _ in 0..2 {
                for (number, word) in words.clone().enumerate() {
                    assert_eq!(table.insert(word), number);
                }
            }
            assert!(words.clone().eq(table.words().iter().copied()));
            assert!(table.find(u128::MAX).is_err());
            table.reset();
            assert_eq!(table.len(), 0);
            assert!(table.slots.iter().all(|slot| *slot == 0), "no word is left behind");
        }
    }
}
