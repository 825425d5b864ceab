//! Maps the controller names of scenarios to the kernel's.

use fullpipe_kernel::{facts, tcp_info};

/// Prefix of controllers loaded by `fullpipe cc load`, so that they never hide the kernel's own.
const LOADED: &str = "fp_";

/// The kernel's name of controller `cc`: its own of that name, or the one that fullpipe has loaded.
/// `None` if it has neither.
pub(crate) fn controller(cc: &str) -> Option<String> {
    choose(cc, &controllers())
}

fn choose(cc: &str, available: &[String]) -> Option<String> {
    let loaded = format!("{LOADED}{cc}");
    [cc, &loaded].into_iter().find(|name| available.iter().any(|a| a == name)).map(str::to_owned)
}

/// Makes the kernel load the module of `cc`, which it does only for the initial user namespace's
/// root.
pub(crate) fn request_module(cc: &str) {
    if let Ok(socket) = std::net::TcpListener::bind(("127.0.0.1", 0)) {
        let _ = tcp_info::pin(&socket, cc);
    }
}

/// The names of the controllers that the running kernel offers now; it may load others on request.
pub fn controllers() -> Vec<String> {
    facts::available_controllers().unwrap_or_default()
}

/// Whether the running kernel offers the controller that a scenario calls `cc`.
pub fn has_controller(cc: &str) -> bool {
    controller(cc).is_some() || {
        request_module(cc);
        controller(cc).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_controller_is_preferred_to_a_loaded_one() {
        let available = ["reno", "bbr", "fp_bbr3", "fp_bbr"].map(str::to_owned);
        assert_eq!(choose("bbr", &available).as_deref(), Some("bbr"));
        assert_eq!(choose("bbr3", &available).as_deref(), Some("fp_bbr3"));
        assert_eq!(choose("hybla", &available), None);
    }
}
