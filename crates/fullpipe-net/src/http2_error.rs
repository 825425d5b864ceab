//! Why a connection of hyper ended.

use std::error::Error;
use std::io;

/// Whether the other end has closed the connection.
fn is_closed(error: &(dyn Error + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>().or_else(|| error.downcast_ref::<h2::Error>()?.get_io());
    matches!(
        io.map(io::Error::kind),
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof)
    )
}

/// The text with its causes, since hyper's own says only in which layer an error occurred. `None` if
/// the other end has closed the connection.
pub(crate) fn text(error: &hyper::Error) -> Option<String> {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        if is_closed(error) {
            return None;
        }
        text = format!("{text}: {error}");
        cause = error.source();
    }
    Some(text)
}
