//! The backlog of a queue.

/// Bytes and packets in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Backlog {
    pub bytes: u64,
    pub packets: usize,
}

impl Backlog {
    /// Replaces one part of the total, which was `before` and is `now`.
    #[inline]
    pub fn replace(&mut self, before: Backlog, now: Backlog) {
        self.bytes = self.bytes - before.bytes + now.bytes;
        self.packets = self.packets - before.packets + now.packets;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_replaced_in_the_whole() {
        let mut whole = Backlog { bytes: 4000, packets: 3 };
        whole.replace(Backlog { bytes: 1000, packets: 1 }, Backlog { bytes: 500, packets: 1 });
        assert_eq!(whole, Backlog { bytes: 3500, packets: 3 });
    }
}
