//! Runs the program as a user's shell does, and what it prints.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

pub fn fullpipe(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    command.args(args).env_remove("COLUMNS").env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

pub fn run(args: &[&str]) -> Output {
    fullpipe(args).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The output of a successful command.
pub fn stdout(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

pub fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

/// The error of a command that exits with 2.
pub fn refusal(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
    assert!(output.stdout.is_empty(), "nothing may be run: {}", text(&output.stdout));
    text(&output.stderr)
}
