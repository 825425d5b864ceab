//! Kernel settings of one network namespace.

use std::fs;

/// Sets kernel settings and records those that failed: in a container `/proc/sys` is often
/// read-only, and most settings are improvements, not requirements.
#[derive(Default)]
pub(crate) struct Sysctls {
    /// `name: reason` of the settings that could not be changed.
    pub(crate) refused: Vec<String>,
}

impl Sysctls {
    /// Sets `net.<name>` (with slashes) of the calling thread's namespace.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> bool {
        match fs::write(format!("/proc/sys/net/{name}"), value) {
            Ok(()) => true,
            Err(e) => {
                self.refused.push(format!("net.{}: {e}", name.replace('/', ".")));
                false
            }
        }
    }
}
