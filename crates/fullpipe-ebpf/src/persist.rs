//! A controller that comes back after a reboot: a oneshot systemd unit that loads it, sends a test transfer
//! through it, and only then makes it the default. When any of that fails, the default stays what it was.

use crate::controller::Controller;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where units of the administrator's are.
const UNITS: &str = "/etc/systemd/system";

/// The unit's name.
pub fn unit_name(controller: Controller) -> String {
    format!("fullpipe-cc-{controller}.service")
}

/// The unit's text; `program` is the path of the fullpipe binary.
///
/// The default is set by the unit and not in sysctl.d: systemd-sysctl runs before any BPF program is loaded,
/// and would warn of an unknown controller and go on without it.
pub fn unit(controller: Controller, program: &Path, default: bool) -> String {
    let short = controller.name().trim_start_matches("fp_");
    let option = if default { " --default" } else { " --verify" };
    format!(
        "[Unit]\n\
         Description=TCP congestion controller {controller} (eBPF)\n\
         After=systemd-sysctl.service sys-fs-bpf.mount\n\
         Wants=sys-fs-bpf.mount\n\
         Before=network.target\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={program} cc load {short}{option}\n\
         ExecStop={program} cc unload {short} --until-boot\n\
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

/// Installs and enables the unit.
///
/// # Errors
/// When it cannot be written or systemd is not there.
pub fn install(controller: Controller, program: &Path, default: bool) -> Result<PathBuf> {
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
    let path = Path::new(UNITS).join(unit_name(controller));
    std::fs::write(&path, unit(controller, program, default)).map_err(Error::io("cannot write", &path))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["enable", &unit_name(controller)])?;
    Ok(path)
}

/// Removes the unit, when there is one: whether there was.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(controller: Controller) -> Result<bool> {
    let path = Path::new(UNITS).join(unit_name(controller));
    if !path.exists() {
        return Ok(false);
    }
    systemctl(&["disable", &unit_name(controller)])?;
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
        let text = unit(Controller::Bbr3, Path::new("/usr/bin/fullpipe"), true);
        assert!(text.contains("ExecStart=/usr/bin/fullpipe cc load bbr3 --default\n"), "{text}");
        assert!(text.contains("Type=oneshot\n") && text.contains("RemainAfterExit=yes\n"));
        assert!(text.lines().all(|line| !line.starts_with(' ')), "{text}");
    }

    #[test]
    fn a_shutdown_does_not_take_the_unit_away() {
        let text = unit(Controller::Bbr3, Path::new("/usr/bin/fullpipe"), false);
        assert!(text.contains("ExecStop=/usr/bin/fullpipe cc unload bbr3 --until-boot\n"), "{text}");
    }

    #[test]
    fn a_strange_path_stays_one_word() {
        assert_eq!(word(Path::new("/opt/50% tools/fullpipe")), "\"/opt/50%% tools/fullpipe\"");
    }
}
