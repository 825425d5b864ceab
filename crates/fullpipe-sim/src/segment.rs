//! The segments that the endpoints exchange.

use fullpipe_cc::Time;

/// L3 length of a SYN or SYN-ACK: IPv4 and a TCP header with MSS, SACK, timestamp and window scale
/// options.
pub(crate) const SYN_BYTES: u32 = 60;
/// L3 length of an ACK without SACK blocks.
pub(crate) const ACK_BYTES: u32 = 52;
/// Length of a SACK option with its padding, and of each block (RFC 2018 §3).
pub(crate) const SACK_OPTION_BYTES: u32 = 4;
pub(crate) const SACK_BLOCK_BYTES: u32 = 8;
/// SACK blocks that fit next to the timestamp option.
pub(crate) const MAX_SACK_BLOCKS: usize = 3;

/// Kinds of segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Syn,
    SynAck,
    /// Completes the handshake.
    Established,
    Data,
    Ack,
    /// Part of a request from the receiving application.
    Request,
    /// A datagram of another transport, to the receiving end.
    ToReceiver,
    /// A datagram of another transport, to the sending end.
    ToSender,
}

/// A segment on the path. It is small because thousands wait in queues. Segments are numbered by
/// packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// Data: its number. Ack: first segment not received. Request: number of the request.
    pub seq: u64,
    /// Data, handshake, datagram: when it was sent. Ack: when the acknowledged segment was sent (timestamp
    /// echo).
    pub stamp: Time,
    /// Data: byte position of its end in the stream. Ack: right edge of the receive window in
    /// bytes. Request: its number of parts.
    pub edge: u64,
    /// Data: payload bytes. Ack: handle of its [`SackInfo`], or [`NO_SACK`]. Request: number of the
    /// part. Datagram: handle of its payload.
    pub detail: u32,
    /// Ack: packets with CE marks since the last ACK.
    pub ce: u16,
    pub kind: Kind,
    /// Data: the last segment of a burst (the PSH flag).
    pub push: bool,
}

/// The handle of an ACK without SACK information.
pub(crate) const NO_SACK: u32 = u32::MAX;

/// The SACK information of an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SackInfo {
    /// Segments that arrived twice: the DSACK block (RFC 2883).
    pub dsack: Option<(u64, u64)>,
    blocks: [(u64, u64); MAX_SACK_BLOCKS],
    len: u8,
}

impl SackInfo {
    /// Number of blocks in the option.
    pub fn count(&self) -> usize {
        usize::from(self.len) + usize::from(self.dsack.is_some())
    }

    /// Adds a block of received segments if there is room.
    pub fn push(&mut self, block: (u64, u64)) {
        if self.count() < MAX_SACK_BLOCKS && !self.blocks().contains(&block) {
            self.blocks[usize::from(self.len)] = block;
            self.len += 1;
        }
    }

    /// The blocks, the one that changed last first.
    pub fn blocks(&self) -> &[(u64, u64)] {
        &self.blocks[..usize::from(self.len)]
    }
}

/// The SACK information of all ACKs in flight. Most ACKs have none, so segments carry only a
/// handle.
#[derive(Debug, Default)]
pub(crate) struct SackStore {
    infos: Vec<SackInfo>,
    free: Vec<u32>,
}

impl SackStore {
    /// Stores `info` until it is [removed](Self::remove).
    pub fn put(&mut self, info: SackInfo) -> u32 {
        match self.free.pop() {
            Some(handle) => {
                self.infos[handle as usize] = info;
                handle
            }
            None => {
                self.infos.push(info);
                (self.infos.len() - 1) as u32
            }
        }
    }

    /// Number of blocks of `handle`.
    pub fn count(&self, handle: u32) -> usize {
        if handle == NO_SACK { 0 } else { self.infos[handle as usize].count() }
    }

    /// The information of `handle`.
    pub fn get(&self, handle: u32) -> &SackInfo {
        &self.infos[handle as usize]
    }

    /// Removes and returns the information of `handle`.
    pub fn remove(&mut self, handle: u32) -> SackInfo {
        if handle == NO_SACK {
            return SackInfo::default();
        }
        self.free.push(handle);
        self.infos[handle as usize]
    }

    #[cfg(test)]
    pub fn in_use(&self) -> usize {
        self.infos.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_blocks_fit_and_a_dsack_replaces_one() {
        let mut plain = SackInfo::default();
        let mut with_dsack = SackInfo { dsack: Some((1, 2)), ..SackInfo::default() };
        for start in [10, 10, 20, 30, 40] {
            plain.push((start, start + 1));
            with_dsack.push((start, start + 1));
        }
        assert_eq!(plain.blocks(), [(10, 11), (20, 21), (30, 31)]);
        assert_eq!(with_dsack.blocks(), [(10, 11), (20, 21)]);
        assert_eq!((plain.count(), with_dsack.count()), (3, 3));
    }

    #[test]
    fn handles_are_reused() {
        let mut store = SackStore::default();
        let a = store.put(SackInfo::default());
        store.remove(a);
        assert_eq!(store.put(SackInfo::default()), a);
        assert_eq!(store.remove(NO_SACK), SackInfo::default());
        assert_eq!(store.in_use(), 1);
    }
}
