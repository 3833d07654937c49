//! A map of what costs time to make again, bounded by bytes: where they are exceeded it begins anew.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

use lockstep_host::sync::RwLock;

/// The map. An entry is a clone of a reference.
#[derive(Debug)]
pub(crate) struct BoundedMap<K, V> {
    bytes_max: usize,
    entry_bytes_max: usize,
    entries: RwLock<BoundedEntries<K, V>>,
}

#[derive(Debug)]
struct BoundedEntries<K, V> {
    by_key: HashMap<K, V>,
    bytes: usize,
}

impl<K: Eq + Hash, V: Clone> BoundedMap<K, V> {
    /// Makes an empty map of so many bytes, without entries of more than some bytes.
    pub(crate) fn new(bytes_max: usize, entry_bytes_max: usize) -> Self {
        assert!(entry_bytes_max <= bytes_max, "every entry that is taken fits");
        let entries = BoundedEntries { by_key: HashMap::new(), bytes: 0 };
        Self { bytes_max, entry_bytes_max, entries: RwLock::new(entries) }
    }

    /// Returns an entry.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.entries.read().by_key.get(key).cloned()
    }

    /// Adds an entry of so many bytes, which the same key always has, unless these are too many.
    pub(crate) fn add(&self, key: impl Into<K>, value: &V, bytes: usize) {
        if bytes > self.entry_bytes_max {
            return;
        }
        let mut entries = self.entries.write();
        if entries.bytes + bytes > self.bytes_max {
            *entries = BoundedEntries { by_key: HashMap::new(), bytes: 0 };
        }
        // Another thread may have added it meanwhile.
        if entries.by_key.insert(key.into(), value.clone()).is_none() {
            entries.bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BoundedMap;

    #[test]
    fn entries_are_there_until_they_are_too_many() {
        let map: BoundedMap<Box<str>, u64> = BoundedMap::new(100, 40);
        map.add("long", &1, 41);
        assert_eq!(map.get("long"), None);
        for (key, value) in [("a", 1), ("a", 2), ("b", 3)] {
            map.add(key, &value, 40);
        }
        assert_eq!((map.get("a"), map.get("b")), (Some(2), Some(3)));
        map.add("c", &4, 21);
        assert_eq!((map.get("a"), map.get("b"), map.get("c")), (None, None, Some(4)));
    }
}
