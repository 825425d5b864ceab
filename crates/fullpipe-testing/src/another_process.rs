use std::process::Command;

/// What begins a line that is meant for the other process.
const MARK: &str = "digest ";

/// Prints `lines` for [`printed_in_another_process`].
pub fn print_lines(lines: &[String]) {
    lines.iter().for_each(|line| println!("{MARK}{line}"));
}

/// The lines that the ignored test `test` of this test program [prints](print_lines) in a process
/// of its own: results of the same seed must not depend on the process.
///
/// # Panics
/// If the program does not start.
pub fn printed_in_another_process(test: &str) -> Vec<String> {
    let program = std::env::current_exe().expect("the test's own program");
    let output = Command::new(program).args(["--exact", test, "--ignored", "--nocapture"]).output();
    let printed = output.expect("the test's own program starts").stdout;
    // The harness may have begun the line.
    let digests = String::from_utf8_lossy(&printed);
    digests.lines().filter_map(|line| line.split_once(MARK)).map(|(_, digest)| digest.to_owned()).collect()
}
