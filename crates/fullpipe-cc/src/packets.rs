//! Converts bytes to the kernel's unit: packets of one maximum segment size.
//!
//! The kernel's controllers count segments, the interface of this crate counts bytes. A position in
//! the byte stream maps to a packet number, so differences of positions add up exactly over any
//! number of ACKs, whatever the sizes of single packets.

/// Converts byte counts of one connection to packets of `smss` bytes, partial packets rounded up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketScale {
    smss: u32,
    /// ⌈2⁶⁴ / smss⌉: turns the division by `smss` into a multiplication.
    reciprocal: u64,
    /// Below this the reciprocal rounds a count up exactly.
    exact: u64,
    /// Where the current `smss` took effect, in bytes and in packets.
    origin: (u64, u64),
}

impl PacketScale {
    pub(crate) fn new(smss: u32) -> Self {
        let smss = smss.max(1);
        let reciprocal = (u64::MAX / u64::from(smss)).wrapping_add(1);
        // n·⌈2⁶⁴/d⌉ exceeds n·2⁶⁴/d by less than n; below 2⁶⁴/d that cannot reach the next multiple.
        let exact = if smss == 1 { 0 } else { (u64::MAX / u64::from(smss)).saturating_sub(u64::from(smss)) };
        PacketScale { smss, reciprocal, exact, origin: (0, 0) }
    }

    pub(crate) fn smss(&self) -> u32 {
        self.smss
    }

    /// From byte position `at` on, packets are `smss` bytes long.
    pub(crate) fn change(&mut self, smss: u32, at: u64) {
        let packets = self.position(at);
        *self = Self::new(smss);
        self.origin = (at, packets);
    }

    /// The packets that hold `bytes` bytes.
    #[inline]
    pub(crate) fn count(&self, bytes: u64) -> u64 {
        if bytes < self.exact {
            let rounded_up = bytes + u64::from(self.smss - 1);
            ((u128::from(rounded_up) * u128::from(self.reciprocal)) >> 64) as u64
        } else {
            bytes.div_ceil(u64::from(self.smss))
        }
    }

    /// The packet number that the byte position `at` falls into.
    #[inline]
    pub(crate) fn position(&self, at: u64) -> u64 {
        let (byte, packet) = self.origin;
        if at >= byte {
            packet.saturating_add(self.count(at - byte))
        } else {
            packet.saturating_sub((byte - at) / u64::from(self.smss))
        }
    }

    /// The bytes of `packets` full packets.
    #[inline]
    pub(crate) fn bytes(&self, packets: u32) -> u64 {
        u64::from(packets) * u64::from(self.smss)
    }
}

/// `n` as u32, saturating.
#[inline]
pub(crate) fn saturate(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_partial_packet_counts_as_one() {
        let s = PacketScale::new(1448);
        assert_eq!((s.count(0), s.count(1), s.count(1448), s.count(1449)), (0, 1, 1, 2));
    }

    #[test]
    fn positions_continue_across_a_change_of_the_segment_size() {
        let mut s = PacketScale::new(1000);
        assert_eq!(s.position(5000), 5);
        s.change(500, 5000);
        assert_eq!((s.position(5000), s.position(6000), s.position(4000)), (5, 7, 3));
    }

    proptest! {
        #[test]
        fn the_reciprocal_divides_exactly(smss in 1u32.., bytes in any::<u64>(), small in 0u64..1 << 40) {
            let s = PacketScale::new(smss);
            for b in [bytes, small, bytes / u64::from(smss) * u64::from(smss)] {
                prop_assert_eq!(s.count(b), b.div_ceil(u64::from(smss)));
            }
        }
    }
}
