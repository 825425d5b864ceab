//! The boot side of a plan: one file of ours that wins, and older lines that would beat it put out of force.

use super::Step;
use super::change::Change;
use super::state::{Content, FileState};
use super::unit::{ControllerUnit, unit_path};
use crate::boot::{self, Assignment, Program};
use crate::error::{Error, Result};
use crate::host::{Host, Overlay, View, parent};
use std::collections::BTreeMap;

/// Our sysctl file. Its name sorts after `99-sysctl.conf` and nearly everything that people write.
pub const SYSCTL_FILE: &str = "/etc/sysctl.d/99-zz-fullpipe.conf";
/// Our list of modules.
pub const MODULES_FILE: &str = "/etc/modules-load.d/fullpipe.conf";
/// The unit of an apply.
pub(crate) const UNIT: &str = "fullpipe-controller.service";

/// How a line that was put out of force begins.
pub const DISABLED_PREFIX: &str = "# off while fullpipe's setting is in force: ";

/// How our sysctl file begins.
const WRITTEN: &str = "# Written by `fullpipe apply ";

/// So many lines are put out of force for one sysctl; no host that people keep has more than a handful.
const MAX_DISABLED_LINES: usize = 16;

/// A sysctl that should have this value after a restart, and why.
pub struct BootSysctl {
    pub key: &'static str,
    pub value: String,
    pub why: String,
}

/// Who reads the files: the programs of the boot, and one that is called by hand.
struct Readers {
    boot: Vec<Program>,
    by_hand: Vec<Program>,
}

/// Why a sysctl does not end with the value that is wanted.
enum Obstacle {
    /// This line sets another.
    Line(Assignment),
    /// No line that is read sets it.
    Unset,
}

impl Readers {
    fn detect(host: &dyn Host) -> Readers {
        Readers { boot: boot::programs(host), by_hand: vec![Program::Procps] }
    }

    /// What stands in a sysctl's way, for either of them.
    fn obstacle(&self, view: &dyn View, sysctl: &BootSysctl) -> Option<Obstacle> {
        [&self.boot, &self.by_hand].into_iter().find_map(|programs| {
            match boot::winner(view, programs, sysctl.key, &|_| true) {
                Some(line) if same(&line.value, &sysctl.value) => None,
                Some(line) => Some(Obstacle::Line(line)),
                None => Some(Obstacle::Unset),
            }
        })
    }
}

/// Files as they will be, with the reason for each.
#[derive(Clone, Default)]
pub struct BootFiles {
    pub changes: BTreeMap<String, (FileState, String)>,
    pub notes: Vec<String>,
}

/// The paragraphs of our file that set something else than `ours`: an earlier apply's, which stay.
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

    /// The file changes as steps: directories before what is in them, and old lines put out of force last. So at every
    /// moment, forwards and backwards, a restart finds the old value or the new one and never neither.
    pub fn steps(self, host: &dyn Host) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for (path, (after, why)) in self.changes {
            let before = FileState::read(host, &path)
                .map_err(|e| Error::io(format_args!("cannot read {path}"), &e))?;
            if before != after {
                steps.push(Step::new(Change::File { path, before, after }, why));
            }
        }
        steps.sort_by_key(|s| !matches!(&s.change, Change::File { before: FileState::Absent, .. }));
        Ok(steps)
    }

    /// What `path` leads to shall be like this.
    fn add(&mut self, host: &dyn Host, path: &str, state: FileState, why: &str) {
        let path = host.resolve(path).unwrap_or_else(|_| path.to_owned());
        self.put(host, &path, state, why);
    }

    /// What is at `path` itself shall be like this: a link there is replaced, not followed.
    pub fn put(&mut self, host: &dyn Host, path: &str, state: FileState, why: &str) {
        let mut missing = Vec::new();
        let mut directory = parent(path);
        while directory != "/" && !host.exists(directory) && !self.changes.contains_key(directory) {
            missing.push(directory.to_owned());
            directory = parent(directory);
        }
        for directory in missing {
            let why = "it holds a file of this plan".to_owned();
            self.changes.insert(directory, (FileState::Directory { mode: 0o755 }, why));
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let path =
            host.resolve(parent(path)).map_or(path.to_owned(), |directory| format!("{directory}/{name}"));
        self.changes.insert(path, (state, why.to_owned()));
    }

    /// Makes each of `wanted` hold after a restart, whichever program reads the files.
    ///
    /// # Errors
    /// A line that would win and that is not ours to change: it is named with its file.
    ///
    /// Gives the values that our file sets: the others some file sets already.
    pub fn sysctls(
        &mut self,
        host: &dyn Host,
        controller: &str,
        wanted: &[BootSysctl],
    ) -> Result<Vec<String>> {
        let readers = Readers::detect(host);
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

    /// Where one old line stands before another that says what is wanted, that line out of force is enough.
    fn disable_single_line(&mut self, host: &dyn Host, readers: &Readers, sysctl: &BootSysctl) {
        if let Some(Obstacle::Line(line)) = readers.obstacle(&self.overlay(host), sysctl) {
            let mut without = self.clone();
            if without.disable_line(host, &line, sysctl).is_ok()
                && readers.obstacle(&without.overlay(host), sysctl).is_none()
            {
                *self = without;
            }
        }
    }

    /// Names the line of others that sets what is wanted.
    fn note_existing(&mut self, host: &dyn Host, readers: &Readers, sysctl: &BootSysctl) {
        if let Some(line) = boot::winner(&self.overlay(host), &readers.boot, sysctl.key, &|_| true)
            && line.file != SYSCTL_FILE
        {
            self.notes.push(format!(
                "{} sets {} = {} at boot: it stays, and is not repeated elsewhere",
                line.place(),
                sysctl.key,
                sysctl.value
            ));
        }
    }

    /// Has our file set `ours`.
    fn write_sysctls(&mut self, host: &dyn Host, controller: &str, ours: &[&BootSysctl]) {
        let mut text =
            format!("{WRITTEN}{controller}`. `fullpipe revert` removes it; do not edit it by hand.\n");
        text += &other_paragraphs(host, ours);
        for sysctl in ours {
            text += &format!("\n# {}\n{} = {}\n", sysctl.why, sysctl.key, sysctl.value);
        }
        let why = "the value that every boot program ends with";
        self.add(host, SYSCTL_FILE, FileState::new_file(host, &text), why);
    }

    /// Puts every line out of force that would win over our file's, or refuses.
    fn disable_overriding_lines(
        &mut self,
        host: &dyn Host,
        readers: &Readers,
        sysctl: &BootSysctl,
    ) -> Result<()> {
        // Each round puts one line out of force, so that this ends.
        let mut rounds = 0;
        while let Some(obstacle) = readers.obstacle(&self.overlay(host), sysctl) {
            rounds += 1;
            if rounds > MAX_DISABLED_LINES {
                return Err(Error::check(format_args!(
                    "more than {MAX_DISABLED_LINES} lines set {} after our file: put them in order first, or use --live-only",
                    sysctl.key
                )));
            }
            let Obstacle::Line(line) = obstacle else {
                return Err(Error::impossible(format_args!(
                    "{} would not be read at boot on this host: no boot program reads /etc/sysctl.d",
                    sysctl.key
                )));
            };
            self.disable_line(host, &line, sysctl)?;
        }
        Ok(())
    }

    /// Puts a line out of force by making it a comment, or refuses.
    fn disable_line(&mut self, host: &dyn Host, line: &Assignment, sysctl: &BootSysctl) -> Result<()> {
        let editable = line.line > 0
            && line.file.starts_with("/etc/")
            && line.program != Program::Script
            && !matches!(line.program, Program::Tuned | Program::Unit);
        if !editable {
            let way_out = match line.program {
                Program::Tuned => {
                    "change or leave that profile (`tuned-adm profile …`), or set `reapply_sysctl = 1` in /etc/tuned/tuned-main.conf"
                }
                Program::Script => "remove that line from the script",
                Program::Unit => "`fullpipe cc unload` of that controller removes the unit",
                Program::CommandLine => "remove it from the boot loader's configuration",
                _ => "put a file of the same name into /etc/sysctl.d that does not set it",
            };
            return Err(Error::check(format_args!(
                "{} ({}) sets {} = {} at boot, after our file, and is not fullpipe's to change: {way_out}; or use --live-only",
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
        let FileState::File { content, mode, uid, gid } = state else {
            return Err(Error::check(format_args!("{} is not a regular file", line.file)));
        };
        let mut lines: Vec<&[u8]> = content.split(|&b| b == b'\n').collect();
        let old = lines.get(line.line - 1).copied().unwrap_or_default();
        let disabled = [DISABLED_PREFIX.as_bytes(), old].concat();
        lines[line.line - 1] = &disabled;
        let content = Content(lines.join(&b'\n'));
        let why = format!("line {} sets {} = {} and would win at boot", line.line, sysctl.key, line.value);
        let entry =
            self.changes.entry(line.file.clone()).or_insert_with(|| (FileState::Absent, String::new()));
        entry.0 = FileState::File { content, mode, uid, gid };
        entry.1 = if entry.1.is_empty() { why } else { format!("{}; {why}", entry.1) };
        Ok(())
    }

    /// Names the older lines that lose against ours and say something else.
    fn note_overridden(&mut self, host: &dyn Host, sysctl: &BootSysctl) {
        for line in boot::mentions(&self.overlay(host), sysctl.key) {
            if line.file != SYSCTL_FILE && !same(&line.value, &sysctl.value) {
                self.notes.push(format!(
                    "{} says {} = {}; it stays and has no effect, since {SYSCTL_FILE} is read later",
                    line.place(),
                    sysctl.key,
                    line.value
                ));
            }
        }
    }

    /// Has `modules` loaded at boot, less those that some file names already.
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
        let why = "loaded before the sysctls that need them are set";
        self.add(host, MODULES_FILE, FileState::new_file(host, &text), why);
    }

    /// Has an eBPF controller loaded and made the default at boot, by a systemd unit: systemd-sysctl would meet
    /// a name that is not registered yet, warn and go on.
    ///
    /// # Errors
    /// The program's path cannot be written into a unit.
    pub fn ebpf_unit(&mut self, host: &dyn Host, controller: &str, program: &str) -> Result<()> {
        if !boot::programs(host).contains(&Program::Systemd) {
            self.notes.push(format!(
                "without systemd nothing loads {controller} at boot: after a restart the host has the default that its files name"
            ));
            return Ok(());
        }
        let unit =
            ControllerUnit { name: controller, which: controller, settings: &[], program, default: true };
        let text = unit.text(&format!("apply {controller}"), false)?;
        let why = "loads the eBPF controller at boot and makes it the default";
        self.unit(host, UNIT, &text, why);
        Ok(())
    }

    /// A unit that is switched on. One that is masked (a link to /dev/null) is replaced.
    pub fn unit(&mut self, host: &dyn Host, name: &str, text: &str, why: &str) {
        let (uid, gid) = host.stat("/etc").map_or((0, 0), |s| (s.uid, s.gid));
        let (path, link) = unit_path(name);
        self.put(host, &path, FileState::new_file(host, text), why);
        let state = FileState::Link { target: path, uid, gid };
        self.put(host, &link, state, "switches the unit on (as `systemctl enable` does)");
    }
}

fn same(a: &str, b: &str) -> bool {
    a.split_ascii_whitespace().eq(b.split_ascii_whitespace())
}
