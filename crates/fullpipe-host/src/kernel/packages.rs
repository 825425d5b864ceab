//! Kernel packages and package managers of distributions.

use super::installed::{compare, flavour};
use crate::error::{Error, Result};
use crate::host::{Host, Program, View};
use crate::os_release::distribution;
use serde::{Deserialize, Serialize};
use std::io;

/// Supported package managers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Manager {
    /// Debian's and Ubuntu's.
    Apt,
    /// Fedora's and newer Red Hat Enterprise Linux's.
    Dnf,
    /// Older Red Hat Enterprise Linux's.
    Yum,
    /// SUSE's.
    Zypper,
    /// Arch's.
    Pacman,
    /// Alpine's.
    Apk,
}

/// Package sources other than the distribution's own, used only on request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Debian's backports.
    Backports,
    /// ELRepo's kernel-ml, for Red Hat's distributions.
    Elrepo,
    /// Ubuntu's newer kernels for a release with long-term support.
    Hwe,
}

impl Source {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Source::Backports => "backports",
            Source::Elrepo => "elrepo",
            Source::Hwe => "hwe",
        }
    }
}

/// A kernel that can be installed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Offer {
    /// Its release.
    pub release: String,
    /// The packages to install.
    pub packages: Vec<String>,
    /// The version of the package.
    pub version: String,
    /// Its package source.
    pub source: String,
}

/// A package that would be installed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// The new version.
    pub version: String,
    /// The installed version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<String>,
}

/// Result of a simulated installation.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Simulated {
    /// Packages to install or upgrade.
    pub installed: Vec<Package>,
    /// Packages to remove.
    pub removed: Vec<String>,
    /// Installed size in bytes, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

const YUM_REPOSITORY: &str = "/etc/yum.repos.d/elrepo.repo";

/// Runs a query of the package manager.
fn ask<W: Into<String>>(host: &dyn Host, words: impl IntoIterator<Item = W>) -> Result<String> {
    let program = Program::new(words);
    let said = host.run(&program).and_then(|ran| ran.checked_stdout(&program));
    said.map_err(|e| Error::impossible(format_args!("cannot query the package manager: {e}")))
}

fn split_words(line: &str) -> Vec<String> {
    line.split_ascii_whitespace().map(str::to_owned).collect()
}

impl Manager {
    /// The host's package manager.
    pub fn find(view: &dyn View) -> Option<Manager> {
        let programs = [
            ("apt-get", Manager::Apt),
            ("dnf", Manager::Dnf),
            ("yum", Manager::Yum),
            ("zypper", Manager::Zypper),
            ("pacman", Manager::Pacman),
            ("apk", Manager::Apk),
        ];
        let there = |name: &str| {
            ["/usr/bin", "/sbin", "/usr/sbin"].iter().any(|place| view.exists(&format!("{place}/{name}")))
        };
        programs.into_iter().find(|(name, _)| there(name)).map(|(_, manager)| manager)
    }

    /// Its command.
    pub fn name(self) -> &'static str {
        match self {
            Manager::Apt => "apt-get",
            Manager::Dnf => "dnf",
            Manager::Yum => "yum",
            Manager::Zypper => "zypper",
            Manager::Pacman => "pacman",
            Manager::Apk => "apk",
        }
    }

    /// Whether a new kernel version replaces the old one and its modules.
    fn replaces(self) -> bool {
        matches!(self, Manager::Pacman | Manager::Apk)
    }

    /// Updates its index.
    ///
    /// # Errors
    /// The package manager fails.
    pub fn refresh(self, host: &dyn Host) -> io::Result<()> {
        let line = match self {
            Manager::Apt => "apt-get -q update",
            Manager::Dnf => "dnf -q makecache",
            Manager::Yum => "yum -q makecache",
            Manager::Zypper => "zypper --non-interactive --quiet refresh",
            Manager::Pacman => "pacman -Sy",
            Manager::Apk => "apk update",
        };
        let program = Program::new(split_words(line)).shown();
        host.run(&program)?.checked_stdout(&program).map(drop)
    }

    /// Available kernels for a host that runs release `running`, newest first.
    ///
    /// # Errors
    /// [`Error::Impossible`] if the query fails; [`Error::Usage`] for an unsupported source.
    pub fn offers(self, host: &dyn Host, running: &str, from: Option<Source>) -> Result<Vec<Offer>> {
        let mut offers = match (self, from) {
            (Manager::Apt, from) => apt_offers(host, running, from)?,
            (Manager::Dnf | Manager::Yum, None | Some(Source::Elrepo)) => self.rpm_offers(host, from)?,
            (Manager::Zypper, None) => zypper_offers(&ask(
                host,
                split_words("zypper --non-interactive --quiet search -s --match-exact kernel-default"),
            )?),
            (Manager::Pacman, None) => {
                pacman_offers(&ask(host, split_words("pacman -Si linux linux-lts linux-zen linux-hardened"))?)
            }
            (Manager::Apk, None) => {
                apk_offers(&ask(host, split_words("apk search -x linux-lts linux-virt"))?)
            }
            (_, Some(from)) => {
                return Err(Error::usage(format_args!(
                    "--from {}: not supported with {}; use backports on Debian, hwe on Ubuntu, elrepo on Red \
                     Hat's distributions",
                    from.name(),
                    self.name()
                )));
            }
        };
        offers.sort_by(|one, other| compare(&other.release, &one.release));
        offers.dedup_by(|one, other| one.release == other.release);
        Ok(offers)
    }

    /// The kernel in a package file.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is not a kernel package; [`Error::Impossible`] if it cannot be read.
    pub fn offer_from_file(self, host: &dyn Host, path: &str) -> Result<Offer> {
        let none = || Error::usage(format_args!("{path}: not a kernel package"));
        let (release, version) = match self {
            Manager::Apt => {
                let said = ask(host, deb_fields(path))?;
                let value = |key: &str| said.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
                let name = value("Package:").and_then(|name| name.strip_prefix("linux-image-"));
                (name.map(str::to_owned), value("Version:").map(str::to_owned))
            }
            Manager::Dnf | Manager::Yum => {
                let all = ask(host, ["rpm", "-qpl", path])?;
                let below = |line: &'_ str| {
                    line.trim_start_matches("/usr").strip_prefix("/lib/modules/").map(str::to_owned)
                };
                let modules = all.lines().find_map(below);
                let release = modules.and_then(|rest| rest.split('/').next().map(str::to_owned));
                (release, Some(ask(host, ["rpm", "-qp", "--qf", "%{VERSION}-%{RELEASE}", path])?))
            }
            Manager::Zypper | Manager::Pacman | Manager::Apk => {
                return Err(Error::usage(format_args!(
                    "{path}: with {} install it manually, then `fullpipe kernel try` boots it once",
                    self.name()
                )));
            }
        };
        let (release, version) = (release.ok_or_else(none)?, version.ok_or_else(none)?);
        Ok(Offer { release, packages: vec![path.to_owned()], version, source: format!("the file {path}") })
    }

    fn rpm_offers(self, host: &dyn Host, from: Option<Source>) -> Result<Vec<Offer>> {
        let (name, repository) = match from {
            Some(_) => ("kernel-ml", &["--enablerepo=elrepo-kernel"][..]),
            None => ("kernel", &[][..]),
        };
        if from.is_some() && !host.exists(YUM_REPOSITORY) {
            return Err(Error::impossible(format_args!(
                "--from elrepo: {YUM_REPOSITORY} is missing, and fullpipe does not add third-party \
                 repositories: import its key \
                 (`rpm --import https://www.elrepo.org/RPM-GPG-KEY-elrepo.org`, after checking the \
                 fingerprint), install its release \
                 package as described on https://elrepo.org, then run this again"
            )));
        }
        // dnf 5 reads a bare word as a package's name, and yum 3 does not know the option.
        let available = if self == Manager::Yum { "available" } else { "--available" };
        let line =
            [&[self.name(), "-q"], repository, &["list", "--showduplicates", available, name]].concat();
        // Exit code 1 means that nothing is available.
        let said =
            host.run(&Program::new(line)).map_err(|e| Error::io("cannot run the package manager", &e))?;
        Ok(rpm_offers(&said.out, name))
    }

    /// Simulates an installation.
    ///
    /// # Errors
    /// [`Error::Impossible`] if the package manager refuses.
    pub fn simulate(self, host: &dyn Host, offer: &Offer, from: Option<Source>) -> Result<Simulated> {
        let named = |line: &str| [split_words(line), offer.packages.clone()].concat();
        let as_named = || {
            let package = |name: &String| Package {
                name: name.split('=').next().unwrap_or(name).to_owned(),
                version: offer.version.clone(),
                instead_of: None,
            };
            Simulated { installed: offer.packages.iter().map(package).collect(), ..Simulated::default() }
        };
        Ok(match self {
            Manager::Apt => {
                let mut simulated =
                    apt_simulated(&ask(host, named("apt-get -s -q --no-install-recommends install"))?);
                let size = match &offer.packages[..] {
                    [file] if file.starts_with('/') => deb_fields(file),
                    names => [split_words("apt-cache show"), names.to_vec()].concat(),
                };
                simulated.bytes = apt_bytes(&ask(host, size)?);
                simulated
            }
            Manager::Dnf | Manager::Yum => {
                // --assumeno exits with 1.
                let program = Program::new(
                    [
                        vec![self.name().to_owned()],
                        self.rpm_options(from),
                        vec!["--assumeno".into(), "install".into()],
                        offer.packages.clone(),
                    ]
                    .concat(),
                );
                let ran = host.run(&program).map_err(|e| Error::io("cannot run the package manager", &e))?;
                let simulated = rpm_simulated(&ran.out);
                if simulated.installed.is_empty() {
                    let ran = crate::host::ProgramOutput { status: ran.status.max(1), ..ran };
                    return Err(ran.checked_stdout(&program).map_or_else(
                        |e| Error::impossible(format_args!("the package manager refuses: {e}")),
                        |_| Error::impossible("nothing would be installed"),
                    ));
                }
                simulated
            }
            Manager::Zypper | Manager::Pacman | Manager::Apk => as_named(),
        })
    }

    fn rpm_options(self, from: Option<Source>) -> Vec<String> {
        // By default they remove the oldest of more than three kernels.
        let mut options =
            split_words("-y --setopt=installonly_limit=0 --setopt=clean_requirements_on_remove=False");
        options.extend(from.map(|_| "--enablerepo=elrepo-kernel".to_owned()));
        options
    }

    /// The command that installs packages without removing any.
    pub fn install(self, packages: &[String], from: Option<Source>) -> Program {
        let options = match self {
            Manager::Apt => {
                let program = Program::new(
                    [
                        split_words(
                            "apt-get -y -q --no-remove --no-install-recommends -o \
                    Dpkg::Options::=--force-confold install",
                        ),
                        packages.to_vec(),
                    ]
                    .concat(),
                );
                return program
                    .with("DEBIAN_FRONTEND", "noninteractive")
                    .with("NEEDRESTART_SUSPEND", "1")
                    .shown();
            }
            Manager::Dnf | Manager::Yum => {
                [vec![self.name().to_owned()], self.rpm_options(from), vec!["install".into()]].concat()
            }
            Manager::Zypper => split_words("zypper --non-interactive install --no-recommends --oldpackage"),
            Manager::Pacman => split_words("pacman -S --noconfirm --needed"),
            Manager::Apk => split_words("apk add"),
        };
        Program::new([options, packages.to_vec()].concat()).shown()
    }

    /// The command that removes only these packages.
    pub fn remove(self, packages: &[String]) -> Program {
        let line = match self {
            Manager::Apt => "apt-get -y -q purge",
            Manager::Dnf => "dnf -y --setopt=clean_requirements_on_remove=False remove",
            Manager::Yum => "yum -y --setopt=clean_requirements_on_remove=0 remove",
            Manager::Zypper => "zypper --non-interactive remove --no-clean-deps",
            Manager::Pacman => "pacman -R --noconfirm",
            Manager::Apk => "apk del",
        };
        let program = Program::new([split_words(line), packages.to_vec()].concat()).shown();
        if self == Manager::Apt { program.with("DEBIAN_FRONTEND", "noninteractive") } else { program }
    }

    /// Fails if other packages depend on these and would be removed with them.
    ///
    /// # Errors
    /// Names the dependent packages, or has the package manager's error.
    pub fn check_removal(self, host: &dyn Host, packages: &[String]) -> io::Result<()> {
        let others: Vec<String> = match self {
            Manager::Apt => {
                let program = Program::new([split_words("apt-get -s -q purge"), packages.to_vec()].concat());
                let said = host.run(&program)?.checked_stdout(&program)?;
                let removed = apt_simulated(&said).removed;
                removed.into_iter().filter(|name| !packages.contains(name)).collect()
            }
            Manager::Dnf | Manager::Yum | Manager::Zypper => {
                let names = packages.iter().map(|package| self.rpm_name(package));
                let program = Program::new(split_words("rpm -e --test").into_iter().chain(names));
                return host.run(&program)?.checked_stdout(&program).map(drop);
            }
            // These refuse by default.
            Manager::Pacman | Manager::Apk => Vec::new(),
        };
        if others.is_empty() {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{} depend on it and would be removed too: remove them first",
            others.join(", ")
        )))
    }

    /// The package in rpm's syntax, with a dash before the version.
    fn rpm_name(self, package: &str) -> String {
        if self == Manager::Zypper { package.replace('=', "-") } else { package.to_owned() }
    }

    /// The command that repairs an interrupted transaction.
    pub fn repair(self) -> Option<Program> {
        match self {
            Manager::Apt => Some(
                Program::new(split_words("dpkg --force-confold --configure -a"))
                    .with("DEBIAN_FRONTEND", "noninteractive")
                    .shown(),
            ),
            Manager::Dnf => Some(Program::new(split_words("rpm --rebuilddb"))),
            Manager::Yum => Some(Program::new(split_words("yum-complete-transaction -y --cleanup-only"))),
            Manager::Apk => Some(Program::new(split_words("apk fix"))),
            Manager::Zypper | Manager::Pacman => None,
        }
    }

    /// Whether a package is installed.
    ///
    /// # Errors
    /// The query fails.
    pub fn has(self, host: &dyn Host, package: &str) -> io::Result<PackageState> {
        let name = package.split('=').next().unwrap_or(package);
        let of_rpm = self.rpm_name(package);
        let line: &[&str] = match self {
            Manager::Apt => &["dpkg-query", "-W", "-f", "${Status}", name],
            Manager::Dnf | Manager::Yum | Manager::Zypper => &["rpm", "-q", &of_rpm],
            Manager::Pacman => &["pacman", "-Q", name],
            Manager::Apk => &["apk", "info", "-e", name],
        };
        let ran = host.run(&Program::new(line.iter().copied()))?;
        Ok(match (self, ran.status) {
            (Manager::Apt, 0) => match ran.out.trim().rsplit(' ').next() {
                Some("installed") => PackageState::Installed,
                Some("not-installed" | "config-files") => PackageState::Absent,
                _ => PackageState::Partial,
            },
            (_, 0) => PackageState::Installed,
            _ => PackageState::Absent,
        })
    }

    /// Why the kernel cannot be installed beside the running one, if so.
    pub fn replacement_conflict(self, host: &dyn Host, offer: &Offer) -> io::Result<Option<String>> {
        if !self.replaces() {
            return Ok(None);
        }
        for package in &offer.packages {
            if self.has(host, package)? == PackageState::Installed {
                let other = if package == "linux-lts" {
                    if self == Manager::Apk { "linux-virt" } else { "linux" }
                } else {
                    "linux-lts"
                };
                return Ok(Some(format!(
                    "{} would replace the installed {package}, so a trial could not return to it: update it \
                     as usual \
                     and restart, or install another kernel beside it ({other})",
                    self.name()
                )));
            }
        }
        Ok(None)
    }
}

/// State of a package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PackageState {
    /// Installed and configured.
    Installed,
    /// Partially installed.
    Partial,
    /// Not installed.
    Absent,
}

/// Available kernels with apt.
fn apt_offers(host: &dyn Host, running: &str, from: Option<Source>) -> Result<Vec<Offer>> {
    let names = match from {
        Some(Source::Elrepo) => {
            return Err(Error::usage(
                "--from elrepo works on Red Hat's distributions only; use --from backports or --from hwe",
            ));
        }
        Some(Source::Hwe) => {
            let value = |key| distribution(host, key);
            let Some(version) = value("VERSION_ID").filter(|_| value("ID").as_deref() == Some("ubuntu"))
            else {
                return Err(Error::usage("--from hwe works on Ubuntu only; use --from backports on Debian"));
            };
            let said = ask(
                host,
                ["apt-cache".to_owned(), "depends".into(), format!("linux-image-generic-hwe-{version}")],
            )?;
            let depends = said.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
            depends.filter(|name| is_image(name)).map(str::to_owned).collect()
        }
        _ => {
            let said = ask(host, split_words("apt-cache pkgnames linux-image-"))?;
            let ours = flavour(running);
            let all: Vec<String> = said.lines().filter(|name| is_image(name)).map(str::to_owned).collect();
            let same =
                |name: &&String| !ours.is_empty() && flavour(name.trim_start_matches("linux-image-")) == ours;
            let of_the_same: Vec<String> = all.iter().filter(same).cloned().collect();
            // A custom kernel has none of the distribution's flavours.
            if of_the_same.is_empty() { all } else { of_the_same }
        }
    };
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let known = ask(host, [split_words("apt-cache madison"), names].concat())?;
    let extra = ask(host, split_words("apt-cache pkgnames linux-modules-extra-"))?;
    let extra: Vec<&str> = extra.lines().collect();
    let mut offers = apt_madison(&known);
    if from == Some(Source::Backports) {
        offers.retain(|offer| offer.source.contains("-backports"));
    }
    for offer in &mut offers {
        // Ubuntu ships the drivers of many network cards in a separate package.
        let modules = format!("linux-modules-extra-{}", offer.release);
        if extra.contains(&modules.as_str()) {
            offer.packages.push(modules);
        }
    }
    Ok(offers)
}

/// Whether a package is a kernel image, signed if available.
fn is_image(name: &str) -> bool {
    name.strip_prefix("linux-image-").is_some_and(|release| {
        release.starts_with(|c: char| c.is_ascii_digit())
            && !release.ends_with("-dbg")
            && !release.ends_with("-unsigned")
            && release.contains('-')
    })
}

/// `linux-image-6.1.0-56-cloud-amd64 | 6.1.192-2 | http://… bookworm-security/main amd64 Packages`
fn apt_madison(said: &str) -> Vec<Offer> {
    let offer = |line: &str| {
        let mut parts = line.split('|').map(str::trim);
        let (name, version, source) = (parts.next()?, parts.next()?, parts.next()?);
        let release = name.strip_prefix("linux-image-")?.to_owned();
        source.ends_with("Packages").then(|| Offer {
            release,
            packages: vec![name.to_owned()],
            version: version.to_owned(),
            source: source.trim_end_matches(" Packages").to_owned(),
        })
    };
    said.lines().filter_map(offer).collect()
}

/// `Inst linux-base [4.6] (4.9 Debian:12.0/stable [all])`, `Remv gone [1.0]`, `Purg gone [1.0]`
fn apt_simulated(said: &str) -> Simulated {
    let mut simulated = Simulated::default();
    for line in said.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("Inst"), Some(name)) => {
                let rest: Vec<&str> = words.collect();
                let bare = |word: &&str| word.trim_matches(['[', ']', '(', ')']).to_owned();
                let instead_of = rest.first().filter(|word| word.starts_with('[')).map(bare);
                let version = rest.iter().find(|word| word.starts_with('(')).map(bare).unwrap_or_default();
                simulated.installed.push(Package { name: name.to_owned(), version, instead_of });
            }
            (Some("Remv" | "Purg"), Some(name)) => simulated.removed.push(name.to_owned()),
            _ => {}
        }
    }
    simulated
}

/// Query of a package file.
fn deb_fields(path: &str) -> Vec<String> {
    [split_words("dpkg-deb -f"), vec![path.to_owned()], split_words("Package Version Installed-Size")]
        .concat()
}

/// Sum of the sizes in `apt-cache show` (KiB), with the first version of each package.
fn apt_bytes(said: &str) -> Option<u64> {
    let mut seen = Vec::new();
    let mut total = None;
    for stanza in said.split("\n\n") {
        let value = |key: &str| stanza.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let (Some(name), Some(size)) = (value("Package:"), value("Installed-Size:")) else { continue };
        if !seen.contains(&name) {
            seen.push(name);
            total = Some(total.unwrap_or(0) + size.parse::<u64>().ok()?.saturating_mul(1024));
        }
    }
    total
}

/// `kernel.x86_64   5.14.0-427.13.1.el9_4   baseos`
fn rpm_offers(said: &str, name: &str) -> Vec<Offer> {
    let offer = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (package, version, source) = (words.next()?, words.next()?, words.next()?);
        let (package, architecture) = package.rsplit_once('.')?;
        // The epoch is not part of the release.
        let version = version.rsplit_once(':').map_or(version, |(_, version)| version);
        (package == name && version.contains('-')).then(|| Offer {
            release: format!("{version}.{architecture}"),
            packages: vec![format!("{name}-{version}")],
            version: version.to_owned(),
            source: source.to_owned(),
        })
    };
    said.lines().filter_map(offer).collect()
}

/// The table of a transaction: ` kernel-core   x86_64   5.14.0-427.el9   baseos   20 M`, under
/// headings.
fn rpm_simulated(said: &str) -> Simulated {
    let mut simulated = Simulated::default();
    let mut removes = false;
    // A column that is too narrow for its value continues in the next line.
    let mut words: Vec<&str> = Vec::new();
    for line in said.lines() {
        if line.starts_with("Transaction Summary") {
            break;
        }
        if !line.starts_with(' ') {
            words.clear();
            if line.ends_with(':') {
                removes = line.starts_with("Removing");
            }
            continue;
        }
        words.extend(line.split_ascii_whitespace());
        let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
        // A package that the one above replaces is removed. dnf 4 has `replacing NAME.ARCHITECTURE VERSION`,
        // dnf 5 a row of its own.
        if let ["replacing", replaced, rest @ ..] = &words[..] {
            let name = match rest {
                [version] if is_number(version) => {
                    replaced.rsplit_once('.').map_or(*replaced, |(name, _)| name)
                }
                _ if rest.len() < 5 => continue,
                _ => replaced,
            };
            simulated.removed.push(name.to_owned());
            words.clear();
            continue;
        }
        if words.len() < 6 {
            continue;
        }
        // Name, architecture, version, repository, size, unit.
        let row = std::mem::take(&mut words);
        let [name, _, version, _, size, _] = row[..] else { continue };
        // dnf 5 has every epoch, and rpm's queries have none.
        let version = version.rsplit_once(':').map_or(version, |(_, version)| version);
        if !is_number(version) || !is_number(size) {
            continue;
        }
        if removes {
            simulated.removed.push(name.to_owned());
        } else {
            // Several kernel versions coexist, so the name includes the version.
            let name = if name.starts_with("kernel") { format!("{name}-{version}") } else { name.to_owned() };
            simulated.installed.push(Package { name, version: version.to_owned(), instead_of: None });
        }
    }
    simulated
}

/// `v | kernel-default | package | 5.14.21-150500.55.1 | x86_64 | Update`
fn zypper_offers(said: &str) -> Vec<Offer> {
    let offer = |line: &str| {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, "kernel-default", "package", version, _, source] = fields[..] else { return None };
        // The rebuild count is not part of the release.
        let release = version.rsplit_once('.').map_or(version, |(release, _)| release);
        Some(Offer {
            release: format!("{release}-default"),
            packages: vec![format!("kernel-default={version}")],
            version: version.to_owned(),
            source: source.to_owned(),
        })
    };
    said.lines().filter_map(offer).collect()
}

/// Paragraphs with `Repository`, `Name` and `Version`.
fn pacman_offers(said: &str) -> Vec<Offer> {
    let offer = |paragraph: &str| {
        let value = |key: &str| {
            paragraph.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                (name.trim() == key).then(|| value.trim().to_owned())
            })
        };
        let (name, version, source) = (value("Name")?, value("Version")?, value("Repository")?);
        let release = match name.strip_prefix("linux-") {
            Some(flavour) => format!("{version}-{flavour}"),
            None => version.replace(".arch", "-arch"),
        };
        Some(Offer { release, packages: vec![name], version, source })
    };
    said.split("\n\n").filter_map(offer).collect()
}

/// `linux-lts-6.6.14-r0`
fn apk_offers(said: &str) -> Vec<Offer> {
    let offer = |line: &str| {
        let (rest, build) = line.trim().rsplit_once("-r")?;
        let (name, version) = rest.rsplit_once('-')?;
        let flavour = name.strip_prefix("linux-")?;
        Some(Offer {
            release: format!("{version}-{build}-{flavour}"),
            packages: vec![name.to_owned()],
            version: format!("{version}-r{build}"),
            source: "apk".into(),
        })
    };
    said.lines().filter_map(offer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn releases(offers: &[Offer]) -> Vec<&str> {
        offers.iter().map(|offer| offer.release.as_str()).collect()
    }

    #[test]
    fn offers_of_each_manager_are_parsed() {
        let apt = apt_madison(
            " linux-image-6.1.0-56-cloud-amd64 |  6.1.192-2 | http://mirror.example/debian-security \
             bookworm-security/main amd64 Packages\n\
             linux-image-6.1.0-56-cloud-amd64 |  6.1.192-2 | http://mirror.example/debian-security \
             bookworm-security/main Sources\n",
        );
        assert_eq!((releases(&apt), apt[0].version.as_str()), (vec!["6.1.0-56-cloud-amd64"], "6.1.192-2"));
        let dnf = rpm_offers(
            "Available Packages\nkernel.x86_64    5.14.0-427.13.1.el9_4    baseos\nkernel.x86_64 \
             1:5.14.0-362.el9 baseos\nkernel-debug.x86_64 5.14.0-1.el9 baseos\n",
            "kernel",
        );
        assert_eq!(releases(&dnf), ["5.14.0-427.13.1.el9_4.x86_64", "5.14.0-362.el9.x86_64"]);
        assert_eq!(dnf[0].packages, ["kernel-5.14.0-427.13.1.el9_4"]);
        let zypper = zypper_offers(
            "S | Name | Type | Version | Arch | Repository\n--+--\nv | kernel-default | package | \
             5.14.21-150500.55.62.2 | x86_64 | Update\n",
        );
        assert_eq!(releases(&zypper), ["5.14.21-150500.55.62-default"]);
        assert_eq!(zypper[0].packages, ["kernel-default=5.14.21-150500.55.62.2"]);
        let pacman = pacman_offers(
            "Repository      : core\nName            : linux\nVersion         : 6.8.7.arch1-1\n\nRepository \
             : core\nName : linux-lts\nVersion : 6.6.28-1\n",
        );
        assert_eq!(releases(&pacman), ["6.8.7-arch1-1", "6.6.28-1-lts"]);
        assert_eq!(
            releases(&apk_offers("linux-lts-6.6.14-r0\nlinux-virt-6.6.14-r0\n")),
            ["6.6.14-0-lts", "6.6.14-0-virt"]
        );
    }

    #[test]
    fn simulations_are_parsed() {
        let apt = apt_simulated(
            "Reading package lists...\nInst linux-base [4.6] (4.9 Debian:12.0/stable [all])\n\
             Inst linux-image-6.1.0-56-cloud-amd64 (6.1.192-2 Debian-Security:12/stable-security \
             [amd64])\nRemv old [1.0]\nConf linux-base (4.9)\n",
        );
        assert_eq!(
            apt.installed[0],
            Package { name: "linux-base".into(), version: "4.9".into(), instead_of: Some("4.6".into()) }
        );
        assert_eq!(
            (apt.installed[1].version.as_str(), &apt.removed[..]),
            ("6.1.192-2", &["old".to_owned()][..])
        );
        assert_eq!(
            apt_bytes(
                "Package: a\nInstalled-Size: 100\n\nPackage: a\nInstalled-Size: 90\n\nPackage: \
                 b\nInstalled-Size: 1\n"
            ),
            Some(101 * 1024)
        );
        let dnf = rpm_simulated(
            "Dependencies resolved.\n======\n \
             Package  Architecture  Version  Repository  Size\n======\nInstalling:\n \
             kernel        x86_64  5.14.0-427.el9  baseos  5.0 M\n\
             Installing dependencies:\n kernel-core   x86_64  5.14.0-427.el9  baseos  20 M\nRemoving:\n \
             kernel-core   x86_64  5.14.0-1.el9  @baseos  60 M\n\nTransaction Summary\n",
        );
        assert_eq!(
            dnf.installed.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
            ["kernel-5.14.0-427.el9", "kernel-core-5.14.0-427.el9"]
        );
        assert_eq!(dnf.removed, ["kernel-core"]);
        let dnf5 = rpm_simulated(
            "Package              Arch   Version             Repository      Size\nInstalling:\n \
             kernel-core         x86_64 0:6.12.118-1.1.fc43 updates     11.3 MiB\n kernel              \
             x86_64 0:6.12.118-1.1.fc43 updates      0.0   B\n\nTransaction Summary:\n",
        );
        assert_eq!(
            dnf5.installed.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
            ["kernel-core-6.12.118-1.1.fc43", "kernel-6.12.118-1.1.fc43"]
        );
        let narrow = rpm_simulated(
            "======\n Package  Arch  Version  Repository  Size\n======\nInstalling:\n \
             kernel-ml-modules-extra\n     x86_64   6.12.118-1.el9.elrepo\n              elrepo-kernel   \
             30 M\n kernel-ml  x86_64  6.12.118-1.el9.elrepo\n  elrepo-kernel   120 k\n   replacing \
             kernel-core x86_64 5.14.0-1.el9 <unknown> 60 MiB\n gcc  x86_64  11.4-1  base  9 M\n",
        );
        assert_eq!(
            narrow.installed.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
            ["kernel-ml-modules-extra-6.12.118-1.el9.elrepo", "kernel-ml-6.12.118-1.el9.elrepo", "gcc"]
        );
        assert_eq!(narrow.removed, ["kernel-core"]);
        let dnf4 = rpm_simulated(
            "Dependencies resolved.\n======\n Package  Architecture  Version  Repository  Size\n\
             ======\nInstalling:\n kernel-ml  x86_64  6.12.118-1.el9.elrepo  elrepo-kernel  120 k\n     \
             replacing  kernel-tools.x86_64 5.14.0-1.el9\n     \
             replacing  kernel-libs.noarch 1:5.14.0-1.el9\n gcc  x86_64  11.4-1  base  9 M\n\n\
             Transaction Summary\n",
        );
        assert_eq!(
            dnf4.installed.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
            ["kernel-ml-6.12.118-1.el9.elrepo", "gcc"]
        );
        assert_eq!(dnf4.removed, ["kernel-tools", "kernel-libs"]);
    }

    #[test]
    fn install_commands_remove_nothing_and_remove_commands_only_the_named_packages() {
        let one = ["linux-x".to_owned()];
        for manager in
            [Manager::Apt, Manager::Dnf, Manager::Yum, Manager::Zypper, Manager::Pacman, Manager::Apk]
        {
            let install = manager.install(&one, None).line();
            assert!(install.ends_with(" linux-x") && !install.contains("upgrade"), "{install}");
            let remove = manager.remove(&one).line();
            assert!(remove.ends_with(" linux-x") && !remove.contains("autoremove"), "{remove}");
        }
        assert!(Manager::Apt.install(&one, None).line().contains("--no-remove"));
        assert!(Manager::Dnf.install(&one, Some(Source::Elrepo)).line().contains(
            "installonly_limit=0 --setopt=clean_requirements_on_remove=False --enablerepo=elrepo-kernel"
        ));
    }
}
