//! Captures.

use crate::error::RunError;
use fullpipe_experiment::connection::{Connections, Point};
use fullpipe_trace::{Analyser, Options, TracedConnection, input};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A file whose reader hears Ctrl-C.
struct Heard {
    file: File,
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl Read for Heard {
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

/// Reads a capture: the connections as JSON, as `fullpipe trace --json` prints them, and where the file is damaged and how, if
/// it is. `at`: where it was taken, if that is not to be concluded. With `controllers` each sender's is concluded, which takes
/// a second or more for each.
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
            let told = format!("at=\"{other}\": it is \"client\", \"server\" or \"between\"");
            return Err(PyValueError::new_err(told));
        }
    };
    let raised = Arc::new(Mutex::new(None));
    let source = Heard { file: File::open(&path)?, raised: Arc::clone(&raised) };
    let (read, mut connections) = py.detach(|| {
        let mut analyser = Analyser::new(Options { at, ..Options::default() });
        let read = input::read(&path.display().to_string(), source, |frame| analyser.add_frame(frame));
        (read, analyser.finish().connections)
    });
    if let Some(e) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(e);
    }
    let outcome = read.map_err(|e| PyValueError::new_err(e.to_string()))?;
    if controllers {
        for connection in &mut connections {
            py.check_signals()?;
            py.detach(|| TracedConnection::identify(connection));
        }
    }
    let records = connections.into_iter().map(|connection| connection.record).collect();
    let json =
        serde_json::to_string(&Connections::new(records)).map_err(|e| RunError::new_err(e.to_string()))?;
    Ok((json, outcome.damage.map(|damage| format!("at byte {}: {}", damage.offset, damage.reason))))
}
