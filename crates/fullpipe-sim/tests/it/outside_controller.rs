//! A controller from a crate that this workspace does not know is raced in the simulator: the
//! example crate is built as its users would build theirs, with the versions of dependencies that
//! the workspace has.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// A copy of the example outside the source tree, which nothing may write to: with the workspace's
/// lock file, and with the crates it depends on where they are.
fn copied(example: &Path, workspace: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside-controller");
    fs::create_dir_all(copy.join("src"))?;
    let manifest = fs::read_to_string(example.join("Cargo.toml"))?;
    let crates = format!("path = '{}/", workspace.join("crates").display());
    let manifest = manifest.replace("path = \"../../crates/", &crates).replace("\" }\n", "' }\n");
    fs::write(copy.join("Cargo.toml"), manifest)?;
    fs::copy(example.join("src/main.rs"), copy.join("src/main.rs"))?;
    fs::copy(workspace.join("Cargo.lock"), copy.join("Cargo.lock"))?;
    Ok(copy)
}

#[test]
fn the_example_races_a_toy_from_outside_in_under_seventy_lines() -> Result<(), Box<dyn Error>> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).ok_or("no workspace")?;
    let example = workspace.join("examples/outside-controller");
    let lines = fs::read_to_string(example.join("src/main.rs"))?.lines().count();
    assert!(lines < 70, "{lines} lines");

    let copy = copied(&example, workspace)?;
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--target-dir"])
        .arg(copy.join("target"))
        .current_dir(&copy)
        .output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // One line a flow: name, "1 of n:", rate in Mbit/s.
    let printed = String::from_utf8(output.stdout)?;
    let rates: Vec<(&str, f64)> = printed
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            Some((*words.first()?, words.get(4)?.parse().ok()?))
        })
        .collect();
    let names: Vec<&str> = rates.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["toy", "cubic", "bbr", "toy", "cubic", "bbr"], "{printed}");
    assert!(rates[..3].iter().all(|(_, mbit)| *mbit > 15.0), "alone each fills 20 Mbit/s:\n{printed}");
    let together: f64 = rates[3..].iter().map(|(_, mbit)| mbit).sum();
    assert!((15.0..20.0).contains(&together) && rates[3].1 > 0.1, "together they share it:\n{printed}");
    Ok(())
}
