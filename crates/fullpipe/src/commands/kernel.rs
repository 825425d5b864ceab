//! `fullpipe kernel`: another kernel, for a host whose own is too old or lacks what is needed.

use super::host::{Target, failure, settle};
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
use fullpipe_host::screen::Style;
use fullpipe_units::Span;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Another kernel: see what there is, have the package manager install one, boot it once, and keep it only if all is as before
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Which kernels there are, what they were built with, what boots them, and what can be done. Changes nothing
    Status {
        /// For machines
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Show exactly what installing a kernel would do. Changes nothing
    Plan {
        #[command(flatten)]
        wanted: Wanted,
        /// For machines
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Have the distribution's package manager install a kernel beside the one that runs, which stays the default
    Install {
        #[command(flatten)]
        wanted: Wanted,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        /// For machines
        #[arg(long, requires = "yes")]
        json: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Make a package of Linux's source, configured as the kernel that runs and with what is needed. Changes nothing but a folder
    Build {
        #[command(flatten)]
        made_of: MadeOf,
        /// For machines
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Boot a kernel once: it is kept if the network, ssh and the controller are there again, otherwise the machine restarts
    /// into the kernel before by itself, also after a panic
    Try {
        /// The release, or how it begins (6.1)
        version: String,
        /// The controller that it must have
        #[arg(long, value_name = "CC", default_value = "bbr")]
        cc: String,
        /// The time that it has, from the start of the machine, until all must be as before
        #[arg(long, value_name = "TIME", default_value = "180s")]
        within: Span,
        /// Keep it only if someone says so in that time, by `fullpipe kernel keep`
        #[arg(long)]
        confirm: bool,
        /// Do not restart the machine now: its next restart is the trial
        #[arg(long)]
        later: bool,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Keep the kernel that runs: it is booted every day from now on
    Keep {
        #[command(flatten)]
        target: Target,
    },
    /// Take back the last step: the trial (restarting into the kernel before, if the other one runs), then the installation
    Back {
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Look at a kernel on trial until it is kept or given up; started at boot by `kernel try`
    #[command(hide = true)]
    Watch {
        #[command(flatten)]
        target: Target,
    },
}

/// Which kernel.
#[derive(ClapArgs)]
struct Wanted {
    /// A release, or how it begins (6.1), or a package's file, as `kernel build` makes one [default: the newest]
    version: Option<String>,
    /// The newest that there is
    #[arg(long, conflicts_with = "version")]
    newest: bool,
    /// Another source than the distribution's own: Debian's backports, ELRepo's kernel-ml, Ubuntu's hwe kernels
    #[arg(long, value_enum)]
    from: Option<Source>,
}

/// What a kernel is made of.
#[derive(ClapArgs)]
#[command(group(ArgGroup::new("what").args(["dir", "source"]).required(true)))]
struct MadeOf {
    /// A directory with the source of Linux
    dir: Option<PathBuf>,
    /// The distribution's own source: that of a version (6.1) or the newest
    #[arg(long, value_name = "VERSION", num_args = 0..=1, default_missing_value = "")]
    source: Option<String>,
    /// The configuration to begin with [default: that of the kernel that runs]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where everything is made
    #[arg(long, value_name = "DIR", default_value = "fullpipe-kernel")]
    folder: PathBuf,
    /// How many compilers run at once [default: as many as there are processors]
    #[arg(long, short, value_name = "N")]
    jobs: Option<usize>,
}

impl MadeOf {
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
    Backports,
    Elrepo,
    Hwe,
}

impl Wanted {
    /// A file is named by a path: releases have no slash.
    fn request(self) -> Result<install::Request, Failure> {
        let is_file = |name: &String| name.contains('/') || name.ends_with(".deb") || name.ends_with(".rpm");
        if let Some(name) = self.version.as_ref().filter(|name| is_file(name)) {
            if self.from.is_some() {
                return Err(Failure::usage("--from: a file has no other source"));
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
        match self.what {
            What::Status { json, target } => show(json, &target),
            What::Plan { wanted, json, target } => plan(wanted, json, &target),
            What::Install { wanted, yes, json, target } => put(wanted, yes, json, &target),
            What::Build { made_of, json, target } => make(made_of, json, &target),
            What::Try { version, cc, within, confirm, later, yes, target } => {
                let request = trial_boot::Request {
                    version,
                    controller: cc,
                    within: within.into(),
                    asks: confirm,
                    program: program(),
                };
                try_it(&request, later, yes, &target)
            }
            What::Keep { target } => keep(&target),
            What::Back { yes, target } => back(yes, &target),
            What::Watch { target } => watch(&target),
        }
    }
}

fn open(target: &Target) -> Result<(Box<dyn Host>, Store), Failure> {
    let (host, store) = target.open()?;
    settle(&*host, &store)?;
    trial_boot::clean_up(&*host, &store).map_err(failure)?;
    Ok((host, store))
}

/// What a person says to it; without a terminal there is none to ask.
fn agreed(yes: bool, what: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::usage(format_args!(
            "nobody is there to ask (no terminal): --yes {what} without asking"
        )));
    }
    eprint!("Type yes to go on: ");
    let mut line = String::new();
    let heard = stdin.lock().read_line(&mut line);
    match (heard, line.trim()) {
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
    let what = request.version.iter().chain(&request.file).next();
    let version = what.map(|what| format!(" {what}")).unwrap_or_default();
    let from = request.from.map(|from| format!(" --from {}", from.name())).unwrap_or_default();
    let install = host.identity().as_root(format_args!("kernel install{version}{from}"));
    if let Some((_, source)) = install::source(&*host, &request).map_err(failure)? {
        return Err(Failure::Check(format!(
            "{install} adds {source}; which kernels it has is known then, and is shown before anything is installed"
        )));
    }
    let plan = install::plan(&*host, &request).map_err(failure)?;
    if json {
        return print_json(&Document { schema: "fullpipe/kernel-plan/1", value: &plan });
    }
    let style = Style::for_stdout();
    print!("{}", screen::plan(style, &plan));
    print!("\n{}", style.wrap("", 0, &format!("Nothing was changed. {install} does this.")));
    Ok(())
}

fn put(wanted: Wanted, yes: bool, json: bool, target: &Target) -> Result<(), Failure> {
    let (host, store) = open(target)?;
    let style = Style::for_stdout();
    let tell = |installed: &Installed| {
        if json {
            return print_json(&Document { schema: "fullpipe/kernel-install/1", value: installed });
        }
        let next = host.identity().as_root(format_args!("kernel try {}", installed.release));
        print!("{}", screen::installed(style, installed, &next));
        Ok(())
    };
    if install::is_interrupted(&*host, &store).map_err(failure)? {
        eprintln!("An installation was interrupted: going on with it.");
        agreed(yes, "goes on")?;
        return tell(&install::resume(&*host, &store).map_err(failure)?);
    }
    let request = wanted.request()?;
    if let Some((_, source)) = install::source(&*host, &request).map_err(failure)? {
        eprintln!("This adds {source}.");
        agreed(yes, "adds it")?;
    }
    if let Some(why) = install::refresh(&*host, &store, &request).map_err(failure)? {
        eprintln!("What there is now could not be learnt, and what was known before is gone by: {why}");
    }
    let planned = install::plan(&*host, &request).map_err(failure).and_then(|plan| {
        if !json {
            print!("{}\n", screen::plan(style, &plan));
        }
        agreed(yes, "installs it").map(|()| plan)
    });
    let installed = planned.and_then(|plan| install::install(&*host, &store, &plan).map_err(failure));
    match installed {
        Ok(installed) => tell(&installed),
        Err(error) => {
            trial_boot::discard_source(&*host, &store).map_err(failure)?;
            Err(error)
        }
    }
}

/// Tells on stderr how far it is: in a terminal by a line that changes, elsewhere now and then.
fn make(made_of: MadeOf, json: bool, target: &Target) -> Result<(), Failure> {
    const SILENCE: Duration = Duration::from_secs(30);
    let (host, _) = target.open()?;
    let bar = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
    if let Some(bar) = &bar {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    let mut told = Instant::now();
    let mut part = String::new();
    let mut tell = |progress: Progress| {
        let line = match progress {
            Progress::Part(name) => {
                name.clone_into(&mut part);
                name.to_owned()
            }
            Progress::File(count, file) => format!("{part}: {count} files, {file}"),
        };
        match &bar {
            Some(bar) => bar.set_message(line),
            None if matches!(progress, Progress::Part(_)) || told.elapsed() > SILENCE => {
                eprintln!("{line}");
                told = Instant::now();
            }
            None => {}
        }
    };
    let built = build::build(&*host, &made_of.request(), &mut tell);
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let built = built.map_err(failure)?;
    if json {
        return print_json(&Document { schema: "fullpipe/kernel-build/1", value: &built });
    }
    print!("{}", built_told(&*host, &built));
    Ok(())
}

fn built_told(host: &dyn Host, built: &Built) -> String {
    let package = built.package.display();
    let install = host.identity().as_root(format_args!("kernel install {package}"));
    screen::built(Style::for_stdout(), built, &install)
}

fn try_it(request: &trial_boot::Request, later: bool, yes: bool, target: &Target) -> Result<(), Failure> {
    let (host, store) = open(target)?;
    if request.within < Duration::from_secs(30) {
        return Err(Failure::usage(
            "--within: a machine takes its time to start; give at least 30s, for example 180s",
        ));
    }
    let plan = trial_boot::plan(&*host, request).map_err(failure)?;
    print!("{}", screen::trial_boot(Style::for_stdout(), &plan));
    if !later {
        println!("Then the machine restarts.");
    }
    agreed(yes, if later { "makes it ready" } else { "restarts the machine" })?;
    let plan = trial_boot::arm(&*host, &store, request).map_err(failure)?;
    let status = host.identity().command("kernel status");
    if later {
        eprintln!(
            "Linux {} is booted once at the next restart; {status} tells afterwards what became of it.",
            plan.release
        );
        return Ok(());
    }
    eprintln!("Restarting into Linux {}; {status} tells afterwards what became of it.", plan.release);
    trial_boot::restart(&*host).map_err(failure)
}

fn keep(target: &Target) -> Result<(), Failure> {
    let (host, store) = open(target)?;
    let kept = trial_boot::keep(&*host, &store).map_err(failure)?;
    print!("{}", Style::for_stdout().wrap("", 0, &told(&kept)));
    Ok(())
}

fn told(kept: &trial_boot::Kept) -> String {
    let how = if kept.named { ", named as the default" } else { "" };
    format!("Linux {} is kept: it is booted every day{how}.", kept.release)
}

fn back(yes: bool, target: &Target) -> Result<(), Failure> {
    let (host, store) = open(target)?;
    agreed(yes, "goes back")?;
    match trial_boot::roll_back(&*host, &store).map_err(failure)? {
        RollBack::Restarts(release) => {
            eprintln!("Restarting into Linux {release}.");
            trial_boot::restart(&*host).map_err(failure)
        }
        RollBack::Disarmed(release) => {
            println!("Linux {release} is not booted at the next restart.");
            Ok(())
        }
        RollBack::Removed(titles) => {
            for title in titles {
                println!("↩ {title}");
            }
            println!("What fullpipe did to this host's kernels is undone.");
            Ok(())
        }
    }
}

fn watch(target: &Target) -> Result<(), Failure> {
    let (host, store) = target.open()?;
    match trial_boot::watch(&*host, &store) {
        Ok(TrialBoot::Kept(kept)) => {
            println!("{}", told(&kept));
            Ok(())
        }
        Ok(TrialBoot::Failed(reasons)) => {
            eprint!("{}", screen::reasons(Style { colour: false, width: 110 }, &reasons));
            eprintln!("Not all is as before: restarting into the kernel before.");
            trial_boot::restart(&*host).map_err(failure)
        }
        Ok(TrialBoot::NotRunning | TrialBoot::Pending(_)) => Ok(()),
        Err(error) => {
            eprintln!("fullpipe: {error}");
            trial_boot::restart(&*host).map_err(failure)
        }
    }
}
