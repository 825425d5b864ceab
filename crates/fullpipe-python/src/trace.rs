//! Analyses captures.

use crate::error::RunError;
use fullpipe_experiment::connection::{Connections, Point};
use fullpipe_trace::{Analyser, Options, TracedConnection, capture_facts, input};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A file whose reads check for Ctrl-C.
struct InterruptibleFile {
    file: File,
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl Read for InterruptibleFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match Python::attach(|py| py.check_signals()) {
            Ok(()) => self.file.read(out),
            Err(e) => {
                *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
                Err(io::Error::other("interrupted"))
            }
        }
    }
}

/// Analyses a capture. Returns the JSON of `fullpipe trace --json`, and the position and reason if
/// the file is damaged. `at`: where the capture was taken (default: detected). `controllers`:
/// identify the controller of each sender, which takes a second or more per connection.
#[pyfunction]
#[pyo3(signature = (path, at=None, controllers=false))]
pub fn trace(
    py: Python<'_>,
    path: PathBuf,
    at: Option<&str>,
    controllers: bool,
) -> PyResult<(String, Option<String>)> {
    let at = match at {
        None => None,
        Some("client") => Some(Point::Client),
        Some("server") => Some(Point::Server),
        Some("between") => Some(Point::Between),
        Some(other) => {
            let message = format!("at must be \"client\", \"server\" or \"between\", got \"{other}\"");
            return Err(PyValueError::new_err(message));
        }
    };
    let raised = Arc::new(Mutex::new(None));
    let source = InterruptibleFile { file: File::open(&path)?, raised: Arc::clone(&raised) };
    let (read, analysis) = py.detach(|| {
        let mut analyser = Analyser::new(Options { at, ..Options::default() });
        let read = input::read(&path.display().to_string(), source, |frame| analyser.add_frame(frame));
        (read, analyser.finish())
    });
    if let Some(e) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(e);
    }
    let outcome = read.map_err(|e| PyValueError::new_err(e.to_string()))?;
    let mut connections = analysis.connections;
    if controllers {
        for connection in &mut connections {
            py.check_signals()?;
            py.detach(|| TracedConnection::identify(connection));
        }
    }
    let records = connections.into_iter().map(|connection| connection.record).collect();
    let unlisted = analysis.packets.unlisted_connections;
    let name = path.display().to_string();
    let facts = capture_facts(&name, &outcome.counters, &analysis.packets, outcome.damage.as_ref());
    let document = Connections { unlisted, captures: vec![facts], ..Connections::new(records) };
    let json = serde_json::to_string(&document).map_err(|e| RunError::new_err(e.to_string()))?;
    Ok((json, outcome.damage.map(|damage| format!("at byte {}: {}", damage.offset, damage.reason))))
}
