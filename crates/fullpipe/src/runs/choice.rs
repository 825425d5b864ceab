//! Which engines the user chose.

use fullpipe_run::Engine;

/// What the user may choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Choice {
    /// Simulated TCP in virtual time: quick, deterministic, nothing needed
    #[default]
    Sim,
    /// The running kernel's TCP over an emulated path, in real time; needs no root
    Lab,
    /// Each run in both
    Both,
}

impl Choice {
    /// The engines, in the order in which each case is run by them.
    pub fn engines(self) -> &'static [Engine] {
        match self {
            Choice::Sim => &[Engine::Sim],
            Choice::Lab => &[Engine::Lab],
            Choice::Both => &[Engine::Sim, Engine::Lab],
        }
    }
}
