//! A controller that comes back after a reboot: a oneshot systemd unit that loads it, sends a test transfer
//! through it, and only then makes it the default. When any of that fails, the default stays what it was.

use crate::controller::Controller;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where units of the administrator's are.
const UNITS: &str = "/etc/systemd/system";

/// The name of the unit that loads what is registered under `name`.
pub fn unit_name(name: &str) -> String {
    format!("fullpipe-cc-{name}.service")
}

/// The unit's text; `name` is what the controller is registered under, `program` the path of the fullpipe binary.
///
/// The default is set by the unit and not in sysctl.d: systemd-sysctl runs before any BPF program is loaded,
/// and would warn of an unknown controller and go on without it.
pub fn unit(controller: Controller, name: &str, program: &Path, default: bool) -> String {
    let mut which = controller.name().trim_start_matches("fp_").to_owned();
    if name != controller.name() {
        which += &format!(" --name {name}");
    }
    let option = if default { " --default" } else { " --verify" };
    format!(
        "[Unit]\n\
         Description=TCP congestion controller {name} (eBPF)\n\
         After=systemd-sysctl.service sys-fs-bpf.mount\n\
         Wants=sys-fs-bpf.mount\n\
         Before=network.target\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={program} cc load {which}{option}\n\
         ExecStop={program} cc unload {which} --until-boot\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        program = word(program),
    )
}

/// A path as one word of a unit's command line (systemd.service(5), "Command lines").
fn word(path: &Path) -> String {
    let text = path.display().to_string().replace('%', "%%");
    if text.contains(char::is_whitespace) { format!("\"{text}\"") } else { text }
}

/// Whether the unit could be installed: to be asked before anything is changed.
///
/// # Errors
/// When systemd is not there, or could not start the program.
pub fn check(controller: Controller, program: &Path) -> Result<()> {
    if !Path::new("/run/systemd/system").is_dir() {
        return Err(Error::impossible(
            "this machine does not run systemd",
            format!("have your init system run `fullpipe cc load {controller} --default` at boot"),
        ));
    }
    if program.display().to_string().contains(|c: char| c.is_control() || "\"'\\".contains(c)) {
        return Err(Error::impossible(
            format!("systemd starts no program whose path has quotes or backslashes: {}", program.display()),
            "install fullpipe under another path",
        ));
    }
    Ok(())
}

/// Installs and enables the unit; when that fails there is none.
///
/// # Errors
/// As [`check`]; when it cannot be written or enabled.
pub fn install(controller: Controller, name: &str, program: &Path, default: bool) -> Result<PathBuf> {
    check(controller, program)?;
    let unit_name = unit_name(name);
    let path = Path::new(UNITS).join(&unit_name);
    let before = std::fs::read(&path).ok();
    let enable = || {
        std::fs::write(&path, unit(controller, name, program, default))
            .map_err(Error::io("cannot write", &path))?;
        systemctl(&["daemon-reload"])?;
        systemctl(&["enable", &unit_name])
    };
    enable().inspect_err(|_| {
        // The first error is the one to tell.
        let _ = match &before {
            Some(before) => std::fs::write(&path, before),
            None => std::fs::remove_file(&path),
        };
    })?;
    Ok(path)
}

/// Removes the unit, when there is one: whether there was.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(name: &str) -> Result<bool> {
    let path = Path::new(UNITS).join(unit_name(name));
    if !path.exists() {
        return Ok(false);
    }
    systemctl(&["disable", &unit_name(name)])?;
    std::fs::remove_file(&path).map_err(Error::io("cannot remove", &path))?;
    systemctl(&["daemon-reload"])?;
    Ok(true)
}

fn systemctl(arguments: &[&str]) -> Result<()> {
    let output = Command::new("systemctl")
        .args(arguments)
        .output()
        .map_err(|error| Error::impossible(format!("systemctl cannot be run: {error}"), "install systemd"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::impossible(
        format!("systemctl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()),
        "run as root",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_loads_and_verifies_before_it_sets_the_default() {
        let text = unit(Controller::Bbr3, "fp_bbr3", Path::new("/usr/bin/fullpipe"), true);
        assert!(text.contains("ExecStart=/usr/bin/fullpipe cc load bbr3 --default\n"), "{text}");
        assert!(text.contains("Type=oneshot\n") && text.contains("RemainAfterExit=yes\n"));
        assert!(text.lines().all(|line| !line.starts_with(' ')), "{text}");
    }

    #[test]
    fn a_shutdown_does_not_take_the_unit_away() {
        let text = unit(Controller::Bbr3, "fp_bbr3", Path::new("/usr/bin/fullpipe"), false);
        assert!(text.contains("ExecStop=/usr/bin/fullpipe cc unload bbr3 --until-boot\n"), "{text}");
    }

    #[test]
    fn a_controller_under_another_name_has_a_unit_of_its_own() {
        assert_ne!(unit_name("mine"), unit_name("fp_bbr3"));
        let text = unit(Controller::Bbr3, "mine", Path::new("/usr/bin/fullpipe"), true);
        assert!(text.contains("ExecStart=/usr/bin/fullpipe cc load bbr3 --name mine --default\n"), "{text}");
        assert!(
            text.contains("ExecStop=/usr/bin/fullpipe cc unload bbr3 --name mine --until-boot\n"),
            "{text}"
        );
    }

    #[test]
    fn a_strange_path_stays_one_word() {
        assert_eq!(word(Path::new("/opt/50% tools/fullpipe")), "\"/opt/50%% tools/fullpipe\"");
    }
}
