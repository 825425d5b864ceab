//! The congestion controllers of the running kernel. Their files are those of the calling thread's network namespace.

use std::io;

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

fn read(path: &str) -> io::Result<String> {
    std::fs::read_to_string(path).map_err(|e| io::Error::new(e.kind(), format!("cannot read {path}: {e}")))
}

fn words(path: &str) -> io::Result<Vec<String>> {
    Ok(read(path)?.split_ascii_whitespace().map(str::to_owned).collect())
}

/// Those that it has loaded. It may load others, which are modules, when somebody privileged asks for them.
///
/// # Errors
/// When `/proc` is not there.
pub fn available_controllers() -> io::Result<Vec<String>> {
    words(AVAILABLE)
}

/// Those that a program without `CAP_NET_ADMIN` may choose.
///
/// # Errors
/// When `/proc` is not there.
pub fn allowed_controllers() -> io::Result<Vec<String>> {
    words(ALLOWED)
}

/// The one that new sockets get.
///
/// # Errors
/// When `/proc` is not there.
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
