//! A program that never says where its copies arrive.

use fullpipe_lab::{LabError, Shell, shell};
use std::time::{Duration, Instant};

#[test]
fn missing_requirements_are_reported_and_nothing_is_started() {
    let started = Instant::now();
    let error = shell(&Shell { command: vec!["true".into()], mtu: 1500, ..Shell::default() }).unwrap_err();
    assert!(matches!(error, LabError::Failed(_)), "{error}");
    assert!(error.to_string().contains("reenter() at the beginning of its main"), "{error}");
    // A copy of this program would run this test again, and its copy again.
    assert!(started.elapsed() < Duration::from_secs(5));
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    assert_eq!(children, "");
}
