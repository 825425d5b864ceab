//! The crate builds into a program without a standard library.

use std::path::Path;
use std::process::Command;

#[test]
fn a_program_without_a_standard_library_links_every_controller() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("freestanding/Cargo.toml");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("freestanding");
    let build = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--locked", "--manifest-path"])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target)
        .output()
        .expect("cargo runs, for it runs this test");
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
}
