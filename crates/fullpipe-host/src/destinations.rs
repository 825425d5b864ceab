//! A controller for connections to some destinations only, set on routes (`ip route … congctl`). An
//! existing route keeps its other attributes; otherwise a more specific route is added, copied from
//! the covering one. Each is an assignment of the controller in the host's journal.

use crate::apply::Applied;
use crate::assign;
use crate::ecn;
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::host::Host;
use crate::journal::Store;
use crate::net::{CongestionRoute, LOCAL_TABLE, MAIN_TABLE, RouteKey, destination};
use crate::plan::{self, Change, Plan, Step};
use ipnet::IpNet;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The controller.
    pub controller: String,
    /// Destinations: `198.51.100.0/24`, `2001:db8::/32`, or `default`.
    pub prefixes: Vec<String>,
}

/// Plans a request on this host. Reads only.
///
/// # Errors
/// [`Error::Usage`] for an invalid controller or destination, [`Error::Impossible`] if the kernel
/// lacks the controller or a route.
pub fn plan(host: &dyn Host, wanted: &Request) -> Result<Plan> {
    let (request, mut notes) = prepare(host, wanted)?;
    let steps = assign::wanted(host, &request, false)?;
    notes.extend(exceptions(host, &request.to)?);
    Ok(Plan { controller: request.controller, steps, notes, canary: None })
}

/// Applies a request, or leaves the host unchanged. Settings already in place are not changed.
///
/// # Errors
/// The plan's refusals, and those of [`assign::assign`].
pub fn apply(host: &dyn Host, store: &Store, wanted: &Request) -> Result<Applied> {
    let (request, mut notes) = prepare(host, wanted)?;
    notes.extend(exceptions(host, &request.to)?);
    let steps = assign::assign_steps(host, store, &request)?;
    let warnings = request.to.iter().filter_map(|to| bypass(host, to, &request.controller)).collect();
    let made = steps.len();
    let plan = Plan { controller: request.controller, steps, notes, canary: None };
    Ok(Applied { plan, made, observed: None, warnings, on_trial: false })
}

fn prepare<'a>(host: &dyn Host, wanted: &Request) -> Result<(assign::Request<'a>, Vec<String>)> {
    let facts = Facts::gather(host);
    if !facts.identity.running {
        return Err(Error::usage("--to needs a running host: routes are not stored in files"));
    }
    let mut notes = Vec::new();
    let asked = plan::Request::new(&wanted.controller);
    // A route may name a restricted controller; only applications and namespaces are limited
    // (tcp_cong.c).
    let (controller, module) = plan::find_controller(host, &facts, &asked, &mut notes)?;
    let mut to: Vec<String> = Vec::new();
    for prefix in &wanted.prefixes {
        let whole = whole(prefix)?;
        if !to.contains(&whole) {
            to.push(whole);
        }
    }
    notes.extend(plan::version_note(host, &facts, &controller));
    notes.extend(ecn::destination_warnings(host, &facts, &controller, &to));
    notes.push(
        "open connections and programs that set their own controller are not affected; a restart, DHCP or a \
         routing daemon \
         may remove the setting"
            .to_owned(),
    );
    Ok((assign::Request { controller, module, to, ..assign::Request::default() }, notes))
}

/// The destination as [`destination`] writes it; host bits, which the kernel rejects, are refused.
fn whole(prefix: &str) -> Result<String> {
    let to = destination(prefix).map_err(|e| Error::usage(format_args!("--to: {e}")))?;
    match to.parse::<IpNet>() {
        Ok(network) if network != network.trunc() => Err(Error::usage(format_args!(
            "--to {prefix}: host bits are set; the network is {}",
            network.trunc()
        ))),
        _ => Ok(to),
    }
}

/// More specific routes inside the destinations, which override them.
fn exceptions(host: &dyn Host, to: &[String]) -> Result<Vec<String>> {
    const SHOWN: usize = 5;
    let mut notes = Vec::new();
    let routes = host.routes().map_err(|e| Error::io("cannot read the routes", &e))?;
    let keys = routes.iter().map(|route| &route.key);
    let others: Vec<(&str, IpNet)> = keys
        .filter(|key| [MAIN_TABLE, LOCAL_TABLE].contains(&key.table) && !to.contains(&key.prefix))
        .filter_map(|key| Some((key.prefix.as_str(), key.prefix.parse().ok()?)))
        .collect();
    for outer in to.iter().filter_map(|to| to.parse::<IpNet>().ok()) {
        let is_inside = |(_, inner): &&(&str, IpNet)| outer != *inner && outer.contains(inner);
        let inside: Vec<&str> = others.iter().filter(is_inside).map(|(prefix, _)| *prefix).collect();
        if !inside.is_empty() {
            let more = if inside.len() > SHOWN { ", …" } else { "" };
            let shown = inside[..inside.len().min(SHOWN)].join(", ");
            notes.push(format!(
                "more specific routes within {outer} keep their own controller: {shown}{more}"
            ));
        }
    }
    Ok(notes)
}

/// A warning if another route is used: by a policy rule or a more specific route.
fn bypass(host: &dyn Host, to: &str, controller: &str) -> Option<String> {
    let found = host.controller_to(to).ok()?;
    (found.as_deref() != Some(controller)).then(|| {
        format!(
            "the first address of {to} is reached over another route than the one with {controller}: check \
             `ip route get` and `ip rule`"
        )
    })
}

/// The step that makes connections to a destination use a controller; `None` if they do.
pub(crate) fn step(host: &dyn Host, to: &str, controller: &str) -> Result<Option<Step>> {
    let routes = host.routes().map_err(|e| Error::io("cannot read the routes", &e))?;
    let is_there = |key: &RouteKey| key.prefix == to && key.table == MAIN_TABLE;
    if let Some(there) = routes.iter().find(|route| is_there(&route.key)) {
        if there.advertised {
            return Err(Error::usage(format_args!(
                "--to {to}: the route was learned from router advertisements, and changing it would stop \
                 their updates: \
                 name smaller prefixes, or make the controller the default"
            )));
        }
        return assign::on_route(host, to, controller, "--to");
    }
    if to == "default" {
        return Err(Error::usage(format_args!("--to {to}: no such route; name a prefix")));
    }
    let covering = host.route_to(to).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidInput => Error::usage(format_args!("--to {to}: {e}")),
        _ => Error::io(format_args!("no route to {to}"), &e),
    })?;
    let route = CongestionRoute { controller: controller.to_owned(), ..covering };
    Ok(Some(Step::new(Change::Route { route }, format!("connections to {to} use {controller}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_with_host_bits_is_refused() {
        for (good, written) in [
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.1", "192.0.2.1/32"),
            ("0.0.0.0/0", "default"),
            ("2001:DB8::/32", "2001:db8::/32"),
            ("::/0", "::/0"),
            ("default", "default"),
        ] {
            assert_eq!(whole(good), Ok(written.to_owned()), "{good}");
        }
        for (bad, said) in [
            ("192.0.2.7/24", "the network is 192.0.2.0/24"),
            ("2001:db8::1/64", "the network is 2001:db8::/64"),
            ("example.org", "invalid prefix"),
        ] {
            assert!(whole(bad).unwrap_err().text().contains(said), "{bad}");
        }
    }
}
