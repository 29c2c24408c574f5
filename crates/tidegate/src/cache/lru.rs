//! A map that is bounded in entries and bytes; the entry that was used longest ago goes first.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// What every entry costs beside its own bytes: two map nodes and the value's head.
const OVERHEAD: usize = 256;

#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Keys by the number of their last use.
    order: BTreeMap<u64, K>,
    uses: u64,
    bytes: usize,
    most_entries: usize,
    most_bytes: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    size: usize,
    used: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub(crate) fn new(most_entries: usize, most_bytes: usize) -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), uses: 0, bytes: 0, most_entries, most_bytes }
    }

    /// Puts an entry of `size` bytes in the place of an older one. One that is larger than the whole
    /// is not kept, and nor is the older one, which would no longer be the last.
    pub(crate) fn put(&mut self, key: K, value: V, size: usize) -> bool {
        self.remove(&key);
        let size = size.saturating_add(OVERHEAD);
        if size > self.most_bytes || self.most_entries == 0 {
            return false;
        }
        while self.entries.len() >= self.most_entries || self.bytes > self.most_bytes - size {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            if let Some(gone) = self.entries.remove(&oldest) {
                self.bytes -= gone.size;
            }
        }
        self.uses += 1;
        self.bytes += size;
        self.order.insert(self.uses, key.clone());
        self.entries.insert(key, Entry { value, size, used: self.uses });
        true
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        let entry = self.entries.get_mut(key)?;
        self.uses += 1;
        if let Some(key) = self.order.remove(&entry.used) {
            self.order.insert(self.uses, key);
        }
        entry.used = self.uses;
        Some(&entry.value)
    }

    /// The value, without using it.
    pub(crate) fn peek(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(gone) = self.entries.remove(key) {
            self.order.remove(&gone.used);
            self.bytes -= gone.size;
        }
    }

    /// Entries, and bytes with what each costs beside its own.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_used_longest_ago_goes_first() {
        let mut lru = Lru::new(3, 100_000);
        for key in 0..3 {
            assert!(lru.put(key, key, 10));
        }
        assert_eq!(lru.get(&0), Some(&0));
        assert!(lru.put(3, 3, 10));
        assert_eq!(lru.get(&1), None);
        assert!(lru.put(2, 20, 10), "written again is used");
        assert!(lru.put(4, 4, 10));
        for (key, expected) in [(0, None), (1, None), (2, Some(20)), (3, Some(3)), (4, Some(4))] {
            assert_eq!(lru.get(&key).copied(), expected, "{key}");
        }
        assert_eq!(lru.size(), (3, 3 * (10 + OVERHEAD)));
    }

    #[test]
    fn bytes_are_bounded_and_given_back() {
        let most = 4 * (100 + OVERHEAD);
        let mut lru = Lru::new(1_000, most);
        for key in 0..100 {
            assert!(lru.put(key, (), 100));
            assert!(lru.size().1 <= most);
        }
        assert_eq!(lru.size(), (4, most));
        assert!(lru.put(200, (), 200 + OVERHEAD), "room for two is made by two");
        assert_eq!(lru.size().0, 3);
        assert!(!lru.put(99, (), most), "larger than the whole");
        assert_eq!(lru.get(&99), None);
        for key in [98, 200] {
            assert!(lru.get(&key).is_some(), "{key}");
            lru.remove(&key);
        }
        assert_eq!(lru.size(), (0, 0));
        assert!(lru.order.is_empty());
        assert!(!Lru::new(0, 1_000).put(1, (), 1));
    }
}
