//! What is known of a download that broke off, so that it goes on only while the server still has the same.

use crate::http::ResponseHead;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The largest note that is read.
const MAX_NOTE: u64 = 64 * 1024;

/// Kept beside a download that is not whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Note {
    /// From where it comes.
    pub url: String,
    /// What tells this version from others: an entity tag or a date, as `If-Range` takes them.
    #[serde(default)]
    pub validator: Option<String>,
    /// Bytes of the whole, if the server said.
    #[serde(default)]
    pub complete: Option<u64>,
}

impl Note {
    pub fn of(url: &str, answer: &ResponseHead, complete: Option<u64>) -> Note {
        Note { url: url.to_owned(), validator: validator(answer), complete }
    }

    /// `None` when there is none, or none that can be understood.
    pub fn read(path: &Path) -> Option<Note> {
        let file = super::sink::open_regular(path, false).ok()?;
        let mut text = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, MAX_NOTE), &mut text).ok()?;
        let note: Note = serde_json::from_slice(&text).ok()?;
        // It goes into a request's head.
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

/// What may stand in `If-Range` for this answer: a strong entity tag, or a date that is strong because the
/// answer is at least a second younger (RFC 9110 sections 8.8.2.2 and 13.1.5).
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

/// The condition for going on with a file of which only its time is known: its bytes are those of a version
/// that has not changed since.
pub(super) fn unmodified_since(time: SystemTime) -> String {
    // Before 1970 no server had anything; the format knows no such dates.
    format!("If-Unmodified-Since: {}\r\n", httpdate::fmt_http_date(time.max(SystemTime::UNIX_EPOCH)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &str) -> Option<String> {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        validator(&ResponseHead::parse(text.as_bytes()).unwrap().unwrap().0)
    }

    #[test]
    fn only_strong_validators_are_kept() {
        assert_eq!(of("ETag: \"a\"\r\n").as_deref(), Some("\"a\""));
        assert_eq!(of("ETag: W/\"a\"\r\n"), None);
        assert_eq!(of("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), None, "how old is not known");
        let dates = |said| {
            of(&format!(
                "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nDate: Sun, 06 Nov 1994 08:49:{said} GMT\r\n"
            ))
        };
        assert_eq!(dates(37), None, "it may change within this second");
        assert_eq!(dates(38).as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    }
}
