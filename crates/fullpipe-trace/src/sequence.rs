//! 64-bit sequence numbers without wraparound.

/// The 64-bit number of `seq` that is nearest to `near`.
#[inline]
pub(crate) fn unwrap(near: u64, seq: u32) -> u64 {
    let distance = seq.wrapping_sub(near as u32) as i32;
    near.wrapping_add_signed(i64::from(distance))
}

/// First 64-bit number, so that numbers slightly before the first captured one are positive.
pub(crate) const ORIGIN: u64 = 1 << 32;

/// Whether the timestamp `a` is later than `b` (RFC 7323 §5.2: modulo 2³²).
#[inline]
pub(crate) fn later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_continue_after_32_bits() {
        let near = ORIGIN + 0xffff_fff0;
        assert_eq!(unwrap(near, 0x10), ORIGIN + (1 << 32) + 0x10);
        assert_eq!(unwrap(near, 0xffff_ff00), ORIGIN + 0xffff_ff00);
        assert!(later(3, 0xffff_fff0) && !later(0xffff_fff0, 3));
    }
}
