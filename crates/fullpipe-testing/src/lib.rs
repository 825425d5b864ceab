//! Claims against the clock, for tests on machines that others use too.
//!
//! A test that fails because the machine stood still says nothing about the program, and one that is repeated until it passes says
//! little. So every attempt comes with doubts: what its own audit found, and what the processors did meanwhile ([`Machine`]). Attempts
//! without doubts decide; where there are too few of them the claim is "not shown", on a line that `./x test` counts and tries again
//! when the machine is quiet.

mod claims;
mod machine;

pub use claims::{Attempt, comes_right, doubts, failed, shows};
pub use machine::Machine;
