//! Files as users have them: captures (pcap and pcapng) as a stream of frames, and logs (qlog); plain
//! or compressed, from files and pipes.

mod compression;
mod file;

pub use file::{Counters, Frame, Outcome, read};

use crate::error::TraceError;
use crate::qlog::{self, Source};
use std::io::{Cursor, Read};

/// Bytes by which a log is recognised; spaces may precede it.
const HEAD_BYTES: u64 = 64;

/// A decompressed file by its kind.
pub enum Input<'a> {
    /// A capture, or what is to be refused as one: for [`read`].
    Capture(Source<'a>),
    /// A log: for [`qlog::read`].
    Log(Source<'a>),
}

/// Recognises the kind of a file by its content. `name` is the name in errors.
///
/// # Errors
/// The source cannot be read.
pub fn recognise<'a>(name: &str, source: impl Read + Send + 'a) -> Result<Input<'a>, TraceError> {
    let failed = |source| TraceError::Read { name: name.to_owned(), source };
    let mut source = compression::decompress(source).map_err(failed)?;
    let mut head = Vec::new();
    // A source that fails within these bytes fails again for its reader.
    let _ = source.by_ref().take(HEAD_BYTES).read_to_end(&mut head);
    let is_log = qlog::is_log(&head);
    let whole: Source<'a> = Box::new(Cursor::new(head).chain(source));
    Ok(if is_log { Input::Log(whole) } else { Input::Capture(whole) })
}
