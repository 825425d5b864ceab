//! Classic BPF filter programs: the kernel drops unneeded packets before copying them.

/// An instruction of a filter program (`struct sock_filter` in linux/filter.h). A program returns
/// the number of bytes of a packet to keep; 0 drops it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if the comparison is true.
    pub if_true: u8,
    /// Instructions to skip if it is false.
    pub if_false: u8,
    /// Operand.
    pub k: u32,
}

/// An instruction without a comparison (`BPF_STMT`).
pub const fn statement(code: u16, k: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, k }
}

/// Continues if the comparison is true, otherwise skips `count` instructions.
pub const fn jump_unless(code: u16, k: u32, count: u8) -> Instruction {
    Instruction { code, if_true: 0, if_false: count, k }
}

/// Skips `count` instructions if the comparison is true.
pub const fn jump_if(code: u16, k: u32, count: u8) -> Instruction {
    Instruction { code, if_true: count, if_false: 0, k }
}

/// Operations in use here (linux/filter.h, linux/bpf_common.h).
pub mod op {
    /// Loads the 32-bit word at `k`.
    pub const LOAD_WORD: u16 = 0x20;
    /// Loads the 16-bit half-word at `k`.
    pub const LOAD_HALF: u16 = 0x28;
    /// Loads the byte at `k`.
    pub const LOAD_BYTE: u16 = 0x30;
    /// Loads the half-word at `k` after the header measured by [`HEADER_LENGTH`].
    pub const LOAD_HALF_BEYOND_HEADER: u16 = 0x48;
    /// Sets the index register to the length of the IPv4 header at `k`.
    pub const HEADER_LENGTH: u16 = 0xb1;
    /// Bitwise AND of the loaded value with `k`.
    pub const AND: u16 = 0x54;
    /// Whether the loaded value equals `k`.
    pub const IS_EQUAL: u16 = 0x15;
    /// Whether the loaded value has any bit of `k`.
    pub const HAS_BITS: u16 = 0x45;
    /// Skips `k` instructions.
    pub const JUMP: u16 = 0x05;
    /// Returns: keep `k` bytes.
    pub const RETURN: u16 = 0x06;
}
