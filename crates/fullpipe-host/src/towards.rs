//! A controller for connections to some destinations alone, without a program: routes that name it (`ip route … congctl`).
//! A route that is there gets the choice and keeps all else; where there is none one is cut out of the route that covers the
//! destination. Each is a use of the controller in the host's journal, beside an apply and other uses.

use crate::apply::Applied;
use crate::employ::{self, Request};
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::host::Host;
use crate::journal::Store;
use crate::net::{CongestionRoute, RouteKey, destination};
use crate::plan::{self, Change, Plan, Step};
use std::net::IpAddr;

/// The main routing table, and that of the host's own addresses.
const MAIN: u32 = 254;
const LOCAL: u32 = 255;

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Towards {
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
pub fn plan(host: &dyn Host, wanted: &Towards) -> Result<Plan> {
    let (request, mut notes) = prepare(host, wanted)?;
    let steps = employ::wanted(host, &request, false)?;
    notes.extend(exceptions(host, wanted)?);
    Ok(Plan { controller: request.controller, steps, notes, canary: None })
}

/// Puts it in force, or leaves the host as it was. What is so already is not changed.
///
/// # Errors
/// The plan's refusals, and those of [`employ::employ`].
pub fn apply(host: &dyn Host, store: &Store, wanted: &Towards) -> Result<Applied> {
    let (request, mut notes) = prepare(host, wanted)?;
    notes.extend(exceptions(host, wanted)?);
    let steps = employ::employ_steps(host, store, &request)?;
    let warnings = wanted.prefixes.iter().filter_map(|prefix| bypass(host, prefix, &request.controller));
    let warnings = warnings.collect();
    let made = steps.len();
    let plan = Plan { controller: request.controller, steps, notes, canary: None };
    Ok(Applied { plan, made, seen: None, warnings, on_trial: false })
}

fn prepare<'a>(host: &dyn Host, wanted: &Towards) -> Result<(Request<'a>, Vec<String>)> {
    let facts = Facts::gather(host);
    if !facts.identity.running {
        return Err(Error::usage("--to needs a running host: routes are not in its files"));
    }
    let mut notes = Vec::new();
    let asked = plan::Request::new(&wanted.controller);
    // A route may name what is restricted: only an application's and a namespace's choice are not free (tcp_cong.c).
    let (controller, module) = plan::find_controller(host, &facts, &asked, &mut notes)?;
    for prefix in &wanted.prefixes {
        whole(prefix)?;
    }
    notes.push(
        "connections that are open keep their controller; programs that choose one for themselves keep theirs; a restart, \
         and what sets routes anew (DHCP, a routing daemon), ends it"
            .to_owned(),
    );
    let mut to: Vec<String> = Vec::new();
    for prefix in &wanted.prefixes {
        let canonical = destination(prefix).map_err(|e| Error::usage(format_args!("--to: {e}")))?;
        if !to.contains(&canonical) {
            to.push(canonical);
        }
    }
    Ok((Request { controller, module, to, ..Request::default() }, notes))
}

/// Refuses a destination with bits beyond its length, which the kernel does not take.
fn whole(prefix: &str) -> Result<()> {
    let canonical = destination(prefix).map_err(|e| Error::usage(format_args!("--to: {e}")))?;
    let Some((address, length)) = parts(&canonical) else { return Ok(()) };
    let first = first_of(address, length);
    if first == address {
        return Ok(());
    }
    Err(Error::usage(format_args!(
        "--to {prefix}: the address has bits beyond its length; {first}/{length} is that network"
    )))
}

fn parts(canonical: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = canonical.split_once('/')?;
    Some((address.parse().ok()?, length.parse().ok()?))
}

fn first_of(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(ip) => {
            IpAddr::V4((ip.to_bits() & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)).into())
        }
        IpAddr::V6(ip) => {
            IpAddr::V6((ip.to_bits() & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)).into())
        }
    }
}

/// Whether the second prefix is inside the first, and smaller.
fn holds(outer: (IpAddr, u8), inner: (IpAddr, u8)) -> bool {
    outer.0.is_ipv4() == inner.0.is_ipv4() && outer.1 < inner.1 && first_of(inner.0, outer.1) == outer.0
}

/// Routes inside the destinations, which decide for theirs.
fn exceptions(host: &dyn Host, wanted: &Towards) -> Result<Vec<String>> {
    const SHOWN: usize = 5;
    let mut notes = Vec::new();
    let routes = host.routes().map_err(|e| Error::io("cannot read the routes", &e))?;
    for prefix in &wanted.prefixes {
        let Some(outer) = destination(prefix).ok().as_deref().and_then(parts) else { continue };
        let inside: Vec<&str> = routes
            .iter()
            .filter(|route| {
                [MAIN, LOCAL].contains(&route.key.table) && !wanted.prefixes.contains(&route.key.prefix)
            })
            .filter(|route| parts(&route.key.prefix).is_some_and(|inner| holds(outer, inner)))
            .map(|route| route.key.prefix.as_str())
            .collect();
        if !inside.is_empty() {
            let more = if inside.len() > SHOWN { ", …" } else { "" };
            let shown = inside[..inside.len().min(SHOWN)].join(", ");
            notes.push(format!(
                "within {prefix} these have routes of their own, which decide for them: {shown}{more}"
            ));
        }
    }
    Ok(notes)
}

/// Where something else decides than the route that was changed: a rule of policy routing, a more specific route.
fn bypass(host: &dyn Host, prefix: &str, controller: &str) -> Option<String> {
    let found = host.choice_towards(prefix).ok()?;
    (found.as_deref() != Some(controller)).then(|| {
        format!(
            "the first address of {prefix} is reached by another route than the one that names {controller} (ip route get; ip rule)"
        )
    })
}

/// The step that has connections to a destination use a controller; none where they do.
pub(crate) fn step(host: &dyn Host, prefix: &str, controller: &str) -> Result<Option<Step>> {
    let to = destination(prefix).map_err(|e| Error::usage(format_args!("--to: {e}")))?;
    let routes = host.routes().map_err(|e| Error::io("cannot read the routes", &e))?;
    let is_there = |key: &RouteKey| key.prefix == to && key.table == MAIN;
    if let Some(there) = routes.iter().find(|route| is_there(&route.key)) {
        if there.advertised {
            return Err(Error::usage(format_args!(
                "--to {prefix}: that route was learned from router advertisements, of which the kernel would take no more for \
                 it if it were changed; name smaller prefixes, or make the controller the default"
            )));
        }
        return employ::on_route(host, prefix, controller, "--to");
    }
    if parts(&to).is_none() {
        return Err(Error::usage(format_args!("--to {prefix}: there is no such route; name a prefix")));
    }
    let covering = host.route_towards(&to).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidInput => Error::usage(format_args!("--to {prefix}: {e}")),
        _ => Error::io(format_args!("no route towards {prefix}"), &e),
    })?;
    let route = CongestionRoute { controller: controller.to_owned(), ..covering };
    Ok(Some(Step::new(Change::Route { route }, format!("connections to {prefix} use {controller}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_whole_network() {
        for good in ["192.0.2.0/24", "192.0.2.1", "0.0.0.0/0", "2001:db8::/32", "::/0", "default"] {
            assert_eq!(whole(good), Ok(()), "{good}");
        }
        for (bad, said) in [
            ("192.0.2.7/24", "192.0.2.0/24 is that network"),
            ("2001:db8::1/64", "2001:db8::/64 is that network"),
            ("example.org", "not a prefix"),
        ] {
            assert!(whole(bad).unwrap_err().text().contains(said), "{bad}");
        }
        let prefix = |text: &str| parts(text).unwrap();
        assert!(holds(prefix("192.0.2.0/24"), prefix("192.0.2.128/25")));
        assert!(!holds(prefix("192.0.2.0/24"), prefix("192.0.2.0/24")));
        assert!(!holds(prefix("192.0.2.0/25"), prefix("192.0.2.128/25")));
        assert!(!holds(prefix("::/0"), prefix("192.0.2.0/24")));
    }
}
