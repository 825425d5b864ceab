//! One reversible change and its state.

use super::allowed::Allowed;
use super::state::{FileState, install_over};
use super::step_state::StepState;
use super::tree::Tree;
use crate::host::{Host, Presence, Process, Program, View};
use crate::kernel::grub;
use crate::kernel::loader::Variable;
use crate::kernel::packages::{Manager, PackageState};
use crate::net::{CongestionRoute, RouteController, RouteKey};
use serde::{Deserialize, Serialize};
use std::io;

/// A change of one object.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Loads a kernel module.
    Module {
        /// Its name.
        name: String,
    },
    /// Sets a sysctl of the running kernel.
    Sysctl {
        /// Its name with dots.
        name: String,
        /// Its value now.
        before: String,
        /// Its value then.
        after: String,
    },
    /// Gives a device another queueing discipline.
    Qdisc {
        /// The device.
        device: String,
        /// Its tree now.
        before: Tree,
        /// The kind of its root, or of every leaf if it has several queues.
        after: String,
    },
    /// Adds a route that chooses a controller for one destination.
    Route {
        /// The route.
        route: CongestionRoute,
    },
    /// Sets the controller of an existing route.
    Congctl {
        /// The route.
        route: RouteKey,
        /// Its controller now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<RouteController>,
        /// Its new controller.
        after: RouteController,
    },
    /// Sets the controller of a control group's new connections, by a pinned BPF program.
    Cgroup {
        /// The control group's directory.
        group: String,
        /// The controller.
        controller: String,
        /// Path of the pin, which keeps the program attached.
        pin: String,
    },
    /// A process that divides the new connections of a control group between controllers while it
    /// runs (`fullpipe split`).
    Split {
        /// The process.
        owner: Process,
        /// The control group's directory.
        group: String,
        /// The arms and their first shares.
        arms: String,
    },
    /// Replaces, creates or removes a path.
    File {
        /// The path, links resolved.
        path: String,
        /// Its state now.
        before: FileState,
        /// Its new state.
        after: FileState,
    },
    /// Sets the boot loader's default entry in the settings that its menu is generated from.
    BootSettings {
        /// The settings' file.
        path: String,
        /// Its state now.
        before: FileState,
        /// Its new state.
        after: FileState,
        /// The entry.
        default: String,
        /// The menu's file.
        menu: String,
        /// The command that generates the menu.
        maker: Vec<String>,
    },
    /// Sets the boot loader's default entry in its own variable.
    BootDefault {
        /// The variable.
        variable: Variable,
        /// The entry now, if one is set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<String>,
        /// The entry then.
        after: String,
    },
    /// Adds an entry to the boot loader's menu and boots it once.
    BootOnce {
        /// The variable of the entry to boot once.
        variable: Variable,
        /// The entry.
        id: String,
        /// The file of the entry.
        path: String,
        /// Its state now.
        before: FileState,
        /// Its new state.
        after: FileState,
    },
    /// Installs a kernel's packages.
    Packages {
        /// The package manager.
        manager: Manager,
        /// The requested packages.
        asked: Vec<String>,
        /// The packages that were not installed before.
        new: Vec<String>,
        /// The kernel's release.
        release: String,
        /// The requested source.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<crate::kernel::packages::Source>,
    },
}

/// The default entry of GRUB's menu.
fn menu_boots(view: &dyn View, menu: &str) -> String {
    view.content(menu).map(|text| grub::Menu::parse(&text).default).unwrap_or_default()
}

fn run_checked(host: &dyn Host, program: &Program) -> io::Result<()> {
    host.run(program)?.checked_stdout(program).map(drop)
}

/// Whether a module is loaded or built in.
fn is_loaded(host: &dyn Host, module: &str) -> bool {
    let is_listed = module.strip_prefix("tcp_").is_some_and(|controller| {
        let available = host.sysctl("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
        available.split_ascii_whitespace().any(|one| one == controller)
    });
    is_listed || host.exists(&format!("/sys/module/{module}"))
}

fn packages_state(host: &dyn Host, manager: Manager, packages: &[String]) -> io::Result<StepState> {
    let all = packages
        .iter()
        .map(|package| manager.has(host, package))
        .collect::<io::Result<Vec<PackageState>>>()?;
    Ok(if all.iter().all(|has| *has == PackageState::Installed) {
        StepState::After
    } else if all.iter().all(|has| *has == PackageState::Absent) {
        StepState::Before
    } else {
        StepState::Partial
    })
}

/// Removes the packages that are fully or partially installed.
fn remove_packages(host: &dyn Host, manager: Manager, packages: &[String]) -> io::Result<()> {
    let there = |package: &&String| manager.has(host, package).is_ok_and(|has| has != PackageState::Absent);
    let there: Vec<String> = packages.iter().filter(there).cloned().collect();
    let is_broken = |package| manager.has(host, package).is_ok_and(|has| has == PackageState::Partial);
    if there.iter().any(|package| is_broken(package))
        && let Some(program) = manager.repair()
    {
        // A package that cannot be configured can still be removed.
        let _ = host.run(&program);
    }
    if there.is_empty() {
        return Ok(());
    }
    manager.check_removal(host, &there)?;
    run_checked(host, &manager.remove(&there))
}

/// The kernel writes tabs between numbers.
fn same_value(a: &str, b: &str) -> bool {
    a.split_ascii_whitespace().eq(b.split_ascii_whitespace())
}

/// As `ip route` writes it.
pub(crate) fn choice(choice: Option<&RouteController>) -> String {
    match choice {
        None => "no congctl".into(),
        Some(choice) => format!("congctl {}{}", if choice.locked { "lock " } else { "" }, choice.controller),
    }
}

fn choice_of(host: &dyn Host, route: &RouteKey) -> io::Result<Option<Option<RouteController>>> {
    Ok(host.routes()?.into_iter().find(|now| now.key == *route).map(|now| now.choice))
}

impl Change {
    /// The changed object.
    pub fn title(&self) -> String {
        match self {
            Change::Module { name } => format!("module {name}"),
            Change::Sysctl { name, .. } => name.clone(),
            Change::Qdisc { device, .. } => format!("queueing discipline of {device}"),
            Change::Route { route } => format!("route to {}", route.prefix),
            Change::Congctl { route, .. } => format!("controller of the route to {}", route.prefix),
            Change::Cgroup { group, .. } => format!("control group {group}"),
            Change::Split { owner, .. } => format!("split of process {}", owner.id),
            Change::File { path, .. } => path.clone(),
            Change::BootSettings { path, .. } => format!("default of the boot menu ({path})"),
            Change::BootDefault { variable, .. } => format!("default of {}", variable.loader.name()),
            Change::BootOnce { path, .. } => format!("entry for one start ({path})"),
            Change::Packages { release, .. } => format!("Linux {release}"),
        }
    }

    /// The state after the change.
    pub fn wanted(&self) -> String {
        match self {
            Change::Module { .. } => "loaded".into(),
            Change::Sysctl { after, .. } => after.clone(),
            Change::Qdisc { after, .. } => after.clone(),
            Change::Route { route } => format!("congctl {}", route.controller),
            Change::Congctl { after, .. } => choice(Some(after)),
            Change::Cgroup { controller, .. } => controller.clone(),
            Change::Split { group, arms, .. } => format!("{arms} of {group}"),
            Change::File { after, .. } => after.describe(),
            Change::BootSettings { default, .. } => default.clone(),
            Change::BootDefault { after, .. } => after.clone(),
            Change::BootOnce { id, .. } => id.clone(),
            Change::Packages { .. } => "installed".into(),
        }
    }

    /// Whether it leads to the same state as `other`.
    pub(crate) fn has_same_result_as(&self, other: &Change) -> bool {
        match (self, other) {
            (Change::File { after: one, .. }, Change::File { after: other, .. }) => one.matches(other),
            _ => self.wanted() == other.wanted(),
        }
    }

    /// Whether it changes only the running kernel, until the next boot.
    pub fn is_live(&self) -> bool {
        !matches!(
            self,
            Change::File { .. }
                | Change::BootSettings { .. }
                | Change::BootDefault { .. }
                | Change::BootOnce { .. }
                | Change::Packages { .. }
        )
    }

    /// The state of the object: before, after, or another.
    ///
    /// # Errors
    /// The object cannot be read.
    pub fn state(&self, host: &dyn Host) -> io::Result<StepState> {
        Ok(match self {
            Change::Module { name } if is_loaded(host, name) => StepState::After,
            Change::Module { .. } => StepState::Before,
            Change::Sysctl { name, before, after } => {
                match (host.sysctl(name), Allowed::new(name, before, after)) {
                    (None, _) => StepState::Gone,
                    (Some(now), Some(allowed)) => allowed.state(host, &now),
                    (Some(now), None) => {
                        StepState::compare(same_value(&now, after), same_value(&now, before), || now.clone())
                    }
                }
            }
            Change::Qdisc { device, before, after } => before.state(host, device, after)?,
            Change::Route { route } => {
                let now = host.congestion_routes()?;
                match now.iter().find(|r| r.prefix == route.prefix && r.table == route.table) {
                    None => StepState::Before,
                    Some(r) if r == route => StepState::After,
                    Some(r) => StepState::Other(format!("congctl {} dev {}", r.controller, r.device)),
                }
            }
            Change::Congctl { route, before, after } => match choice_of(host, route)? {
                None => StepState::Gone,
                Some(now) => {
                    StepState::compare(now.as_ref() == Some(after), now == *before, || choice(now.as_ref()))
                }
            },
            Change::Cgroup { pin, .. } => match host.stat(pin) {
                Ok(_) => StepState::After,
                Err(e) if e.kind() == io::ErrorKind::NotFound => StepState::Before,
                Err(e) => return Err(e),
            },
            Change::Split { owner, .. } => match owner.presence(host) {
                Presence::Running | Presence::Unknown => StepState::After,
                Presence::Exited => StepState::Before,
            },
            // The variable is cleared when the entry is booted; the entry remains.
            Change::File { path, before, after } | Change::BootOnce { path, before, after, .. } => {
                let now = FileState::read(host, path)?;
                if now.is_partial(host, path, before, after) {
                    return Ok(StepState::Partial);
                }
                StepState::compare(now.matches(after), now.matches(before), || now.describe())
            }
            Change::BootSettings { path, before, after, default, menu, .. } => {
                let now = FileState::read(host, path)?;
                let boots = menu_boots(host, menu) == *default;
                match (now.matches(after), now.matches(before), boots) {
                    (true, _, true) => StepState::After,
                    (_, true, false) => StepState::Before,
                    (true, ..) | (_, true, _) => StepState::Partial,
                    _ => StepState::Other(now.describe()),
                }
            }
            Change::BootDefault { variable, before, after } => {
                let now = variable.value(host)?;
                let text = || now.clone().unwrap_or_else(|| "not set".into());
                StepState::compare(now.as_ref() == Some(after), now == *before, text)
            }
            Change::Packages { manager, new, .. } => packages_state(host, *manager, new)?,
        })
    }

    /// Whether both change the same object.
    pub(crate) fn same_target(&self, other: &Change) -> bool {
        match (self, other) {
            (Change::Sysctl { name: a, .. }, Change::Sysctl { name: b, .. })
            | (Change::File { path: a, .. }, Change::File { path: b, .. })
            | (Change::Cgroup { pin: a, .. }, Change::Cgroup { pin: b, .. }) => a == b,
            (Change::Congctl { route: a, .. }, Change::Congctl { route: b, .. }) => a == b,
            (Change::Split { owner: a, .. }, Change::Split { owner: b, .. }) => a == b,
            _ => false,
        }
    }

    /// State of this change when `later`, a change of the same object, was planned.
    pub(crate) fn state_before(&self, later: &Change) -> Option<StepState> {
        let (is_after, is_before, then) = match (self, later) {
            (Change::Sysctl { name, before, after }, Change::Sysctl { before: then, .. }) => {
                if let Some(allowed) = Allowed::new(name, before, after) {
                    return Some(allowed.state_then(then));
                }
                (same_value(then, after), same_value(then, before), then.clone())
            }
            (Change::Congctl { before, after, .. }, Change::Congctl { before: then, .. }) => {
                (then.as_ref() == Some(after), then == before, choice(then.as_ref()))
            }
            (Change::File { before, after, .. }, Change::File { before: then, .. }) => {
                (then.matches(after), then.matches(before), then.describe())
            }
            _ => return None,
        };
        Some(StepState::compare(is_after, is_before, || then))
    }

    /// Makes the undo of this change restore the original state of `earlier`.
    pub(crate) fn inherit_before(&mut self, earlier: &Change) {
        match (self, earlier) {
            (Change::Sysctl { before, .. }, Change::Sysctl { before: first, .. }) => before.clone_from(first),
            (Change::Congctl { before, .. }, Change::Congctl { before: first, .. }) => {
                before.clone_from(first)
            }
            (Change::File { before, .. }, Change::File { before: first, .. }) => before.clone_from(first),
            _ => {}
        }
    }

    /// Whether a file is in one of the two states of this change.
    fn is_expected(&self, host: &dyn Host, now: &FileState) -> bool {
        match self {
            Change::File { path, before, after }
            | Change::BootSettings { path, before, after, .. }
            | Change::BootOnce { path, before, after, .. } => {
                now.matches(after) || now.matches(before) || now.is_partial(host, path, before, after)
            }
            _ => true,
        }
    }

    /// Installs a file, unless another program has changed it in the meantime.
    fn install(&self, host: &dyn Host, path: &str, state: &FileState, overwrite: bool) -> io::Result<()> {
        install_over(host, path, state, &|now| overwrite || self.is_expected(host, now))
    }

    /// Makes the change. A file that is in neither state of the change is kept, unless `overwrite`.
    ///
    /// # Errors
    /// From the kernel or the file system. Control groups and splits need a BPF program, which the
    /// caller loads.
    pub fn perform(&self, host: &dyn Host, overwrite: bool) -> io::Result<()> {
        match self {
            Change::Module { name } => host.load_module(name),
            Change::Sysctl { name, before, after } => match Allowed::new(name, before, after) {
                Some(allowed) => host.set_sysctl(name, &allowed.with(host)),
                None => host.set_sysctl(name, after),
            },
            Change::Qdisc { device, before, after } => before.replace(host, device, after),
            Change::Route { route } => host.change_route(route, false),
            Change::Congctl { route, after, .. } => host.set_route_controller(route, Some(after)),
            Change::Cgroup { .. } | Change::Split { .. } => Err(io::ErrorKind::Unsupported.into()),
            Change::File { path, after, .. } => self.install(host, path, after, overwrite),
            Change::BootSettings { path, after, maker, .. } => {
                self.install(host, path, after, overwrite)?;
                run_checked(host, &Program::new(maker))
            }
            Change::BootDefault { variable, after, .. } => variable.set(host, Some(after)),
            // The entry must exist before it is selected.
            Change::BootOnce { variable, id, path, after, .. } => {
                self.install(host, path, after, overwrite)?;
                variable.set(host, Some(id))
            }
            Change::Packages { manager, asked, from, .. } => {
                run_checked(host, &manager.install(asked, *from))
            }
        }
    }

    /// Clears the choice of an entry to boot once, whose file is kept.
    ///
    /// # Errors
    /// From the file system.
    pub(crate) fn disarm(&self, host: &dyn Host) -> io::Result<()> {
        match self {
            Change::BootOnce { variable, id, .. } if variable.value(host)?.as_ref() == Some(id) => {
                variable.set(host, None)
            }
            _ => Ok(()),
        }
    }

    /// Whether it is a split that belongs to a process of another PID namespace.
    pub fn is_foreign_split(&self, host: &dyn Host) -> bool {
        matches!(self, Change::Split { owner, .. } if !owner.is_in_own_namespace(host))
    }

    /// Restores the state before the change. A file that is in neither state of the change is kept,
    /// unless `overwrite`.
    ///
    /// # Errors
    /// From the kernel or the file system.
    pub fn undo(&self, host: &dyn Host, overwrite: bool) -> io::Result<()> {
        match self {
            Change::Module { name } => host.unload_module(name),
            Change::Sysctl { name, before, after } => match Allowed::new(name, before, after) {
                Some(allowed) => host.set_sysctl(name, &allowed.without(host)),
                None => host.set_sysctl(name, before),
            },
            Change::Qdisc { device, before, .. } => before.restore(host, device),
            Change::Route { route } => host.change_route(route, true),
            Change::Congctl { route, before, .. } => host.set_route_controller(route, before.as_ref()),
            Change::Cgroup { pin, .. } => host.remove(pin),
            Change::Split { owner, .. } if self.is_foreign_split(host) => Err(io::Error::other(format!(
                "its owner is process {} in another PID namespace, such as a container; run `fullpipe split \
                 stop`: it ends the split there, and removes the entry of one that has ended",
                owner.id
            ))),
            Change::Split { owner, .. } => host.end_process(*owner),
            Change::File { path, before, .. } => self.install(host, path, before, overwrite),
            Change::BootSettings { path, before, maker, .. } => {
                self.install(host, path, before, overwrite)?;
                run_checked(host, &Program::new(maker))
            }
            Change::BootDefault { variable, before, .. } => variable.set(host, before.as_deref()),
            Change::BootOnce { path, before, .. } => {
                self.disarm(host)?;
                self.install(host, path, before, overwrite)
            }
            Change::Packages { manager, new, .. } => remove_packages(host, *manager, new),
        }
    }
}
