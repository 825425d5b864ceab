//! The static library: the functions of `fullpipe-cc-c`, and what a library without `std` must add.
#![no_std]

use core::panic::PanicInfo;
pub use fullpipe_cc_c::*;

/// Stops the program. No input that the header allows leads here; without a C library there is no
/// `abort` to call.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    // SAFETY: an invalid instruction does not return.
    unsafe {
        core::arch::asm!("ud2", options(noreturn, nomem, nostack))
    }
    #[cfg(any(target_arch = "aarch64", target_arch = "arm"))]
    // SAFETY: an invalid instruction does not return.
    unsafe {
        core::arch::asm!("udf #0", options(noreturn, nomem, nostack))
    }
    #[cfg(any(target_arch = "riscv32", target_arch = "riscv64"))]
    // SAFETY: an invalid instruction does not return.
    unsafe {
        core::arch::asm!("unimp", options(noreturn, nomem, nostack))
    }
    #[allow(unreachable_code, reason = "other processors")]
    loop {
        core::hint::spin_loop();
    }
}
