//! The committed list of the draft's pseudocode is of the revision that the constants name, and
//! `scripts/draft-changes` finds what a text changes.

use fullpipe_conformance::{DRAFT_COMMIT, DRAFT_REVISION};
use std::path::Path;
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn draft_changes(arguments: &[&str]) -> Output {
    Command::new(root().join("scripts/draft-changes")).args(arguments).output().unwrap()
}

#[test]
fn the_reviewed_pseudocode_is_of_the_revision_that_bbr3_follows() {
    let list = std::fs::read_to_string(root().join("ci/draft-pseudocode.sha256")).unwrap();
    let reviewed = format!("# Pseudocode last reviewed: {DRAFT_REVISION}, commit {DRAFT_COMMIT}");
    assert_eq!(list.lines().next(), Some(reviewed.as_str()));
    // The draft has 84 functions and 14 constants.
    assert_eq!(list.lines().filter(|line| !line.starts_with('#')).count(), 98);
}

#[test]
fn changed_new_and_gone_functions_of_a_made_up_draft_are_found() {
    let checked = draft_changes(&["--self-test"]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn a_draft_that_differs_fails_and_names_the_functions() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("draft.md");
    std::fs::write(&text, "~~~~\n  OnTransmit():\n    Wait()\n\n  Invented():\n    Wait()\n~~~~\n").unwrap();
    let checked = draft_changes(&[text.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1));
    let printed = String::from_utf8(checked.stdout).unwrap();
    for line in ["changed  OnTransmit", "new      Invented", "gone     OnInit"] {
        assert!(printed.lines().any(|l| l == line), "{line} is missing:\n{printed}");
    }
    std::fs::write(&text, "No pseudocode.\n").unwrap();
    assert_eq!(draft_changes(&[text.to_str().unwrap()]).status.code(), Some(2));
}
