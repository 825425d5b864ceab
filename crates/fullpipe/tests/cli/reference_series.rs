//! The reference series of BBR v3 are simulated byte for byte as they were published: the plain
//! flows in their short form, which `ci/reference-series.sha256` lists. The test `reference_cases`
//! compares the draft's cases in the same list.

use std::path::Path;
use std::process::Command;

#[test]
fn reference_series_are_the_same_bytes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(root.join("scripts/reference-series"))
        .args(["--short", "--only", "flows"])
        .arg(folder.path())
        .env("FULLPIPE", env!("CARGO_BIN_EXE_fullpipe"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let sums = read(&folder.path().join("SHA256SUMS"));
    let listed = read(&root.join("ci/reference-series.sha256"));
    let listed: String = listed.split_inclusive('\n').filter(|line| !line.contains("  cases/")).collect();
    // Four round-trip times, four rates, two variants, two recordings, three files of each.
    assert_eq!(sums.lines().count(), 4 * 4 * 2 * 2 * 3);
    let differ: Vec<&str> = sums.lines().filter(|line| !listed.lines().any(|l| l == *line)).collect();
    assert!(
        differ.is_empty() && sums == listed,
        "{} files differ:\n{}\nIf the change is meant: scripts/reference-series --short DIR, and \
         DIR/SHA256SUMS replaces ci/reference-series.sha256",
        differ.len(),
        differ.join("\n")
    );
}

#[test]
fn missing_program_and_failed_simulation_are_reported_in_a_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // `false` is found on PATH, and every simulation with it fails.
    for (program, code, says) in
        [("no-such-fullpipe", 3, "no such program"), ("false", 1, "1ms-10mbit-startup.toml: exit code 1")]
    {
        let folder = tempfile::tempdir().unwrap();
        let made = Command::new(root.join("scripts/reference-series"))
            .args(["--short", "--only", "flows"])
            .arg(folder.path())
            .env("FULLPIPE", program)
            .output()
            .unwrap();
        let printed = String::from_utf8(made.stderr).unwrap();
        assert_eq!(made.status.code(), Some(code), "{program}: {printed}");
        assert!(printed.contains(says) && printed.lines().count() == 1, "{program}: {printed}");
    }
}
