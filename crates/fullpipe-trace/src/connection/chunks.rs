//! A sorted queue that elements can be inserted into anywhere.

use std::collections::VecDeque;

/// Maximum number of elements of a chunk.
const MAX_CHUNK: usize = 128;

/// A sorted queue in chunks: an insertion moves the elements of one chunk, and seldom the list of
/// chunks, but never the whole queue.
#[derive(Clone, Debug)]
pub(super) struct ChunkedQueue<T> {
    /// Only a single chunk may be empty.
    chunks: VecDeque<VecDeque<T>>,
    len: usize,
}

/// A place in a queue; invalid after changes of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    chunk: usize,
    index: usize,
}

impl<T> Default for ChunkedQueue<T> {
    fn default() -> Self {
        ChunkedQueue { chunks: VecDeque::new(), len: 0 }
    }
}

impl<T> ChunkedQueue<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn back(&self) -> Option<&T> {
        self.chunks.back()?.back()
    }

    #[inline]
    pub(super) fn front_mut(&mut self) -> Option<&mut T> {
        self.chunks.front_mut()?.front_mut()
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        self.chunks.get_mut(place.chunk)?.get_mut(place.index)
    }

    #[inline]
    pub(super) fn push_back(&mut self, element: T) {
        self.len += 1;
        match self.chunks.back_mut() {
            Some(chunk) if chunk.len() < MAX_CHUNK => chunk.push_back(element),
            last => {
                let is_first = last.is_none();
                let mut chunk = VecDeque::with_capacity(if is_first { 4 } else { MAX_CHUNK });
                chunk.push_back(element);
                self.chunks.push_back(chunk);
            }
        }
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<T> {
        let chunk = self.chunks.front_mut()?;
        let element = chunk.pop_front()?;
        if chunk.is_empty() && self.chunks.len() > 1 {
            self.chunks.pop_front();
        }
        self.len -= 1;
        Some(element)
    }

    /// The place of the first element for which `is_before` is false. It is true for all before.
    #[inline]
    pub(super) fn partition_point(&self, is_before: impl Fn(&T) -> bool) -> Place {
        let chunk = self.chunks.partition_point(|chunk| chunk.back().is_some_and(&is_before));
        let index = self.chunks.get(chunk).map_or(0, |chunk| chunk.partition_point(&is_before));
        Place { chunk, index }
    }

    /// Inserts `element` at `place`.
    pub(super) fn insert(&mut self, place: Place, element: T) {
        let Some(chunk) = self.chunks.get_mut(place.chunk) else { return self.push_back(element) };
        chunk.insert(place.index, element);
        self.len += 1;
        if chunk.len() > MAX_CHUNK {
            let rest = chunk.split_off(MAX_CHUNK / 2);
            self.chunks.insert(place.chunk + 1, rest);
        }
    }

    /// Inserts `element` after the one at `place`.
    pub(super) fn insert_after(&mut self, place: Place, element: T) {
        self.insert(Place { index: place.index + 1, ..place }, element);
    }

    /// The elements from `place` on.
    pub(super) fn iter_from(&self, place: Place) -> impl Iterator<Item = &T> {
        let mut skipped = place.index;
        let chunks = self.chunks.range(place.chunk.min(self.chunks.len())..);
        chunks.flat_map(move |chunk| chunk.range(std::mem::take(&mut skipped).min(chunk.len())..))
    }

    /// The elements from `place` on.
    pub(super) fn iter_mut_from(&mut self, place: Place) -> impl Iterator<Item = &mut T> {
        let mut skipped = place.index;
        let first = place.chunk.min(self.chunks.len());
        self.chunks.range_mut(first..).flat_map(move |chunk| {
            let index = std::mem::take(&mut skipped).min(chunk.len());
            chunk.range_mut(index..)
        })
    }

    /// Removes the elements from `place` on for which `is_removed` is true, up to the first for
    /// which it is not, and calls `removed` for each.
    pub(super) fn remove_while(
        &mut self,
        place: Place,
        is_removed: impl Fn(&T) -> bool,
        mut removed: impl FnMut(T),
    ) {
        let Place { mut chunk, mut index } = place;
        while let Some(elements) = self.chunks.get_mut(chunk) {
            let count = elements.range(index..).take_while(|element| is_removed(element)).count();
            let is_end = index + count < elements.len();
            elements.drain(index..index + count).for_each(&mut removed);
            self.len -= count;
            if elements.is_empty() && self.chunks.len() > 1 {
                self.chunks.remove(chunk);
            } else {
                chunk += 1;
            }
            if is_end {
                break;
            }
            index = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_behave_like_a_sorted_vector(
            steps in proptest::collection::vec((0u8..5, 0u32..5000, 0u32..200), 1..400)
        ) {
            let mut queue = ChunkedQueue::default();
            let mut model: Vec<u32> = Vec::new();
            for (step, value, length) in steps {
                let below = model.partition_point(|v| *v < value);
                let place = queue.partition_point(|v| *v < value);
                match step {
                    // Several at once, so that chunks are split.
                    0 | 1 => for n in 0..length {
                        let value = value + n % 7;
                        model.insert(model.partition_point(|v| *v < value), value);
                        queue.insert(queue.partition_point(|v| *v < value), value);
                    },
                    2 => for _ in 0..length {
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(queue.pop_front(), first);
                    },
                    3 => {
                        let last = model.last().copied().unwrap_or(0) + value;
                        model.push(last);
                        queue.push_back(last);
                    }
                    _ => {
                        let end = model.partition_point(|v| *v < value + length);
                        let expected: Vec<u32> = model.drain(below..end.max(below)).collect();
                        let mut removed = Vec::new();
                        queue.remove_while(place, |v| *v < value + length, |v| removed.push(v));
                        prop_assert_eq!(removed, expected);
                    }
                }
                let place = queue.partition_point(|v| *v < value);
                let from: Vec<u32> = queue.iter_from(place).copied().collect();
                prop_assert_eq!(&from, &model[model.partition_point(|v| *v < value)..]);
                prop_assert_eq!(queue.iter_mut_from(place).map(|v| *v).collect::<Vec<_>>(), from);
                prop_assert_eq!((queue.len(), queue.back()), (model.len(), model.last()));
                prop_assert!(queue.chunks.iter().all(|c| c.len() <= MAX_CHUNK));
                prop_assert!(queue.chunks.len() <= 1 || queue.chunks.iter().all(|c| !c.is_empty()));
            }
        }
    }
}
