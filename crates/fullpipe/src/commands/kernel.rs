//! `fullpipe kernel`: another kernel, for a host whose own is too old or lacks a feature.

use super::host::{ChangedSettings, Target, failure, settle};
use super::plan::program;
use crate::failure::Failure;
use crate::print::{Document, print_json};
use clap::{ArgGroup, Args as ClapArgs, Subcommand};
use fullpipe_host::host::Host;
use fullpipe_host::journal::Store;
use fullpipe_host::kernel::build::{self, Built, Progress};
use fullpipe_host::kernel::install::{self, Installed};
use fullpipe_host::kernel::packages::Source as PackageSource;
use fullpipe_host::kernel::trial_boot::{self, RollBack, TrialBoot};
use fullpipe_host::kernel::{screen, status};
use fullpipe_host::revert;
use fullpipe_host::screen::Style;
use fullpipe_units::Span;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Install a kernel, boot it once as a trial, keep it or roll back
///
/// The package manager installs it beside the running kernel, which stays the default until the
/// trial has succeeded.
#[derive(ClapArgs)]
#[command(after_help = "Example: sudo fullpipe kernel install, then sudo fullpipe kernel try 6.12")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show installed kernels, their configuration and boot entries
    ///
    /// Changes nothing.
    Status {
        /// Print the status as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Show exactly what `kernel install` would do
    ///
    /// Changes nothing.
    Plan {
        #[command(flatten)]
        wanted: Wanted,
        /// Print the plan as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Install a kernel with the package manager; the default kernel stays
    Install {
        #[command(flatten)]
        wanted: Wanted,
        /// Proceed without asking
        #[arg(long, short)]
        yes: bool,
        /// Print the result as JSON
        #[arg(long, requires = "yes")]
        json: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Build a kernel from source with the running kernel's configuration
    ///
    /// Also enables the options that fullpipe needs. Writes only to --folder.
    Build {
        #[command(flatten)]
        input: BuildInput,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Boot a kernel once, and keep it if the host works as before
    ///
    /// The kernel is kept if network, SSH and controller work in time. Otherwise, and after a
    /// panic, the machine reboots into the previous kernel by itself.
    Try {
        /// Release of an installed kernel, or its beginning (`6.1`)
        version: String,
        /// Controller that the kernel must have
        #[arg(long, value_name = "CC", default_value = "bbr")]
        cc: String,
        /// Deadline for the checks, counted from the boot of the kernel on trial; at least 30s
        #[arg(long, value_name = "TIME", default_value = "180s")]
        within: Span,
        /// Keep it only if confirmed by `fullpipe kernel keep` before the deadline
        #[arg(long)]
        confirm: bool,
        /// Make the next reboot the trial, instead of rebooting now
        #[arg(long)]
        later: bool,
        /// Proceed without asking
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Keep the running kernel as the default
    Keep {
        #[command(flatten)]
        changed: ChangedSettings,
        #[command(flatten)]
        target: Target,
    },
    /// Undo one step: the trial if there is one, otherwise the installation
    ///
    /// If the kernel on trial is running, the machine reboots into the previous one.
    Back {
        /// Proceed without asking
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        changed: ChangedSettings,
        #[command(flatten)]
        target: Target,
    },
    /// Check a kernel on trial until it is kept or rolled back
    #[command(hide = true)]
    Watch {
        #[command(flatten)]
        target: Target,
    },
}

/// The kernel to install.
#[derive(ClapArgs)]
struct Wanted {
    /// Kernel release or its beginning (`6.1`), or a package file (.deb, .rpm), such as one from
    /// `kernel build` [default: the newest]
    version: Option<String>,
    /// Package source to use instead of the distribution's own
    #[arg(long, value_enum)]
    from: Option<Source>,
}

/// The source and configuration of a build.
#[derive(ClapArgs)]
#[command(group(ArgGroup::new("origin").args(["dir", "source"]).required(true)))]
struct BuildInput {
    /// Directory with the Linux source
    dir: Option<PathBuf>,
    /// Use the distribution's source package of VERSION, such as `6.1` [default: the newest]
    #[arg(long, value_name = "VERSION", num_args = 0..=1, default_missing_value = "")]
    source: Option<String>,
    /// File with the initial configuration [default: that of the running kernel]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory to build in and to write the package to
    #[arg(long, value_name = "DIR", default_value = "fullpipe-kernel")]
    folder: PathBuf,
    /// Number of parallel compiler processes [default: number of processors]
    #[arg(long, short, value_name = "N")]
    jobs: Option<usize>,
}

impl BuildInput {
    fn request(self) -> build::Request {
        let package = |version: String| build::Source::Package((!version.is_empty()).then_some(version));
        build::Request {
            source: self.dir.map_or_else(|| package(self.source.unwrap_or_default()), build::Source::Tree),
            config: self.config,
            folder: self.folder,
            jobs: self.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Source {
    /// Debian backports
    Backports,
    /// kernel-ml of ELRepo
    Elrepo,
    /// Ubuntu's hardware-enablement kernels
    Hwe,
}

impl Wanted {
    /// A name with a slash or a package extension is a file: releases have neither.
    fn request(self) -> Result<install::Request, Failure> {
        let is_file = |name: &String| name.contains('/') || name.ends_with(".deb") || name.ends_with(".rpm");
        if let Some(name) = self.version.as_ref().filter(|name| is_file(name)) {
            if self.from.is_some() {
                return Err(Failure::usage("--from does not apply to a package file"));
            }
            let path =
                std::fs::canonicalize(name).map_err(|e| Failure::usage(format_args!("{name}: {e}")))?;
            let file = path.to_string_lossy().into_owned();
            return Ok(install::Request { file: Some(file), ..install::Request::default() });
        }
        let from = self.from.map(|from| match from {
            Source::Backports => PackageSource::Backports,
            Source::Elrepo => PackageSource::Elrepo,
            Source::Hwe => PackageSource::Hwe,
        });
        Ok(install::Request { version: self.version, from, file: None })
    }
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Status { json, target } => show(json, &target),
            Command::Plan { wanted, json, target } => plan(wanted, json, &target),
            Command::Install { wanted, yes, json, target } => install(wanted, yes, json, &target),
            Command::Build { input, json, target } => build_package(input, json, &target),
            Command::Try { version, cc, within, confirm, later, yes, target } => {
                let request = trial_boot::Request {
                    version,
                    controller: cc,
                    within: within.into(),
                    asks: confirm,
                    program: program(),
                };
                boot_once(&request, later, yes, &target)
            }
            Command::Keep { changed, target } => keep(&changed.options(), &target),
            Command::Back { yes, changed, target } => back(yes, &changed.options(), &target),
            Command::Watch { target } => watch(&target),
        }
    }
}

fn open(target: &Target) -> Result<(Box<dyn Host>, Store), Failure> {
    let (host, store) = target.open()?;
    settle(&*host, &store)?;
    for exception in trial_boot::clean_up(&*host, &store).map_err(failure)? {
        eprintln!("The trial is over: {exception}");
    }
    Ok((host, store))
}

/// Asks for confirmation on the terminal. `action` completes "--yes …" in the error without a
/// terminal.
fn confirm(yes: bool, action: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::usage(format_args!(
            "cannot ask for confirmation without a terminal: --yes {action} without asking"
        )));
    }
    eprint!("Type yes to continue: ");
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    match (read, line.trim()) {
        (Ok(_), "yes") => Ok(()),
        _ => Err(Failure::Check("nothing was changed".into())),
    }
}

fn show(json: bool, target: &Target) -> Result<(), Failure> {
    let (host, store) = open(target)?;
    let status = status::status(&*host, &store).map_err(failure)?;
    if json {
        return print_json(&Document { schema: "fullpipe/kernel-status/1", value: &status });
    }
    print!("{}", screen::status(Style::for_stdout(), &status));
    Ok(())
}

fn plan(wanted: Wanted, json: bool, target: &Target) -> Result<(), Failure> {
    let (host, _) = open(target)?;
    let request = wanted.request()?;
    let named = request.version.iter().chain(&request.file).next();
    let version = named.map(|name| format!(" {name}")).unwrap_or_default();
    let from = request.from.map(|from| format!(" --from {}", from.name())).unwrap_or_default();
    let install = host.identity().as_root(format_args!("kernel install{version}{from}"));
    if let Some((_, source)) = install::source(&*host, &request).map_err(failure)? {
        return Err(Failure::Check(format!(
            "{install} first adds {source}; its kernels are known afterwards, and are shown before \
             anything is installed"
        )));
    }
    let plan = install::plan(&*host, &request).map_err(failure)?;
    if json {
        return print_json(&Document { schema: "fullpipe/kernel-plan/1", value: &plan });
    }
    let style = Style::for_stdout();
    print!("{}", screen::plan(style, &plan));
    print!("\n{}", style.wrap("", 0, &format!("Nothing was changed. {install} makes these changes.")));
    Ok(())
}

fn install(wanted: Wanted, yes: bool, json: bool, target: &Target) -> Result<(), Failure> {
    let (host, store) = open(target)?;
    let style = Style::for_stdout();
    let report = |installed: &Installed| {
        if json {
            return print_json(&Document { schema: "fullpipe/kernel-install/1", value: installed });
        }
        let next = host.identity().as_root(format_args!("kernel try {}", installed.release));
        print!("{}", screen::installed(style, installed, &next));
        Ok(())
    };
    if install::is_interrupted(&*host, &store).map_err(failure)? {
        eprintln!("Resuming an interrupted installation.");
        confirm(yes, "resumes it")?;
        return report(&install::resume(&*host, &store).map_err(failure)?);
    }
    let request = wanted.request()?;
    if let Some((_, source)) = install::source(&*host, &request).map_err(failure)? {
        eprintln!("This adds {source}.");
        confirm(yes, "adds it")?;
    }
    if let Some(why) = install::refresh(&*host, &store, &request).map_err(failure)? {
        eprintln!("warning: cannot update the package lists, using the old ones: {why}");
    }
    let planned = install::plan(&*host, &request).map_err(failure).and_then(|plan| {
        if !json {
            print!("{}\n", screen::plan(style, &plan));
        }
        confirm(yes, "installs it").map(|()| plan)
    });
    let installed = planned.and_then(|plan| install::install(&*host, &store, &plan).map_err(failure));
    match installed {
        Ok(installed) => report(&installed),
        Err(error) => {
            trial_boot::discard_source(&*host, &store).map_err(failure)?;
            Err(error)
        }
    }
}

/// Builds a package, with progress on stderr: a status line on a terminal, occasional lines
/// elsewhere.
fn build_package(input: BuildInput, json: bool, target: &Target) -> Result<(), Failure> {
    const REPORT_INTERVAL: Duration = Duration::from_secs(30);
    let (host, _) = target.open()?;
    // Drawn with each report: a thread that draws it panics where none may start.
    let bar = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
    if let Some(bar) = &bar
        && let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {wide_msg}")
    {
        bar.set_style(style);
    }
    let mut reported = Instant::now();
    let mut part = String::new();
    let mut report = |progress: Progress| {
        let line = match progress {
            Progress::Part(name) => {
                name.clone_into(&mut part);
                name.to_owned()
            }
            Progress::File(count, file) => format!("{part}: {count} files, {file}"),
        };
        match &bar {
            Some(bar) => bar.set_message(line),
            None if matches!(progress, Progress::Part(_)) || reported.elapsed() > REPORT_INTERVAL => {
                eprintln!("{line}");
                reported = Instant::now();
            }
            None => {}
        }
    };
    let built = build::build(&*host, &input.request(), &mut report);
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let built = built.map_err(failure)?;
    if json {
        return print_json(&Document { schema: "fullpipe/kernel-build/1", value: &built });
    }
    print!("{}", built_text(&*host, &built));
    Ok(())
}

fn built_text(host: &dyn Host, built: &Built) -> String {
    let package = built.package.display();
    let install = host.identity().as_root(format_args!("kernel install {package}"));
    screen::built(Style::for_stdout(), built, &install)
}

fn boot_once(request: &trial_boot::Request, later: bool, yes: bool, target: &Target) -> Result<(), Failure> {
    let (host, store) = open(target)?;
    if request.within < Duration::from_secs(30) {
        return Err(Failure::usage(
            "--within must be at least 30s, the time that a machine may take to boot; for example --within \
             180s",
        ));
    }
    let plan = trial_boot::plan(&*host, request).map_err(failure)?;
    print!("{}", screen::trial_boot(Style::for_stdout(), &plan));
    if !later {
        println!("Then the machine restarts.");
    }
    confirm(yes, if later { "prepares the trial" } else { "restarts the machine" })?;
    let plan = trial_boot::arm(&*host, &store, request).map_err(failure)?;
    let status = host.identity().command("kernel status");
    if later {
        eprintln!(
            "The next restart boots Linux {} once; {status} shows the outcome afterwards.",
            plan.release
        );
        return Ok(());
    }
    eprintln!("Restarting into Linux {}; {status} shows the outcome afterwards.", plan.release);
    trial_boot::restart(&*host).map_err(failure)
}

fn keep(options: &revert::Options, target: &Target) -> Result<(), Failure> {
    let (host, store) = open(target)?;
    let kept = trial_boot::keep(&*host, &store, options).map_err(failure)?;
    print_exceptions(&kept.exceptions);
    print!("{}", Style::for_stdout().wrap("", 0, &kept_text(&kept)));
    Ok(())
}

fn print_exceptions(exceptions: &[String]) {
    for exception in exceptions {
        print!("{}", Style::for_stdout().wrap("  · ", 4, exception));
    }
}

fn kept_text(kept: &trial_boot::Kept) -> String {
    let named = if kept.named { ", set by name" } else { "" };
    format!("Linux {} is kept and is now the default{named}.", kept.release)
}

fn back(yes: bool, options: &revert::Options, target: &Target) -> Result<(), Failure> {
    let (host, store) = open(target)?;
    confirm(yes, "rolls back")?;
    let (how, exceptions) = trial_boot::roll_back(&*host, &store, options).map_err(failure)?;
    print_exceptions(&exceptions);
    match how {
        RollBack::Restarts(release) => {
            eprintln!("Restarting into Linux {release}.");
            trial_boot::restart(&*host).map_err(failure)
        }
        RollBack::Disarmed(release) => {
            println!("The trial is cancelled: the next restart does not boot Linux {release}.");
            Ok(())
        }
        RollBack::Removed(titles) => {
            for title in titles {
                println!("↩ {title}");
            }
            let which = if exceptions.is_empty() { "All" } else { "All other" };
            println!("{which} kernel changes by fullpipe on this host are undone.");
            Ok(())
        }
    }
}

fn watch(target: &Target) -> Result<(), Failure> {
    let (host, store) = target.open()?;
    match trial_boot::watch(&*host, &store) {
        Ok(TrialBoot::Kept(kept)) => {
            print_exceptions(&kept.exceptions);
            println!("{}", kept_text(&kept));
            Ok(())
        }
        Ok(TrialBoot::Failed(reasons)) => {
            eprint!("{}", screen::reasons(Style { colour: false, width: 110 }, &reasons));
            eprintln!("The host does not work as before: restarting into the previous kernel.");
            trial_boot::restart(&*host).map_err(failure)
        }
        Ok(TrialBoot::NotRunning | TrialBoot::Pending(_)) => Ok(()),
        Err(error) => {
            eprintln!("fullpipe: {error}");
            trial_boot::restart(&*host).map_err(failure)
        }
    }
}
