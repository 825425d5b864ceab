//! What a send buffer holds. Linux counts the kernel's structures to it (`sk_wmem_queued`, truesize), one per burst that left and one
//! per 64 kB that wait, looks only when it begins another (`sk_stream_memory_free`), and wakes an application that found it full when a
//! third of the buffer is free again (`sk_stream_write_space`).

use fullpipe_cc::pacer::GSO_MAX_BYTES;
use std::collections::VecDeque;

/// An `sk_buff` without payload: itself, `skb_shared_info` and room for headers (`tcp_stream_alloc_skb`).
const STRUCTURES: u64 = 832;

/// A send buffer.
#[derive(Debug)]
pub(super) enum SendBuffer {
    /// So many bytes of payload, of which the application fills each that is free.
    Plain(u64),
    Linux(Box<Memory>),
}

/// A buffer as Linux accounts for it.
#[derive(Debug)]
pub(super) struct Memory {
    limit: u64,
    /// Payload of a structure that is full.
    full: u64,
    /// The stream's length that the application has handed over.
    handed: u64,
    /// Where the last structure begins.
    tail: u64,
    /// The application found it full.
    waits: bool,
    /// Ends of bursts that left and are not acknowledged.
    bursts: VecDeque<u64>,
}

impl SendBuffer {
    pub fn plain(limit: Option<u64>) -> Self {
        SendBuffer::Plain(limit.unwrap_or(u64::MAX))
    }

    /// This one as Linux accounts for it, for segments of `smss`; what has no limit stays so.
    pub fn like_linux(self, smss: u64) -> Self {
        match self {
            SendBuffer::Plain(limit) if limit < u64::MAX => SendBuffer::Linux(Box::new(Memory {
                limit,
                full: (GSO_MAX_BYTES / smss * smss).max(smss),
                handed: 0,
                tail: 0,
                waits: false,
                bursts: VecDeque::new(),
            })),
            other => other,
        }
    }

    /// The stream's length as far as it has been handed over, of `written` bytes that there are.
    #[inline]
    pub fn end(&self, written: u64, una: u64) -> u64 {
        match self {
            SendBuffer::Plain(limit) => written.min(una.saturating_add(*limit)),
            SendBuffer::Linux(memory) => written.min(memory.handed),
        }
    }

    /// A burst has left, up to `end`.
    pub fn sent(&mut self, end: u64) {
        if let SendBuffer::Linux(memory) = self
            && memory.bursts.back().is_none_or(|last| *last < end)
        {
            memory.bursts.push_back(end);
        }
    }

    /// The application hands over what fills one more structure, if it may; whether it did.
    pub fn hand_over(&mut self, written: u64, una: u64, nxt: u64) -> bool {
        match self {
            SendBuffer::Plain(_) => false,
            SendBuffer::Linux(memory) => memory.hand_over(written, una, nxt),
        }
    }
}

impl Memory {
    fn hand_over(&mut self, written: u64, una: u64, nxt: u64) -> bool {
        // What is not to be sent any more is not kept.
        self.handed = self.handed.min(written);
        while self.bursts.front().is_some_and(|end| *end <= una) {
            self.bursts.pop_front();
        }
        let left = written - self.handed;
        if left == 0 {
            return false;
        }
        let waiting = self.handed.saturating_sub(nxt).div_ceil(self.full);
        let queued = self.handed.saturating_sub(una) + STRUCTURES * (self.bursts.len() as u64 + waiting);
        let free = self.limit.saturating_sub(queued);
        // What leaves of the last structure is cut off its front.
        self.tail = self.tail.max(nxt).min(self.handed);
        let full = self.tail == self.handed || self.handed - self.tail >= self.full;
        if self.waits && free < queued / 2 || full && free == 0 {
            self.waits = true;
            return false;
        }
        self.waits = false;
        if full {
            self.tail = self.handed;
        }
        let more = left.min(self.full - (self.handed - self.tail));
        self.handed += more;
        more > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDLESS: u64 = u64::MAX;

    /// One of 256 kB, filled.
    fn filled() -> (SendBuffer, u64) {
        let mut buffer = SendBuffer::plain(Some(256_000)).like_linux(1448);
        while buffer.hand_over(ENDLESS, 0, 0) {}
        let end = buffer.end(ENDLESS, 0);
        (buffer, end)
    }

    #[test]
    fn the_last_structure_may_go_beyond_the_limit() {
        let full = GSO_MAX_BYTES / 1448 * 1448;
        assert_eq!(filled().1, 4 * full, "three and their structures are less than the limit");
    }

    #[test]
    fn an_application_that_waits_is_woken_when_a_third_is_free() {
        let (mut buffer, end) = filled();
        buffer.sent(end);
        let least = end + STRUCTURES - 256_000 * 2 / 3;
        assert!(!buffer.hand_over(ENDLESS, least - 2, end));
        assert!(buffer.hand_over(ENDLESS, least + 2, end));
        assert!(buffer.hand_over(ENDLESS, least + 2, end), "and then fills it");
    }

    #[test]
    fn small_bursts_take_more_of_it() {
        let payload = |burst: u64| {
            let (mut buffer, end) = filled();
            (1..=end / burst).for_each(|n| buffer.sent(n * burst));
            let una = end / 2 / burst * burst;
            while buffer.hand_over(ENDLESS, una, end) {}
            buffer.end(ENDLESS, una) - una
        };
        assert!(payload(1448) < payload(14_480), "{} {}", payload(1448), payload(14_480));
    }

    #[test]
    fn no_more_is_handed_over_than_there_is() {
        let mut buffer = SendBuffer::plain(Some(256_000)).like_linux(1448);
        assert!(buffer.hand_over(5000, 0, 0));
        assert!(!buffer.hand_over(5000, 0, 0));
        assert_eq!(buffer.end(5000, 0), 5000);
        assert!(matches!(SendBuffer::plain(None).like_linux(1448), SendBuffer::Plain(u64::MAX)));
    }
}
