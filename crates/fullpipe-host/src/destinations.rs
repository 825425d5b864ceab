//! A controller for connections to some destinations alone, without a program: routes that name it (`ip route … congctl`).
//! A route that is there gets the choice and keeps all else; where there is none one is cut out of the route that covers the
//! destination. Each is a use of the controller in the host's journal, beside an apply and other uses.

use crate::apply::Applied;
use crate::assign;
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::host::Host;
use crate::journal::Store;
use crate::net::{CongestionRoute, LOCAL_TABLE, MAIN_TABLE, RouteKey, destination};
use crate::plan::{self, Change, Plan, Step};
use ipnet::IpNet;

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The controller.
    pub controller: String,
    /// The destinations: `198.51.100.0/24`, `2001:db8::/32`, `default` where there is such a route.
    pub prefixes: Vec<String>,
}

/// Works out what it takes on this host. Reads only.
///
/// # Errors
/// [`Error::Usage`] for what is no controller or no destination, [`Error::Impossible`] for what this kernel cannot do or
/// has no route to.
pub fn plan(host: &dyn Host, wanted: &Request) -> Result<Plan> {
    let (request, mut notes) = prepare(host, wanted)?;
    let steps = assign::wanted(host, &request, false)?;
    notes.extend(exceptions(host, &request.to)?);
    Ok(Plan { controller: request.controller, steps, notes, canary: None })
}

/// Puts it in force, or leaves the host as it was. What is so already is not changed.
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
        return Err(Error::usage("--to needs a running host: routes are not in its files"));
    }
    let mut notes = Vec::new();
    let asked = plan::Request::new(&wanted.controller);
    // A route may name what is restricted: only an application's and a namespace's choice are not free (tcp_cong.c).
    let (controller, module) = plan::find_controller(host, &facts, &asked, &mut notes)?;
    let mut to: Vec<String> = Vec::new();
    for prefix in &wanted.prefixes {
        let whole = whole(prefix)?;
        if !to.contains(&whole) {
            to.push(whole);
        }
    }
    notes.push(
        "connections that are open keep their controller; programs that choose one for themselves keep theirs; a restart, \
         and what sets routes anew (DHCP, a routing daemon), ends it"
            .to_owned(),
    );
    Ok((assign::Request { controller, module, to, ..assign::Request::default() }, notes))
}

/// The destination as [`destination`] writes it; with bits beyond its length, which the kernel does not take, it is refused.
fn whole(prefix: &str) -> Result<String> {
    let to = destination(prefix).map_err(|e| Error::usage(format_args!("--to: {e}")))?;
    match to.parse::<IpNet>() {
        Ok(network) if network != network.trunc() => Err(Error::usage(format_args!(
            "--to {prefix}: the address has bits beyond its length; {} is that network",
            network.trunc()
        ))),
        _ => Ok(to),
    }
}

/// Routes inside the destinations, which decide for theirs.
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
                "within {outer} these have routes of their own, which decide for them: {shown}{more}"
            ));
        }
    }
    Ok(notes)
}

/// Where something else decides than the route that was changed: a rule of policy routing, a more specific route.
fn bypass(host: &dyn Host, to: &str, controller: &str) -> Option<String> {
    let found = host.controller_to(to).ok()?;
    (found.as_deref() != Some(controller)).then(|| {
        format!(
            "the first address of {to} is reached by another route than the one that names {controller} (ip route get; ip rule)"
        )
    })
}

/// The step that has connections to a destination (as [`destination`] writes it) use a controller; none where they do.
pub(crate) fn step(host: &dyn Host, to: &str, controller: &str) -> Result<Option<Step>> {
    let routes = host.routes().map_err(|e| Error::io("cannot read the routes", &e))?;
    let is_there = |key: &RouteKey| key.prefix == to && key.table == MAIN_TABLE;
    if let Some(there) = routes.iter().find(|route| is_there(&route.key)) {
        if there.advertised {
            return Err(Error::usage(format_args!(
                "--to {to}: that route was learned from router advertisements, of which the kernel would take no more for \
                 it if it were changed; name smaller prefixes, or make the controller the default"
            )));
        }
        return assign::on_route(host, to, controller, "--to");
    }
    if to == "default" {
        return Err(Error::usage(format_args!("--to {to}: there is no such route; name a prefix")));
    }
    let covering = host.route_to(to).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidInput => Error::usage(format_args!("--to {to}: {e}")),
        _ => Error::io(format_args!("no route towards {to}"), &e),
    })?;
    let route = CongestionRoute { controller: controller.to_owned(), ..covering };
    Ok(Some(Step::new(Change::Route { route }, format!("connections to {to} use {controller}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_whole_network() {
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
            ("192.0.2.7/24", "192.0.2.0/24 is that network"),
            ("2001:db8::1/64", "2001:db8::/64 is that network"),
            ("example.org", "not a prefix"),
        ] {
            assert!(whole(bad).unwrap_err().text().contains(said), "{bad}");
        }
    }
}
