//! Send-buffer accounting. Linux counts the kernel's structures (`sk_wmem_queued`, truesize): one
//! per burst sent and one per 64 kB that wait. It checks the limit only when it starts another
//! structure (`sk_stream_memory_free`), and wakes an application that found the buffer full when a
//! third of it is free (`sk_stream_write_space`).

use fullpipe_cc::pacer::GSO_MAX_BYTES;
use std::collections::VecDeque;

/// Size of an `sk_buff` without payload, with `skb_shared_info` and room for headers
/// (`tcp_stream_alloc_skb`).
const STRUCTURES: u64 = 832;

/// A send buffer.
#[derive(Debug)]
pub(super) enum SendBuffer {
    /// A number of payload bytes; the application refills each byte at once.
    Plain(u64),
    Linux(Box<Memory>),
}

/// A buffer with Linux's accounting.
#[derive(Debug)]
pub(super) struct Memory {
    limit: u64,
    /// Payload of a full structure.
    full: u64,
    /// Stream length that has been written to the buffer.
    end: u64,
    /// Stream position at which the last structure begins.
    tail: u64,
    /// Whether the application found the buffer full and waits.
    waits: bool,
    /// Ends of bursts that were sent and are not acknowledged.
    bursts: VecDeque<u64>,
}

impl SendBuffer {
    pub fn plain(limit: Option<u64>) -> Self {
        SendBuffer::Plain(limit.unwrap_or(u64::MAX))
    }

    /// Switches to Linux's accounting, for segments of `smss` bytes; an unlimited buffer stays
    /// unlimited.
    pub fn like_linux(self, smss: u64) -> Self {
        match self {
            SendBuffer::Plain(limit) if limit < u64::MAX => SendBuffer::Linux(Box::new(Memory {
                limit,
                full: (GSO_MAX_BYTES / smss * smss).max(smss),
                end: 0,
                tail: 0,
                waits: false,
                bursts: VecDeque::new(),
            })),
            other => other,
        }
    }

    /// Stream length that is in the buffer or was sent, of `written` bytes.
    #[inline]
    pub fn end(&self, written: u64, una: u64) -> u64 {
        match self {
            SendBuffer::Plain(limit) => written.min(una.saturating_add(*limit)),
            SendBuffer::Linux(memory) => written.min(memory.end),
        }
    }

    /// A burst that ends at `end` was sent.
    pub fn sent(&mut self, end: u64) {
        if let SendBuffer::Linux(memory) = self
            && memory.bursts.back().is_none_or(|last| *last < end)
        {
            memory.bursts.push_back(end);
        }
    }

    /// Lets the application fill one more structure, if there is room; returns whether it did.
    pub fn fill(&mut self, written: u64, una: u64, nxt: u64) -> bool {
        match self {
            SendBuffer::Plain(_) => false,
            SendBuffer::Linux(memory) => memory.fill(written, una, nxt),
        }
    }
}

impl Memory {
    fn fill(&mut self, written: u64, una: u64, nxt: u64) -> bool {
        // Data that will not be sent any more is discarded.
        self.end = self.end.min(written);
        while self.bursts.front().is_some_and(|end| *end <= una) {
            self.bursts.pop_front();
        }
        let left = written - self.end;
        if left == 0 {
            return false;
        }
        let waiting = self.end.saturating_sub(nxt).div_ceil(self.full);
        let queued = self.end.saturating_sub(una) + STRUCTURES * (self.bursts.len() as u64 + waiting);
        let free = self.limit.saturating_sub(queued);
        // Data sent from the last structure is cut off its front.
        self.tail = self.tail.max(nxt).min(self.end);
        let full = self.tail == self.end || self.end - self.tail >= self.full;
        if self.waits && free < queued / 2 || full && free == 0 {
            self.waits = true;
            return false;
        }
        self.waits = false;
        if full {
            self.tail = self.end;
        }
        let more = left.min(self.full - (self.end - self.tail));
        self.end += more;
        more > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDLESS: u64 = u64::MAX;

    /// A full buffer of 256 kB.
    fn filled() -> (SendBuffer, u64) {
        let mut buffer = SendBuffer::plain(Some(256_000)).like_linux(1448);
        while buffer.fill(ENDLESS, 0, 0) {}
        let end = buffer.end(ENDLESS, 0);
        (buffer, end)
    }

    #[test]
    fn the_last_structure_may_go_beyond_the_limit() {
        let full = GSO_MAX_BYTES / 1448 * 1448;
        assert_eq!(filled().1, 4 * full, "three and their structures are less than the limit");
    }

    #[test]
    fn a_waiting_application_is_woken_when_a_third_is_free() {
        let (mut buffer, end) = filled();
        buffer.sent(end);
        let least = end + STRUCTURES - 256_000 * 2 / 3;
        assert!(!buffer.fill(ENDLESS, least - 2, end));
        assert!(buffer.fill(ENDLESS, least + 2, end));
        assert!(buffer.fill(ENDLESS, least + 2, end), "and then fills it");
    }

    #[test]
    fn small_bursts_use_more_of_the_buffer() {
        let payload = |burst: u64| {
            let (mut buffer, end) = filled();
            (1..=end / burst).for_each(|n| buffer.sent(n * burst));
            let una = end / 2 / burst * burst;
            while buffer.fill(ENDLESS, una, end) {}
            buffer.end(ENDLESS, una) - una
        };
        assert!(payload(1448) < payload(14_480), "{} {}", payload(1448), payload(14_480));
    }

    #[test]
    fn the_buffer_holds_no_more_than_was_written() {
        let mut buffer = SendBuffer::plain(Some(256_000)).like_linux(1448);
        assert!(buffer.fill(5000, 0, 0));
        assert!(!buffer.fill(5000, 0, 0));
        assert_eq!(buffer.end(5000, 0), 5000);
        assert!(matches!(SendBuffer::plain(None).like_linux(1448), SendBuffer::Plain(u64::MAX)));
    }
}
