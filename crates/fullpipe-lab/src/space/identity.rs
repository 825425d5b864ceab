//! Ids and capabilities inside the user namespace: the same ids as outside, every capability over
//! the lab's network and none over the machine.

use crate::LabError;
use fullpipe_kernel::capabilities::{self, Capability};
use nix::errno::Errno;
use std::fs;
use std::io;

/// Writes the identity map of the user namespace of process `pid`, a child that waits for it.
///
/// A privileged caller maps all its ids, so that its files keep their owners; an unprivileged one
/// can map only its own user and group.
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
    // Both errors occur when AppArmor or a similar policy allows a namespace but no capabilities in it.
    let cause = error.raw_os_error().map_or(Errno::EPERM, Errno::from_raw);
    LabError::Impossible(format!(
        "cannot write {file} of a new user namespace ({error}). {}",
        advice(cause, &["user"])
    ))
}

/// Why namespaces of these kinds (named as in /proc/sys/user) were refused with `cause`, and the
/// remedy.
pub(super) fn advice(cause: Errno, kinds: &[&str]) -> String {
    advise(cause, kinds, &|path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned()))
}

/// [`advice`], with a `read` function for the machine's files.
fn advise(cause: Errno, kinds: &[&str], read: &dyn Fn(&str) -> Option<String>) -> String {
    let is = |path: &str, value: &str| read(path).as_deref() == Some(value);
    match cause {
        // unshare(2): the limits in /proc/sys/user (namespaces(7)), or more than 32 nested namespaces; EUSERS
        // before Linux 4.9.
        Errno::ENOSPC | Errno::EUSERS => {
            let limit = |kind: &&str| {
                let name = format!("max_{kind}_namespaces");
                let limit: u64 = read(&format!("/proc/sys/user/{name}"))?.parse().ok()?;
                Some((format!("user.{name}"), limit))
            };
            let limits: Vec<(String, u64)> = kinds.iter().filter_map(limit).collect();
            if let Some((name, _)) = limits.iter().find(|(_, limit)| *limit == 0) {
                return format!("They are switched off here ({name} is 0): as root, `sysctl {name}=10000`");
            }
            let limits: Vec<String> =
                limits.iter().map(|(name, limit)| format!("{name} is {limit}")).collect();
            format!(
                "This is a limit, not a missing permission: this user has as many namespaces as are \
                 allowed here ({}) or in an outer namespace, or user namespaces nest deeper than 32. As \
                 root, raise the limit, or end what holds them (`lsns` lists it)",
                if limits.is_empty() { "see /proc/sys/user".to_owned() } else { limits.join(", ") }
            )
        }
        Errno::EINVAL => "The kernel was built without them (CONFIG_USER_NS, CONFIG_NET_NS, \
                          CONFIG_PID_NS)"
            .to_owned(),
        Errno::ENOMEM => "There is not enough memory".to_owned(),
        _ if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") => {
            "AppArmor restricts unprivileged user namespaces here: as root, \
             `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or run fullpipe as root"
                .to_owned()
        }
        _ if is("/proc/sys/kernel/unprivileged_userns_clone", "0") => {
            "unprivileged user namespaces are switched off: as root, \
             `sysctl kernel.unprivileged_userns_clone=1`, or run fullpipe as root"
                .to_owned()
        }
        _ => match read("/proc/self/mountinfo") {
            None => {
                "/proc is not mounted here, as in a chroot, from where the kernel makes no user namespaces: \
                 run fullpipe outside of it, or in a container"
                    .to_owned()
            }
            // Only mounts that can be reached from the root directory are listed, which is itself a
            // mount unless in a chroot (proc_pid_mountinfo(5), current_chrooted() in fs/namespace.c).
            Some(mounts) if !mounts.lines().any(|line| line.split(' ').nth(4) == Some("/")) => {
                "This is a chroot, in which the kernel creates no user namespaces (unshare(2)): run \
                 fullpipe outside of it, or in a container"
                    .to_owned()
            }
            Some(_) => "A container's seccomp or LSM policy may forbid it (with Docker or Podman, \
                        `--security-opt seccomp=unconfined` or `--privileged` allows it), or a chroot \
                        into the root of a file system"
                .to_owned(),
        },
    }
}

/// Capabilities that commands in the lab keep although their user is not root: to choose any
/// controller, to capture, to use low ports. They apply to the lab's network only.
const KEPT: [Capability; 3] = [Capability::NetBindService, Capability::NetAdmin, Capability::NetRaw];

/// Lets the program that this process executes keep [`KEPT`]. Only makes system calls, so it may be
/// called between fork and exec.
pub(crate) fn raise_ambient_capabilities() -> io::Result<()> {
    capabilities::keep_across_exec(&KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_explained_by_its_cause() {
        let machine = |files: &'static [(&'static str, &'static str)]| {
            move |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
        };
        let root = (
            "/proc/self/mountinfo",
            "22 1 254:0 / / rw - ext4 /dev/vda rw\n23 22 0:5 / /proc rw - proc proc rw",
        );
        let limits = machine(&[
            ("/proc/sys/user/max_user_namespaces", "5"),
            ("/proc/sys/user/max_net_namespaces", "9"),
        ]);
        for cause in [Errno::ENOSPC, Errno::EUSERS] {
            let text = advise(cause, &["user", "net"], &limits);
            assert!(text.contains("user.max_user_namespaces is 5, user.max_net_namespaces is 9"), "{text}");
            assert!(!text.contains("seccomp") && !text.contains("CONFIG"), "{text}");
        }
        let off = machine(&[("/proc/sys/user/max_net_namespaces", "0")]);
        let text = advise(Errno::ENOSPC, &["net", "pid"], &off);
        assert!(text.contains("`sysctl user.max_net_namespaces=10000`"), "{text}");

        let chrooted = machine(&[("/proc/self/mountinfo", "23 22 0:5 / /proc rw - proc proc rw")]);
        for text in
            [advise(Errno::EPERM, &["user"], &chrooted), advise(Errno::EPERM, &["user"], &machine(&[]))]
        {
            assert!(
                text.contains("chroot") && !text.contains("CONFIG") && !text.contains("seccomp"),
                "{text}"
            );
        }
        let text = advise(Errno::EINVAL, &["user"], &chrooted);
        assert!(text.contains("CONFIG_USER_NS"), "{text}");

        let text = advise(Errno::EPERM, &["user"], &move |path| (path == root.0).then(|| root.1.to_owned()));
        assert!(text.contains("seccomp=unconfined"), "{text}");
        let debian = machine(&[("/proc/sys/kernel/unprivileged_userns_clone", "0")]);
        assert!(
            advise(Errno::EPERM, &["user"], &debian).contains("sysctl kernel.unprivileged_userns_clone=1")
        );
        let ubuntu = machine(&[("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1")]);
        assert!(advise(Errno::EACCES, &["user"], &ubuntu).contains("AppArmor"));
    }
}
