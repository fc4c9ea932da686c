//! Slots with generations: a key of something that is gone never finds what came after it.

/// Key of a slot: where, and which of its tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The slot.
    pub index: u32,
    /// Counts the tenants of the slot, from 1.
    pub generation: u32,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// A table of `T` with stable keys; freed slots are reused, the last freed first.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Puts `value` into a free slot.
    pub fn insert(&mut self, value: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 slots")
        });
        let slot = &mut self.slots[index as usize];
        slot.generation += 1;
        slot.value = Some(value);
        Key {
            index,
            generation: slot.generation,
        }
    }

    /// The value of `key`, if it is still there.
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation {
            slot.value.as_ref()
        } else {
            None
        }
    }

    /// The value of `key`, if it is still there.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation {
            slot.value.as_mut()
        } else {
            None
        }
    }

    /// Takes the value of `key` out, if it is still there.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        self.free.push(key.index);
        Some(value)
    }

    /// All values with their keys, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let key = Key {
                index: index as u32,
                generation: slot.generation,
            };
            slot.value.as_ref().map(|value| (key, value))
        })
    }

    /// All keys in use, by slot.
    pub fn keys(&self) -> Vec<Key> {
        self.iter().map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_does_not_answer_to_its_old_key() {
        let mut slab = Slab::default();
        let old = slab.insert("old");
        assert_eq!(slab.remove(old), Some("old"));
        assert_eq!(slab.remove(old), None);
        let new = slab.insert("new");
        assert_eq!(new.index, old.index);
        assert_eq!((slab.get(old), slab.get(new)), (None, Some(&"new")));
        assert_eq!(slab.keys(), [new]);
    }
}
