//! Who we are inside a new user namespace: the same as outside, with every capability over the network
//! of the lab and none over the machine.

use crate::LabError;
use std::fs;
use std::io;

/// Gives the user namespace of process `pid`, a child of ours that waits for this, its identity map.
///
/// A privileged caller passes on all the ids it has, so that its files keep their owners; anybody else
/// can pass on exactly one user and one group: its own.
pub(super) fn map(pid: i32) -> Result<(), LabError> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    if uid.is_root() && map_all(pid).is_ok() {
        return Ok(());
    }
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/{pid}/{file}"), text).map_err(|e| refused(file, &e))
    };
    // Without this the kernel does not let an unprivileged process map a group (user_namespaces(7)).
    match fs::write(format!("/proc/{pid}/setgroups"), "deny") {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(refused("setgroups", &e)),
        _ => {}
    }
    write("uid_map", format!("{uid} {uid} 1\n"))?;
    write("gid_map", format!("{gid} {gid} 1\n"))
}

fn map_all(pid: i32) -> io::Result<()> {
    for kind in ["uid_map", "gid_map"] {
        let ours = fs::read_to_string(format!("/proc/self/{kind}"))?;
        let identity: String = ours
            .lines()
            .filter_map(|line| {
                let mut fields = line.split_whitespace();
                let (inside, count) = (fields.next()?, fields.nth(1)?);
                Some(format!("{inside} {inside} {count}\n"))
            })
            .collect();
        fs::write(format!("/proc/{pid}/{kind}"), identity)?;
    }
    Ok(())
}

fn refused(file: &str, error: &io::Error) -> LabError {
    LabError::Impossible(format!("cannot write {file} of a new user namespace ({error}). {}", advice()))
}

/// Why user namespaces may be missing here, and how to get them.
pub(super) fn advice() -> String {
    let read = |path: &str| fs::read_to_string(path).ok().map(|t| t.trim().to_owned());
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return "AppArmor restricts unprivileged user namespaces here: as root, \
                `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or run fullpipe as root"
            .to_owned();
    }
    if read("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return "unprivileged user namespaces are switched off: as root, \
                `sysctl kernel.unprivileged_userns_clone=1`, or run fullpipe as root"
            .to_owned();
    }
    if read("/proc/sys/user/max_user_namespaces").as_deref() == Some("0") {
        return "user namespaces are switched off: as root, `sysctl user.max_user_namespaces=10000`"
            .to_owned();
    }
    if !std::path::Path::new("/proc/self/ns/user").exists() {
        return "the kernel was built without user namespaces (CONFIG_USER_NS)".to_owned();
    }
    "A container's seccomp or LSM policy may forbid it: with Docker or Podman, \
     `--security-opt seccomp=unconfined` (or `--privileged`) allows it"
        .to_owned()
}

/// Capabilities that commands in the lab keep although their user is not root: to choose any controller,
/// to capture, to use low ports. They hold for the lab's network only.
const KEPT: [u32; 3] = [
    10, // CAP_NET_BIND_SERVICE
    12, // CAP_NET_ADMIN
    13, // CAP_NET_RAW
];

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Lets the program that this process will execute keep [`KEPT`]. Only makes system calls, so it may be
/// called between fork and exec.
pub(crate) fn raise_ambient_capabilities() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = CapabilityHeader { version: VERSION_3, pid: 0 };
    let mut data = [CapabilityData::default(); 2];
    // SAFETY: both structures have the layout of `struct __user_cap_header_struct` and of the two
    // `struct __user_cap_data_struct` that version 3 takes, and live through the call.
    if unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for capability in KEPT {
        data[0].inheritable |= data[0].permitted & (1 << capability);
    }
    // SAFETY: as above.
    if unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for capability in KEPT {
        if data[0].inheritable & (1 << capability) != 0 {
            // SAFETY: takes plain numbers.
            unsafe {
                libc::prctl(
                    libc::PR_CAP_AMBIENT,
                    libc::PR_CAP_AMBIENT_RAISE,
                    capability as libc::c_ulong,
                    0,
                    0,
                );
            }
        }
    }
    Ok(())
}
