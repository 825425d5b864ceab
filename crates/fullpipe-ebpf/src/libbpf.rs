//! Opens BPF objects, and explains what libbpf and the verifier reject.

use crate::error::{Error, Result};
use libbpf_rs::{ObjectBuilder, OpenObject, PrintLevel};
use std::sync::Mutex;

/// The kernel's TCP_CA_NAME_MAX, with the NUL at the end.
pub(crate) const NAME_SIZE: usize = 16;

pub(crate) fn open(object: &[u8]) -> Result<OpenObject> {
    ObjectBuilder::default()
        .open_memory(object)
        .map_err(|error| Error::Malformed(format!("the BPF object cannot be opened: {error}")))
}

/// Writes a controller's name into a field of [`NAME_SIZE`] bytes.
pub(crate) fn write_name(field: &mut [u8], name: &str) {
    let length = name.len().min(NAME_SIZE - 1);
    field.fill(0);
    field[..length].copy_from_slice(&name.as_bytes()[..length]);
}

/// Collects messages of libbpf and the verifier, which use one process-wide callback. Loads are
/// serialised.
pub(crate) struct LibbpfLog {
    _guard: std::sync::MutexGuard<'static, ()>,
}

static LOG_OWNER: Mutex<()> = Mutex::new(());
static TEXT: Mutex<String> = Mutex::new(String::new());

fn lock<T>(mutex: &'static Mutex<T>) -> std::sync::MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl LibbpfLog {
    pub fn capture() -> Self {
        let guard = lock(&LOG_OWNER);
        lock(&TEXT).clear();
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| lock(&TEXT).push_str(&text))));
        LibbpfLog { _guard: guard }
    }

    pub fn text(&mut self) -> String {
        lock(&TEXT).clone()
    }
}

/// Runs `load` with libbpf's messages captured, to explain errors.
pub(crate) fn quietly<T>(load: impl FnOnce() -> libbpf_rs::Result<T>) -> Result<T> {
    let mut log = LibbpfLog::capture();
    load().map_err(|error| explain(&error, &log.text()))
}

pub(crate) fn explain(error: &libbpf_rs::Error, log: &str) -> Error {
    use libbpf_rs::ErrorKind::PermissionDenied;
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[confidentiality]") {
        return Error::impossible(
            "the kernel is locked down for confidentiality, which forbids BPF programs that read kernel \
             memory",
            "boot with lockdown=integrity or without lockdown (Secure Boot alone is fine)",
        );
    }
    if error.kind() == PermissionDenied && !log.contains("BEGIN PROG LOAD LOG") {
        return Error::impossible(
            format!(
                "loading BPF programs is not permitted: {}",
                missing_capabilities().unwrap_or_else(|| {
                    "the capabilities are not in the initial user namespace".to_owned()
                })
            ),
            "run as root, or give the process CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN",
        );
    }
    if let Some(helper) = unknown_helper(log) {
        return Error::impossible(
            format!("this kernel has no BPF helper {helper}, which the programs need"),
            "use a newer kernel; see docs/reference/kernels.md",
        );
    }
    let last: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let tail = last[last.len().saturating_sub(12)..].join("\n    ");
    Error::impossible(
        format!("the kernel rejected the programs: {error}\n    {tail}"),
        "this is a bug in fullpipe on this kernel: please report the lines above with `uname -r`",
    )
}

/// Extracts the helper from the verifier's message `invalid func unknown#158`.
fn unknown_helper(log: &str) -> Option<String> {
    let number = log.split("invalid func unknown#").nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?;
    Some(match number {
        "" => return None,
        "158" => "bpf_get_current_task_btf (Linux has it since 5.11)".to_owned(),
        other => format!("number {other}"),
    })
}

/// The capabilities this process lacks to load controllers, if any: `CAP_BPF missing`.
pub fn missing_capabilities() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let missing: Vec<&str> = [("CAP_NET_ADMIN", 12), ("CAP_PERFMON", 38), ("CAP_BPF", 39)]
        .into_iter()
        // CAP_SYS_ADMIN implies those split from it.
        .filter(|(_, bit)| effective >> bit & 1 == 0 && (*bit == 12 || effective >> 21 & 1 == 0))
        .map(|(name, _)| name)
        .collect();
    (!missing.is_empty()).then(|| format!("{} missing", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_helper_is_named() {
        let log = "39: (85) call unknown#158\ninvalid func unknown#158\nprocessed 65 insns";
        assert!(unknown_helper(log).unwrap().contains("bpf_get_current_task_btf"));
        assert_eq!(unknown_helper("invalid func unknown#7").unwrap(), "number 7");
        assert_eq!(unknown_helper("invalid func unknown#"), None);
        assert_eq!(unknown_helper("no write support to tcp_sock at off 404"), None);
    }
}
