//! The state of an interrupted download, so that it is resumed only with the same version.

use crate::http::ResponseHead;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Maximum size of a note.
const MAX_NOTE: u64 = 64 * 1024;

/// Stored beside an incomplete download.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Note {
    /// Source URL.
    pub url: String,
    /// Version validator for `If-Range`: an entity tag or a date.
    #[serde(default)]
    pub validator: Option<String>,
    /// Size of the complete file, if known.
    #[serde(default)]
    pub complete: Option<u64>,
}

impl Note {
    pub fn new(url: &str, answer: &ResponseHead, complete: Option<u64>) -> Note {
        Note { url: url.to_owned(), validator: validator(answer), complete }
    }

    /// `None` if there is no valid note.
    pub fn read(path: &Path) -> Option<Note> {
        let file = super::sink::open_regular(path, false).ok()?;
        let mut text = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, MAX_NOTE), &mut text).ok()?;
        let note: Note = serde_json::from_slice(&text).ok()?;
        // The validator is sent in a request head.
        let harmless = |text: &String| text.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
        note.validator.as_ref().is_none_or(harmless).then_some(note)
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        File::options().write(true).create_new(true).open(path)?.write_all(&text)
    }
}

/// A validator for `If-Range`: a strong entity tag, or a date that is strong because the response
/// is at least a second younger (RFC 9110 sections 8.8.2.2 and 13.1.5).
fn validator(answer: &ResponseHead) -> Option<String> {
    let printable = |text: &&str| text.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    if let Some(tag) = answer.field("etag").filter(printable).filter(|tag| tag.starts_with('"')) {
        return Some(tag.to_owned());
    }
    let modified = answer.field("last-modified").filter(printable)?;
    let at = httpdate::parse_http_date(modified).ok()?;
    let said = httpdate::parse_http_date(answer.field("date")?).ok()?;
    (said.duration_since(at).ok()? >= Duration::from_secs(1)).then(|| modified.to_owned())
}

/// The condition for resuming a file of which only the time is known: unchanged since then.
pub(super) fn unmodified_since(time: SystemTime) -> String {
    // The format cannot express dates before 1970.
    format!("If-Unmodified-Since: {}\r\n", httpdate::fmt_http_date(time.max(SystemTime::UNIX_EPOCH)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validator_of(fields: &str) -> Option<String> {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        validator(&ResponseHead::parse(text.as_bytes()).unwrap().unwrap().0)
    }

    #[test]
    fn only_strong_validators_are_kept() {
        assert_eq!(validator_of("ETag: \"a\"\r\n").as_deref(), Some("\"a\""));
        assert_eq!(validator_of("ETag: W/\"a\"\r\n"), None);
        assert_eq!(validator_of("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), None, "unknown age");
        let dates = |said| {
            validator_of(&format!(
                "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nDate: Sun, 06 Nov 1994 08:49:{said} GMT\r\n"
            ))
        };
        assert_eq!(dates(37), None, "may change within the same second");
        assert_eq!(dates(38).as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    }
}
