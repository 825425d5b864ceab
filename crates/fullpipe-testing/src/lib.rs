//! Timing claims for tests on busy machines, memory of a test program, pages in a real browser, an
//! access list, random numbers, programs to execute, and the state of a kernel's BBR v3.
//!
//! A test that fails because the machine stalled says nothing about the program, and one that is
//! repeated until it passes says little. So an attempt with findings of its own audit decides
//! nothing, nor does one that fails beside stalls of the CPUs ([`Machine`]). With too few others the
//! claim is "not shown", on a line that `./x test` counts.

mod another_process;
mod bbr_info;
mod browser;
mod claims;
mod files;
mod machine;
mod memory;
mod own_test;
mod programs;
mod random;
mod visit;

pub use another_process::{print_lines, printed_in_another_process};
pub use bbr_info::bbr_v3_of_each_phase;
pub use browser::{BrowserOutput, browse};
pub use claims::{
    Attempt, Tried, check_brief_claim, check_claim, check_claim_after, check_repeatedly, failed_checks,
    invalid_reasons, try_claim,
};
pub use files::files_below;
pub use machine::Machine;
pub use memory::{CountingAllocator, MemoryUse, alone};
#[doc(hidden)]
pub use own_test::within_program;
pub use programs::{copy_program, write_script};
pub use random::Random;
pub use visit::{View, Visit, visit};

/// An access list in the kernel's form (uapi/linux/posix_acl_xattr.h): the owner and user 12345 read
/// and write, the group reads, the mask is both, others have nothing. Its mode is 0660, though the
/// group may not write.
pub fn access_list() -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, NONE), (2, 6, 12_345), (4, 4, NONE), (0x10, 6, NONE), (0x20, 0, NONE)];
    let encoded = entries.iter().flat_map(|(tag, permissions, id)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    });
    2_u32.to_le_bytes().into_iter().chain(encoded).collect()
}
