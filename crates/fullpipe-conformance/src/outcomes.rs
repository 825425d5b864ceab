//! Outcome cases, for any controller: bounds on goodput, loss and queueing, which do not depend on
//! its states. The bounds are those of RFCs or of arithmetic on the path, and
//! hold for a controller that grows by one packet per round trip and halves its window on loss
//! (RFC 5681).

mod changes;
mod impaired;
mod measured;
mod steady;

use crate::Case;
use measured::ramp;

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
            assert!(case.bound.is_some_and(|text| text.contains("RFC ")), "{}", case.name);
        }
        assert!(CASES.iter().all(|case| case.bound.is_none()));
    }
}
