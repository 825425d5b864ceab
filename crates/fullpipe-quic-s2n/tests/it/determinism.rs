//! The same seed gives the same packets at the same times, in each process.

use crate::transfer::Transfer;
use fullpipe_units::Span;
use std::process::Command;

/// Set for the child process, which prints its hash.
const CHILD: &str = "FULLPIPE_PRINT_HASH";

fn hash(seed: u64) -> u64 {
    let run = Transfer::over_100mbit("bbr3", "1%", seed);
    Transfer { duration: Span::from_secs(3), ..run }.run().hash
}

#[test]
fn same_seed_gives_the_same_bytes_in_two_processes() {
    let here = format!("hash={:016x}", hash(7));
    if std::env::var_os(CHILD).is_some() {
        println!("{here}");
        return;
    }
    let child = Command::new(std::env::current_exe().expect("the test's own program"))
        .args(["--exact", "determinism::same_seed_gives_the_same_bytes_in_two_processes", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("the test's own program starts");
    let there = String::from_utf8_lossy(&child.stdout);
    assert!(there.contains(&here), "{here} is missing in:\n{there}");
    assert_ne!(hash(7), hash(8), "the seed has an effect");
}
