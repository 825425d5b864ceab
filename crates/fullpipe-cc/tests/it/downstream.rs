//! The example of the front page compiles and runs in a crate that depends on this one and on
//! nothing else: no feature that only this workspace turns on.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The first code block of the crate's documentation.
fn front_page(documentation: &str) -> String {
    let lines = documentation.lines().filter_map(|line| line.strip_prefix("//!"));
    let block = lines.skip_while(|line| line.trim() != "```").skip(1).take_while(|line| line.trim() != "```");
    block.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn the_front_pages_sender_runs_with_this_crate_alone() -> Result<(), Box<dyn Error>> {
    let krate = Path::new(env!("CARGO_MANIFEST_DIR"));
    let code = front_page(&fs::read_to_string(krate.join("src/lib.rs"))?);
    assert!(code.contains("SendController::new"), "{code}");
    let downstream = Path::new(env!("CARGO_TARGET_TMPDIR")).join("downstream");
    fs::create_dir_all(downstream.join("src"))?;
    fs::write(
        downstream.join("Cargo.toml"),
        format!(
            "[package]\nname = 'downstream'\nedition = '2024'\n[workspace]\n[dependencies]\n\
             fullpipe-cc.path = '{}'\n",
            krate.display()
        ),
    )?;
    fs::write(downstream.join("src/main.rs"), format!("fn main() {{\n{code}}}\n"))?;
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--target-dir"])
        .arg(downstream.join("target"))
        .current_dir(&downstream)
        .output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
