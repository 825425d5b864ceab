//! Controllers in network and mount namespaces of the test.

use crate::loading::can_load;
use fullpipe_ebpf::lifecycle::{self, Status};
use std::process::Command;

/// Runs an ignored test of the calling file in its own namespaces with a BPF file system.
pub fn in_a_space(part: &str) {
    in_a_space_with(part, &[]);
}

/// If set, controllers are registered as on a kernel without BPF links.
pub const WITHOUT_LINKS: &str = "FULLPIPE_TEST_WITHOUT_LINKS";

/// The same as on a kernel without BPF links for controllers.
pub fn in_a_space_without_links(part: &str) {
    in_a_space_with(part, &[(WITHOUT_LINKS, "1")]);
}

fn in_a_space_with(part: &str, environment: &[(&str, &str)]) {
    if !can_load() {
        return;
    }
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "ulimit -n 5000 && mount -t bpf bpf /sys/fs/bpf && mount -t tmpfs tmpfs /run && ip link set lo up && \
         exec {} --exact {part} --ignored --nocapture",
        own.display()
    );
    let mut inside = Command::new("unshare");
    inside.args(["-n", "-m", "sh", "-c", &script]).envs(environment.iter().copied());
    assert!(inside.status().unwrap().success());
}

/// The status of the controller that is loaded as `name`.
pub fn status(name: &str) -> Status {
    lifecycle::status().unwrap().into_iter().find(|one| one.name == name).unwrap()
}

/// Unloads it.
pub fn unload(name: &str) {
    let mut fullpipe = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    // For any controller with this name.
    assert!(fullpipe.args(["cc", "unload", "bbr3", "--name", name]).status().unwrap().success());
}
