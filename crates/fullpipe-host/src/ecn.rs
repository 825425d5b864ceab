//! Explicit Congestion Notification beside controllers that ignore its marks.
//!
//! Linux negotiates ECN for every controller (`tcp_ecn_send_syn`, `tcp_ecn_create_request`), also for
//! one that does not slow down when packets are marked. A marking queue then neither drops its packets
//! nor slows it down.

use crate::facts::Facts;
use crate::host::{Host, View};

/// Whether TCP negotiates ECN.
pub(crate) const SYSCTL: &str = "net.ipv4.tcp_ecn";

/// Whether a value of [`SYSCTL`] requests ECN on outgoing connections: ECN (1), AccECN (3), or ECN
/// while AccECN is accepted (4).
pub(crate) fn is_requested(value: i64) -> bool {
    [1, 3, 4].contains(&value)
}

/// Why marks do not slow this controller down; `None` for one that they do. CUBIC, Reno and the other
/// loss-based controllers treat a mark as a loss (`tcp_enter_cwr`), as does fp_bbr3.
pub(crate) fn ignores_marks(view: &dyn View, facts: &Facts, controller: &str) -> Option<&'static str> {
    const V1: &str = "BBR v1 ignores marks";
    match controller {
        "fp_bbr1" => Some(V1),
        name if name.starts_with("bbr") => Some(match facts.bbr_version(view, name).version.as_str() {
            "v1" => V1,
            _ => {
                "Google's BBR v3 ignores marks, except over routes with the feature ECN_LOW at RTTs up to \
                 5 ms"
            }
        }),
        _ => None,
    }
}

/// Routes with the feature ECN over which connections use a controller that ignores marks, and why it
/// does. Routes without a controller have `default`.
pub(crate) fn marked_routes(
    host: &dyn Host,
    facts: &Facts,
    default: &str,
) -> std::io::Result<Vec<(String, &'static str)>> {
    let routes = host.ecn_routes()?;
    let ignoring = |route: &crate::net::KeyedRoute| {
        let controller = route.choice.as_ref().map_or(default, |choice| choice.controller.as_str());
        let why = ignores_marks(host, facts, controller)?;
        Some((format!("{} ({controller})", route.key.prefix), why))
    };
    Ok(routes.iter().filter_map(ignoring).collect())
}

/// Warnings for a plan that makes `controller` the default of new connections.
pub(crate) fn warnings(host: &dyn Host, facts: &Facts, controller: &str) -> Vec<String> {
    if !facts.identity.running {
        return Vec::new();
    }
    let mut warnings: Vec<String> = requested(host, facts, controller).into_iter().collect();
    let routes = marked_routes(host, facts, controller).unwrap_or_default();
    if let Some((_, why)) = routes.first() {
        warnings.push(on_routes(&listed(&routes), why));
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
    let Some(why) = ignores_marks(host, facts, controller) else { return Vec::new() };
    let routes = host.ecn_routes().unwrap_or_default();
    // Without a route of its own, a destination gets a copy of the route that covers it.
    let has_ecn = |to: &&String| {
        routes.iter().any(|route| route.key.prefix == **to)
            || host.route_to(to).is_ok_and(|covering| covering.has_ecn())
    };
    let marked: Vec<_> =
        destinations.iter().filter(has_ecn).map(|to| (format!("{to} ({controller})"), why)).collect();
    let on_routes = (!marked.is_empty()).then(|| on_routes(&listed(&marked), why));
    requested(host, facts, controller).into_iter().chain(on_routes).collect()
}

fn requested(host: &dyn Host, facts: &Facts, controller: &str) -> Option<String> {
    let value = host.sysctl(SYSCTL)?.parse().ok().filter(|value| is_requested(*value))?;
    let why = ignores_marks(host, facts, controller)?;
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
pub(crate) fn listed(routes: &[(String, &'static str)]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<&str> = routes.iter().take(SHOWN).map(|(route, _)| route.as_str()).collect();
    let more = routes.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("route{} to {}{more}", if routes.len() == 1 { "" } else { "s" }, shown.join(", "))
}
