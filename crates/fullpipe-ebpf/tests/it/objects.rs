//! The BPF objects that are checked in are what their sources give, and the running kernel's
//! verifier takes them.

use fullpipe_ebpf::kernel::Kernel;
use fullpipe_ebpf::{Controller, loader};
use libbpf_rs::ObjectBuilder;
use std::path::Path;
use std::process::Command;

#[test]
fn the_objects_are_built_from_these_sources() {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    // Version 14 gives the very same bytes; another compiler gives other code for the same program.
    let there = ["clang-14", "llvm-strip-14", "make"]
        .iter()
        .all(|tool| Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success()));
    assert!(there || std::env::var_os("CI").is_none(), "CI must have clang-14, llvm-strip-14 and make");
    if !there {
        println!("SKIPPED: clang-14, llvm-strip-14 or make is not installed");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("make")
        .arg(format!("OUT={}", directory.path().display()))
        .current_dir(&bpf)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut compared = 0;
    for entry in std::fs::read_dir(bpf.join("objects")).unwrap() {
        let checked_in = entry.unwrap().path();
        let built = directory.path().join(checked_in.file_name().unwrap());
        assert!(
            std::fs::read(&checked_in).unwrap() == std::fs::read(&built).unwrap(),
            "{} differs from what its source gives: run `make -C crates/fullpipe-ebpf/bpf`",
            checked_in.display()
        );
        compared += 1;
    }
    assert_eq!(compared, 14);
}

#[test]
fn the_verifier_takes_every_controller_and_both_wrappers() {
    let kernel = Kernel::detect().ok().filter(|_| nix::unistd::Uid::effective().is_root());
    assert!(kernel.is_some() || std::env::var_os("CI").is_none(), "CI must be able to load controllers");
    let Some(kernel) = kernel else {
        println!("SKIPPED: needs root and BTF");
        return;
    };
    // Nothing is registered: the programs are only loaded.
    for controller in Controller::ALL {
        loader::load(controller, Some("fpt_verified"), &kernel).unwrap();
    }
    let has_bbr = kernel.missing_bbr_functions().is_empty();
    assert!(has_bbr || std::env::var_os("CI").is_none(), "CI's kernel must have BBR built in");
    if !has_bbr {
        println!("SKIPPED: the kernel's BBR is not built in");
        return;
    }
    for wrapped in ["bbr", "cubic"] {
        loader::load_wrapped(wrapped, "fpt_verified", &kernel).unwrap();
    }
}

/// A kernel that occasionally skips a callback reads an undefined return value. It acts on these
/// two immediately: a whole window leaves as one segment, and the send buffer grows as far
/// as `tcp_wmem` lets it.
#[test]
fn no_controller_answers_where_an_undefined_answer_does_harm() {
    for controller in Controller::ALL {
        let open = ObjectBuilder::default().open_memory(controller.object()).unwrap();
        let programs: Vec<String> =
            open.progs().map(|program| program.name().to_string_lossy().into_owned()).collect();
        assert!(programs.iter().any(|name| name.ends_with("_undo_cwnd")), "{programs:?}");
        for callback in ["min_tso_segs", "sndbuf_expand"] {
            assert!(!programs.iter().any(|name| name.ends_with(callback)), "{controller} has {callback}");
        }
    }
}
