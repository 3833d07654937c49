//! The number of occurrences of each text that is too long for a word.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Texts with their counts. Does not allocate for each text, nor at all when the memory of earlier
/// frames suffices. A text that was removed stays with the count 0 until [`Self::compact`].
#[derive(Debug, Default)]
pub(super) struct LongTexts {
    hasher: DefaultHashBuilder,
    /// The positions of the entries.
    table: HashTable<u32>,
    entries: Vec<LongText>,
    /// The texts, one after the other.
    texts: String,
}

#[derive(Debug)]
struct LongText {
    start: usize,
    size: usize,
    hash: u64,
    count: u64,
}

impl LongText {
    fn text<'t>(&self, texts: &'t str) -> &'t str {
        &texts[self.start..self.start + self.size]
    }
}

impl LongTexts {
    /// Adds a number of occurrences of a text. Returns how many there were.
    pub(super) fn add(&mut self, text: &str, count: u64) -> u64 {
        debug_assert!(count > 0, "a text that is added occurs");
        let hash = self.hasher.hash_one(text);
        let Self { table, entries, texts, .. } = self;
        if let Some(at) = table.find(hash, |at| entries[*at as usize].text(texts) == text) {
            let entry = &mut entries[*at as usize];
            entry.count += count;
            return entry.count - count;
        }
        let at = u32::try_from(entries.len()).expect("a frame has fewer than 2^32 rows");
        entries.push(LongText { start: texts.len(), size: text.len(), hash, count });
        texts.push_str(text);
        table.insert_unique(hash, at, |at| entries[*at as usize].hash);
        0
    }

    /// Removes one occurrence of a text. Returns how many are left; `None` when there was none.
    pub(super) fn remove(&mut self, text: &str) -> Option<u64> {
        debug_assert_eq!(self.table.len(), self.entries.len(), "each text has an entry");
        let hash = self.hasher.hash_one(text);
        let Self { table, entries, texts, .. } = self;
        let at = table.find(hash, |at| entries[*at as usize].text(texts) == text)?;
        let entry = &mut entries[*at as usize];
        entry.count = entry.count.checked_sub(1)?;
        Some(entry.count)
    }

    /// Returns the texts with their counts, those that were removed included.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.entries.iter().map(|entry| (entry.text(&self.texts), entry.count))
    }

    /// Returns the counts, those of removed texts included.
    pub(super) fn counts(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|entry| entry.count)
    }

    /// Returns the number of texts, removed ones included.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Frees the texts whose occurrences were all removed.
    pub(super) fn compact(&mut self) {
        let mut compacted = Self { hasher: self.hasher.clone(), ..Self::default() };
        for (text, count) in self.iter().filter(|(_, count)| *count > 0) {
            compacted.add(text, count);
        }
        debug_assert!(compacted.len() <= self.len(), "no text is added");
        *self = compacted;
    }

    /// Removes every text, without freeing memory.
    pub(super) fn reset(&mut self) {
        if !self.entries.is_empty() {
            self.table.clear();
            self.entries.clear();
            self.texts.clear();
        }
    }

    /// Returns the approximate number of bytes that it has allocated; a reset does not free them.
    pub(super) fn heap_bytes(&self) -> usize {
        self.table.allocation_size()
            + self.entries.capacity() * size_of::<LongText>()
            + self.texts.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::LongTexts;

    #[test]
    fn texts_are_counted_and_removed() {
        let mut texts = LongTexts::default();
        for number in 0..1_000_u64 {
            let text = format!("a text with the number {}", number % 100);
            assert_eq!(texts.add(&text, 1), number / 100);
        }
        assert_eq!((texts.len(), texts.counts().sum::<u64>()), (100, 1_000));
        for left in (0..10).rev() {
            assert_eq!(texts.remove("a text with the number 7"), Some(left));
        }
        assert_eq!(texts.remove("a text with the number 7"), None);
        assert_eq!(texts.remove("a text that was never there"), None);
        assert_eq!(texts.len(), 100, "a removed text stays");
        texts.compact();
        assert_eq!(texts.len(), 99);
        assert!(texts.iter().all(|(text, count)| !text.ends_with(" 7") && count == 10));
        texts.reset();
        assert_eq!(texts.iter().count(), 0);
        assert_eq!(texts.add("a text with the number 7", 3), 0);
    }
}
