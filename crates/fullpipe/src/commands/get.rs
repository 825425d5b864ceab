//! `fullpipe get`: download, and say what limited it.

use crate::failure::Failure;
use crate::print::prose;
use fullpipe_net::client::table::{bytes, millis, rate};
use fullpipe_net::get::{self, Download, GetError, Progress, Request, Target};
use fullpipe_net::signals;
use fullpipe_units::{Bytes, Span};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Download like wget, and say afterwards what limited it
///
/// From `fullpipe serve`, the sender's controller can be chosen: fullpipe get 'HOST:5201/download?size=1g&cc=bbr'
#[derive(clap::Args)]
pub struct Args {
    /// http:// or https://
    url: String,
    /// File to write, when all has come; `-` for stdout, as it comes [default: the last part of the path, or
    /// index.html]
    #[arg(short = 'O', long, value_name = "FILE", conflicts_with_all = ["discard", "memory"])]
    output: Option<PathBuf>,
    /// Throw the bytes away
    #[arg(long, conflicts_with = "memory")]
    discard: bool,
    /// Keep the bytes in memory only
    #[arg(long)]
    memory: bool,
    /// Go on with a download that broke off, if the server still has the same
    #[arg(short = 'c', long = "resume", visible_alias = "continue")]
    resume: bool,
    /// Replace the file if it is there already
    #[arg(long)]
    force: bool,
    /// Fail unless the whole has this SHA-256
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    sha256: Option<String>,
    /// Our receive buffer, such as `256k`
    #[arg(short, long, value_name = "SIZE")]
    window: Option<Bytes>,
    /// Give up after a pause of this length
    #[arg(long, default_value = "30s", value_name = "TIME")]
    timeout: Span,
    /// File that holds the server's secret
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

fn sha256(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(text.to_owned())
    } else {
        Err("a SHA-256 has 64 hexadecimal digits".to_owned())
    }
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let request = self.request()?;
        let interrupt = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&interrupt);
        signals::on_termination(move || flag.store(true, Relaxed))
            .map_err(|e| Failure::Impossible(e.to_string()))?;
        let live = std::io::stderr().is_terminal() && !self.json;
        let mut progress = |p: Progress| {
            if live {
                eprint!("\r\x1b[K");
                eprint!("{}", line(&p));
            }
        };
        let result = get::get(&request, &interrupt, &mut progress);
        if live {
            eprint!("\r\x1b[K");
        }
        let download = result.map_err(failure)?;
        let report = if self.json { as_json(&download) } else { in_words(&download) };
        if self.to_stdout() {
            eprintln!("{report}");
        } else if self.json {
            println!("{report}");
        } else {
            prose(&(report + "\n"));
        }
        match download.matches {
            Some(false) => Err(Failure::Check(format!(
                "the SHA-256 is {} and not the expected {}{}",
                download.sha256.unwrap_or_default(),
                self.sha256.unwrap_or_default(),
                download.file.map(|f| format!("; what came is in {}", f.display())).unwrap_or_default()
            ))),
            _ => Ok(()),
        }
    }

    fn to_stdout(&self) -> bool {
        self.output.as_deref().is_some_and(|p| p.as_os_str() == "-")
    }

    fn request(&self) -> Result<Request, Failure> {
        let target = self.target()?;
        if self.resume && !matches!(target, Target::File(_)) {
            return Err(Failure::usage("--resume needs a file to go on with"));
        }
        Ok(Request {
            target,
            resume: self.resume,
            force: self.force,
            sha256: self.sha256.clone(),
            window: self.window.map(|b| b.0.min(1 << 30) as u32),
            token: self.secret_file.as_deref().map(crate::secret::read).transpose()?,
            timeout: Duration::from(self.timeout),
            ..Request::new(&self.url)
        })
    }

    /// Where the bytes go.
    fn target(&self) -> Result<Target, Failure> {
        if self.discard {
            return Ok(Target::Discard);
        }
        if self.to_stdout() {
            return Ok(Target::Stdout);
        }
        if self.memory {
            return Ok(Target::Memory);
        }
        Ok(Target::File(match &self.output {
            Some(path) => path.clone(),
            None => {
                let url = get::address(&self.url).map_err(Failure::usage)?;
                // As wget and browsers call what a directory gives.
                get::file_name(&url).unwrap_or("index.html").into()
            }
        }))
    }
}

fn as_json(download: &Download) -> String {
    format!(
        "{:#}",
        serde_json::json!({
            "url": download.url,
            "bytes": download.bytes,
            "resumed_at": download.resumed_at,
            "seconds": download.seconds,
            "first_byte_seconds": download.first_byte,
            "bits_per_second": download.rate(),
            "sha256": download.sha256,
            "sha256_matches": download.matches,
            "controller": download.controller,
            "limited_by": download.limit,
            "file": download.file,
            "socket": download.socket,
        })
    )
}

fn in_words(download: &Download) -> String {
    let mut text = format!(
        "{} in {:.2} s: {}, first byte after {}",
        bytes(download.bytes),
        download.seconds,
        rate(download.rate()),
        millis(download.first_byte)
    );
    if download.resumed_at > 0 {
        text += &format!(" ({} were there before)", bytes(download.resumed_at));
    }
    if let Some(name) = &download.controller {
        text += &format!("; the sender used {name}");
    }
    if download.matches == Some(true) {
        text += "\nSHA-256 as expected";
    }
    text + "\n" + &download.limit
}

fn line(p: &Progress) -> String {
    let speed = rate(p.bytes as f64 * 8.0 / p.seconds.max(1e-9));
    match p.total.filter(|&t| t > 0) {
        Some(total) => {
            let share = p.bytes as f64 / total as f64;
            let left = p.seconds / share.max(1e-9) * (1.0 - share);
            format!(
                "{:3.0} %  {} of {}  {speed}  {left:.0} s left",
                share * 100.0,
                bytes(p.bytes),
                bytes(total)
            )
        }
        None => format!("{}  {speed}", bytes(p.bytes)),
    }
}

fn failure(error: GetError) -> Failure {
    match error {
        GetError::Url(_)
        | GetError::Pin(_)
        | GetError::File { .. }
        | GetError::Exists { .. }
        | GetError::Changed { .. } => Failure::usage(error),
        _ => Failure::Impossible(error.to_string()),
    }
}
