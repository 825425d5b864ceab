//! What controllers of ours believe, for whoever looks at the host's connections.

use fullpipe_ebpf::sockets::{Socket, Survey};
use fullpipe_live::{BeliefSource, Beliefs};
use fullpipe_units::{Rate, Span};
use std::collections::HashMap;

/// Asks the kernel by a program that walks its sockets: programs that are controllers cannot answer sock_diag
/// themselves.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Loaded when the first connection asks for it; the reason where it could not be.
    survey: Option<Result<Survey, String>>,
}

impl Loaded {
    /// Loads the program now, for a process that is about to give up what loading takes.
    pub fn at_once() -> Self {
        Loaded { survey: Some(Survey::load().map_err(|error| unknown(&error))) }
    }
}

impl BeliefSource for Loaded {
    /// By the names that the program looks for.
    fn knows(&self, controller: &str) -> bool {
        controller.starts_with("fp")
    }

    fn beliefs(&mut self) -> Result<HashMap<u64, Beliefs>, String> {
        let survey = self.survey.get_or_insert_with(|| Survey::load().map_err(|error| unknown(&error)));
        let survey = survey.as_mut().map_err(|why| why.clone())?;
        let mut told = HashMap::new();
        survey
            .sample(|socket| told.extend(socket.cookie.map(|cookie| cookie.get()).zip(of(&socket))))
            .map_err(|error| unknown(&error))?;
        Ok(told)
    }
}

fn unknown(error: &dyn std::fmt::Display) -> String {
    format!("what controllers loaded by fullpipe believe: {error}")
}

/// As of the kernel's own BBR: an end that has never sent has no model yet.
fn of(socket: &Socket) -> Option<Beliefs> {
    let bw = socket.bw.filter(|bw| *bw > 0)?;
    Some(Beliefs {
        state: socket.state.map(str::to_owned),
        bw: Some(Rate::from_bytes_per_sec(bw)),
        min_rtt: socket.min_rtt_us.map(Span::from_micros),
        pacing_gain: socket.pacing_gain,
        cwnd_gain: socket.cwnd_gain,
    })
}
