//! Text for stdout.

use crate::failure::Failure;
use std::io::{self, ErrorKind, Write};

/// Prints `text` on stdout. That nobody reads it to its end (`| head`) is no error.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::usage(format!("cannot print: {e}"))),
        _ => Ok(()),
    }
}
