//! Fast recovery by packet numbers, for transports that report losses but not recovery.

/// Finds where fast recovery begins and ends from packet numbers.
///
/// An episode begins with the first loss; its point is the number of the next packet then. It ends
/// when every packet below the point is acknowledged or lost, and a packet sent after the last of
/// their losses was noticed is acknowledged: about where a TCP with selective acknowledgements ends
/// it. Losses of packets from the point on begin the next episode, after the current one.
///
/// RFC 9002 §7.3.2 ends recovery a round trip earlier, at the first packet sent after it began: with
/// a few percent of loss, BBR v1 then conserves packets all the time (see
/// [`Recovery::Exit`](crate::Recovery::Exit)).
///
/// Numbers increase with each packet sent. They may be those of one packet number space, if the
/// others carry little, or [`Stamp::id`](crate::Stamp::id) for transports that report no numbers.
///
/// ```
/// use fullpipe_cc::RecoveryEpisode;
///
/// let mut episode = RecoveryEpisode::new();
/// // Packets 0 to 9 are sent; 3 is lost, 7 acknowledged.
/// episode.on_acked(7);
/// episode.on_lost(3, 10);
/// assert!(episode.update(Some(8), 10).enter); // call `enter_recovery`
/// // 10 is the retransmission.
/// episode.on_acked(10);
/// assert!(episode.update(None, 11).exit); // call `exit_recovery`
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryEpisode {
    active: Option<Active>,
    /// A packet was lost that belongs to no episode yet.
    pending: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Active {
    point: u64,
    /// Packets from this number on were sent after the last loss.
    sent_after: u64,
    /// One of them was acknowledged.
    repaired: bool,
}

/// What an event changes: see [`RecoveryEpisode::update`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct EpisodeChange {
    /// The episode ends: call [`exit_recovery`](crate::SendController::exit_recovery).
    pub exit: bool,
    /// An episode begins, after the end of the previous one if both: call
    /// [`enter_recovery`](crate::SendController::enter_recovery), or
    /// [`enter_recovery_on_timer`](crate::SendController::enter_recovery_on_timer).
    pub enter: bool,
}

impl RecoveryEpisode {
    /// No episode.
    pub const fn new() -> Self {
        RecoveryEpisode { active: None, pending: false }
    }

    /// Whether an episode is in progress.
    pub fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// Packet `number` is acknowledged.
    #[inline]
    pub fn on_acked(&mut self, number: u64) {
        if let Some(active) = &mut self.active {
            active.repaired |= number >= active.sent_after;
        }
    }

    /// Packet `number` is lost; the next packet to be sent has number `next`.
    pub fn on_lost(&mut self, number: u64, next: u64) {
        match &mut self.active {
            Some(active) if number < active.point => {
                active.sent_after = next;
                active.repaired = false;
            }
            _ => self.pending = true,
        }
    }

    /// Call once for each event, after its acknowledged and lost packets. `oldest` is the number of
    /// the oldest packet in flight, if that is known and there is one; `next` is the number of the
    /// next packet to be sent.
    pub fn update(&mut self, oldest: Option<u64>, next: u64) -> EpisodeChange {
        let ends = |active: Active| active.repaired && oldest.is_none_or(|oldest| oldest >= active.point);
        let exit = self.active.is_some_and(ends);
        if exit {
            self.active = None;
        }
        let enter = self.pending && self.active.is_none();
        if enter {
            self.restart(next);
        }
        EpisodeChange { exit, enter }
    }

    /// Persistent congestion or a retransmission timeout: everything sent so far, below `next`, is
    /// one episode. Call
    /// [`on_persistent_congestion`](crate::SendController::on_persistent_congestion), too.
    pub fn restart(&mut self, next: u64) {
        self.active = Some(Active { point: next, sent_after: next, repaired: false });
        self.pending = false;
    }

    /// The losses were spurious, or the path changed: no episode is in progress.
    pub fn clear(&mut self) {
        *self = RecoveryEpisode::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: EpisodeChange = EpisodeChange { exit: false, enter: false };
    const ENTER: EpisodeChange = EpisodeChange { exit: false, enter: true };
    const EXIT: EpisodeChange = EpisodeChange { exit: true, enter: false };

    #[test]
    fn episode_waits_for_everything_below_its_point() {
        let mut e = RecoveryEpisode::new();
        assert_eq!(e.update(Some(0), 10), NONE);
        e.on_lost(0, 10);
        assert_eq!(e.update(Some(1), 10), ENTER);
        assert!(e.is_active());
        // The retransmission arrives before the rest of the old flight.
        e.on_acked(10);
        assert_eq!(e.update(Some(5), 12), NONE);
        assert_eq!(e.update(Some(11), 12), EXIT);
        assert!(!e.is_active());
    }

    #[test]
    fn every_loss_below_the_point_prolongs_the_episode() {
        let mut e = RecoveryEpisode::new();
        e.on_lost(0, 10);
        assert_eq!(e.update(Some(1), 10), ENTER);
        e.on_acked(10);
        e.on_lost(8, 14);
        assert_eq!(e.update(Some(11), 14), NONE, "nothing sent since the loss of 8 has arrived");
        e.on_acked(13);
        assert_eq!(e.update(Some(14), 15), NONE);
        e.on_acked(14);
        assert_eq!(e.update(None, 15), EXIT);
    }

    #[test]
    fn later_losses_begin_the_next_episode() {
        let mut e = RecoveryEpisode::new();
        e.on_lost(0, 10);
        assert_eq!(e.update(Some(1), 10), ENTER);
        e.on_lost(11, 20);
        assert_eq!(e.update(Some(5), 20), NONE, "no second reduction in an episode");
        e.on_acked(12);
        assert_eq!(e.update(Some(13), 21), EpisodeChange { exit: true, enter: true });
        e.on_acked(20);
        assert_eq!(e.update(Some(20), 22), NONE, "the point is 21");
        e.on_acked(21);
        assert_eq!(e.update(Some(22), 23), EXIT);
    }

    #[test]
    fn persistent_congestion_is_one_episode_of_everything_outstanding() {
        let mut e = RecoveryEpisode::new();
        e.on_lost(3, 10);
        e.restart(12);
        assert_eq!(e.update(Some(12), 12), NONE);
        e.on_acked(12);
        assert_eq!(e.update(None, 13), EXIT);
        e.restart(20);
        e.clear();
        assert_eq!((e.is_active(), e.update(None, 20)), (false, NONE));
    }

    #[test]
    fn without_a_list_of_the_flight_a_later_packet_ends_it() {
        let mut e = RecoveryEpisode::new();
        e.on_lost(0, 10);
        assert_eq!(e.update(None, 10), ENTER);
        e.on_acked(9);
        assert_eq!(e.update(None, 12), NONE);
        e.on_acked(10);
        assert_eq!(e.update(None, 12), EXIT);
    }
}
