//! Controllers in network and mount namespaces of a test's own.

use crate::loading::can_load;
use fullpipe_ebpf::life::{self, Status};
use std::process::Command;

/// Runs a part of the test's file, an ignored test, in namespaces of its own with a BPF file system.
pub fn in_a_space(part: &str) {
    if !can_load() {
        return;
    }
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "ulimit -n 5000 && mount -t bpf bpf /sys/fs/bpf && mount -t tmpfs tmpfs /run && ip link set lo up && \
         exec {} --exact {part} --ignored --nocapture",
        own.display()
    );
    assert!(Command::new("unshare").args(["-n", "-m", "sh", "-c", &script]).status().unwrap().success());
}

/// What `cc status` knows of the controller that is loaded as `name`.
pub fn status(name: &str) -> Status {
    life::status().unwrap().into_iter().find(|one| one.name == name).unwrap()
}

/// Takes it out again.
pub fn unload(name: &str) {
    let mut fullpipe = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    // Whichever controller has the name.
    assert!(fullpipe.args(["cc", "unload", "bbr3", "--name", name]).status().unwrap().success());
}
