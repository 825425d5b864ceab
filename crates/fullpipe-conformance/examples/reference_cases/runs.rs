//! Which cases run on which paths, and their recordings.

use fullpipe_conformance::{CASES, Case, Judgement, TestPath};
use fullpipe_experiment::Recording;
use fullpipe_units::{Rate, Span};
use std::ops::ControlFlow;

/// The variants of `bbr3`; the first is the reference.
pub const VARIANTS: [&str; 2] = ["draft", "linux"];

const RTTS_MS: [u64; 4] = [1, 5, 20, 100];
const RATES_MBIT: [u64; 4] = [10, 100, 1000, 10_000];

/// BBR's minimum window. Where less fits into the path, the window is always larger than the model.
const MIN_WINDOW_PACKETS: f64 = 4.0;

/// The fastest link that is simulated.
const MAX_RATE_MBIT: u64 = 10_000;

/// A case on a path.
#[derive(Clone, Copy)]
pub struct Place {
    pub case: &'static Case,
    pub path: TestPath,
}

/// Every case on every path of the reference series, the fastest paths first: they take longest.
pub fn places() -> Vec<Place> {
    let rates = RATES_MBIT.iter().rev();
    let paths = rates.flat_map(|rate| RTTS_MS.iter().map(|rtt| test_path(*rate, *rtt)));
    paths.flat_map(|path| CASES.iter().map(move |case| Place { case, path })).collect()
}

/// A path of so many Mbit/s and ms.
pub fn test_path(rate_mbit: u64, rtt_ms: u64) -> TestPath {
    TestPath { rate: Rate::from_bits_per_sec(rate_mbit * 1_000_000), rtt: Span::from_millis(rtt_ms) }
}

impl Place {
    /// Why the case is left out on this path, if it is.
    pub fn left_out(&self) -> Option<&'static str> {
        let bdp_packets = self.path.rate.bytes_in(self.path.rtt) as f64 / 1500.0;
        match self.case.name {
            "correctly-managing-sub-packet-bdps" if bdp_packets >= 1.0 => Some("the BDP is a packet or more"),
            "correctly-managing-sub-packet-bdps" => None,
            _ if bdp_packets < MIN_WINDOW_PACKETS => {
                Some("the BDP is below the minimum window of four packets")
            }
            "increasing-bandwidth-10x-and-ensuring-full-bandwidth-is-reached"
                if self.path.rate.as_bits_per_sec() >= MAX_RATE_MBIT * 1_000_000 =>
            {
                Some("ten times the rate is more than 10 Gbit/s")
            }
            _ => None,
        }
    }

    /// Simulates the case with a variant of `bbr3`, and judges it.
    pub fn simulate(self, variant: &'static str) -> Result<Reference, String> {
        let Place { case, path } = self;
        let runs = case.runs(&path, "bbr3", &[("variant", variant)])?;
        let run = |run| fullpipe_run::run(run, &mut |_| ControlFlow::Continue(())).map_err(|e| e.to_string());
        let recordings: Vec<Result<Recording, String>> = runs.iter().map(run).collect();
        let found = case.judge(&path, &runs, &recordings);
        let recordings = recordings.into_iter().collect::<Result<_, _>>()?;
        Ok(Reference { place: self, variant, recordings, found })
    }
}

/// A case that was run on a path with one variant.
pub struct Reference {
    pub place: Place,
    pub variant: &'static str,
    /// One for each run of the case.
    pub recordings: Vec<Recording>,
    /// What the case's judge finds.
    pub found: Judgement,
}

impl Reference {
    /// The path as in the names of files: `20ms-100mbit`.
    pub fn path_name(&self) -> String {
        format!("{}-{}", self.place.path.rtt, self.place.path.rate)
    }
}
