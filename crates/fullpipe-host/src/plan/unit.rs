//! The systemd unit that loads an eBPF controller at boot, and quoting for units.

use crate::error::{Error, Result};
use crate::facts::Scope;
use crate::host::{ACCESS_LIST, Host, Stat, View, parent};
use std::io;

const UNITS: &str = "/etc/systemd/system";

/// Name of the unit that loads controller `name`.
pub fn unit_name(name: &str) -> String {
    format!("fullpipe-cc-{name}.service")
}

/// Path of a unit, and of the link that enables it.
pub(crate) fn unit_path(unit: &str) -> (String, String) {
    (format!("{UNITS}/{unit}"), format!("{UNITS}/multi-user.target.wants/{unit}"))
}

/// A path as the first word of a unit's command line (systemd.service(5), "Command lines").
///
/// # Errors
/// [`Error::Impossible`] for quotes, backslashes and control characters, with which systemd starts
/// no program.
pub fn unit_word(path: &str) -> Result<String> {
    if path.contains(|c: char| c.is_control() || "\"'\\".contains(c)) {
        return Err(Error::impossible(format_args!(
            "systemd cannot start a program whose path has quotes or backslashes: {path}; install fullpipe \
             under another path"
        )));
    }
    let text = path.replace('%', "%%");
    Ok(if text.contains(char::is_whitespace) { format!("\"{text}\"") } else { text })
}

/// Refuses a program for a unit of root that another user could replace.
///
/// # Errors
/// [`Error::Check`] if the file or a directory above it belongs to another user, or if others than
/// the group root may write to it.
pub(crate) fn refuse_writable_program(host: &dyn Host, program: &str) -> Result<()> {
    let identity = host.identity();
    // Owners of another user namespace are not known.
    if !identity.this_machine || !Scope::detect(host, &identity).initial_user {
        return Ok(());
    }
    let replaceable = replaceable_part(host, program)
        .map_err(|e| Error::io(format_args!("cannot find out who may change {program}"), &e))?;
    match replaceable {
        None => Ok(()),
        Some(part) => Err(Error::check(format_args!(
            "a unit of root would run {program}, and another user may change {part}: install fullpipe where \
             only root may write, such as /usr/local/bin, and run that one; nothing was changed"
        ))),
    }
}

/// The part of a path that a user other than root or the caller may replace.
fn replaceable_part(view: &dyn View, path: &str) -> io::Result<Option<String>> {
    let resolved = view.resolve(path)?;
    let mut part = resolved.as_str();
    loop {
        match view.stat(part) {
            Ok(stat) if is_replaceable(view, part, &stat, part == resolved) => {
                return Ok(Some(part.to_owned()));
            }
            // Any user who may write the directory decides what it will be.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            stat => drop(stat?),
        }
        if part == "/" {
            return Ok(None);
        }
        part = parent(part);
    }
}

/// Whether another user may change a file, or replace what is in a directory.
fn is_replaceable(view: &dyn View, path: &str, stat: &Stat, is_program: bool) -> bool {
    if !view.trusts_owner(stat.uid) {
        return true;
    }
    // In a sticky directory only the owner of a file may replace it.
    if stat.mode & 0o022 == 0 || !is_program && stat.mode & 0o1000 != 0 {
        return false;
    }
    // With an access list, the bits of the group are the most that other users may have.
    let has_list = || view.attributes(path).map_or(true, |all| all.contains_key(ACCESS_LIST));
    stat.mode & 0o002 != 0 || stat.gid != 0 || has_list()
}

/// A unit that loads a controller, verifies it with a test transfer, and then makes it the default.
/// If any of this fails, the default is unchanged.
///
/// The default is not set in sysctl.d, because systemd-sysctl runs before BPF programs are loaded.
#[derive(Clone, Debug)]
pub struct ControllerUnit<'a> {
    /// The name that the controller is registered under.
    pub name: &'a str,
    /// Arguments of `fullpipe cc load`: `bbr3`, `bbr3 --name mine`.
    pub which: &'a str,
    /// Its settings, by key and value.
    pub settings: &'a [(String, String)],
    /// The path of the fullpipe program.
    pub program: &'a str,
    /// Whether it becomes the default.
    pub default: bool,
}

impl ControllerUnit<'_> {
    /// Text of the unit; `writer` is the command that writes it. With `stops`, stopping the unit
    /// unloads the controller until the next boot.
    ///
    /// # Errors
    /// As [`unit_word`].
    pub fn text(&self, writer: &str, stops: bool) -> Result<String> {
        let ControllerUnit { name, which, default, .. } = self;
        let program = unit_word(self.program)?;
        let option = if *default { "--default" } else { "--verify" };
        let mut set = String::new();
        for (key, value) in self.settings {
            // Settings are numbers and names; anything else would need quoting and is invalid.
            let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
            if !plain(key) || !plain(value) {
                return Err(Error::impossible(format_args!("invalid setting for a unit: {key}={value}")));
            }
            set += &format!("--set {key}={value} ");
        }
        let stop = if stops {
            format!("ExecStop={program} cc unload {which} --until-boot\n")
        } else {
            String::new()
        };
        Ok(format!(
            "# Written by `fullpipe {writer}`; `fullpipe revert` removes it.\n\
             [Unit]\n\
             Description=TCP congestion controller {name} (eBPF; if it fails, the default stays)\n\
             After=systemd-sysctl.service systemd-modules-load.service ufw.service sys-fs-bpf.mount\n\
             Wants=sys-fs-bpf.mount\n\
             RequiresMountsFor=/var/lib/fullpipe\n\
             Before=network.target\n\
             \n\
             [Service]\n\
             Type=oneshot\n\
             RemainAfterExit=yes\n\
             ExecStart={program} cc load {which} {set}{option}\n\
             {stop}\
             \n\
             [Install]\n\
             WantedBy=multi-user.target\n"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Directory;
    use crate::names::default_of;

    fn unit(name: &str, which: &str, default: bool) -> String {
        let unit = ControllerUnit { name, which, settings: &[], program: "/usr/bin/fullpipe", default };
        unit.text("cc load", true).unwrap()
    }

    #[test]
    fn a_program_that_others_may_replace_is_found() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::create_dir_all(path("opt/bin")).unwrap();
        std::fs::write(path("opt/bin/fullpipe"), "").unwrap();
        std::os::unix::fs::symlink("opt/bin/fullpipe", path("link")).unwrap();
        let mode = |name: &str, mode| {
            std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for (name, bits) in [("opt", 0o755), ("opt/bin", 0o755), ("opt/bin/fullpipe", 0o755)] {
            mode(name, bits);
        }
        let view = Directory::new(root.path());
        let found = || replaceable_part(&view, "/link").unwrap();
        assert_eq!(found(), None);
        let is_root = ["opt", "opt/bin", "opt/bin/fullpipe"]
            .iter()
            .all(|name| std::os::unix::fs::chown(path(name), None, Some(4712)).is_ok());
        for (name, bits) in [("opt", 0o775), ("opt/bin", 0o757), ("opt/bin/fullpipe", 0o775)] {
            mode(name, bits);
            assert_eq!(found(), Some(format!("/{name}")));
            mode(name, 0o755);
        }
        mode("opt", 0o1777);
        assert_eq!(found(), None, "a sticky directory");
        if !is_root {
            println!("SKIPPED the group root: cannot change the group of a file");
            return;
        }
        mode("opt", 0o755);
        for name in ["opt/bin", "opt/bin/fullpipe"] {
            std::os::unix::fs::chown(path(name), None, Some(0)).unwrap();
            mode(name, 0o775);
        }
        assert_eq!(found(), None, "the group root");
    }

    #[test]
    fn a_program_whose_directory_cannot_be_read_is_not_trusted() {
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("loop", root.path().join("loop")).unwrap();
        let view = Directory::new(root.path());
        assert!(replaceable_part(&view, "/loop/fullpipe").is_err());
        assert_eq!(replaceable_part(&view, "/missing").unwrap(), None);
    }

    #[test]
    fn unit_passes_settings() {
        let set = |value: &str| {
            let settings =
                [("beta_percent".to_owned(), value.to_owned()), ("ecn".to_owned(), "off".to_owned())];
            let program = "/usr/bin/fullpipe";
            ControllerUnit { name: "fp_bbr3", which: "bbr3", settings: &settings, program, default: true }
                .text("cc load", true)
        };
        let text = set("80").unwrap();
        let line = "ExecStart=/usr/bin/fullpipe cc load bbr3 --set beta_percent=80 --set ecn=off --default\n";
        assert!(text.contains(line), "{text}");
        assert_eq!(text.lines().find_map(default_of).as_deref(), Some("fp_bbr3"));
        assert!(set("80 --default").is_err() && set("$HOME").is_err());
    }

    #[test]
    fn unit_verifies_before_it_sets_the_default() {
        let text = unit("fp_bbr3", "bbr3", true);
        assert!(text.contains("\nExecStart=/usr/bin/fullpipe cc load bbr3 --default\n"), "{text}");
        assert!(text.contains("Type=oneshot\n") && text.contains("RemainAfterExit=yes\n"));
        assert!(text.lines().all(|line| !line.starts_with(' ')), "{text}");
        assert_eq!(text.lines().find_map(default_of).as_deref(), Some("fp_bbr3"));
        assert_eq!(unit("fp_bbr3", "bbr3", false).lines().find_map(default_of), None);
    }

    #[test]
    fn stopping_the_unit_keeps_it_for_the_next_boot() {
        let text = unit("fp_bbr3", "bbr3", false);
        assert!(text.contains("ExecStop=/usr/bin/fullpipe cc unload bbr3 --until-boot\n"), "{text}");
    }

    #[test]
    fn renamed_controller_has_its_own_unit() {
        assert_ne!(unit_name("mine"), unit_name("fp_bbr3"));
        let text = unit("mine", "bbr3 --name mine", true);
        assert!(text.contains("ExecStart=/usr/bin/fullpipe cc load bbr3 --name mine --default\n"), "{text}");
        assert!(
            text.contains("ExecStop=/usr/bin/fullpipe cc unload bbr3 --name mine --until-boot\n"),
            "{text}"
        );
        assert_eq!(text.lines().find_map(default_of).as_deref(), Some("mine"));
    }

    #[test]
    fn unit_path_is_quoted_or_refused() {
        assert_eq!(unit_word("/opt/50% tools/fullpipe").unwrap(), "\"/opt/50%% tools/fullpipe\"");
        assert_eq!(unit_word("/usr/bin/fullpipe").unwrap(), "/usr/bin/fullpipe");
        for bad in ["/a\"b", "/a'b", "/a\\b", "/a\nb"] {
            assert!(unit_word(bad).is_err(), "{bad:?}");
        }
    }
}
