//! Cases for any controller, whatever its algorithm: what a flow carries, loses and queues, and not
//! which states it passes through. The bounds are those of RFCs or of arithmetic on the path, and
//! hold for a controller that grows by one packet per round trip and halves its window on loss
//! (RFC 5681).

mod changes;
mod impaired;
mod measured;
mod steady;

use crate::Case;
use measured::{Measured, ramp};

/// All outcome cases.
pub static OUTCOMES: &[Case] = &[
    steady::FILLS_THE_LINK,
    steady::DRAINS_ITS_QUEUE,
    steady::BOUNDS_ITS_LOSSES,
    impaired::RANDOM_LOSS,
    impaired::JITTER,
    impaired::AGGREGATION,
    changes::TENFOLD_UP,
    changes::TENFOLD_DOWN,
    changes::APP_LIMITED,
    changes::BLACKOUT,
    steady::FAIR_WITH_ITSELF,
];

/// What each case asks for, and where the bound comes from; in the order of [`OUTCOMES`].
const BOUNDS: [&str; 11] = [
    steady::FILLS_THE_LINK_BOUND,
    steady::DRAINS_ITS_QUEUE_BOUND,
    steady::BOUNDS_ITS_LOSSES_BOUND,
    impaired::RANDOM_LOSS_BOUND,
    impaired::JITTER_BOUND,
    impaired::AGGREGATION_BOUND,
    changes::TENFOLD_UP_BOUND,
    changes::TENFOLD_DOWN_BOUND,
    changes::APP_LIMITED_BOUND,
    changes::BLACKOUT_BOUND,
    steady::FAIR_WITH_ITSELF_BOUND,
];

/// What an outcome case asks for, and where its bound comes from; `None` for a case of the draft.
pub fn bound(case: &Case) -> Option<&'static str> {
    OUTCOMES.iter().zip(BOUNDS).find(|(outcome, _)| outcome.name == case.name).map(|(_, bound)| bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CASES;

    #[test]
    fn every_case_has_a_name_from_its_heading_two_paths_a_bound_with_its_source_and_valid_scenarios() {
        for case in OUTCOMES {
            assert_eq!(case.name, case.heading.to_lowercase().replace(' ', "-"));
            let paths = case.paths();
            assert!(paths.len() >= 2 && paths.len() == case.path_texts.len(), "{}", case.name);
            for path in &paths {
                case.runs(path, "cubic", &[]).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            }
            assert!(bound(case).is_some_and(|text| text.contains("RFC ")), "{}", case.name);
        }
        assert!(CASES.iter().all(|case| bound(case).is_none()));
    }
}
