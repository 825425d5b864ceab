//! Claims against the clock, for tests on machines that others use too; and pages in a real browser.
//!
//! A test that fails because the machine stood still says nothing about the program, and one that is repeated until it passes says
//! little. So every attempt comes with doubts: what its own audit found, and what the processors did meanwhile ([`Machine`]). Attempts
//! without doubts decide; where there are too few of them the claim is "not shown", on a line that `./x test` counts and tries again
//! when the machine is quiet.

mod browser;
mod claims;
mod machine;
mod visit;

pub use browser::{Browsed, browse};
pub use claims::{Attempt, comes_right, doubts, failed, shows};
pub use machine::Machine;
pub use visit::{View, Visited, visit};

/// Whether other machines have had this one's processors for so long that `./x test` stopped waiting for them (`FULLPIPE_BUSY`): what is
/// doubted is then tried once.
pub fn processors_are_taken() -> bool {
    std::env::var_os("FULLPIPE_BUSY").is_some_and(|set| !set.is_empty())
}
