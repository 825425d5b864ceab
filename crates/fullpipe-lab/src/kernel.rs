//! Which of the kernel's controllers a scenario's name means.

use fullpipe_net::tcp_info;
use nix::time::{ClockId, clock_getres};

/// What controllers loaded by `fullpipe cc load` begin with, so that they never hide the kernel's own.
const LOADED: &str = "fp_";

/// The kernel's name of controller `cc`: its own of that name, or the one that fullpipe has loaded. None if
/// it has neither.
pub(crate) fn controller(cc: &str) -> Option<String> {
    choose(cc, &controllers())
}

fn choose(cc: &str, available: &[String]) -> Option<String> {
    let loaded = format!("{LOADED}{cc}");
    [cc, &loaded].into_iter().find(|name| available.iter().any(|a| a == name)).map(str::to_owned)
}

/// Lets the kernel load the module of `cc`, which it only does for the machine's root and not from inside a
/// user namespace.
pub(crate) fn invite(cc: &str) {
    if let Ok(socket) = std::net::TcpListener::bind(("127.0.0.1", 0)) {
        let _ = tcp_info::pin(&socket, cc);
    }
}

/// The names of the controllers that the running kernel offers now; it may load others when they are asked for.
pub fn controllers() -> Vec<String> {
    tcp_info::available().unwrap_or_default()
}

/// Whether the running kernel offers the controller that a scenario calls `cc`.
pub fn offers(cc: &str) -> bool {
    controller(cc).is_some() || {
        invite(cc);
        controller(cc).is_some()
    }
}

/// Clock ticks a second of the running kernel (`CONFIG_HZ`): its coarse clocks advance by one at a time.
pub(crate) fn ticks() -> Option<u32> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    u32::try_from(tick.tv_nsec())
        .ok()
        .filter(|&nanos| nanos > 0)
        .map(|nanos| (1_000_000_000 + nanos / 2) / nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_is_one_that_kernels_are_built_with() {
        assert!(matches!(ticks(), Some(100 | 250 | 300 | 1000)), "{:?}", ticks());
    }

    #[test]
    fn the_kernels_own_goes_before_the_loaded() {
        let available = ["reno", "bbr", "fp_bbr3", "fp_bbr"].map(str::to_owned);
        assert_eq!(choose("bbr", &available).as_deref(), Some("bbr"));
        assert_eq!(choose("bbr3", &available).as_deref(), Some("fp_bbr3"));
        assert_eq!(choose("hybla", &available), None);
    }
}
