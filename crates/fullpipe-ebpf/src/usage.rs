//! Where a controller is configured: as a namespace's default, on a route, for a control group.
//! Read-only, except for attaching a control group's program and refreshing the default after an
//! update.

use crate::error::{Error, Result};
use crate::libbpf::{self, NAME_SIZE};
use crate::namespaces;
use crate::pins::Pins;
use fullpipe_kernel::rtnetlink::{CongestionRoute, RouteLimits, Rtnetlink};
use libbpf_rs::{Link, ObjectBuilder};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// The default controller of the current namespace.
fn default() -> Result<String> {
    Ok(std::fs::read_to_string(DEFAULT).map_err(Error::io("cannot read", DEFAULT))?.trim().to_owned())
}

/// Sets the default of the current namespace again if it is `name`, so that it refers to the build
/// now registered under the name. Host settings do not change.
///
/// # Errors
/// If the default cannot be read or written.
pub(crate) fn renew_default(name: &str) -> Result<()> {
    replace_default(name, name)
}

/// Sets the default of the current namespace to `other` if it is `name`.
///
/// # Errors
/// If the default cannot be read or written.
pub(crate) fn replace_default(name: &str, other: &str) -> Result<()> {
    if default()? != name {
        return Ok(());
    }
    std::fs::write(DEFAULT, other).map_err(Error::io("cannot write", DEFAULT))
}

/// Routes of the current namespace that use the controller, and whether there may be others.
fn routes(name: &str, limits: RouteLimits) -> (Vec<String>, bool) {
    let Ok((routes, is_part)) = Rtnetlink::open().and_then(|link| link.routes_naming(name, limits)) else {
        return (Vec::new(), true);
    };
    let line = |route: CongestionRoute| {
        let via = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
        let lock = if route.locked { "lock " } else { "" };
        format!("{}{via} dev {} congctl {lock}{name}", route.prefix, route.device)
    };
    (routes.into_iter().map(line).collect(), is_part)
}

/// The path of the pin of a control group's program.
///
/// # Errors
/// If there is no such control group.
pub fn cgroup_pin(pins: &Pins, path: &Path, name: &str) -> Result<PathBuf> {
    let about = std::fs::metadata(path).map_err(Error::io("cannot open the control group", path))?;
    pins.cgroup_path(name, about.ino())
}

/// Makes new connections of a control group use the controller while the program is pinned.
///
/// # Errors
/// If it is not a control group, or the kernel rejects the program.
pub fn attach_to_cgroup(pin: &Path, path: &Path, name: &str) -> Result<()> {
    let group = File::open(path).map_err(Error::io("cannot open the control group", path))?;
    let object = libbpf::quietly(|| {
        let mut open = ObjectBuilder::default().open_memory(object!("cgroup"))?;
        for mut map in open.maps_mut() {
            if let Some(value) = map.initial_value_mut()
                && value.len() >= NAME_SIZE
            {
                libbpf::write_name(&mut value[..NAME_SIZE], name);
            }
        }
        open.load()
    })?;
    let refused = |error: libbpf_rs::Error| {
        Error::impossible(
            format!("cannot set the controller of control group {}: {error}", path.display()),
            "name a directory of the version 2 control groups, usually under /sys/fs/cgroup",
        )
    };
    let program = object
        .progs_mut()
        .next()
        .ok_or_else(|| Error::Malformed("the object holds no program".to_owned()))?;
    let mut link = program.attach_cgroup(group.as_raw_fd()).map_err(refused)?;
    link.pin(pin).map_err(refused)
}

/// Where a controller is configured, apart from single sockets.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Uses {
    /// Inodes of network namespaces with it as default.
    pub default_of: Vec<u64>,
    /// Routes that use it, as shown by `ip route`.
    pub routes: Vec<String>,
    /// Whether there may be other routes, because a namespace has very many, or changes them all the
    /// time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub routes_are_part: bool,
    /// Inodes of control groups that use it.
    pub cgroups: Vec<u64>,
}

/// Maximum routes that are listed of a controller.
const MAX_ROUTES: usize = 1000;

/// Finds where a controller is configured, in every namespace. Any user may create namespaces and
/// routes, so the routes are read until `deadline`.
///
/// # Errors
/// If a namespace cannot be entered.
pub(crate) fn find(name: &str, pins: &Pins, deadline: Instant) -> Result<Uses> {
    let mut uses = Uses { cgroups: pins.cgroups(name)?, ..Uses::default() };
    namespaces::visit(|namespace| {
        let limits = RouteLimits { routes: MAX_ROUTES - uses.routes.len(), deadline };
        let (is_default, (routes, is_part)) =
            namespace.enter(|| Ok::<_, Error>((default()? == name, routes(name, limits))))?;
        if is_default {
            uses.default_of.push(namespace.inode);
        }
        uses.routes.extend(routes);
        uses.routes_are_part |= is_part;
        Ok::<_, Error>(())
    })?;
    Ok(uses)
}

/// Detaches the controller from all control groups.
///
/// # Errors
/// If a pin cannot be removed.
pub(crate) fn detach_from_cgroups(name: &str, pins: &Pins) -> Result<()> {
    for inode in pins.cgroups(name)? {
        let pin = pins.cgroup_path(name, inode)?;
        let link = Link::open(&pin).ok();
        std::fs::remove_file(&pin).map_err(Error::io("cannot remove", &pin))?;
        drop(link);
    }
    Ok(())
}
