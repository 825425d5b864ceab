//! The boot loader: its default kernel, and changing the default or booting another once.

use super::installed::{Kernel, compare};
use super::{entries, extlinux, grub};
use crate::error::{Error, Result};
use crate::host::{Host, Program, View};
use crate::plan::{Change, FileState};
use serde::{Deserialize, Serialize};
use std::io;

/// GRUB's settings.
const SETTINGS: &str = "/etc/default/grub";
/// fullpipe's settings file, if the distribution reads this directory.
const OWN_SETTINGS: &str = "/etc/default/grub.d/zz-fullpipe.cfg";
/// Red Hat's setting that makes each new kernel the default.
const SYSCONFIG: &str = "/etc/sysconfig/kernel";
/// Title of an entry that boots once.
const TITLE: &str = "fullpipe trial";

/// Supported boot loaders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// GRUB 2.
    Grub,
    /// systemd-boot.
    SystemdBoot,
    /// EXTLINUX, of syslinux.
    Extlinux,
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Grub => "GRUB",
            Kind::SystemdBoot => "systemd-boot",
            Kind::Extlinux => "EXTLINUX",
        }
    }
}

/// A boot loader's variable: the default entry, or the one-time entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Variable {
    /// Its boot loader.
    pub loader: Kind,
    /// Its directory.
    pub directory: String,
    /// Whether it is the one-time entry.
    pub once: bool,
}

impl Variable {
    fn grub(&self) -> (&'static str, String) {
        let name = if self.once { "next_entry" } else { "saved_entry" };
        (name, format!("{}/grubenv", self.directory))
    }

    /// Its value.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn value(&self, view: &dyn View) -> io::Result<Option<String>> {
        let read = |path: &str| match view.read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        };
        Ok(match self.loader {
            Kind::Grub => {
                let (name, path) = self.grub();
                let variables = read(&path)?.and_then(|block| grub::variables(&block)).unwrap_or_default();
                variables.get(name).filter(|value| !value.is_empty()).cloned()
            }
            Kind::SystemdBoot => {
                entries::variable(view, if self.once { "LoaderEntryOneShot" } else { "LoaderEntryDefault" })
            }
            Kind::Extlinux => read(&format!("{}/ldlinux.sys", self.directory))?
                .and_then(|file| extlinux::boot_once_label(&file)),
        })
    }

    /// The program that sets it.
    fn program(&self, value: Option<&str>) -> Program {
        let words: Vec<String> = match self.loader {
            Kind::Grub => {
                let (name, path) = self.grub();
                let (verb, what) = match value {
                    Some(value) => ("set", format!("{name}={value}")),
                    None => ("unset", name.to_owned()),
                };
                vec![format!("{}-editenv", prefix(&self.directory)), path, verb.to_owned(), what]
            }
            Kind::SystemdBoot => {
                let verb = if self.once { "set-oneshot" } else { "set-default" };
                let file = value.map(|id| format!("{id}.conf")).unwrap_or_default();
                vec!["bootctl".into(), verb.into(), file]
            }
            Kind::Extlinux => {
                let option =
                    value.map_or_else(|| "--clear-once".to_owned(), |label| format!("--once={label}"));
                vec!["extlinux".into(), option, self.directory.clone()]
            }
        };
        Program::new(words)
    }

    /// Sets it.
    ///
    /// # Errors
    /// The loader's program is missing or fails, or the value did not change.
    pub fn set(&self, host: &dyn Host, value: Option<&str>) -> io::Result<()> {
        if self.value(host)?.as_deref() == value {
            return Ok(());
        }
        let program = self.program(value);
        host.run(&program)?.checked_stdout(&program)?;
        let now = self.value(host)?;
        if now.as_deref() == value {
            return Ok(());
        }
        let now = now.unwrap_or_else(|| "not set".into());
        Err(io::Error::other(format!("`{}` succeeded, but the value is {now}", program.line())))
    }
}

/// Prefix of GRUB's programs: `grub2` on distributions that also shipped GRUB 0.97.
fn prefix(directory: &str) -> &'static str {
    if directory.ends_with("grub2") { "grub2" } else { "grub" }
}

/// The menu of a loader.
#[derive(Clone, Debug)]
enum Menu {
    Grub(grub::Menu),
    Entries(Vec<entries::Entry>),
    Extlinux(extlinux::Menu),
}

/// The loader of a host, as it is now.
#[derive(Clone, Debug)]
pub struct Loader {
    /// Its kind.
    pub kind: Kind,
    /// Directory of its menu.
    pub directory: String,
    /// The menu's file, or the directory of its entries.
    pub menu: String,
    read: Menu,
    /// For GRUB with blscfg: its `grub.cfg`.
    around: grub::Menu,
}

impl Loader {
    /// The host's loader; `None` if unsupported.
    pub fn find(view: &dyn View) -> Option<Loader> {
        let found = |kind, directory: &str, menu: String, read| {
            Some(Loader { kind, directory: directory.to_owned(), menu, read, around: grub::Menu::default() })
        };
        if entries::variable(view, "LoaderInfo").is_some_and(|info| info.starts_with("systemd-boot")) {
            for directory in ["/boot/loader", "/efi/loader", "/boot/efi/loader"] {
                let menu = format!("{directory}/entries");
                let all = entries::all(view, &menu);
                if !all.is_empty() {
                    return found(Kind::SystemdBoot, directory, menu, Menu::Entries(all));
                }
            }
        }
        for directory in ["/boot/grub", "/boot/grub2"] {
            let menu = format!("{directory}/grub.cfg");
            let Some(text) = view.content(&menu) else { continue };
            let around = grub::Menu::parse(&text);
            if around.is_bls {
                let menu = "/boot/loader/entries".to_owned();
                let read = Menu::Entries(entries::all(view, &menu));
                return Some(Loader {
                    kind: Kind::Grub,
                    directory: directory.to_owned(),
                    menu,
                    read,
                    around,
                });
            }
            return found(Kind::Grub, directory, menu, Menu::Grub(around));
        }
        for directory in ["/boot/extlinux", "/boot"] {
            let menu = format!("{directory}/extlinux.conf");
            if let Some(text) = view.content(&menu) {
                return found(Kind::Extlinux, directory, menu, Menu::Extlinux(extlinux::Menu::parse(&text)));
            }
        }
        None
    }

    /// What the menu has too much of, if so.
    pub(super) fn excess(&self) -> Option<String> {
        let menu = match &self.read {
            Menu::Grub(menu) => menu,
            Menu::Entries(_) | Menu::Extlinux(_) => &self.around,
        };
        menu.excess.map(|excess| format!("{}/grub.cfg has {excess}", self.directory))
    }

    fn variable(&self, once: bool) -> Variable {
        Variable { loader: self.kind, directory: self.directory.clone(), once }
    }

    /// The normal entry of a kernel.
    pub fn entry(&self, kernel: &Kernel) -> Option<String> {
        let image = kernel.image.as_deref()?;
        match &self.read {
            Menu::Grub(menu) => {
                let entry = menu.booting(image)?;
                // grubby copies an entry with its identifier, and changes its title.
                let names =
                    if self.uses_grubby() { [entry.title(), &entry.id] } else { [&entry.id, entry.title()] };
                let resolves = |name: &&str| menu.named(name).is_some_and(|found| std::ptr::eq(found, entry));
                names.into_iter().find(resolves).map(str::to_owned)
            }
            Menu::Entries(all) => self.boots(all, kernel).map(|entry| entry.id.clone()),
            Menu::Extlinux(menu) => menu.booting(image).map(|label| label.name.clone()),
        }
    }

    /// Whether Red Hat's grubby may edit the menu.
    fn uses_grubby(&self) -> bool {
        prefix(&self.directory) == "grub2"
    }

    fn boots<'a>(&self, all: &'a [entries::Entry], kernel: &Kernel) -> Option<&'a entries::Entry> {
        all.iter().find(|entry| entry.boots(&kernel.release) && entry.id != grub::TRIAL)
    }

    /// The default entry as the loader names it, and its kernel file.
    fn default_entry(&self, view: &dyn View) -> (String, Option<String>) {
        let variable = |once| self.variable(once).value(view).ok().flatten();
        match &self.read {
            Menu::Grub(menu) => {
                let name = if menu.default == "${saved_entry}" {
                    variable(false).unwrap_or_default()
                } else {
                    menu.default.clone()
                };
                let entry = menu.named(&name);
                (name, entry.map(|entry| entry.image.clone()))
            }
            Menu::Entries(all) => {
                let is_grub = self.kind == Kind::Grub;
                let mut sorted: Vec<&entries::Entry> =
                    all.iter().filter(|entry| entry.id != grub::TRIAL).collect();
                // GRUB sorts by file name (blsuki_add_entry), systemd-boot by version.
                let key =
                    |entry: &entries::Entry| if is_grub { entry.id.clone() } else { entry.version.clone() };
                sorted.sort_by(|one, other| compare(&key(other), &key(one)));
                let name = variable(false).unwrap_or_default();
                let is_it = |entry: &&&entries::Entry| entry.id == name || is_grub && entry.title == name;
                let numbered =
                    || name.parse::<usize>().ok().filter(|_| is_grub).and_then(|at| sorted.get(at));
                let entry = sorted.iter().find(is_it).or_else(numbered).or_else(|| sorted.first());
                (name, entry.map(|entry| entry.image.clone()))
            }
            Menu::Extlinux(menu) => {
                let label = menu.default_entry();
                (
                    label.map(|label| label.name.clone()).unwrap_or_default(),
                    label.map(|label| label.image.clone()),
                )
            }
        }
    }

    /// The default kernel.
    pub fn default_of<'a>(&self, view: &dyn View, kernels: &'a [Kernel]) -> Option<&'a Kernel> {
        let file = self.default_entry(view).1?;
        let name = file.rsplit('/').next()?;
        let same_file = |kernel: &&Kernel| {
            kernel.image.as_deref().is_some_and(|image| image.rsplit('/').next() == Some(name))
        };
        let by_folder = |kernel: &&Kernel| file.split('/').any(|part| part == kernel.release);
        kernels.iter().find(same_file).or_else(|| kernels.iter().find(by_folder))
    }

    /// The one-time entry.
    pub fn next(&self, view: &dyn View) -> Option<String> {
        self.variable(true).value(view).ok().flatten()
    }

    /// Changes that make this kernel the default, and with `pin` keep package updates from changing
    /// that; empty if it is so.
    ///
    /// # Errors
    /// [`Error::Impossible`] without an entry for it, or if the default cannot be set.
    pub fn keep_default(&self, host: &dyn Host, kernel: &Kernel, pin: bool) -> Result<Vec<Change>> {
        let release = &kernel.release;
        let id = self.entry(kernel).ok_or_else(|| {
            Error::impossible(format_args!(
                "{} ({}) has no entry for Linux {release}, so a trial could not return to it: regenerate the \
                 menu \
                 (`update-grub`, `grub2-mkconfig`, `kernel-install`), then try again",
                self.kind.name(),
                self.menu
            ))
        })?;
        let (name, _) = self.default_entry(host);
        match &self.read {
            // A variable is changed by package updates, too.
            Menu::Grub(menu) if menu.default == "${saved_entry}" => self.keep_by_variable(host, id, pin),
            Menu::Entries(_) => self.keep_by_variable(host, id, pin),
            // By identifier, not by position, which a new kernel would take.
            _ if name == id => Ok(Vec::new()),
            Menu::Grub(_) => Ok(vec![self.keep_by_settings(host, id)?]),
            Menu::Extlinux(_) if host.exists("/usr/sbin/extlinux-update") => Err(Error::impossible(
                "extlinux-update makes the newest kernel the default, so a trial could not return to the \
                 running one: set the \
                 default manually (/etc/default/extlinux), and install with the package manager",
            )),
            // Labels are named after flavours, so another kernel gets another label.
            Menu::Extlinux(menu) if menu.default_entry().is_some_and(|label| label.name != id) => {
                Err(Error::impossible(format_args!(
                    "{} boots the label {name}, not Linux {release}: set DEFAULT {id} there first",
                    self.menu
                )))
            }
            Menu::Extlinux(_) => Ok(Vec::new()),
        }
    }

    /// Pins the default in the settings of a generated menu.
    fn keep_by_settings(&self, host: &dyn Host, id: String) -> Result<Change> {
        let own = host.exists("/etc/default/grub.d")
            && mkconfig(host, &self.directory)
                .is_some_and(|path| host.content(&path).is_some_and(|text| text.contains("default/grub.d")));
        let path = if own { OWN_SETTINGS } else { SETTINGS };
        let before = state_of(host, path)?;
        let written = "# Written by `fullpipe kernel`, which also removes it: pins the default kernel until \
                       another is kept.\n";
        let text = if own && before == FileState::Absent { written.to_owned() } else { before.text() };
        let text = grub::with_default(&text, &id);
        let changed = before.with_content(text.clone().into_bytes());
        let after = changed.unwrap_or_else(|| FileState::new_file(host, &text));
        Ok(Change::BootSettings {
            path: path.into(),
            before,
            after,
            default: id,
            menu: self.menu.clone(),
            maker: maker(host, &self.directory, &self.menu),
        })
    }

    /// Sets the default in the loader's variable, and with `pin` keeps new kernels from taking it.
    fn keep_by_variable(&self, host: &dyn Host, id: String, pin: bool) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        if pin
            && self.kind == Kind::Grub
            && let before @ FileState::File { .. } = state_of(host, SYSCONFIG)?
        {
            let text = before.text().replace("UPDATEDEFAULT=yes", "UPDATEDEFAULT=no");
            if let Some(after) = before.with_content(text.into_bytes()).filter(|after| *after != before) {
                changes.push(Change::File { path: SYSCONFIG.into(), before, after });
            }
        }
        let variable = self.variable(false);
        let before = variable.value(host).map_err(|e| Error::io("cannot read the default entry", &e))?;
        if before.as_ref() != Some(&id) {
            changes.push(Change::BootDefault { variable, before, after: id });
        }
        Ok(changes)
    }

    /// The change that boots this kernel once, with the arguments `more`.
    ///
    /// # Errors
    /// [`Error::Impossible`] without an entry for it, or if the loader cannot record the one-time
    /// boot.
    pub fn once(&self, host: &dyn Host, kernel: &Kernel, more: &str) -> Result<Change> {
        self.check_boot_once(host)?;
        let release = &kernel.release;
        let title = format!("Linux {release}, {TITLE}");
        let none = || {
            Error::impossible(format_args!(
                "{} ({}) has no entry for Linux {release}: regenerate the menu",
                self.kind.name(),
                self.menu
            ))
        };
        let image = kernel.image.as_deref().ok_or_else(none)?;
        let added = |path: &str, text: &str| -> Result<(FileState, FileState)> {
            let before = state_of(host, path)?;
            // Another file of one entry is replaced as a whole, and of equal names the first is booted.
            let is_taken = match self.read {
                Menu::Entries(_) => before != FileState::Absent,
                Menu::Grub(_) | Menu::Extlinux(_) => before.text().contains(grub::TRIAL),
            };
            if is_taken {
                return Err(Error::check(format_args!(
                    "{path} still has the entry {} of an earlier trial, which would be booted instead of \
                     this one: remove that entry, then try again",
                    grub::TRIAL
                )));
            }
            let after = match &before {
                FileState::File { content, .. } => {
                    before.with_content([&content[..], text.as_bytes()].concat())
                }
                _ => None,
            };
            let after = after.unwrap_or_else(|| FileState::new_file(host, text));
            Ok((before, after))
        };
        let (path, text, id) = match &self.read {
            Menu::Grub(menu) => {
                if !menu.takes_custom {
                    return Err(Error::impossible(format_args!(
                        "{} does not read custom.cfg, which is needed for a one-time entry: restore \
                         /etc/grub.d/41_custom, then run `update-grub`",
                        self.menu
                    )));
                }
                let entry = menu.booting(image).ok_or_else(none)?;
                let text = entry.once(&title, more).ok_or_else(|| {
                    Error::impossible(format_args!(
                        "the kernel line of Linux {release} in {} ends with a comment, an open quotation or \
                         a backslash, so no argument can be \
                         appended: correct the menu's sources, then run `update-grub`",
                        self.menu
                    ))
                })?;
                (format!("{}/custom.cfg", self.directory), text, grub::TRIAL)
            }
            Menu::Entries(all) => {
                let entry = self.boots(all, kernel).ok_or_else(none)?;
                (format!("{}/{}.conf", self.menu, grub::TRIAL), entry.once(&title, more), grub::TRIAL)
            }
            Menu::Extlinux(menu) => {
                let label = menu.booting(image).ok_or_else(none)?;
                (self.menu.clone(), label.once(&title, more), extlinux::TRIAL)
            }
        };
        let (before, after) = added(&path, &text)?;
        Ok(Change::BootOnce { variable: self.variable(true), id: id.into(), path, before, after })
    }

    /// Checks that the loader can clear the one-time entry while booting it; otherwise a kernel
    /// that panics would
    /// be booted in a loop.
    fn check_boot_once(&self, host: &dyn Host) -> Result<()> {
        match (self.kind, &self.read) {
            (Kind::Grub, read) => {
                let menu = if let Menu::Grub(menu) = read { menu } else { &self.around };
                if !menu.takes_next {
                    return Err(Error::impossible(format_args!(
                        "{}/grub.cfg does not support next_entry: regenerate it (`update-grub`), then try \
                         again",
                        self.directory
                    )));
                }
                // The same rules as for recordfail in GRUB's 00_header and 10_linux.
                let ask = |what: &str| -> Result<String> {
                    let program = Program::new([
                        format!("{}-probe", prefix(&self.directory)).as_str(),
                        what,
                        &self.directory,
                    ]);
                    let said = host.run(&program).and_then(|ran| ran.checked_stdout(&program));
                    said.map(|said| said.trim().to_owned()).map_err(|e| {
                        Error::io(format_args!("cannot determine the file system of {}", self.directory), &e)
                    })
                };
                let (file_system, below) = (ask("--target=fs")?, ask("--target=abstraction")?);
                let unwritable = ["btrfs", "zfs", "cpiofs", "squash4", "iso9660", "f2fs"];
                let mut layers = below.split_whitespace();
                if unwritable.contains(&file_system.as_str())
                    || layers.any(|layer| ["lvm", "diskfilter", "mdraid09", "mdraid1x"].contains(&layer))
                {
                    let on = if below.is_empty() { file_system } else { format!("{file_system} on {below}") };
                    return Err(Error::impossible(format_args!(
                        "GRUB cannot write {}/grubenv on {on}, so a failing kernel would be booted in a \
                         loop: move /boot to a \
                         plain partition (ext4), or select the kernel in GRUB's menu at the console",
                        self.directory
                    )));
                }
            }
            (Kind::Extlinux, _) => {
                if !host.exists(&format!("{}/ldlinux.sys", self.directory)) {
                    return Err(Error::impossible(format_args!(
                        "{}/ldlinux.sys is missing: the program that reads {} (U-Boot?) does not support \
                         one-time entries",
                        self.directory, self.menu
                    )));
                }
            }
            (Kind::SystemdBoot, _) => {}
        }
        Ok(())
    }
}

fn state_of(host: &dyn Host, path: &str) -> Result<FileState> {
    FileState::read(host, path).map_err(|e| Error::io(format_args!("cannot read {path}"), &e))
}

/// Path of `grub-mkconfig`.
fn mkconfig(view: &dyn View, directory: &str) -> Option<String> {
    let name = format!("{}-mkconfig", prefix(directory));
    ["/usr/sbin", "/usr/bin", "/sbin"]
        .iter()
        .map(|place| format!("{place}/{name}"))
        .find(|path| view.exists(path))
}

/// The command that generates GRUB's menu.
fn maker(view: &dyn View, directory: &str, menu: &str) -> Vec<String> {
    let name = mkconfig(view, directory).unwrap_or_else(|| format!("{}-mkconfig", prefix(directory)));
    vec![name, "-o".into(), menu.into()]
}
