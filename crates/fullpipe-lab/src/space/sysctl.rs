//! Kernel settings of one network namespace.

use std::fs;

/// Sets what can be set and remembers what could not: in a container `/proc/sys` is often read-only,
/// and most settings are improvements, not needs.
#[derive(Default)]
pub(crate) struct Sysctls {
    /// `name: reason` of the settings that stayed as they were.
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
