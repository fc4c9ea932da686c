//! [`DirtySet`]: a queue of keys that never has a key twice. The keys name things that wait to be handled.

use std::collections::VecDeque;

/// Says whether a [`DirtySet`] names the thing that this mark belongs to. Only the set changes the mark, so a thing is
/// never marked without being named.
#[derive(Debug, Default)]
pub(crate) struct Listed(bool);

impl Listed {
    /// True while the set names the thing.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0
    }
}

/// A queue of the keys of things that wait to be handled. Each thing has one [`Listed`] for each set that may name it.
///
/// An insertion costs the same whatever the number of keys, and allocates only when the set has never been as long.
/// A thing that is dropped without [`DirtySet::remove`] leaves its key behind: its lookup then finds nothing.
///
/// Invariant: a key of a thing that is there is in the set once if its mark is set, else not at all.
#[derive(Debug, Default)]
pub(crate) struct DirtySet<K> {
    keys: VecDeque<K>,
}

impl<K: Copy + Eq> DirtySet<K> {
    /// Names a thing at the end, unless it is named already.
    #[inline]
    pub(crate) fn insert(&mut self, key: K, listed: &mut Listed) {
        if !listed.0 {
            self.push_last(key, listed);
        }
    }

    /// Adds a key at the end. Not inlined: most calls of [`DirtySet::insert`] find that the set has the key already.
    #[inline(never)]
    fn push_last(&mut self, key: K, listed: &mut Listed) {
        listed.0 = true;
        self.keys.push_back(key);
    }

    /// Names a thing at the front, unless it is named already.
    #[inline]
    pub(crate) fn insert_first(&mut self, key: K, listed: &mut Listed) {
        if !listed.0 {
            listed.0 = true;
            self.keys.push_front(key);
        }
    }

    /// Takes out the key at the front. `listed` finds the mark of the key's thing.
    #[inline]
    pub(crate) fn pop_first<'a>(
        &mut self,
        listed: impl FnOnce(K) -> Option<&'a mut Listed>,
    ) -> Option<K> {
        let key = self.keys.pop_front();
        clear(key, listed)
    }

    /// Takes out the key at the end. `listed` finds the mark of the key's thing.
    #[inline]
    pub(crate) fn pop_last<'a>(
        &mut self,
        listed: impl FnOnce(K) -> Option<&'a mut Listed>,
    ) -> Option<K> {
        let key = self.keys.pop_back();
        clear(key, listed)
    }

    /// Removes the key of a thing, if the set has it. The time grows with the number of keys.
    pub(crate) fn remove(&mut self, key: K, listed: &mut Listed) {
        if std::mem::take(&mut listed.0) {
            self.keys.retain(|other| *other != key);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The keys in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = K> + '_ {
        self.keys.iter().copied()
    }

    /// Asserts the invariant for one thing.
    pub(crate) fn check(&self, key: K, listed: &Listed) {
        let count = self.keys.iter().filter(|other| **other == key).count();
        assert_eq!(count, usize::from(listed.0), "the set and the mark agree");
    }
}

#[inline]
fn clear<'a, K: Copy>(
    key: Option<K>,
    listed: impl FnOnce(K) -> Option<&'a mut Listed>,
) -> Option<K> {
    if let Some(listed) = listed(key?) {
        listed.0 = false;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_is_named_once() {
        let mut marks = [Listed::default(), Listed::default(), Listed::default()];
        let mut set = DirtySet::default();
        for key in [1, 2, 1, 2] {
            set.insert(key, &mut marks[key]);
        }
        set.insert_first(0, &mut marks[0]);
        set.insert_first(2, &mut marks[2]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(set.pop_last(|key| Some(&mut marks[key])), Some(2));
        set.insert_first(2, &mut marks[2]);
        assert_eq!(set.pop_first(|key| Some(&mut marks[key])), Some(2));
        set.check(0, &marks[0]);
        set.check(2, &marks[2]);
        set.remove(0, &mut marks[0]);
        set.remove(0, &mut marks[0]);
        set.insert(2, &mut marks[2]);
        set.remove(2, &mut marks[2]);
        assert_eq!(set.len(), 1);
        assert!(marks[1].is_set() && !marks[2].is_set());
        // The thing is gone; its key is not.
        assert_eq!(set.pop_first(|_| None), Some(1));
        assert!(set.is_empty() && set.pop_first(|_| None).is_none());
    }

    #[test]
    #[should_panic(expected = "the set and the mark agree")]
    fn a_mark_without_a_key_is_found() {
        DirtySet::<u32>::default().check(1, &Listed(true));
    }
}
