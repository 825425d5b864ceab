//! The draft's cases in the draft's order; the files are by the state they are about.

mod drain;
mod paths;
mod probe_down;
mod probe_rtt;
mod probe_up;
mod startup;
mod undo;

use crate::{Case, Setting};

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

/// A scenario: `seconds` long, rows every `step` seconds; the rest as written.
fn scenario(
    setting: &Setting,
    seconds: f64,
    step: f64,
    buffer: &str,
    link: &str,
    flow: &str,
    rest: &str,
) -> String {
    scenario_with_return(setting, seconds, step, buffer, link, "", flow, rest)
}

/// The same with more to say of the way back.
#[allow(clippy::too_many_arguments, reason = "the parts of a file, in their order")]
fn scenario_with_return(
    setting: &Setting,
    seconds: f64,
    step: f64,
    buffer: &str,
    link: &str,
    back: &str,
    flow: &str,
    rest: &str,
) -> String {
    let (rate, half) = (setting.rate, setting.rtt / 2);
    format!(
        "duration = \"{seconds:.6}s\"\nsample = \"{step:.9}s\"\n\
         [[path.forward]]\nrate = \"{rate}\"\ndelay = \"{half}\"\nqueue = \"{buffer}\"\n{link}\n\
         [[path.reverse]]\ndelay = \"{half}\"\n{back}\n\
         [[flow]]\ncc = \"{{cc}}\"\n{flow}\n{rest}\n"
    )
}

/// Full packets that a round trip carries.
fn packets(setting: &Setting) -> f64 {
    setting.rate.bytes_in(setting.rtt) as f64 / 1500.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_its_heading_s_name_and_three_paths_or_more_and_reads() {
        for case in CASES {
            let name: String = case
                .heading
                .to_lowercase()
                .chars()
                .filter(|c| !"()".contains(*c))
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
                .collect();
            assert_eq!(case.name, name.replace('_', "-"), "{}", case.heading);
            let settings = case.settings();
            assert!(settings.len() >= 3 && settings.len() == case.paths.len(), "{}", case.name);
            for setting in &settings {
                case.scenarios(setting, "bbr3", &[]).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            }
        }
    }
}
