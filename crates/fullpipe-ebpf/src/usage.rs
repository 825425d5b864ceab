//! Ways to have a controller used: as a namespace's default, on a route, for a control group; and finding
//! and ending each of them.

use crate::error::{Error, Result};
use crate::kernel;
use crate::loader::{self, NAME_SIZE};
use crate::namespaces::{self, Namespace};
use crate::pins::Pins;
use libbpf_rs::{Link, ObjectBuilder};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const REMEMBERED: &str = "/run/fullpipe";

/// The default controller of the namespace this runs in.
///
/// # Errors
/// When /proc cannot be read.
pub(crate) fn default() -> Result<String> {
    Ok(std::fs::read_to_string(DEFAULT).map_err(Error::io("cannot read", DEFAULT))?.trim().to_owned())
}

/// Makes a controller the default of this process's namespace, and remembers what was before.
///
/// # Errors
/// When the kernel does not take the name.
pub fn make_default(name: &str) -> Result<()> {
    let before = default()?;
    if before == name {
        return Ok(());
    }
    let path = remembered(own_inode(), name);
    std::fs::create_dir_all(REMEMBERED).map_err(Error::io("cannot create", REMEMBERED))?;
    std::fs::write(&path, before).map_err(Error::io("cannot write", &path))?;
    set_default(name).inspect_err(|_| {
        let _ = std::fs::remove_file(&path);
    })
}

fn set_default(name: &str) -> Result<()> {
    std::fs::write(DEFAULT, name).map_err(|error| {
        Error::impossible(
            format!("the default controller cannot be changed to {name}: {error}"),
            "CAP_NET_ADMIN in the network namespace",
        )
    })
}

fn own_inode() -> u64 {
    std::fs::metadata("/proc/thread-self/ns/net").map(|about| about.ino()).unwrap_or(0)
}

/// Where the default that a controller replaced is kept: in /run, since neither outlives a reboot.
fn remembered(inode: u64, name: &str) -> PathBuf {
    Path::new(REMEMBERED).join(format!("default-{inode}-{name}"))
}

/// Makes this namespace's default what it was before `name`, else one of the kernel's usual ones: in a namespace
/// that is not the first the kernel refuses some.
fn give_back(name: &str) -> Result<String> {
    let available = kernel::available()?;
    let before = std::fs::read_to_string(remembered(own_inode(), name)).unwrap_or_default();
    let mut refused = Error::impossible("no other controller is there", "every kernel has reno");
    for other in [before.trim(), "cubic", "bbr", "reno"] {
        if other == name || !available.iter().any(|there| there == other) {
            continue;
        }
        match set_default(other) {
            Ok(()) => return Ok(other.to_owned()),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// What was remembered for `name` goes; a controller that replaced it goes back to that in its stead.
fn forget(name: &str) -> Result<()> {
    let inode = own_inode();
    let own = remembered(inode, name);
    let Ok(before) = std::fs::read_to_string(&own) else { return Ok(()) };
    let of_this_namespace = format!("default-{inode}-");
    for entry in std::fs::read_dir(REMEMBERED).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with(&of_this_namespace)
            && std::fs::read_to_string(&path).is_ok_and(|replaced| replaced == name)
        {
            std::fs::write(&path, &before).map_err(Error::io("cannot write", &path))?;
        }
    }
    std::fs::remove_file(&own).map_err(Error::io("cannot remove", &own))
}

/// A route that names a controller, as `ip route` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    family: &'static str,
    words: Vec<String>,
}

impl Route {
    /// The route as `ip route` shows it.
    pub fn text(&self) -> String {
        self.words.join(" ")
    }

    /// The same route without its controller.
    fn without_controller(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut from = self.words.iter().peekable();
        while let Some(word) = from.next() {
            if word == "congctl" {
                if from.peek().is_some_and(|next| *next == "lock") {
                    from.next();
                }
                from.next();
            } else {
                words.push(word.clone());
            }
        }
        words
    }
}

fn ip(family: &str, arguments: &[String]) -> Result<String> {
    let output = Command::new("ip")
        .arg(family)
        .arg("route")
        .args(arguments)
        .output()
        .map_err(|error| Error::impossible(format!("`ip` cannot be run: {error}"), "install iproute2"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::impossible(
        format!(
            "`ip {family} route {}` failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ),
        "CAP_NET_ADMIN in the network namespace, and a route that is there",
    ))
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The routes of this namespace that name the controller. None when there is no `ip` to ask.
pub(crate) fn routes(name: &str) -> Vec<Route> {
    let mut routes = Vec::new();
    for family in ["-4", "-6"] {
        let Ok(text) = ip(family, &strings(&["show", "table", "all"])) else { continue };
        routes.extend(text.lines().filter_map(|line| parse_route(family, line, name)));
    }
    routes
}

fn parse_route(family: &'static str, line: &str, name: &str) -> Option<Route> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let at = words.iter().position(|word| word == "congctl")?;
    let named = words.get(at + 1).filter(|word| *word != "lock").or_else(|| words.get(at + 2))?;
    (named == name).then_some(Route { family, words })
}

/// Has connections over an existing route use the controller.
///
/// # Errors
/// When there is no such route.
pub fn use_on_route(prefix: &str, name: &str) -> Result<()> {
    let family = if prefix.contains(':') { "-6" } else { "-4" };
    let shown = ip(family, &strings(&["show", "exact", prefix]))?;
    let Some(line) = shown.lines().next().filter(|line| !line.trim().is_empty()) else {
        return Err(Error::Malformed(format!(
            "there is no route {prefix}: `ip route` lists those there are"
        )));
    };
    let route = Route { family, words: line.split_whitespace().map(str::to_owned).collect() };
    let mut words = strings(&["replace"]);
    words.extend(route.without_controller());
    words.extend(strings(&["congctl", name]));
    ip(family, &words).map(drop)
}

/// Has new connections of a control group's processes use the controller, until it is unloaded.
///
/// # Errors
/// When the path is not a control group, or the program may not be attached.
pub fn use_in_cgroup(pins: &Pins, path: &Path, name: &str) -> Result<()> {
    let group = File::open(path).map_err(Error::io("cannot open the control group", path))?;
    let inode = group.metadata().map_err(Error::io("cannot read", path))?.ino();
    let pin = pins.cgroup_path(name, inode)?;
    if pin.exists() {
        return Ok(());
    }
    let object = loader::quietly(|| {
        let mut open = ObjectBuilder::default().open_memory(include_bytes!("../bpf/objects/cgroup.bpf.o"))?;
        for mut map in open.maps_mut() {
            if let Some(value) = map.initial_value_mut()
                && value.len() >= NAME_SIZE
            {
                loader::write_name(&mut value[..NAME_SIZE], name);
            }
        }
        open.load()
    })?;
    let refused = |error: libbpf_rs::Error| {
        Error::impossible(
            format!("the control group {} cannot be given a controller: {error}", path.display()),
            "a directory of the version 2 control groups (usually under /sys/fs/cgroup)",
        )
    };
    let program = object
        .progs_mut()
        .next()
        .ok_or_else(|| Error::Malformed("the object holds no program".to_owned()))?;
    let mut link = program.attach_cgroup(group.as_raw_fd()).map_err(refused)?;
    link.pin(&pin).map_err(refused)
}

/// Where a controller is in use by choice, rather than by a socket's own.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Uses {
    /// Inodes of the network namespaces whose default it is.
    pub default_of: Vec<u64>,
    /// Routes that name it, as `ip route` shows them.
    pub routes: Vec<String>,
    /// Inodes of the control groups that are given it.
    pub cgroups: Vec<u64>,
}

/// Finds where a controller is in use by choice, in every namespace.
///
/// # Errors
/// When a namespace cannot be entered.
pub(crate) fn find(name: &str, pins: &Pins) -> Result<Uses> {
    let mut uses = Uses { cgroups: pins.cgroups(name)?, ..Uses::default() };
    for namespace in namespaces::all() {
        let (is_default, routes) = namespace.enter(|| Ok((default()? == name, routes(name))))?;
        if is_default {
            uses.default_of.push(namespace.inode);
        }
        uses.routes.extend(routes.iter().map(Route::text));
    }
    Ok(uses)
}

/// Ends every use by choice: defaults go back to what they were, routes lose the name, control groups the
/// program. Gives the controller to move live sockets to, for each namespace.
///
/// # Errors
/// When something cannot be changed back.
pub(crate) fn end(name: &str, pins: &Pins) -> Result<Vec<(Namespace, String)>> {
    let mut ended = Vec::new();
    for namespace in namespaces::all() {
        let other = namespace.enter(|| {
            let now = default()?;
            let other = if now == name { give_back(name)? } else { now };
            forget(name)?;
            for route in routes(name) {
                let mut words = strings(&["replace"]);
                words.extend(route.without_controller());
                ip(route.family, &words)?;
            }
            Ok(other)
        })?;
        ended.push((namespace, other));
    }
    for inode in pins.cgroups(name)? {
        let pin = pins.cgroup_path(name, inode)?;
        let link = Link::open(&pin).ok();
        std::fs::remove_file(&pin).map_err(Error::io("cannot remove", &pin))?;
        drop(link);
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_loses_only_its_controller() {
        let line = "10.0.0.0/8 via 192.0.2.1 dev eth0 congctl fp_bbr3 initcwnd 20";
        let route = parse_route("-4", line, "fp_bbr3").unwrap();
        assert_eq!(route.without_controller().join(" "), "10.0.0.0/8 via 192.0.2.1 dev eth0 initcwnd 20");
        assert_eq!(parse_route("-4", line, "fp_bbr1"), None);
    }

    #[test]
    fn a_locked_controller_is_recognised() {
        let line = "default via 192.0.2.1 dev eth0 congctl lock fp_bbr1";
        let route = parse_route("-4", line, "fp_bbr1").unwrap();
        assert_eq!(route.without_controller().join(" "), "default via 192.0.2.1 dev eth0");
    }
}
