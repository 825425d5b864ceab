//! Capabilities of the calling thread (capabilities(7)): drop them permanently, or keep them across
//! exec.

use nix::errno::Errno;
use std::io;

/// A capability, by its number in linux/capability.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Capability {
    /// Bypass read and search permission checks.
    DacReadSearch = 2,
    /// Bind ports below 1024.
    NetBindService = 10,
    /// Select controllers outside `net.ipv4.tcp_allowed_congestion_control`.
    NetAdmin = 12,
    /// Open packet and raw sockets.
    NetRaw = 13,
    /// Read the descriptors of other users' processes.
    SysPtrace = 19,
}

impl Capability {
    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Drops every capability of the calling thread except `kept`.
///
/// # Errors
/// When the thread has capabilities to drop and may not change them.
pub fn keep_only(kept: &[Capability]) -> io::Result<()> {
    let [low, high] = get()?;
    let kept = mask(kept) & low.permitted;
    // A service manager that granted only these may also have forbidden capset(2).
    if (low.permitted | low.effective) & !kept == 0 && high.permitted | high.effective == 0 {
        return Ok(());
    }
    set(&[Sets { effective: kept, permitted: kept, inheritable: 0 }, Sets::default()])
}

/// Preserves the capabilities in `kept` that the calling thread has across exec, even for a
/// non-root user (ambient capabilities). It only makes system calls, so it may be called between
/// fork and exec.
///
/// # Errors
/// When the thread may not change its capabilities. Kernels without ambient capabilities (before
/// 4.3) are not an error.
pub fn keep_across_exec(kept: &[Capability]) -> io::Result<()> {
    let mut sets = get()?;
    sets[0].inheritable |= sets[0].permitted & mask(kept);
    set(&sets)?;
    for &capability in kept.iter().filter(|c| sets[0].inheritable & c.bit() != 0) {
        // SAFETY: takes plain numbers.
        unsafe {
            libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE,
                libc::c_ulong::from(capability as u32),
                0,
                0,
            );
        }
    }
    Ok(())
}

fn mask(capabilities: &[Capability]) -> u32 {
    capabilities.iter().fold(0, |mask, c| mask | c.bit())
}

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

impl Header {
    /// Version 3, for the calling thread.
    fn own() -> Self {
        Header { version: 0x2008_0522, pid: 0 }
    }
}

/// `struct __user_cap_data_struct`: a bit per capability. Version 3 has two of them, for
/// capabilities 0–31 and 32–63.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn get() -> io::Result<[Sets; 2]> {
    let (mut header, mut sets) = (Header::own(), [Sets::default(); 2]);
    // SAFETY: header and sets have the layout of this version, and live through the call.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    Errno::result(result)?;
    Ok(sets)
}

fn set(sets: &[Sets; 2]) -> io::Result<()> {
    let mut header = Header::own();
    // SAFETY: header and sets have the layout of this version, and live through the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    Errno::result(result)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::thread;

    /// A capability set from a thread's `status` (proc_pid_status(5)).
    fn parse_set(status: &str, set: &str) -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(set)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    fn own_status() -> String {
        std::fs::read_to_string("/proc/thread-self/status").unwrap()
    }

    #[test]
    fn dropped_capabilities_cannot_be_regained() {
        // In a separate thread: capabilities are per thread.
        let test = thread::spawn(|| {
            let before = parse_set(&own_status(), "CapPrm:");
            keep_only(&[Capability::NetAdmin, Capability::NetRaw]).unwrap();
            let both = before & u64::from(mask(&[Capability::NetAdmin, Capability::NetRaw]));
            assert_eq!(
                (parse_set(&own_status(), "CapPrm:"), parse_set(&own_status(), "CapEff:")),
                (both, both)
            );
            keep_only(&[Capability::NetAdmin, Capability::SysPtrace]).unwrap();
            assert_eq!(parse_set(&own_status(), "CapPrm:"), before & u64::from(Capability::NetAdmin.bit()));
        });
        test.join().unwrap();
    }

    #[test]
    fn kept_capabilities_survive_exec() {
        let test = thread::spawn(|| {
            keep_only(&[Capability::NetAdmin]).unwrap();
            let permitted = parse_set(&own_status(), "CapPrm:");
            keep_across_exec(&[Capability::NetAdmin, Capability::NetRaw]).unwrap();
            let output = Command::new("cat").arg("/proc/self/status").output().unwrap();
            assert_eq!(parse_set(&String::from_utf8_lossy(&output.stdout), "CapAmb:"), permitted);
        });
        test.join().unwrap();
    }
}
