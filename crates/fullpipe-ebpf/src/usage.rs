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

/// How to take one use back that was just made.
#[derive(Debug)]
#[must_use]
pub enum Undo {
    /// It was in use there already.
    Nothing,
    /// The namespace's default goes back to what it was.
    Default,
    /// The control group's program goes.
    Cgroup(PathBuf),
    /// The route is as it was.
    Route(Route),
}

impl Undo {
    /// Takes it back; `name` is the controller that was given a use.
    ///
    /// # Errors
    /// When something refuses.
    pub fn undo(self, name: &str) -> Result<()> {
        match self {
            Undo::Nothing => Ok(()),
            Undo::Default => give_back(name).and_then(|_| forget(name)),
            Undo::Cgroup(pin) => std::fs::remove_file(&pin).map_err(Error::io("cannot remove", &pin)),
            Undo::Route(before) => {
                before.replace()?;
                forget_routes(name)
            }
        }
    }
}

/// Makes a controller the default of this process's namespace, and remembers what was before.
///
/// # Errors
/// When the kernel does not take the name.
pub fn make_default(name: &str) -> Result<Undo> {
    let before = default()?;
    if before == name {
        return Ok(Undo::Nothing);
    }
    let path = remembered(own_inode(), name);
    std::fs::create_dir_all(REMEMBERED).map_err(Error::io("cannot create", REMEMBERED))?;
    std::fs::write(&path, before).map_err(Error::io("cannot write", &path))?;
    set_default(name).inspect_err(|_| {
        let _ = std::fs::remove_file(&path);
    })?;
    Ok(Undo::Default)
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
pub struct Route {
    family: &'static str,
    words: Vec<String>,
}

impl Route {
    /// The route as `ip route` shows it.
    pub fn text(&self) -> String {
        self.words.join(" ")
    }

    /// The destination.
    fn prefix(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Puts this route in the place of the one to the same destination.
    fn replace(&self) -> Result<()> {
        let mut words = strings(&["replace"]);
        words.extend(self.words.iter().cloned());
        ip(self.family, &words).map(drop)
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
pub fn use_on_route(prefix: &str, name: &str) -> Result<Undo> {
    let family = if prefix.contains(':') { "-6" } else { "-4" };
    let shown = ip(family, &strings(&["show", "exact", prefix]))?;
    let mut lines = shown.lines().filter(|line| !line.trim().is_empty());
    let line = match (lines.next(), lines.next()) {
        (Some(line), None) => line,
        (None, _) => {
            return Err(Error::Malformed(format!(
                "there is no route {prefix}: `ip route` lists those there are"
            )));
        }
        // Replacing would lose the others.
        (Some(_), Some(_)) => {
            return Err(Error::Malformed(format!(
                "{prefix} has several routes or next hops: give them their controller by `ip route` yourself"
            )));
        }
    };
    let route = Route { family, words: line.split_whitespace().map(str::to_owned).collect() };
    if parse_route(family, line, name).is_some() {
        return Ok(Undo::Nothing);
    }
    let path = remembered_route(own_inode(), name, route.prefix());
    std::fs::create_dir_all(REMEMBERED).map_err(Error::io("cannot create", REMEMBERED))?;
    std::fs::write(&path, route.text()).map_err(Error::io("cannot write", &path))?;
    let mut words = route.without_controller();
    words.extend(strings(&["congctl", name]));
    Route { family, words }.replace().inspect_err(|_| {
        let _ = std::fs::remove_file(&path);
    })?;
    Ok(Undo::Route(route))
}

/// Where a route is kept as it was before it was given a controller.
fn remembered_route(inode: u64, name: &str, prefix: &str) -> PathBuf {
    Path::new(REMEMBERED).join(format!("route-{inode}-{name}-{}", prefix.replace('/', "_")))
}

/// The route as it was before `name`, which may have been another controller's; else without any.
fn give_route_back(route: &Route, name: &str) -> Result<()> {
    let stripped = Route { family: route.family, words: route.without_controller() };
    let before = std::fs::read_to_string(remembered_route(own_inode(), name, route.prefix()));
    let words = before.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let before = Route { family: route.family, words };
    // Not if the route was changed since, nor if its controller of then is gone.
    if before.without_controller() == stripped.words && before.replace().is_ok() {
        return Ok(());
    }
    stripped.replace()
}

/// What was remembered of routes for `name` goes.
fn forget_routes(name: &str) -> Result<()> {
    let of_this_namespace = format!("route-{}-{name}-", own_inode());
    for entry in std::fs::read_dir(REMEMBERED).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&of_this_namespace) {
            let path = entry.path();
            std::fs::remove_file(&path).map_err(Error::io("cannot remove", &path))?;
        }
    }
    Ok(())
}

/// Has new connections of a control group's processes use the controller, until it is unloaded.
///
/// # Errors
/// When the path is not a control group, or the program may not be attached.
pub fn use_in_cgroup(pins: &Pins, path: &Path, name: &str) -> Result<Undo> {
    let group = File::open(path).map_err(Error::io("cannot open the control group", path))?;
    let inode = group.metadata().map_err(Error::io("cannot read", path))?.ino();
    let pin = pins.cgroup_path(name, inode)?;
    if pin.exists() {
        return Ok(Undo::Nothing);
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
    link.pin(&pin).map_err(refused)?;
    Ok(Undo::Cgroup(pin))
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
                give_route_back(&route, name)?;
            }
            forget_routes(name)?;
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
