//! Timing claims for tests on busy machines, and pages in a real browser.
//!
//! A test that fails because the machine stalled says nothing about the program, and one that is
//! repeated until it passes says little. So each attempt records its disturbances: findings of its
//! own audit, and stalls of the CPUs ([`Machine`]). Undisturbed attempts decide; with too few of
//! them, the claim is "not shown", on a line that `./x test` counts and retries when the machine is
//! quiet.

mod browser;
mod claims;
mod machine;
mod visit;

pub use browser::{BrowserOutput, browse};
pub use claims::{Attempt, check_claim, check_repeatedly, failed_checks, invalid_reasons};
pub use machine::Machine;
pub use visit::{View, Visit, visit};

/// Whether the host stayed busy for so long that `./x test` stopped waiting (`FULLPIPE_BUSY`):
/// disturbed attempts are then not repeated.
pub fn host_is_busy() -> bool {
    std::env::var_os("FULLPIPE_BUSY").is_some_and(|set| !set.is_empty())
}
