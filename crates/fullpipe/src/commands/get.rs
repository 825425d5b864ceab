//! `fullpipe get`: download a URL and report what limited it.

use crate::failure::Failure;
use crate::print::prose;
use fullpipe_net::client::table::{bytes, millis, rate};
use fullpipe_net::get::{self, Download, GetError, Progress, Request, Target};
use fullpipe_units::{Bytes, Span};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

/// Download a URL and report what limited it
///
/// From `fullpipe serve`, you can choose the sender's controller: fullpipe get
/// 'HOST:5201/download?size=1g&cc=bbr'.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe get https://example.org/file.iso --resume")]
pub struct Args {
    /// URL to download: http:// (the default without a scheme) or https://
    url: String,
    /// File to write once the download is complete; `-` streams to stdout [default: last part of
    /// the path, or index.html]
    #[arg(short = 'O', long, value_name = "FILE", conflicts_with_all = ["discard", "memory"])]
    output: Option<PathBuf>,
    /// Discard the content as it arrives, instead of writing a file
    #[arg(long, conflicts_with = "memory")]
    discard: bool,
    /// Keep the content in memory, up to 1 GiB, instead of writing a file
    #[arg(long)]
    memory: bool,
    /// Resume an interrupted download, if the content on the server is unchanged
    #[arg(short = 'c', long = "resume", visible_alias = "continue")]
    resume: bool,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    /// Expected SHA-256 of the content; another one is a failed check (exit code 1)
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    sha256: Option<String>,
    /// Size of the receive buffer in bytes, such as `256k` [default: the system's]
    #[arg(short, long, value_name = "SIZE")]
    window: Option<Bytes>,
    /// Time without progress after which the download fails
    #[arg(long, default_value = "30s", value_name = "TIME")]
    timeout: Span,
    /// File with the server's secret in its first line
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn sha256(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(text.to_owned())
    } else {
        Err("must be 64 hexadecimal digits".to_owned())
    }
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let request = self.request()?;
        let interrupt = crate::termination::flag()?;
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
        let report = if self.json { as_json(&download) } else { text(&download) };
        if self.to_stdout() {
            eprintln!("{report}");
        } else if self.json {
            println!("{report}");
        } else {
            prose(&(report + "\n"));
        }
        match download.matches {
            Some(false) => Err(Failure::Check(format!(
                "SHA-256 mismatch: got {}, expected {}{}",
                download.sha256.unwrap_or_default(),
                self.sha256.unwrap_or_default(),
                download.file.map(|f| format!("; the content is in {}", f.display())).unwrap_or_default()
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
            return Err(Failure::usage(
                "--resume needs an output file: remove --discard, --memory or --output -",
            ));
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
                // The name that wget and browsers give to the index of a directory.
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

fn text(download: &Download) -> String {
    let mut text = format!(
        "{} in {:.2} s: {}, first byte after {}",
        bytes(download.bytes),
        download.seconds,
        rate(download.rate()),
        millis(download.first_byte)
    );
    if download.resumed_at > 0 {
        text += &format!(" (resumed after {})", bytes(download.resumed_at));
    }
    if let Some(name) = &download.controller {
        text += &format!("; controller of the sender: {name}");
    }
    if download.matches == Some(true) {
        text += "\nSHA-256 matches";
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
