//! What a thread may do without being root (capabilities(7)): given up for good, or handed on to the program that it executes.

use nix::errno::Errno;
use std::io;

/// A capability, by its number in linux/capability.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Capability {
    /// To look into other users' directories.
    DacReadSearch = 2,
    /// To open ports below 1024.
    NetBindService = 10,
    /// To choose controllers that `net.ipv4.tcp_allowed_congestion_control` keeps from users.
    NetAdmin = 12,
    /// To see and send packets of others: packet sockets, `ping`.
    NetRaw = 13,
    /// To see which sockets other users' processes hold.
    SysPtrace = 19,
}

impl Capability {
    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Gives up every capability of the calling thread but `kept`.
///
/// # Errors
/// When the thread may not change its capabilities, and has some to give up.
pub fn keep_only(kept: &[Capability]) -> io::Result<()> {
    let [low, high] = get()?;
    let kept = mask(kept) & low.permitted;
    // Where a service manager gave no more it may also have forbidden to change it.
    if (low.permitted | low.effective) & !kept == 0 && high.permitted | high.effective == 0 {
        return Ok(());
    }
    set(&[Sets { effective: kept, permitted: kept, inheritable: 0 }, Sets::default()])
}

/// Lets the program that the calling thread will execute keep those of `handed` that the thread has, though its user be not
/// root. Only makes system calls, so it may be called between fork and exec.
///
/// # Errors
/// When the thread may not change its capabilities. That the kernel knows no ambient ones (before Linux 4.3) is none.
pub fn keep_across_exec(handed: &[Capability]) -> io::Result<()> {
    let mut sets = get()?;
    sets[0].inheritable |= sets[0].permitted & mask(handed);
    set(&sets)?;
    for &capability in handed.iter().filter(|c| sets[0].inheritable & c.bit() != 0) {
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
    /// Of the third version, the calling thread's.
    fn own() -> Self {
        Header { version: 0x2008_0522, pid: 0 }
    }
}

/// `struct __user_cap_data_struct`: of 32 capabilities, a bit each. The third version has two: those from 32 on are in the
/// second.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn get() -> io::Result<[Sets; 2]> {
    let (mut header, mut sets) = (Header::own(), [Sets::default(); 2]);
    // SAFETY: header and sets have the layout that this version takes, and live through the call.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    Errno::result(result)?;
    Ok(sets)
}

fn set(sets: &[Sets; 2]) -> io::Result<()> {
    let mut header = Header::own();
    // SAFETY: header and sets have the layout that this version takes, and live through the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    Errno::result(result)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::thread;

    /// A set as it stands in a thread's `status` (proc_pid_status(5)).
    fn told(by: &str, set: &str) -> u64 {
        let line = by.lines().find_map(|line| line.strip_prefix(set)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    fn own() -> String {
        std::fs::read_to_string("/proc/thread-self/status").unwrap()
    }

    #[test]
    fn what_is_not_kept_is_gone_and_what_is_gone_does_not_come_back() {
        // In a thread of its own: capabilities are a thread's.
        let test = thread::spawn(|| {
            let before = told(&own(), "CapPrm:");
            keep_only(&[Capability::NetAdmin, Capability::NetRaw]).unwrap();
            let both = before & u64::from(mask(&[Capability::NetAdmin, Capability::NetRaw]));
            assert_eq!((told(&own(), "CapPrm:"), told(&own(), "CapEff:")), (both, both));
            keep_only(&[Capability::NetAdmin, Capability::SysPtrace]).unwrap();
            assert_eq!(told(&own(), "CapPrm:"), before & u64::from(Capability::NetAdmin.bit()));
        });
        test.join().unwrap();
    }

    #[test]
    fn a_program_is_handed_what_there_is() {
        let test = thread::spawn(|| {
            keep_only(&[Capability::NetAdmin]).unwrap();
            let there = told(&own(), "CapPrm:");
            keep_across_exec(&[Capability::NetAdmin, Capability::NetRaw]).unwrap();
            let output = Command::new("cat").arg("/proc/self/status").output().unwrap();
            assert_eq!(told(&String::from_utf8_lossy(&output.stdout), "CapAmb:"), there);
        });
        test.join().unwrap();
    }
}
