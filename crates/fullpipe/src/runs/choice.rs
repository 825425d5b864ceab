//! The choice of engines.

use fullpipe_run::Engine;

/// The values of --engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Choice {
    /// Simulated TCP in virtual time: fast and deterministic
    #[default]
    Sim,
    /// Kernel TCP over an emulated path in real time, without root
    Lab,
    /// Both engines
    Both,
}

impl Choice {
    /// The engines, in the order in which each case runs in them.
    pub fn engines(self) -> &'static [Engine] {
        match self {
            Choice::Sim => &[Engine::Sim],
            Choice::Lab => &[Engine::Lab],
            Choice::Both => &[Engine::Sim, Engine::Lab],
        }
    }
}
