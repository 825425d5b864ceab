//! Builds a kernel from source as a removable package, with the running kernel's configuration plus
//! the required
//! options. Needs no root and changes only its folder.

use super::packages::Manager;
use crate::error::{Error, Result};
use crate::facts::Config;
use crate::host::Host;
use fullpipe_files::create_private_directory;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Suffix of the release of kernels built here, so that they do not replace others.
const LOCAL_VERSION: &str = "-fullpipe";
/// Bytes of objects per option: a rule of thumb from Debian's configurations.
const BY_OPTION: u64 = 3 << 19;
/// The same with the debug information for BTF.
const BY_OPTION_WITH_BTF: u64 = 4 << 20;
/// Bytes of an unpacked source, and of files independent of the options.
const SOURCE: u64 = 2 << 30;
const BESIDE: u64 = 1 << 29;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The source.
    pub source: Source,
    /// The initial configuration; by default that of the running kernel.
    pub config: Option<PathBuf>,
    /// The working folder.
    pub folder: PathBuf,
    /// Number of parallel jobs.
    pub jobs: usize,
}

/// Origin of the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// A source tree.
    Tree(PathBuf),
    /// The distribution's source package: this version, or the newest.
    Package(Option<String>),
}

/// Result of a build.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Built {
    /// The kernel's release.
    pub release: String,
    /// The package of the kernel and its modules.
    pub package: PathBuf,
    /// Other packages of the build.
    pub others: Vec<PathBuf>,
    /// Values of the required options.
    pub options: BTreeMap<String, String>,
    /// The working folder.
    pub folder: PathBuf,
    /// Log of the programs' output.
    pub log: PathBuf,
    /// Duration.
    pub seconds: u64,
}

/// Progress of a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress<'a> {
    /// A stage begins.
    Part(&'a str),
    /// Number of files built, and the current file.
    File(usize, &'a str),
}

/// A required program or header, and its packages for apt, dnf and zypper.
struct Tool {
    name: &'static str,
    packages: [&'static str; 3],
}

const fn tool(name: &'static str, apt: &'static str, dnf: &'static str, zypper: &'static str) -> Tool {
    Tool { name, packages: [apt, dnf, zypper] }
}

/// Required for every kernel. `setpriv` ends child processes with this program.
const ALWAYS: [Tool; 10] = [
    tool("make", "make", "make", "make"),
    tool("gcc", "gcc", "gcc", "gcc"),
    tool("ld", "binutils", "binutils", "binutils"),
    tool("flex", "flex", "flex", "flex"),
    tool("bison", "bison", "bison", "bison"),
    tool("bc", "bc", "bc", "bc"),
    tool("perl", "perl", "perl", "perl"),
    tool("rsync", "rsync", "rsync", "rsync"),
    tool("kmod", "kmod", "kmod", "kmod"),
    tool("setpriv", "util-linux", "util-linux", "util-linux"),
];
/// Packaging tools.
const DEB: Tool = tool("dpkg-buildpackage", "dpkg-dev", "dpkg-dev", "dpkg-dev");
const DEBHELPER: Tool = tool("dh", "debhelper", "debhelper", "debhelper");
const RPM: Tool = tool("rpmbuild", "rpm", "rpm-build", "rpm-build");
/// Tools required by any of these options.
const BY_OPTIONS: [(&[&str], Tool); 8] = [
    (&["CONFIG_DEBUG_INFO_BTF"], tool("pahole", "dwarves", "dwarves", "dwarves")),
    (
        &["CONFIG_OBJTOOL", "CONFIG_STACK_VALIDATION", "CONFIG_UNWINDER_ORC", "CONFIG_DEBUG_INFO_BTF"],
        tool("gelf.h", "libelf-dev", "elfutils-libelf-devel", "libelf-devel"),
    ),
    (
        &["CONFIG_MODULE_SIG", "CONFIG_SYSTEM_TRUSTED_KEYRING"],
        tool("openssl/opensslv.h", "libssl-dev", "openssl-devel", "libopenssl-devel"),
    ),
    (&["CONFIG_MODULE_SIG"], tool("openssl", "openssl", "openssl", "openssl")),
    (&["CONFIG_KERNEL_XZ", "CONFIG_MODULE_COMPRESS_XZ"], tool("xz", "xz-utils", "xz", "xz")),
    (&["CONFIG_KERNEL_ZSTD", "CONFIG_MODULE_COMPRESS_ZSTD"], tool("zstd", "zstd", "zstd", "zstd")),
    (&["CONFIG_KERNEL_LZ4"], tool("lz4", "lz4", "lz4", "lz4")),
    (&["CONFIG_IKHEADERS"], tool("cpio", "cpio", "cpio", "cpio")),
];

impl Tool {
    fn is_there(&self) -> bool {
        if !self.name.ends_with(".h") {
            return on_path(self.name);
        }
        let include = format!("#include <{}>\n", self.name);
        let child = Command::new("gcc")
            .args(["-E", "-x", "c", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        child.is_ok_and(|mut child| {
            // A write error shows in the exit status.
            let _ = child.stdin.take().map(|mut to| to.write_all(include.as_bytes()));
            child.wait().is_ok_and(|status| status.success())
        })
    }
}

fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Fails if tools are missing, and names their packages.
fn need<'a>(tools: impl Iterator<Item = &'a Tool>, manager: Manager) -> Result<()> {
    let missing: Vec<&Tool> = tools.filter(|tool| !tool.is_there()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let column = match manager {
        Manager::Apt => 0,
        Manager::Zypper => 2,
        _ => 1,
    };
    let names: Vec<&str> = missing.iter().map(|tool| tool.name).collect();
    let mut packages: Vec<&str> = missing.iter().map(|tool| tool.packages[column]).collect();
    packages.sort_unstable();
    packages.dedup();
    Err(Error::impossible(format_args!(
        "missing for the build: {}; as root, run `{} install {}`",
        names.join(", "),
        manager.name(),
        packages.join(" ")
    )))
}

/// Absolute form of a path, without characters that break a kernel build.
fn absolute(path: &Path, what: &str) -> Result<PathBuf> {
    let path = std::path::absolute(path)
        .map_err(|e| Error::usage(format_args!("{what} {}: {e}", path.display())))?;
    if path.to_string_lossy().contains([' ', ':', '\t', '\n']) {
        return Err(Error::usage(format_args!(
            "{what} {}: a kernel cannot be built in a path with spaces or colons: use another folder",
            path.display()
        )));
    }
    Ok(path)
}

/// Version of a kernel source tree, from its Makefile.
fn version_of(tree: &Path) -> Option<String> {
    let text = fs::read_to_string(tree.join("Makefile")).ok()?;
    let value = |key: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    };
    let (major, minor) = (value("VERSION")?, value("PATCHLEVEL")?);
    tree.join("Kconfig").is_file().then(|| {
        let sub = value("SUBLEVEL").filter(|sub| !sub.is_empty()).map(|sub| format!(".{sub}"));
        format!("{major}.{minor}{}{}", sub.unwrap_or_default(), value("EXTRAVERSION").unwrap_or_default())
    })
}

fn check_tree(tree: &Path) -> Result<String> {
    let shown = tree.display();
    let version = version_of(tree).ok_or_else(|| {
        Error::usage(format_args!(
            "{shown} is not a Linux source tree: it has no kernel Makefile or Kconfig; unpack one, or use \
             --source"
        ))
    })?;
    // The kernel's Makefile refuses to build out of such a tree.
    for left in [".config", "include/config", "arch/x86/include/generated", "arch/arm64/include/generated"] {
        if tree.join(left).exists() {
            return Err(Error::check(format_args!(
                "{shown} contains build results ({left}), which prevents a build in another folder: `make -C \
                 {shown} mrproper` removes them and its .config"
            )));
        }
    }
    Ok(version)
}

/// Required options and their values for this configuration.
fn wanted(text: &str, tree: &Path) -> Vec<(String, String)> {
    let has = |line: &str| text.lines().any(|other| other == line);
    let part = |option: &str| {
        let value = if has(&format!("{option}=y")) || !has("CONFIG_MODULES=y") { "y" } else { "m" };
        (option.to_owned(), value.to_owned())
    };
    let set = |option: &str, value: &str| (option.to_owned(), value.to_owned());
    let mut all = vec![
        set("CONFIG_NET", "y"),
        set("CONFIG_INET", "y"),
        set("CONFIG_TCP_CONG_ADVANCED", "y"),
        part("CONFIG_TCP_CONG_BBR"),
        set("CONFIG_NET_SCHED", "y"),
        part("CONFIG_NET_SCH_FQ"),
        set("CONFIG_LOCALVERSION", &format!("\"{LOCAL_VERSION}\"")),
        set("CONFIG_LOCALVERSION_AUTO", "n"),
    ];
    // Distributions do not ship their certificates with the source.
    for (option, otherwise) in [
        ("CONFIG_SYSTEM_TRUSTED_KEYS", "\"\""),
        ("CONFIG_SYSTEM_REVOCATION_KEYS", "\"\""),
        ("CONFIG_MODULE_SIG_KEY", "\"certs/signing_key.pem\""),
    ] {
        let begin = format!("{option}=\"");
        let named = text.lines().find_map(|line| line.strip_prefix(&begin)?.strip_suffix('"'));
        if named.is_some_and(|file| !file.is_empty() && !tree.join(file).is_file()) {
            all.push(set(option, otherwise));
        }
    }
    // Debug information is most of the output, and only needed for BTF.
    if !has("CONFIG_DEBUG_INFO_BTF=y") {
        for kind in ["", "_DWARF_TOOLCHAIN_DEFAULT", "_DWARF4", "_DWARF5", "_BTF"] {
            all.push(set(&format!("CONFIG_DEBUG_INFO{kind}"), "n"));
        }
        all.push(set("CONFIG_DEBUG_INFO_NONE", "y"));
    }
    all
}

/// The configuration with these options replaced.
fn with(text: &str, options: &[(String, String)]) -> String {
    let named = |line: &str| {
        let name = line.strip_prefix("# ").unwrap_or(line).split(['=', ' ']).next().unwrap_or_default();
        options.iter().any(|(option, _)| option == name)
    };
    let kept = text.lines().filter(|line| !named(line)).map(|line| format!("{line}\n"));
    let ours = options.iter().map(|(option, value)| match value.as_str() {
        "n" => format!("# {option} is not set\n"),
        value => format!("{option}={value}\n"),
    });
    kept.chain(ours).collect()
}

/// The initial configuration.
fn begin_with(host: &dyn Host, request: &Request) -> Result<String> {
    if let Some(path) = &request.config {
        let bytes =
            fs::read(path).map_err(|e| Error::usage(format_args!("--config {}: {e}", path.display())))?;
        let text = Config::decompress(&bytes).filter(|text| text.contains("CONFIG_"));
        return text.ok_or_else(|| {
            Error::usage(format_args!("--config {}: not a kernel configuration", path.display()))
        });
    }
    let release = host.identity().release;
    let places = Config::paths(&release);
    let text = places.iter().find_map(|place| Config::decompress(&host.read(place).ok()?));
    text.ok_or_else(|| {
        Error::impossible(format_args!(
            "the configuration of the running Linux {release} was not found ({}): give one with --config",
            places.join(", ")
        ))
    })
}

/// Runs the stages of a build and logs their output.
struct Runner<'a> {
    folder: PathBuf,
    log: File,
    report: &'a mut dyn FnMut(Progress),
}

impl<'a> Runner<'a> {
    fn open(folder: PathBuf, report: &'a mut dyn FnMut(Progress)) -> Result<Runner<'a>> {
        // The package that is built here will be installed by root.
        create_private_directory(&folder)
            .and_then(|()| create_private_directory(&folder.join("build")))
            .map_err(|e| Error::io(format_args!("cannot make {}", folder.display()), &e))?;
        let path = folder.join("log");
        let log = fullpipe_files::create(&path)
            .map_err(|e| Error::io(format_args!("cannot write {}", path.display()), &e))?;
        Ok(Runner { folder, log, report })
    }

    /// Folder of the objects.
    fn objects(&self) -> PathBuf {
        self.folder.join("build")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Runs a program in a folder and returns its last lines. It ends with this program, and so do
    /// its children,
    /// whose output pipe closes.
    fn run<W: AsRef<OsStr>>(&mut self, part: &str, folder: &Path, words: &[W]) -> Result<Vec<String>> {
        let cannot = |e: &io::Error| Error::io(format_args!("{part}"), e);
        (self.report)(Progress::Part(part));
        let (reads, writes) = io::pipe().map_err(|e| cannot(&e))?;
        let also = writes.try_clone().map_err(|e| cannot(&e))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).args(words).current_dir(folder);
        command
            .env("LC_ALL", "C.UTF-8")
            .env_remove("MAKEFLAGS")
            .stdin(Stdio::null())
            .stdout(writes)
            .stderr(also);
        let line: Vec<String> =
            words.iter().map(|word| word.as_ref().to_string_lossy().into_owned()).collect();
        self.note(&format!("$ {}", line.join(" ")))?;
        let mut child = command.spawn().map_err(|e| cannot(&e))?;
        // Closes our write ends of the pipe, so that reading ends with the child.
        drop(command);
        let mut output = OutputSummary::default();
        let received = self.listen(BufReader::new(reads), &mut output);
        if received.is_err() {
            // The log cannot be written: stop.
            child.kill().map_err(|e| cannot(&e))?;
        }
        let status = child.wait().map_err(|e| cannot(&e))?;
        received?;
        if status.success() {
            return Ok(output.lines);
        }
        Err(Error::check(format_args!(
            "{part} failed{}; see {}",
            output.error_text(),
            self.log_path().display()
        )))
    }

    fn listen(&mut self, mut from: impl BufRead, output: &mut OutputSummary) -> Result<()> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let count =
                from.read_until(b'\n', &mut bytes).map_err(|e| Error::io("cannot read the output", &e))?;
            if count == 0 {
                return Ok(());
            }
            let line = String::from_utf8_lossy(&bytes);
            let line = line.trim_end();
            self.note(line)?;
            if let Some(file) = output.parse_line(line) {
                (self.report)(Progress::File(output.files, file));
            }
        }
    }

    fn note(&mut self, line: &str) -> Result<()> {
        writeln!(self.log, "{line}")
            .map_err(|e| Error::io(format_args!("cannot write {}", self.log_path().display()), &e))
    }
}

/// Output of a program.
#[derive(Default)]
struct OutputSummary {
    /// The last lines.
    lines: Vec<String>,
    /// Number of files built.
    files: usize,
    /// The first error line.
    error_line: Option<String>,
    /// The first failed make target.
    target: Option<String>,
}

impl OutputSummary {
    /// Parses a line and returns the file being built: `  CC [M]  net/ipv4/tcp_bbr.o`.
    fn parse_line<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        const KEPT: usize = 200;
        if self.lines.len() == KEPT {
            self.lines.remove(0);
        }
        self.lines.push(line.to_owned());
        let markers = [
            "error:",
            "ERROR:",
            "undefined reference",
            "No space left",
            "Unmet build dependencies",
            "No rule to make",
        ];
        if self.error_line.is_none() && markers.iter().any(|words| line.contains(words)) {
            self.error_line = Some(line.trim().to_owned());
        }
        if self.target.is_none() && line.contains("*** [") {
            self.target = target(line).map(str::to_owned);
        }
        let made =
            line.strip_prefix("  ").filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))?;
        let mut words = made.split_ascii_whitespace();
        words
            .next()
            .filter(|verb| verb.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))?;
        let file = words.find(|word| !word.starts_with('['))?;
        self.files += 1;
        Some(file)
    }

    fn error_text(&self) -> String {
        let at = self.target.as_ref().map(|target| format!(" at {target}")).unwrap_or_default();
        let last = || self.lines.iter().rev().find(|line| !line.trim().is_empty());
        let words = self.error_line.as_ref().or_else(last).map(|words| format!(": {words}"));
        format!("{at}{}", words.unwrap_or_default())
    }
}

/// `make[4]: *** [scripts/Makefile.build:250: net/ipv4/tcp_bbr.o] Error 1`
fn target(line: &str) -> Option<&str> {
    let inside = line.split_once("*** [")?.1.split_once(']')?.0;
    Some(inside.rsplit(": ").next().unwrap_or(inside))
}

/// Builds the package.
///
/// # Errors
/// [`Error::Usage`] for an invalid source, configuration or folder; [`Error::Impossible`] if tools
/// or disk space
/// are missing; [`Error::Check`] if the kernel cannot be configured as required or a stage fails.
pub fn build(host: &dyn Host, request: &Request, report: &mut dyn FnMut(Progress)) -> Result<Built> {
    let began = Instant::now();
    let manager = packager(host)?;
    let folder = absolute(&request.folder, "--folder")?;
    let tree = given(&request.source, manager)?;
    let start = begin_with(host, request)?;
    let package = if manager == Manager::Apt { DEB } else { RPM };
    need(ALWAYS.iter().chain([&package]), manager)?;
    if start.lines().any(|line| line == "CONFIG_DEBUG_INFO_BTF=y") {
        // Without pahole, olddefconfig drops the option silently.
        need(BY_OPTIONS[..1].iter().map(|(_, tool)| tool), manager)?;
    }
    room(&folder, &start, tree.is_none())?;
    let mut runner = Runner::open(folder, report)?;
    let tree = match (tree, &request.source) {
        (Some(tree), _) => tree,
        (None, Source::Package(version)) => unpack(&mut runner, version.as_deref())?,
        (None, Source::Tree(tree)) => tree.clone(),
    };

    let mut work = Work { runner, tree, manager };
    let config = work.configure(&start)?;
    let release = work.release()?;
    let (package, others) = work.package(&release, request.jobs)?;
    let options =
        super::installed::OPTIONS.iter().map(|name| ((*name).to_owned(), config.get(name).to_owned()));
    Ok(Built {
        release,
        package,
        others,
        options: options.collect(),
        log: work.runner.log_path(),
        folder: work.runner.folder,
        seconds: began.elapsed().as_secs(),
    })
}

/// The package manager; the kernel source must support its packages.
fn packager(host: &dyn Host) -> Result<Manager> {
    let manager = Manager::find(host).filter(|manager| !matches!(manager, Manager::Pacman | Manager::Apk));
    manager.ok_or_else(|| {
        Error::impossible(
            "the kernel source builds packages for apt, dnf, yum and zypper, and none of them is installed: \
             build a kernel the way \
             this distribution does, then boot it with `fullpipe kernel try`",
        )
    })
}

/// The given source tree, checked; `None` if the distribution's source package is used.
fn given(source: &Source, manager: Manager) -> Result<Option<PathBuf>> {
    match source {
        Source::Tree(tree) => {
            let tree = absolute(tree, "DIR")?;
            check_tree(&tree)?;
            Ok(Some(tree))
        }
        Source::Package(_) if manager != Manager::Apt => Err(Error::impossible(format_args!(
            "--source works on Debian and Ubuntu only; with {} download the source manually (`dnf download \
             --source kernel`, `zypper \
             source-install kernel-default`), unpack it, and give its directory",
            manager.name()
        ))),
        Source::Package(_) => Ok(None),
    }
}

/// A source tree and its build.
struct Work<'a> {
    runner: Runner<'a>,
    tree: PathBuf,
    manager: Manager,
}

impl Work<'_> {
    /// Runs make with these goals.
    fn make(&mut self, part: &str, goals: &[&str]) -> Result<Vec<String>> {
        let (tree, objects) =
            (self.tree.display().to_string(), format!("O={}", self.runner.objects().display()));
        let mut words = vec!["make", "-C", &tree, &objects];
        words.extend(goals);
        let folder = self.runner.folder.clone();
        self.runner.run(part, &folder, &words)
    }

    /// Configures the tree as `start` with the required options, and checks the tools for them.
    fn configure(&mut self, start: &str) -> Result<Config> {
        let maker = fs::read_to_string(self.tree.join("scripts/package/mkdebian")).unwrap_or_default();
        if self.manager == Manager::Apt && maker.contains("debhelper-compat") {
            need([&DEBHELPER].into_iter(), self.manager)?;
        }
        let options = wanted(start, &self.tree);
        let path = self.runner.objects().join(".config");
        fullpipe_files::create(&path)
            .and_then(|mut file| file.write_all(with(start, &options).as_bytes()))
            .map_err(|e| Error::io(format_args!("cannot write {}", path.display()), &e))?;
        self.make("configuring (olddefconfig)", &["olddefconfig"])?;
        let config = configured(&path, &options)?;
        let by_options =
            BY_OPTIONS.iter().filter(|(names, _)| names.iter().any(|name| config.get(name) == "y"));
        need(by_options.map(|(_, tool)| tool), self.manager)?;
        Ok(config)
    }

    /// The kernel's release, which must be unique.
    fn release(&mut self) -> Result<String> {
        let said = self.make("naming it (kernelrelease)", &["-s", "kernelrelease"])?;
        let release = said.last().map(|line| line.trim().to_owned()).unwrap_or_default();
        if !release.contains(LOCAL_VERSION) {
            return Err(Error::check(format_args!(
                "the release would be {release:?}, without {LOCAL_VERSION}, and could replace another \
                 kernel: check the files \
                 localversion* in {}",
                self.tree.display()
            )));
        }
        Ok(release)
    }

    /// Builds the kernel; returns its package and the others.
    fn package(&mut self, release: &str, jobs: usize) -> Result<(PathBuf, Vec<PathBuf>)> {
        let (folder, manager) = (self.runner.folder.clone(), self.manager);
        let already = packages(&folder, manager);
        let goal = if manager == Manager::Apt { "bindeb-pkg" } else { "binrpm-pkg" };
        let jobs = format!("-j{}", jobs.max(1));
        let place = format!("RPMOPTS=--define '_topdir {}'", folder.join("rpm").display());
        let mut goals = vec![jobs.as_str(), goal];
        if manager != Manager::Apt {
            goals.push(&place);
        }
        self.make(&format!("building ({goal})"), &goals)?;
        let made = packages(&folder, manager);
        let is_new = |path: &&PathBuf| already.get(*path) != made.get(*path);
        let (mut kernel, others): (Vec<PathBuf>, Vec<PathBuf>) =
            made.keys().filter(is_new).cloned().partition(|path| is_kernel(path, release, manager));
        let package = kernel.pop().ok_or_else(|| {
            Error::check(format_args!(
                "{goal} succeeded, but there is no package of Linux {release} in {}",
                folder.display()
            ))
        })?;
        Ok((package, others))
    }
}

/// Fails without enough disk space.
fn room(folder: &Path, config: &str, unpacks: bool) -> Result<()> {
    let config = Config::parse("", config.as_bytes());
    let options = config.as_ref().map_or(0, |config| config.enabled_count() as u64);
    let with_btf = config.is_some_and(|config| config.get("CONFIG_DEBUG_INFO_BTF") == "y");
    let by_option = if with_btf { BY_OPTION_WITH_BTF } else { BY_OPTION };
    let needed = options * by_option + BESIDE + if unpacks { SOURCE } else { 0 };
    let there = folder.ancestors().find(|path| path.exists()).unwrap_or(folder);
    let free = crate::host::free(there).map_err(|e| {
        Error::io(format_args!("cannot read the free space of {}", there.display()), &e.into())
    })?;
    if free < needed {
        return Err(Error::impossible(format_args!(
            "{} has {} MB free, and the build may need {} MB ({options} options): use --folder with more \
             free space",
            there.display(),
            free >> 20,
            needed >> 20
        )));
    }
    Ok(())
}

/// Checks that the required options survived olddefconfig.
fn configured(path: &Path, options: &[(String, String)]) -> Result<Config> {
    let shown = path.display().to_string();
    let bytes = fs::read(path).map_err(|e| Error::io(format_args!("cannot read {shown}"), &e))?;
    let config = Config::parse(&shown, &bytes)
        .ok_or_else(|| Error::check(format_args!("{shown} is not a configuration any more")))?;
    let lost: Vec<String> = options
        .iter()
        .filter(|(_, value)| ["y", "m"].contains(&value.as_str()))
        .filter(|(name, _)| !name.starts_with("CONFIG_DEBUG_INFO") && config.get(name) == "n")
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if lost.is_empty() {
        return Ok(config);
    }
    Err(Error::check(format_args!(
        "olddefconfig rejects {}: the initial configuration lacks an option it depends on, or the source is \
         too old \
         (BBR needs Linux 4.9)",
        lost.join(", ")
    )))
}

/// Downloads and unpacks the distribution's source package; returns the tree.
fn unpack(runner: &mut Runner, version: Option<&str>) -> Result<PathBuf> {
    let folder = runner.folder.join("source");
    let cannot = |e: &io::Error| Error::io(format_args!("cannot unpack into {}", folder.display()), e);
    create_private_directory(&folder).map_err(|e| cannot(&e))?;
    let said = runner.run("looking for the source", &folder, &["apt-cache", "pkgnames", "linux-source-"])?;
    let mut names: Vec<&String> = said
        .iter()
        .filter(|name| {
            name["linux-source-".len().min(name.len())..].starts_with(|c: char| c.is_ascii_digit())
        })
        .collect();
    names.sort_by(|one, other| super::installed::compare(other, one));
    let is_it = |name: &&&String| {
        version.is_none_or(|version| {
            name.strip_prefix("linux-source-")
                .is_some_and(|release| super::installed::begins_with(release, version))
        })
    };
    let Some(name) = names.iter().find(is_it) else {
        let all: Vec<&str> = names.iter().map(|name| name.trim_start_matches("linux-source-")).collect();
        let all = if all.is_empty() { "none: run `apt-get update` first".into() } else { all.join(", ") };
        return Err(Error::usage(format_args!(
            "--source: apt has no source of Linux {}; available: {all}",
            version.unwrap_or_default()
        )));
    };
    let tree = folder.join(name.as_str());
    // Marks a complete source, which is not downloaded a second time.
    let mark = folder.join(format!("{name}.unpacked"));
    if mark.exists() && check_tree(&tree).is_ok() {
        return Ok(tree);
    }
    for old in [&folder.join("package"), &tree] {
        match fs::remove_dir_all(old) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(cannot(&e)),
            _ => {}
        }
    }
    runner.run(&format!("getting {name}"), &folder, &["apt-get", "-q", "download", name.as_str()])?;
    let is_package = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        file.starts_with(&format!("{name}_")) && file.ends_with(".deb")
    };
    let package = files(&folder).into_iter().find(is_package).ok_or_else(|| {
        Error::check(format_args!("apt-get succeeded, but {name} is not in {}", folder.display()))
    })?;
    let beside = folder.join("package");
    runner.run(
        "unpacking",
        &folder,
        &[OsStr::new("dpkg-deb"), "-x".as_ref(), package.as_ref(), beside.as_ref()],
    )?;
    let is_archive = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        file.starts_with(&format!("{name}.tar"))
    };
    // Ubuntu uses a subfolder.
    let sources = beside.join("usr/src");
    let archive = [files(&sources), files(&sources.join(name))].concat().into_iter().find(is_archive);
    let archive = archive
        .ok_or_else(|| Error::check(format_args!("{} has no {name}.tar.* in usr/src", package.display())))?;
    runner.run("unpacking", &folder, &[OsStr::new("tar"), "-xf".as_ref(), archive.as_ref()])?;
    fs::remove_dir_all(&beside).and_then(|()| fs::remove_file(&package)).map_err(|e| cannot(&e))?;
    check_tree(&tree)?;
    fullpipe_files::create(&mark).map_err(|e| cannot(&e))?;
    Ok(tree)
}

/// The files in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect()
}

/// The packages in the folder, with their modification times.
fn packages(folder: &Path, manager: Manager) -> BTreeMap<PathBuf, Option<std::time::SystemTime>> {
    let ends = if manager == Manager::Apt { "deb" } else { "rpm" };
    let below = |folder: PathBuf| {
        let inside = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        inside.filter(|path| path.is_dir()).flat_map(|path| files(&path)).collect::<Vec<_>>()
    };
    let found = if manager == Manager::Apt { files(folder) } else { below(folder.join("rpm/RPMS")) };
    let is_one = |path: &PathBuf| path.extension().is_some_and(|extension| extension == ends);
    let made = |path: PathBuf| {
        let when = fs::metadata(&path).and_then(|about| about.modified()).ok();
        (path, when)
    };
    found.into_iter().filter(is_one).map(made).collect()
}

/// Whether a package contains the kernel and its modules, not headers or debug information.
fn is_kernel(path: &Path, release: &str, manager: Manager) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match manager {
        Manager::Apt => name.starts_with(&format!("linux-image-{release}_")),
        _ => {
            name.starts_with("kernel-")
                && !["devel", "headers", "debug"].iter().any(|word| name.contains(word))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_folder_that_another_user_prepared_is_refused() {
        use std::os::unix::fs::{chown, symlink};
        let dir = tempfile::tempdir().unwrap();
        let (folder, victim) = (dir.path().join("fullpipe-kernel"), dir.path().join("victim"));
        fs::create_dir(&folder).unwrap();
        fs::write(&victim, "as it was").unwrap();
        symlink(&victim, folder.join("log")).unwrap();
        if chown(&folder, Some(65534), None).is_err() {
            println!("SKIPPED: cannot change the owner of a directory");
            return;
        }
        let opened = Runner::open(folder.clone(), &mut |_| {}).map(drop);
        let error = opened.unwrap_err().to_string();
        assert!(error.contains("user 65534 owns it"), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
        chown(&folder, Some(nix::unistd::geteuid().as_raw()), None).unwrap();
        Runner::open(folder, &mut |_| {}).map(drop).unwrap();
    }

    #[test]
    fn required_options_replace_earlier_values() {
        let text = "CONFIG_MODULES=y\n# CONFIG_TCP_CONG_BBR is not \
                    set\nCONFIG_NET_SCH_FQ=y\nCONFIG_LOCALVERSION=\"\"\n\
            CONFIG_SYSTEM_TRUSTED_KEYS=\"debian/certs/x.pem\"\nCONFIG_DEBUG_INFO=y\nCONFIG_HZ=250\n";
        let options = wanted(text, Path::new("/nowhere"));
        let all = with(text, &options);
        let config = Config::parse("", all.as_bytes()).unwrap();
        for (name, value) in [
            ("CONFIG_TCP_CONG_BBR", "m"),
            ("CONFIG_NET_SCH_FQ", "y"),
            ("CONFIG_LOCALVERSION", "\"-fullpipe\""),
            ("CONFIG_SYSTEM_TRUSTED_KEYS", "\"\""),
            ("CONFIG_DEBUG_INFO", "n"),
            ("CONFIG_HZ", "250"),
        ] {
            assert_eq!(config.get(name), value, "{name} in\n{all}");
        }
        assert_eq!(all.matches("CONFIG_TCP_CONG_BBR").count(), 1);
        let without = wanted("", Path::new("/nowhere"));
        assert!(
            without.contains(&("CONFIG_TCP_CONG_BBR".into(), "y".into())),
            "without modules it is built in"
        );
        let btf = wanted("CONFIG_DEBUG_INFO_BTF=y\n", Path::new("/nowhere"));
        assert!(!btf.iter().any(|(name, _)| name.starts_with("CONFIG_DEBUG_INFO")), "{btf:?}");
    }

    #[test]
    fn output_summary_finds_the_error_and_target() {
        let mut said = OutputSummary::default();
        assert_eq!(said.parse_line("  CC [M]  net/ipv4/tcp_bbr.o"), Some("net/ipv4/tcp_bbr.o"));
        assert_eq!(said.parse_line("  HOSTCC  scripts/basic/fixdep"), Some("scripts/basic/fixdep"));
        for line in [
            "net/ipv4/tcp_bbr.c:12:3: error: unknown type name 'u46'",
            "   12 |   u46 x;",
            "make[4]: *** [scripts/Makefile.build:250: net/ipv4/tcp_bbr.o] Error 1",
            "make[3]: *** [scripts/Makefile.build:500: net/ipv4] Error 2",
        ] {
            assert_eq!(said.parse_line(line), None, "{line}");
        }
        assert_eq!(said.files, 2);
        assert_eq!(
            said.error_text(),
            " at net/ipv4/tcp_bbr.o: net/ipv4/tcp_bbr.c:12:3: error: unknown type name 'u46'"
        );
        let mut short = OutputSummary::default();
        short.parse_line("Killed");
        assert_eq!(short.error_text(), ": Killed");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(CONFIG_|# |is not set|=|\"|make\\[1\\]: \\*\\*\\* |\\[|\\]|: |  CC \
            |\n|[a-z/. ]){0,40}") {
            let all = with(&text, &wanted(&text, Path::new("/")));
            prop_assert!(all.contains("CONFIG_TCP_CONG_BBR="));
            let mut said = OutputSummary::default();
            text.lines().for_each(|line| { said.parse_line(line); });
            let _ = said.error_text();
        }
    }
}
