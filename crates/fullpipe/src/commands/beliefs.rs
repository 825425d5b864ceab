//! Model state of the loaded eBPF controllers, for commands that show the host's connections.

use fullpipe_ebpf::sockets::{Socket, Survey};
use fullpipe_live::{ModelSource, PathModel};
use fullpipe_units::{Rate, Span};
use std::collections::HashMap;

/// Reads the state with a BPF iterator over the sockets: a controller that is a BPF program cannot
/// answer sock_diag itself.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Loaded when the first connection needs it; the reason if it cannot be loaded.
    survey: Option<Result<Survey, String>>,
}

impl Loaded {
    /// Loads the program now, for a process that is about to drop the privileges that loading
    /// needs.
    pub fn preloaded() -> Self {
        Loaded { survey: Some(Survey::load().map_err(|error| unknown(&error))) }
    }
}

impl ModelSource for Loaded {
    /// By the prefix of the names that the iterator selects.
    fn covers(&self, controller: &str) -> bool {
        controller.starts_with("fp")
    }

    fn models(&mut self) -> Result<HashMap<u64, PathModel>, String> {
        let survey = self.survey.get_or_insert_with(|| Survey::load().map_err(|error| unknown(&error)));
        let survey = survey.as_mut().map_err(|why| why.clone())?;
        let mut states = HashMap::new();
        survey
            .sample(|socket| states.extend(socket.cookie.map(|cookie| cookie.get()).zip(state_of(&socket))))
            .map_err(|error| unknown(&error))?;
        Ok(states)
    }
}

fn unknown(error: &dyn std::fmt::Display) -> String {
    format!("state of the controllers loaded by fullpipe: {error}")
}

/// As for the kernel's own BBR: an end that has never sent has no model yet.
fn state_of(socket: &Socket) -> Option<PathModel> {
    let bw = socket.bw.filter(|bw| *bw > 0)?;
    Some(PathModel {
        state: socket.state.map(str::to_owned),
        bw: Some(Rate::from_bytes_per_sec(bw)),
        min_rtt: socket.min_rtt_us.map(Span::from_micros),
        pacing_gain: socket.pacing_gain,
        cwnd_gain: socket.cwnd_gain,
        ..PathModel::default()
    })
}
