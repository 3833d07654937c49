//! A set of rows, by their arrivals.
//!
//! `retention` collects the rows that it removes. A bit for each arrival, in pages, so that rows that
//! arrived one after the other take little memory.

use std::collections::BTreeMap;

/// The number of arrivals in a page.
const PAGE_ROWS: u64 = 4096;
const WORD_BITS: u64 = 64;
const PAGE_WORDS: usize = 64;
const _: () = assert!(PAGE_ROWS == WORD_BITS * 64 && PAGE_WORDS == 64, "a page has all its bits");

/// A set of arrivals.
#[derive(Debug, Clone, Default)]
pub(crate) struct ArrivalSet {
    pages: BTreeMap<u64, Box<[u64; PAGE_WORDS]>>,
}

impl ArrivalSet {
    /// Adds an arrival.
    pub(crate) fn insert(&mut self, arrival: u64) {
        let page = self.pages.entry(arrival / PAGE_ROWS).or_insert_with(|| Box::new([0; 64]));
        let (word, bit) = word_and_bit(arrival);
        page[word] |= bit;
    }

    /// Returns whether an arrival is in the set.
    pub(crate) fn contains(&self, arrival: u64) -> bool {
        let (word, bit) = word_and_bit(arrival);
        self.pages.get(&(arrival / PAGE_ROWS)).is_some_and(|page| page[word] & bit != 0)
    }

    /// Returns whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Adds all of another set.
    pub(crate) fn extend(&mut self, other: &Self) {
        for (number, page) in &other.pages {
            let own = self.pages.entry(*number).or_insert_with(|| Box::new([0; 64]));
            own.iter_mut().zip(page.iter()).for_each(|(own, other)| *own |= other);
        }
    }

    /// Removes the pages that have only arrivals before this one.
    pub(crate) fn forget_before(&mut self, arrival: u64) {
        self.pages = self.pages.split_off(&(arrival / PAGE_ROWS));
    }
}

/// Returns the word of a page, and the bit in it, for an arrival.
fn word_and_bit(arrival: u64) -> (usize, u64) {
    let at = arrival % PAGE_ROWS;
    let word = usize::try_from(at / WORD_BITS).expect("a page has few words");
    (word, 1 << (at % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use super::ArrivalSet;

    #[test]
    fn what_was_added_is_in_it_until_it_is_forgotten() {
        let mut set = ArrivalSet::default();
        let mut other = ArrivalSet::default();
        assert!(set.is_empty());
        let arrivals = [0, 1, 63, 64, 4_095, 4_096, 1 << 40];
        arrivals.iter().for_each(|arrival| other.insert(*arrival));
        set.insert(2);
        set.extend(&other);
        assert!(arrivals.iter().chain([&2]).all(|arrival| set.contains(*arrival)));
        assert!([3, 62, 65, 4_097, (1 << 40) + 1].iter().all(|arrival| !set.contains(*arrival)));
        set.forget_before(4_100);
        assert_eq!(
            arrivals.map(|arrival| set.contains(arrival)),
            [false, false, false, false, false, true, true]
        );
    }
}
