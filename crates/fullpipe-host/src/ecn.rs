//! Explicit Congestion Notification beside controllers that ignore its marks.
//!
//! Linux negotiates ECN for every controller (`tcp_ecn_send_syn`, `tcp_ecn_create_request`), also for
//! one that does not slow down when packets are marked. A marking queue then neither drops its packets
//! nor slows it down.

use crate::controllers::{is_ebpf, is_loaded_program};
use crate::facts::Facts;
use crate::host::{Host, View};
use std::collections::BTreeMap;

/// Whether TCP negotiates ECN.
pub(crate) const SYSCTL: &str = "net.ipv4.tcp_ecn";

/// Whether a value of [`SYSCTL`] requests ECN on outgoing connections: ECN (1), AccECN (3), or ECN
/// while AccECN is accepted (4).
pub(crate) fn is_requested(value: i64) -> bool {
    [1, 3, 4].contains(&value)
}

/// How a controller responds to marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Response {
    /// It slows down. CUBIC, Reno and the other loss-based controllers treat a mark as a loss
    /// (`tcp_enter_cwr`), as does fp_bbr3.
    SlowsDown,
    /// It ignores them, for this reason.
    Ignores(&'static str),
    /// It is another BBR, or an eBPF program under a name of the user's choice, whose settings are not
    /// read here.
    Unknown,
}

impl Response {
    /// Why marks do not slow the controller down, if that is known.
    fn reason(self) -> Option<&'static str> {
        match self {
            Response::Ignores(why) => Some(why),
            Response::SlowsDown | Response::Unknown => None,
        }
    }
}

/// The response of this controller to marks.
pub(crate) fn response(view: &dyn View, facts: &Facts, controller: &str) -> Response {
    const V1: &str = "BBR v1 ignores marks";
    const GOOGLES_V3: &str =
        "Google's BBR v3 ignores marks, except over routes with the feature ECN_LOW at RTTs up to 5 ms";
    let version = || facts.bbr_version(view, controller)?.version;
    match controller {
        "fp_bbr1" => Response::Ignores(V1),
        // BBR has a callback of its own for congestion (`cong_control`).
        name if name.starts_with("bbr") => match version().as_deref() {
            Some("v1") => Response::Ignores(V1),
            Some("v3") => Response::Ignores(GOOGLES_V3),
            _ => Response::Unknown,
        },
        name if !is_ebpf(name) && is_loaded_program(view, name) => Response::Unknown,
        _ => Response::SlowsDown,
    }
}

/// Destinations of routes with the feature ECN, by the reason why the controllers of their
/// connections ignore marks.
pub(crate) type MarkedRoutes = BTreeMap<&'static str, Vec<String>>;

/// The routes with the feature ECN over which connections use a controller that ignores marks.
/// Routes without a controller use `default`.
pub(crate) fn marked_routes(host: &dyn Host, facts: &Facts, default: &str) -> std::io::Result<MarkedRoutes> {
    let mut marked = MarkedRoutes::new();
    for route in host.ecn_routes()? {
        let controller = route.choice.as_ref().map_or(default, |choice| choice.controller.as_str());
        if let Some(why) = response(host, facts, controller).reason() {
            marked.entry(why).or_default().push(format!("{} ({controller})", route.key.prefix));
        }
    }
    Ok(marked)
}

/// Warnings for a plan that makes `controller` the default of new connections.
pub(crate) fn warnings(host: &dyn Host, facts: &Facts, controller: &str) -> Vec<String> {
    if !facts.identity.running {
        return Vec::new();
    }
    let mut warnings: Vec<String> = requested(host, facts, controller).into_iter().collect();
    match marked_routes(host, facts, controller) {
        Ok(marked) => warnings.extend(marked.iter().map(|(why, routes)| on_routes(&listed(routes), why))),
        Err(error) => warnings.push(unreadable(&error)),
    }
    warnings
}

/// Warnings for a plan by which only connections to `destinations` use `controller`.
pub(crate) fn destination_warnings(
    host: &dyn Host,
    facts: &Facts,
    controller: &str,
    destinations: &[String],
) -> Vec<String> {
    let Some(why) = response(host, facts, controller).reason() else { return Vec::new() };
    let mut warnings: Vec<String> = requested(host, facts, controller).into_iter().collect();
    let routes = host.ecn_routes().unwrap_or_else(|error| {
        warnings.push(unreadable(&error));
        Vec::new()
    });
    // Without a route of its own, a destination gets a copy of the route that covers it.
    let has_ecn = |to: &&String| {
        routes.iter().any(|route| route.key.prefix == **to)
            || host.route_to(to).is_ok_and(|covering| covering.has_ecn())
    };
    let marked: Vec<String> =
        destinations.iter().filter(has_ecn).map(|to| format!("{to} ({controller})")).collect();
    if !marked.is_empty() {
        warnings.push(on_routes(&listed(&marked), why));
    }
    warnings
}

/// A note in place of the warnings about routes, if those cannot be read.
fn unreadable(error: &std::io::Error) -> String {
    format!("it is unknown whether routes have the feature ECN: they cannot be read: {error}")
}

fn requested(host: &dyn Host, facts: &Facts, controller: &str) -> Option<String> {
    let value = host.sysctl(SYSCTL)?.parse().ok().filter(|value| is_requested(*value))?;
    let why = response(host, facts, controller).reason()?;
    Some(format!(
        "warning: {SYSCTL} = {value} requests ECN, and {why}: a marking queue does not slow it down; set \
         {SYSCTL}=2 (kernel default)"
    ))
}

fn on_routes(routes: &str, why: &str) -> String {
    format!(
        "warning: {routes} with the feature ECN, and {why}: a marking queue does not slow it down; remove \
         the feature (`ip route change`)"
    )
}

/// The first routes by their destinations, and the number of others.
pub(crate) fn listed(routes: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<&str> = routes.iter().take(SHOWN).map(String::as_str).collect();
    let more = routes.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("route{} to {}{more}", if routes.len() == 1 { "" } else { "s" }, shown.join(", "))
}
