//! Report formats, chosen by the file extension.

use crate::{About, csv, html, picture, qlog, summary};
use fullpipe_experiment::Results;
use std::io::{self, Write};
use std::path::Path;

/// A report format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// Self-contained page with interactive plots.
    Html,
    /// All results, time series included.
    Json,
    /// Time series, one row per sample.
    Csv,
    /// Summary, one row per run: `summary.csv`, or a name that ends so.
    Summary,
    /// Time series as Parquet.
    #[cfg(feature = "parquet")]
    Parquet,
    /// Bitmap picture.
    Png,
    /// Vector picture.
    Svg,
    /// qlog events, one trace per flow.
    Qlog,
    /// qlog events as a JSON text sequence with one trace.
    Sqlog,
}

/// The file name has no extension of a report format.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct UnknownFormat {
    extension: Option<String>,
}

impl UnknownFormat {
    fn text(&self) -> String {
        let known: Vec<String> = Format::ALL.iter().map(|f| format!(".{}", f.extension())).collect();
        let known = known.join(", ");
        match self.extension.as_deref() {
            Some("parquet") => {
                format!(
                    "this build cannot write .parquet (build with `--features parquet`); it can write \
                     {known}"
                )
            }
            Some(other) => format!(".{other} is not a report format; use one of {known}"),
            None => format!("the file name needs the extension of a report format: {known}"),
        }
    }
}

impl Format {
    /// All formats of this build.
    pub const ALL: &[Format] = &[
        Format::Html,
        Format::Json,
        Format::Csv,
        Format::Summary,
        #[cfg(feature = "parquet")]
        Format::Parquet,
        Format::Png,
        Format::Svg,
        Format::Qlog,
        Format::Sqlog,
    ];

    /// The extension, without a dot.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Html => "html",
            Format::Json => "json",
            Format::Csv => "csv",
            Format::Summary => "summary.csv",
            #[cfg(feature = "parquet")]
            Format::Parquet => "parquet",
            Format::Png => "png",
            Format::Svg => "svg",
            Format::Qlog => "qlog",
            Format::Sqlog => "sqlog",
        }
    }

    /// Whether the format includes the time series.
    pub fn has_series(self) -> bool {
        self != Format::Summary
    }

    /// The format for the extension of `path`, in upper or lower case. CSV files named `summary` or
    /// `…-summary` are [`Format::Summary`].
    pub fn from_path(path: &Path) -> Result<Format, UnknownFormat> {
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        let before = name.strip_suffix(Format::Summary.extension());
        if before.is_some_and(|before| before.is_empty() || before.ends_with(['.', '-', '_'])) {
            return Ok(Format::Summary);
        }
        let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase());
        if extension.as_deref() == Some("htm") {
            return Ok(Format::Html);
        }
        let found = Format::ALL.iter().find(|f| Some(f.extension()) == extension.as_deref());
        found.copied().ok_or(UnknownFormat { extension })
    }

    /// Writes `results` in this format.
    pub fn write(self, results: &Results, about: &About, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Format::Html => html::write(results, about, out),
            Format::Json => {
                serde_json::to_writer(&mut *out, results)?;
                out.write_all(b"\n")
            }
            Format::Csv => csv::write(results, out),
            Format::Summary => summary::write(results, out),
            #[cfg(feature = "parquet")]
            Format::Parquet => crate::parquet::write(results, out),
            Format::Png => out.write_all(&picture::race_picture(results, about).png()?),
            Format::Svg => out.write_all(picture::race_picture(results, about).svg().as_bytes()),
            Format::Qlog => qlog::write(results, about, out),
            Format::Sqlog => qlog::write_sequence(results, about, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;

    #[test]
    fn extension_selects_the_format() {
        assert_eq!(Format::from_path(Path::new("a/b.html")), Ok(Format::Html));
        assert_eq!(Format::from_path(Path::new("B.PNG")), Ok(Format::Png));
        assert_eq!(Format::from_path(Path::new("x.sqlog")), Ok(Format::Sqlog));
        for summary in
            ["summary.csv", "a/Summary.CSV", "loss.summary.csv", "loss-summary.csv", "loss_summary.csv"]
        {
            assert_eq!(Format::from_path(Path::new(summary)), Ok(Format::Summary), "{summary}");
        }
        for series in ["x.csv", "nosummary.csv", "summary.csv/x.csv"] {
            assert_eq!(Format::from_path(Path::new(series)), Ok(Format::Csv), "{series}");
        }
        let e = Format::from_path(Path::new("x.pdf")).unwrap_err().to_string();
        assert!(e.contains(".pdf") && e.contains(".html") && e.contains(".svg"), "{e}");
        let e = Format::from_path(Path::new("report")).unwrap_err().to_string();
        assert!(e.contains(".html"), "{e}");
    }

    #[test]
    fn json_reads_back_unchanged_and_is_deterministic() {
        let race = support::race(1.0);
        let write = || {
            let mut out = Vec::new();
            Format::Json.write(&race, &About::default(), &mut out).unwrap();
            out
        };
        let bytes = write();
        assert_eq!(bytes, write());
        let back: Results = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(back.without_series(), race.without_series());
    }
}
