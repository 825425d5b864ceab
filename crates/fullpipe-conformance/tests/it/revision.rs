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

#[test]
fn an_unusable_list_is_an_error_and_no_difference() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["scripts", "ci"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    std::fs::copy(root().join("scripts/draft-changes"), path("scripts/draft-changes")).unwrap();
    std::fs::write(path("draft.md"), "~~~~\n  OnTransmit():\n    Wait()\n~~~~\n").unwrap();
    let check = || {
        let command = [path("scripts/draft-changes"), path("draft.md")];
        let output = Command::new("python3").args(command).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, printed) = check();
    assert!(code == Some(2) && printed.contains("draft-pseudocode.sha256: No such file"), "{printed}");
    for text in ["", "# Pseudocode last reviewed: draft-00\n", "# Pseudocode last reviewed: draft-00\n00\n"] {
        std::fs::write(path("ci/draft-pseudocode.sha256"), text).unwrap();
        let (code, printed) = check();
        assert!(code == Some(2) && printed.lines().count() == 1, "{text:?}: {code:?} {printed}");
    }
}
