//! State that a transport may not have: round-trip time, recovery by packet number, and whether the
//! window limited sending. A new path gets new ones.

use crate::memory::{Storage, check_null, get, get_mut, put, status, write};
use crate::types::*;
use ::fullpipe_cc::{RecoveryEpisode, RttEstimator, Span, WindowLimited};

/// Changes an object.
///
/// # Safety
/// `object` is an object of its type, by the interface.
unsafe fn change<S: Storage>(object: *mut S, change: impl FnOnce(&mut S::Value)) -> fullpipe_cc_status {
    status(|| {
        // SAFETY: as the caller promises.
        change(unsafe { get_mut(object) }?);
        Ok(())
    })
}

/// A value of an estimator, FULLPIPE_CC_NONE without one.
///
/// # Safety
/// `rtt` is an estimator, by the interface.
unsafe fn estimate(rtt: *const fullpipe_cc_rtt, value: impl FnOnce(&RttEstimator) -> Option<Span>) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { get(rtt) }.ok().and_then(value).map_or(FULLPIPE_CC_NONE, Span::as_nanos)
}

/// Initialises an estimator without samples.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_rtt_init(rtt: *mut fullpipe_cc_rtt) -> fullpipe_cc_status {
    // SAFETY: `rtt` is memory for an estimator, by the interface.
    status(|| unsafe { put(rtt, RttEstimator::new()) })
}

/// The newest packet that an ACK newly acknowledges was sent `latest` ago; the peer reports to have
/// delayed the ACK by `ack_delay`, 0 if unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_rtt_on_sample(
    rtt: *mut fullpipe_cc_rtt,
    latest: u64,
    ack_delay: u64,
) -> fullpipe_cc_status {
    let (latest, ack_delay) = (Span::from_nanos(latest), Span::from_nanos(ack_delay));
    // SAFETY: `rtt` is an estimator, by the interface.
    unsafe { change(rtt, |rtt| rtt.on_sample(latest, ack_delay)) }
}

/// Persistent congestion: the minimum restarts at the latest sample.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_rtt_on_persistent_congestion(
    rtt: *mut fullpipe_cc_rtt,
) -> fullpipe_cc_status {
    // SAFETY: `rtt` is an estimator, by the interface.
    unsafe { change(rtt, RttEstimator::on_persistent_congestion) }
}

/// The latest sample; FULLPIPE_CC_NONE before the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_rtt_latest(rtt: *const fullpipe_cc_rtt) -> u64 {
    // SAFETY: `rtt` is an estimator, by the interface.
    unsafe { estimate(rtt, RttEstimator::latest) }
}

/// The smoothed round-trip time; FULLPIPE_CC_NONE before the first sample.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_rtt_smoothed(rtt: *const fullpipe_cc_rtt) -> u64 {
    // SAFETY: `rtt` is an estimator, by the interface.
    unsafe { estimate(rtt, RttEstimator::smoothed) }
}

/// The mean deviation; FULLPIPE_CC_NONE before the first sample.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_rtt_variation(rtt: *const fullpipe_cc_rtt) -> u64 {
    // SAFETY: `rtt` is an estimator, by the interface.
    unsafe { estimate(rtt, RttEstimator::variation) }
}

/// The minimum; FULLPIPE_CC_NONE before the first sample.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_rtt_min(rtt: *const fullpipe_cc_rtt) -> u64 {
    // SAFETY: `rtt` is an estimator, by the interface.
    unsafe { estimate(rtt, RttEstimator::min) }
}

/// The probe timeout without the peer's largest ACK delay (RFC 9002 section 6.2.1); FULLPIPE_CC_NONE
/// before the first sample.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_rtt_probe_timeout(rtt: *const fullpipe_cc_rtt) -> u64 {
    // SAFETY: `rtt` is an estimator, by the interface.
    unsafe { estimate(rtt, RttEstimator::probe_timeout) }
}

/// Initialises an episode: no recovery is in progress. Also after spurious losses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_episode_init(episode: *mut fullpipe_cc_episode) -> fullpipe_cc_status {
    // SAFETY: `episode` is memory for an episode, by the interface.
    status(|| unsafe { put(episode, RecoveryEpisode::new()) })
}

/// Packet `number` is acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_episode_on_acked(
    episode: *mut fullpipe_cc_episode,
    number: u64,
) -> fullpipe_cc_status {
    // SAFETY: `episode` is an episode, by the interface.
    unsafe { change(episode, |episode| episode.on_acked(number)) }
}

/// Packet `number` is lost; the next packet to be sent has number `next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_episode_on_lost(
    episode: *mut fullpipe_cc_episode,
    number: u64,
    next: u64,
) -> fullpipe_cc_status {
    // SAFETY: `episode` is an episode, by the interface.
    unsafe { change(episode, |episode| episode.on_lost(number, next)) }
}

/// Once for each event, after its acknowledged and lost packets: what changes. `oldest` is the number
/// of the oldest packet in flight, FULLPIPE_CC_NONE if unknown or none is; `next` is the number of the
/// next packet to be sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_episode_update(
    episode: *mut fullpipe_cc_episode,
    oldest: u64,
    next: u64,
    change: *mut fullpipe_cc_episode_change,
) -> fullpipe_cc_status {
    status(|| {
        check_null(change)?;
        // SAFETY: `episode` is an episode, by the interface.
        let episode = unsafe { get_mut(episode) }?;
        let changed = episode.update((oldest != FULLPIPE_CC_NONE).then_some(oldest), next);
        let changed = fullpipe_cc_episode_change {
            exit_recovery: u8::from(changed.exit),
            enter_recovery: u8::from(changed.enter),
        };
        // SAFETY: `change` may be written, by the interface.
        unsafe { write(change, changed) }
    })
}

/// Persistent congestion or a retransmission timeout: everything sent so far, below `next`, is one
/// episode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_episode_restart(
    episode: *mut fullpipe_cc_episode,
    next: u64,
) -> fullpipe_cc_status {
    // SAFETY: `episode` is an episode, by the interface.
    unsafe { change(episode, |episode| episode.restart(next)) }
}

/// Whether an episode is in progress. False if `episode` is not initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_episode_is_active(episode: *const fullpipe_cc_episode) -> bool {
    // SAFETY: `episode` is an episode, by the interface.
    unsafe { get(episode) }.is_ok_and(RecoveryEpisode::is_active)
}

/// Initialises it: not limited so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_window_limited_init(
    limited: *mut fullpipe_cc_window_limited,
) -> fullpipe_cc_status {
    // SAFETY: `limited` is memory for it, by the interface.
    status(|| unsafe { put(limited, WindowLimited::new()) })
}

/// The window keeps the transport from sending, with `delivered` bytes delivered so far
/// (fullpipe_cc_delivered) and `inflight` in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_window_limited_on_limited(
    limited: *mut fullpipe_cc_window_limited,
    delivered: u64,
    inflight: u64,
) -> fullpipe_cc_status {
    // SAFETY: `limited` is initialised, by the interface.
    unsafe { change(limited, |limited| limited.on_limited(delivered, inflight)) }
}

/// Whether an ACK that raises the delivered count to `delivered` belongs to a limited round: the value
/// of `cwnd_limited`. False if `limited` is not initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullpipe_cc_window_limited_is_limited(
    limited: *const fullpipe_cc_window_limited,
    delivered: u64,
) -> bool {
    // SAFETY: `limited` is initialised, by the interface.
    unsafe { get(limited) }.is_ok_and(|limited| limited.is_limited(delivered))
}
