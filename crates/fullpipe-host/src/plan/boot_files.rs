//! Boot files of a plan: a sysctl file of fullpipe, and disabled lines that would override it.

use super::Step;
use super::change::Change;
use super::state::{FileState, refuse_unsafe_file};
use super::unit::{ControllerUnit, refuse_writable_program, unit_path};
use crate::boot::{self, Assignment, Program};
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::host::{Host, Overlay, View, parent};
use crate::names::{CONTROLLER, UNIT, normalise};
use std::collections::BTreeMap;

/// fullpipe's sysctl file. Its name sorts after `99-sysctl.conf` and most others.
pub const SYSCTL_FILE: &str = "/etc/sysctl.d/99-zz-fullpipe.conf";
/// fullpipe's modules-load.d file.
pub const MODULES_FILE: &str = "/etc/modules-load.d/fullpipe.conf";

/// Prefix of a disabled line.
pub const DISABLED_PREFIX: &str = "# disabled by fullpipe: ";

/// First words of fullpipe's sysctl file.
const WRITTEN: &str = "# Written by `fullpipe apply ";

/// Most lines that are disabled for one sysctl; real hosts have a handful.
const MAX_DISABLED_LINES: usize = 16;

/// A sysctl value for the next boot, with its reason.
pub struct BootSysctl {
    pub key: &'static str,
    pub value: String,
    pub why: String,
}

/// Programs that read the files: those of the boot, and the one that administrators run.
struct Readers<'a> {
    boot: Vec<Program>,
    by_hand: Vec<Program>,
    facts: &'a Facts,
}

/// Why a sysctl does not get the requested value.
enum Obstacle {
    /// This line sets another value.
    Line(Assignment),
    /// No line sets it.
    Unset,
}

impl Readers<'_> {
    fn detect<'a>(host: &dyn Host, facts: &'a Facts) -> Readers<'a> {
        Readers { boot: boot::programs(host), by_hand: vec![Program::Procps], facts }
    }

    /// The line that sets a key. Lines of this key count even if the kernel refuses their value,
    /// since they must be disabled; refused lines of other keys only stop busybox.
    fn winner(&self, view: &dyn View, programs: &[Program], key: &str) -> Option<Assignment> {
        let path = normalise(key);
        let accepts =
            |other: &str, value: &str| other == path || self.facts.accepts_at_boot(view, other, value);
        boot::winner(view, programs, key, &accepts)
    }

    /// The obstacle for a sysctl, with either set of programs.
    fn obstacle(&self, view: &dyn View, sysctl: &BootSysctl) -> Option<Obstacle> {
        [&self.boot, &self.by_hand].into_iter().find_map(|programs| {
            match self.winner(view, programs, sysctl.key) {
                // Not reached behind a line at which busybox stops.
                Some(line) if same(&line.value, &sysctl.value) => {
                    let accepts = |key: &str, value: &str| self.facts.accepts_at_boot(view, key, value);
                    let real = boot::winner(view, programs, sysctl.key, &accepts);
                    let is_reached = real.is_some_and(|real| same(&real.value, &sysctl.value))
                        || !accepts(&normalise(sysctl.key), &sysctl.value);
                    (!is_reached).then_some(Obstacle::Unset)
                }
                Some(line) => Some(Obstacle::Line(line)),
                None => Some(Obstacle::Unset),
            }
        })
    }
}

/// Planned files, each with its reason.
#[derive(Clone, Default)]
pub struct BootFiles {
    pub changes: BTreeMap<String, (FileState, String)>,
    pub notes: Vec<String>,
}

/// Paragraphs of fullpipe's file that do not set `ours`: settings of an earlier apply.
fn other_paragraphs(host: &dyn Host, ours: &[&BootSysctl]) -> String {
    let text = host.text(SYSCTL_FILE).filter(|text| text.starts_with(WRITTEN)).unwrap_or_default();
    let sets = |paragraph: &str| {
        paragraph.lines().any(|line| ours.iter().any(|sysctl| line.starts_with(&format!("{} =", sysctl.key))))
    };
    let paragraphs = text.split("\n\n").skip(1).filter(|paragraph| !sets(paragraph));
    paragraphs.map(|paragraph| format!("\n{}\n", paragraph.trim_end())).collect()
}

impl BootFiles {
    fn overlay<'a>(&self, host: &'a dyn Host) -> Overlay<'a> {
        Overlay::new(host, self.changes.iter().map(|(p, (s, _))| (p.clone(), s.clone())))
    }

    /// The file changes as steps: directories before their files, disabled lines last. So at any
    /// point, during apply and revert, a restart finds the old value or the new one.
    pub fn steps(self, host: &dyn Host) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for (path, (after, why)) in self.changes {
            let before = FileState::read(host, &path)
                .map_err(|e| Error::io(format_args!("cannot read {path}"), &e))?;
            if !before.matches(&after) {
                steps.push(Step::new(Change::File { path, before, after }, why));
            }
        }
        steps.sort_by_key(|s| !matches!(&s.change, Change::File { before: FileState::Absent, .. }));
        Ok(steps)
    }

    /// Plans a state for the file that `path` leads to.
    fn add(&mut self, host: &dyn Host, path: &str, state: FileState, why: &str) {
        let path = host.resolve(path).unwrap_or_else(|_| path.to_owned());
        self.put(host, &path, state, why);
    }

    /// Plans a state for `path` itself: a link is replaced, not followed.
    pub fn put(&mut self, host: &dyn Host, path: &str, state: FileState, why: &str) {
        let mut missing = Vec::new();
        let mut directory = parent(path);
        while directory != "/" && !host.exists(directory) && !self.changes.contains_key(directory) {
            missing.push(directory.to_owned());
            directory = parent(directory);
        }
        for directory in missing {
            let why = "holds a file of this plan".to_owned();
            self.changes.insert(directory, (FileState::Directory { mode: 0o755 }, why));
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let path =
            host.resolve(parent(path)).map_or(path.to_owned(), |directory| format!("{directory}/{name}"));
        self.changes.insert(path, (state, why.to_owned()));
    }

    /// Plans that each of `wanted` is set after a restart. Returns the values that fullpipe's file
    /// sets; other
    /// files set the rest already.
    ///
    /// # Errors
    /// An overriding line that fullpipe may not change; the error has its file and line.
    pub fn sysctls(
        &mut self,
        host: &dyn Host,
        facts: &Facts,
        controller: &str,
        wanted: &[BootSysctl],
    ) -> Result<Vec<String>> {
        let readers = Readers::detect(host, facts);
        for sysctl in wanted {
            self.disable_single_line(host, &readers, sysctl);
        }
        let (others, ours): (Vec<&BootSysctl>, Vec<&BootSysctl>) =
            wanted.iter().partition(|s| readers.obstacle(&self.overlay(host), s).is_none());
        for sysctl in others {
            self.note_existing(host, &readers, sysctl);
        }
        let values = ours.iter().map(|s| s.value.clone()).collect();
        if ours.is_empty() {
            return Ok(values);
        }
        self.write_sysctls(host, controller, &ours);
        for sysctl in &ours {
            self.disable_overriding_lines(host, &readers, sysctl)?;
        }
        for sysctl in ours {
            self.note_overridden(host, sysctl);
        }
        Ok(values)
    }

    /// Disables one overriding line, if an earlier line then sets the requested value.
    fn disable_single_line(&mut self, host: &dyn Host, readers: &Readers<'_>, sysctl: &BootSysctl) {
        if let Some(Obstacle::Line(line)) = readers.obstacle(&self.overlay(host), sysctl) {
            let mut without = self.clone();
            if without.disable_line(host, &line, sysctl).is_ok()
                && readers.obstacle(&without.overlay(host), sysctl).is_none()
            {
                *self = without;
            }
        }
    }

    /// Notes the line of another file that sets the requested value.
    fn note_existing(&mut self, host: &dyn Host, readers: &Readers<'_>, sysctl: &BootSysctl) {
        if let Some(line) = readers.winner(&self.overlay(host), &readers.boot, sysctl.key)
            && line.file != SYSCTL_FILE
        {
            self.notes.push(format!(
                "{} already sets {} = {} at boot: it is kept, and not repeated",
                line.place(),
                sysctl.key,
                sysctl.value
            ));
        }
    }

    /// Writes `ours` to fullpipe's file.
    fn write_sysctls(&mut self, host: &dyn Host, controller: &str, ours: &[&BootSysctl]) {
        let mut text =
            format!("{WRITTEN}{controller}`. `fullpipe revert` removes it; do not edit it by hand.\n");
        text += &other_paragraphs(host, ours);
        for sysctl in ours {
            text += &format!("\n# {}\n{} = {}\n", sysctl.why, sysctl.key, sysctl.value);
        }
        let why = "last file that the boot programs read";
        self.add(host, SYSCTL_FILE, FileState::new_file(host, &text), why);
    }

    /// Disables every line that overrides fullpipe's file, or fails.
    fn disable_overriding_lines(
        &mut self,
        host: &dyn Host,
        readers: &Readers<'_>,
        sysctl: &BootSysctl,
    ) -> Result<()> {
        // Each round disables one line, so that this ends.
        let mut rounds = 0;
        while let Some(obstacle) = readers.obstacle(&self.overlay(host), sysctl) {
            rounds += 1;
            if rounds > MAX_DISABLED_LINES {
                return Err(too_many_lines(sysctl.key));
            }
            let Obstacle::Line(line) = obstacle else {
                return Err(Error::impossible(format_args!(
                    "{} would not be set at boot: no boot program of this host reads /etc/sysctl.d; use \
                     --live-only",
                    sysctl.key
                )));
            };
            self.disable_line(host, &line, sysctl)?;
        }
        Ok(())
    }

    /// Disables a line by turning it into a comment, or fails.
    fn disable_line(&mut self, host: &dyn Host, line: &Assignment, sysctl: &BootSysctl) -> Result<()> {
        let editable = line.line > 0
            && line.file.starts_with("/etc/")
            && !matches!(line.program, Program::Script | Program::Service | Program::Tuned | Program::Unit);
        if !editable {
            let way_out = match line.program {
                Program::Tuned => {
                    "change or switch the profile (`tuned-adm profile …`), or set `reapply_sysctl = 1` in \
                     /etc/tuned/tuned-main.conf"
                }
                Program::Script => "remove the line",
                Program::Service => "remove the line from the unit, or disable the unit",
                Program::Unit => "remove the unit with `fullpipe cc unload`",
                Program::CommandLine => {
                    "remove it from the kernel command line in the boot loader's configuration"
                }
                _ => "mask it with a file of the same name in /etc/sysctl.d",
            };
            return Err(Error::check(format_args!(
                "{} ({}) sets {} = {} at boot, after fullpipe's file, and fullpipe does not change it: \
                 {way_out}; or use --live-only",
                line.place(),
                line.program.name(),
                sysctl.key,
                line.value
            )));
        }
        let state = match self.changes.get(&line.file) {
            Some((state, _)) => state.clone(),
            None => FileState::read(host, &line.file)
                .map_err(|e| Error::io(format_args!("cannot read {}", line.file), &e))?,
        };
        let FileState::File { content, .. } = &state else {
            return Err(Error::check(format_args!("{} is not a regular file", line.file)));
        };
        refuse_unsafe_file(host, &line.file)?;
        let mut lines: Vec<&[u8]> = content.split(|&b| b == b'\n').collect();
        let Some(old) = lines.get_mut(line.line - 1).filter(|old| names(old, sysctl.key)) else {
            let file = &line.file;
            return Err(Error::check(format_args!("{file} was changed meanwhile: run this command again")));
        };
        let disabled = [DISABLED_PREFIX.as_bytes(), old].concat();
        *old = &disabled;
        let changed = state.with_content(lines.join(&b'\n'));
        let why =
            format!("line {} sets {} = {} and would override it at boot", line.line, sysctl.key, line.value);
        let entry =
            self.changes.entry(line.file.clone()).or_insert_with(|| (FileState::Absent, String::new()));
        entry.0 = changed.unwrap_or(FileState::Absent);
        entry.1 = if entry.1.is_empty() { why } else { format!("{}; {why}", entry.1) };
        Ok(())
    }

    /// Notes lines with another value that fullpipe's file overrides.
    fn note_overridden(&mut self, host: &dyn Host, sysctl: &BootSysctl) {
        for line in boot::mentions(&self.overlay(host), sysctl.key) {
            if line.file != SYSCTL_FILE && !same(&line.value, &sysctl.value) {
                self.notes.push(format!(
                    "{} sets {} = {}; it is kept and has no effect, since {SYSCTL_FILE} is read later",
                    line.place(),
                    sysctl.key,
                    line.value
                ));
            }
        }
    }

    /// Plans to load `modules` at boot, without those that another file names.
    pub fn modules(&mut self, host: &dyn Host, modules: &[String]) {
        let named = boot::modules_at_boot(host);
        let missing: Vec<&String> = modules
            .iter()
            .filter(|m| !named.iter().any(|n| n.module == **m && n.file != MODULES_FILE))
            .collect();
        if missing.is_empty() {
            return;
        }
        let mut text = "# Written by fullpipe; `fullpipe revert` removes it.\n".to_owned();
        for module in missing {
            text += &format!("{module}\n");
        }
        let why = "loads modules before sysctls need them";
        self.add(host, MODULES_FILE, FileState::new_file(host, &text), why);
    }

    /// Plans a systemd unit that loads an eBPF controller at boot and makes it the default.
    /// systemd-sysctl runs earlier, when the name is not registered yet.
    ///
    /// # Errors
    /// The program's path cannot be written into a unit.
    pub fn ebpf_unit(&mut self, host: &dyn Host, controller: &str, program: &str) -> Result<()> {
        if !boot::programs(host).contains(&Program::Systemd) {
            self.notes.push(format!(
                "without systemd {controller} is not loaded at boot: after a restart the host has the \
                 default of its boot files"
            ));
            return Ok(());
        }
        refuse_writable_program(host, program)?;
        let unit =
            ControllerUnit { name: controller, which: controller, settings: &[], program, default: true };
        let text = unit.text(&format!("apply {controller}"), false)?;
        let why = "loads the eBPF controller at boot and makes it the default";
        self.unit(host, UNIT, &text, why);
        let why = "controller of new connections".to_owned();
        let wanted = BootSysctl { key: CONTROLLER, value: controller.to_owned(), why };
        for _ in 0..MAX_DISABLED_LINES {
            let all = boot::programs(host);
            match boot::winner(&self.overlay(host), &all, CONTROLLER, &|_, _| true) {
                Some(line) if !same(&line.value, controller) => self.disable_line(host, &line, &wanted)?,
                _ => return Ok(()),
            }
        }
        Err(too_many_lines(CONTROLLER))
    }

    /// Plans an enabled unit; a masked one (a link to /dev/null) is replaced.
    pub fn unit(&mut self, host: &dyn Host, name: &str, text: &str, why: &str) {
        let (uid, gid) = host.stat("/etc").map_or((0, 0), |s| (s.uid, s.gid));
        let (path, link) = unit_path(name);
        self.put(host, &path, FileState::new_file(host, text), why);
        let state = FileState::Link { target: path, uid, gid };
        self.put(host, &link, state, "enables the unit (as `systemctl enable` does)");
    }
}

fn too_many_lines(key: &str) -> Error {
    Error::check(format_args!(
        "more than {MAX_DISABLED_LINES} lines set {key} after fullpipe's file: clean them up first, or use \
         --live-only"
    ))
}

/// Whether a line may set a key: it has the key's last part, or a wildcard.
fn names(line: &[u8], key: &str) -> bool {
    let name = key.rsplit(['.', '/']).next().unwrap_or(key).as_bytes();
    let is_glob = line.iter().any(|byte| b"*?[".contains(byte));
    is_glob || line.windows(name.len()).any(|part| part == name)
}

fn same(a: &str, b: &str) -> bool {
    a.split_ascii_whitespace().eq(b.split_ascii_whitespace())
}
