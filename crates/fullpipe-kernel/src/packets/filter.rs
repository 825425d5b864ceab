//! Filter programs in classic BPF, by which the kernel leaves out what nobody will look at before it is copied.

/// One instruction of a filter program (`struct sock_filter` in linux/filter.h). A program gives how many bytes of a packet are
/// kept; 0 leaves it out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to pass over if a comparison holds.
    pub if_true: u8,
    /// The same if not.
    pub if_false: u8,
    /// Operand.
    pub k: u32,
}

/// One that compares nothing.
pub const fn statement(code: u16, k: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, k }
}

/// Goes on with the next instruction if it is so, and passes over `others` if not.
pub const fn jump_unless(code: u16, k: u32, others: u8) -> Instruction {
    Instruction { code, if_true: 0, if_false: others, k }
}

/// Passes over `others` if it is so.
pub const fn jump_if(code: u16, k: u32, others: u8) -> Instruction {
    Instruction { code, if_true: others, if_false: 0, k }
}

/// Operations (linux/filter.h, linux/bpf_common.h): of those that there are, those that are of use here.
pub mod op {
    /// Takes the four bytes at `k`.
    pub const LOAD_WORD: u16 = 0x20;
    /// Takes the two bytes at `k`.
    pub const LOAD_HALF: u16 = 0x28;
    /// Takes the byte at `k`.
    pub const LOAD_BYTE: u16 = 0x30;
    /// Takes the two bytes at `k` behind the header that [`HEADER_LENGTH`] measured.
    pub const LOAD_HALF_BEYOND_HEADER: u16 = 0x48;
    /// Measures the IPv4 header that begins at `k`.
    pub const HEADER_LENGTH: u16 = 0xb1;
    /// Keeps the bits of what was taken that `k` has, too.
    pub const AND: u16 = 0x54;
    /// Whether `k` was taken.
    pub const IS_EQUAL: u16 = 0x15;
    /// Whether what was taken has a bit of `k`.
    pub const HAS_BITS: u16 = 0x45;
    /// Passes over `k` instructions.
    pub const JUMP: u16 = 0x05;
    /// Ends: `k` bytes are kept.
    pub const RETURN: u16 = 0x06;
}
