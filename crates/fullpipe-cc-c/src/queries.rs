//! What a transport obeys and plots. Queries change nothing.

use crate::memory::{Connection, check_null, get, status, write};
use crate::types::*;
use ::fullpipe_cc::{CongestionControl, Gain, Rate, RecoveryState, Time};
use core::ffi::{CStr, c_char};

/// A query's answer, or `otherwise` without a controller.
///
/// # Safety
/// `cc` is a controller, by the interface.
unsafe fn ask<T>(cc: *const fullpipe_cc, otherwise: T, query: impl FnOnce(&Connection) -> T) -> T {
    // SAFETY: as the caller promises.
    match unsafe { get(cc) } {
        Ok(cc) => query(cc),
        Err(_) => otherwise,
    }
}

/// Most bytes that may be in flight. 0 if `cc` is not initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_window(cc: *const fullpipe_cc) -> u64 {
    // SAFETY: `cc` is a controller, by the interface.
    unsafe { ask(cc, 0, |cc| cc.control.window()) }
}

/// The pacing rate in bytes per second; FULLPIPE_CC_NONE if unpaced. 0 if `cc` is not initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_pacing_rate(cc: *const fullpipe_cc) -> u64 {
    let rate = |cc: &Connection| cc.control.pacing_rate().map_or(FULLPIPE_CC_NONE, |r| r.as_bytes_per_sec());
    // SAFETY: `cc` is a controller, by the interface.
    unsafe { ask(cc, 0, rate) }
}

/// Most bytes of one burst, before asking fullpipe_cc_ready once more; FULLPIPE_CC_NONE if unpaced. 0
/// if `cc` is not initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_send_quantum(cc: *const fullpipe_cc) -> u64 {
    // SAFETY: `cc` is a controller, by the interface.
    unsafe { ask(cc, 0, |cc| cc.control.send_quantum()) }
}

/// Whether the pacer allows a burst at `now`. False if `cc` is not initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_ready(cc: *const fullpipe_cc, now: u64) -> bool {
    // SAFETY: `cc` is a controller, by the interface.
    unsafe { ask(cc, false, |cc| cc.control.ready(Time::from_nanos(now))) }
}

/// The earliest departure time of the next burst. FULLPIPE_CC_NONE if `cc` is not initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_next_departure(cc: *const fullpipe_cc) -> u64 {
    // SAFETY: `cc` is a controller, by the interface.
    unsafe { ask(cc, FULLPIPE_CC_NONE, |cc| cc.control.next_departure().as_nanos()) }
}

/// Bytes delivered on this path so far. 0 if `cc` is not initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_delivered(cc: *const fullpipe_cc) -> u64 {
    // SAFETY: `cc` is a controller, by the interface.
    unsafe { ask(cc, 0, |cc| cc.control.delivered()) }
}

/// Bytes marked lost on this path so far. 0 if `cc` is not initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_lost(cc: *const fullpipe_cc) -> u64 {
    // SAFETY: `cc` is a controller, by the interface.
    unsafe { ask(cc, 0, |cc| cc.control.lost()) }
}

/// The loss-recovery state. FULLPIPE_CC_OPEN if `cc` is not initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_get_recovery(cc: *const fullpipe_cc) -> fullpipe_cc_recovery {
    let state = |cc: &Connection| match cc.control.recovery() {
        RecoveryState::Open | RecoveryState::Disorder => fullpipe_cc_recovery::FULLPIPE_CC_OPEN,
        RecoveryState::Recovery => fullpipe_cc_recovery::FULLPIPE_CC_RECOVERY,
        RecoveryState::Loss => fullpipe_cc_recovery::FULLPIPE_CC_LOSS,
    };
    // SAFETY: `cc` is a controller, by the interface.
    unsafe { ask(cc, fullpipe_cc_recovery::FULLPIPE_CC_OPEN, state) }
}

/// Whether packets may be sent as ECN-capable. False if `cc` is not initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_claims_ecn(cc: *const fullpipe_cc) -> bool {
    // SAFETY: `cc` is a controller, by the interface.
    unsafe { ask(cc, false, |cc| cc.control.controller().claims_ecn()) }
}

macro_rules! states {
    ($($state:literal)+) => {
        /// `state` with a NUL: Rust's static texts have none, and there is nothing to allocate with.
        fn terminated(state: &str) -> Option<&'static CStr> {
            const fn with_nul(text: &'static str) -> &'static CStr {
                match CStr::from_bytes_with_nul(text.as_bytes()) {
                    Ok(text) => text,
                    Err(_) => panic!("evaluated at compile time"),
                }
            }
            match state {
                $($state => Some(const { with_nul(concat!($state, "\0")) }),)+
                _ => None,
            }
        }
    };
}

// A test verifies that the sources of fullpipe-cc name no other.
states! {
    "Startup" "Drain" "ProbeBW" "ProbeRTT" "ProbeBW_DOWN" "ProbeBW_CRUISE" "ProbeBW_REFILL" "ProbeBW_UP"
    "SlowStart" "ConservativeSlowStart" "CongestionAvoidance" "Recovery" "Loss" "Fixed"
}

fn c_state(state: &str) -> *const c_char {
    terminated(state).unwrap_or(c"Unknown").as_ptr()
}

/// The state of the controller's state machine (`Startup`, `SlowStart`, …): static, NUL-terminated.
/// Empty if `cc` is not initialised; never null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_state(cc: *const fullpipe_cc) -> *const c_char {
    // SAFETY: `cc` is a controller, by the interface.
    unsafe { ask(cc, c"".as_ptr(), |cc| c_state(cc.control.controller().state())) }
}

/// Writes the controller's state for plots and logs to `snapshot`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_get_snapshot(
    cc: *const fullpipe_cc,
    snapshot: *mut fullpipe_cc_snapshot,
) -> fullpipe_cc_status {
    status(|| {
        check_null(snapshot)?;
        // SAFETY: `cc` is a controller, by the interface.
        let state = unsafe { get(cc) }?.control.controller().snapshot();
        let rate = |rate: Option<Rate>| rate.map_or(FULLPIPE_CC_NONE, |r| r.as_bytes_per_sec());
        let gain = |gain: Option<Gain>| gain.map_or(FULLPIPE_CC_NONE, |g| u64::from(g.as_256ths()));
        let number = |number: Option<u64>| number.unwrap_or(FULLPIPE_CC_NONE);
        let written = fullpipe_cc_snapshot {
            state: c_state(state.state),
            cwnd: state.cwnd,
            ssthresh: number(state.ssthresh),
            pacing_rate: rate(state.pacing_rate),
            bw: rate(state.bw),
            max_bw: rate(state.max_bw),
            bw_shortterm: rate(state.bw_shortterm),
            min_rtt: number(state.min_rtt.map(|span| span.as_nanos())),
            pacing_gain: gain(state.pacing_gain),
            cwnd_gain: gain(state.cwnd_gain),
            inflight_longterm: number(state.inflight_longterm),
            inflight_shortterm: number(state.inflight_shortterm),
            rounds: number(state.rounds),
        };
        // SAFETY: `snapshot` may be written, by the interface.
        unsafe { write(snapshot, written) }
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::path::Path;
    use std::{fs, vec};

    /// Texts in the sources that look like the name of a state after `=>` or as the value of a block.
    #[test]
    fn every_state_of_every_controller_has_a_terminated_name() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fullpipe-cc/src");
        let (mut folders, mut found) = (vec![sources], 0);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap();
                for word in code.split('"').skip(1).step_by(2) {
                    let is_name = word.len() > 3
                        && word.starts_with(|c: char| c.is_ascii_uppercase())
                        && word.chars().any(|c| c.is_ascii_lowercase())
                        && word.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
                    if is_name && !path.ends_with("registry.rs") {
                        assert!(super::terminated(word).is_some(), "{word} in {}", path.display());
                        found += 1;
                    }
                }
            }
        }
        assert!(found >= 14, "{found}");
    }
}
