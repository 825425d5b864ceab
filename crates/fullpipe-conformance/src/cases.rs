//! The draft's cases in the draft's order, with one file per state.

mod drain;
mod paths;
mod probe_down;
mod probe_rtt;
mod probe_up;
mod startup;
mod undo;

use crate::experiment::WRITE_BYTES;
use crate::{Case, TestPath};
use fullpipe_units::Rate;

/// All cases, in the order of the draft.
pub static CASES: &[Case] = &[
    startup::PLATEAU,
    startup::LOSS_WHEN_APP_LIMITED,
    drain::INFLIGHT,
    drain::TIME,
    probe_up::PLATEAU,
    probe_up::LOSS_WHEN_APP_LIMITED,
    probe_up::NEVER_WHEN_APP_LIMITED,
    probe_down::INFLIGHT,
    probe_down::MAX_TIME,
    probe_rtt::ENTER_AND_EXIT,
    probe_rtt::SKIP_WHEN_IDLE,
    paths::STARTUP_WITH_AGGREGATION,
    paths::CRUISE_WITH_AGGREGATION,
    paths::SUB_PACKET_BDP,
    paths::TENFOLD_UP,
    paths::TENFOLD_DOWN,
    paths::POLICER,
    undo::FAST_RECOVERY,
    undo::RTO,
    probe_rtt::DURING_STARTUP,
    probe_up::LOSS_AFTER_LONGTERM_BOUND,
    probe_up::APP_LIMITED_REFILL,
];

/// `share` percent of the link's rate.
fn percent(path: &TestPath, share: u64) -> Rate {
    Rate::from_bits_per_sec(path.rate.as_bits_per_sec() / 100 * share)
}

/// An application that sends at a share of the link's rate, headers included.
fn app_at(path: &TestPath, share: f64) -> String {
    format!(
        "{{ kind = \"rate\", rate = \"{}bit\", chunk = \"{WRITE_BYTES}\" }}",
        (path.rate.as_bits_per_sec_f64() * share * WRITE_BYTES as f64 / 1500.0).max(1.0) as u64
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_from_its_heading_three_paths_and_valid_scenarios() {
        for case in CASES {
            let name: String = case
                .heading
                .to_lowercase()
                .chars()
                .filter(|c| !"()".contains(*c))
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
                .collect();
            assert_eq!(case.name, name.replace('_', "-"), "{}", case.heading);
            let paths = case.paths();
            assert!(paths.len() >= 3 && paths.len() == case.path_texts.len(), "{}", case.name);
            for path in &paths {
                case.runs(path, "bbr3", &[]).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            }
        }
    }
}
