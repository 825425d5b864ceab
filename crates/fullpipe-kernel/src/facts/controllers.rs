//! Congestion controllers of the running kernel, as seen from the calling thread's network
//! namespace.

use std::io;

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

fn read(path: &str) -> io::Result<String> {
    std::fs::read_to_string(path).map_err(|e| io::Error::new(e.kind(), format!("cannot read {path}: {e}")))
}

fn read_list(path: &str) -> io::Result<Vec<String>> {
    Ok(read(path)?.split_ascii_whitespace().map(str::to_owned).collect())
}

/// Loaded controllers. The kernel may load further modules when a privileged process selects them.
///
/// # Errors
/// When `/proc` is not available.
pub fn available_controllers() -> io::Result<Vec<String>> {
    read_list(AVAILABLE)
}

/// Controllers that processes without `CAP_NET_ADMIN` may select.
///
/// # Errors
/// When `/proc` is not available.
pub fn allowed_controllers() -> io::Result<Vec<String>> {
    read_list(ALLOWED)
}

/// The default controller of new sockets.
///
/// # Errors
/// When `/proc` is not available.
pub fn default_controller() -> io::Result<String> {
    Ok(read(DEFAULT)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_available_and_reno_always_is() {
        let available = available_controllers().unwrap();
        assert!(available.contains(&default_controller().unwrap()));
        assert!(available.contains(&"reno".to_owned()));
        assert!(allowed_controllers().unwrap().iter().all(|name| !name.is_empty()));
    }
}
