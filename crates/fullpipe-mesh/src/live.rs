//! Changes as they happen: a detector that follows the records of a running node.
//!
//! To look for changes in a day of 64 sites takes minutes, so it is not done for each page. At the
//! start of a node the last hours are read, period by period; then each period once, as soon as its
//! records should have arrived. Records that arrive later are in the plots of a report, but are not
//! looked at.

use crate::analysis::{Detector, Period, period_ms};
use crate::file::Mesh;
use crate::node::delivery_delay;
use crate::record::{History, SiteId, places};
use crate::report::DetectedChanges;
use crate::store::{Store, StoreError};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How far back changes are looked for at the start: four hours of a baseline, and two more.
const REPLAY: Duration = Duration::from_secs(6 * 3600);
/// How long changes that have ended are kept: as long as the page has records.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Time between looks for a finished period.
const INTERVAL: Duration = Duration::from_secs(5);
/// A clock that is set back by more periods starts a new baseline: the records that follow would
/// not be looked at until it has caught up.
const MAX_WAIT_PERIODS: i64 = 10;
/// Periods after which changes are published while the last hours are read.
const PUBLISHED_PERIODS: u32 = 30;

/// The changes of a running node.
#[derive(Debug)]
pub struct LiveChanges {
    store: PathBuf,
    /// The sites and controllers of the mesh: a store also has those of former mesh files.
    head: History,
    /// After the end of a period its records are waited for this long.
    delay: Duration,
    /// Changes with the indices of `head`.
    published: Mutex<Option<DetectedChanges>>,
}

/// The detector and its position.
struct Position {
    detector: Detector,
    /// The next period.
    next: i64,
    first: i64,
}

impl LiveChanges {
    /// For the node of a site that writes to `store`.
    pub fn new(mesh: &Mesh, site: SiteId, store: PathBuf) -> LiveChanges {
        let head = History {
            sites: mesh.sites.iter().map(|site| site.name.clone()).collect(),
            controllers: mesh.controllers.clone(),
            period: mesh.period,
            ..History::default()
        };
        LiveChanges { store, head, delay: delivery_delay(mesh, site), published: Mutex::default() }
    }

    /// Follows the records until `sleep` returns `false`. `now` is the wall clock, milliseconds
    /// since 1970. A store that cannot be read is tried again.
    pub fn run(&self, now: impl Fn() -> i64, sleep: impl Fn(Duration) -> bool) {
        let mut position: Option<Position> = None;
        loop {
            if position.as_ref().is_none_or(|at| at.next != self.finished(now())) {
                // A failure shows when a page is requested.
                let _ = Store::read(&self.store)
                    .and_then(|store| self.follow(&store, &mut position, &now, &sleep));
            }
            if !sleep(INTERVAL) {
                return;
            }
        }
    }

    fn period_ms(&self) -> i64 {
        period_ms(&self.head)
    }

    /// The first period that has not finished, or whose records may be under way.
    fn finished(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(ms(self.delay)).div_euclid(self.period_ms())
    }

    /// Looks at all periods that have finished.
    fn follow(
        &self,
        store: &Store,
        position: &mut Option<Position>,
        now: &impl Fn() -> i64,
        sleep: &impl Fn(Duration) -> bool,
    ) -> Result<(), StoreError> {
        let long = self.period_ms();
        let mut unpublished = 0;
        loop {
            let finished = self.finished(now());
            let earliest = finished.saturating_sub(ms(REPLAY) / long);
            // After the clock was set far ahead or back, a new baseline is needed.
            if position
                .as_ref()
                .is_some_and(|at| at.next < earliest || at.next > finished.saturating_add(MAX_WAIT_PERIODS))
            {
                *position = None;
            }
            let at = position.get_or_insert_with(|| Position {
                detector: Detector::new(self.head.controllers.len(), self.head.period),
                next: earliest,
                first: earliest,
            });
            if at.next >= finished || !sleep(Duration::ZERO) {
                if unpublished > 0 {
                    self.publish(at, long);
                }
                return Ok(());
            }
            let began = Instant::now();
            let start = at.next.saturating_mul(long);
            let history = store.history(start..start.saturating_add(long))?.with_names_of(&self.head);
            if !history.transfers.is_empty() || !history.minutes.is_empty() {
                at.detector.observe(&Period::whole(&history, at.next));
            }
            at.detector.forget(at.next - ms(KEPT) / long);
            at.next += 1;
            unpublished += 1;
            if unpublished >= PUBLISHED_PERIODS {
                self.publish(at, long);
                unpublished = 0;
            }
            // Transfers are measured meanwhile: at most half of a processor's time.
            sleep(began.elapsed());
        }
    }

    fn publish(&self, at: &Position, long: i64) {
        let from_ms = Some(at.first.saturating_mul(long));
        let published = DetectedChanges { changes: at.detector.changes(), from_ms };
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Some(published);
    }

    /// The changes so far, for the sites and controllers of `head`; `None` before the first were
    /// published.
    pub fn detected(&self, head: &History) -> Option<DetectedChanges> {
        let mut detected = self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let sites = places(&self.head.sites, &head.sites);
        let controllers = places(&self.head.controllers, &head.controllers);
        let renumbered = detected.changes.into_iter().map(|change| change.renumbered(&sites, &controllers));
        detected.changes = renumbered.flatten().collect();
        Some(detected)
    }
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Row;
    use crate::record::{Measurement, Outcome, Pair, Transfer, TransferError};
    use fullpipe_units::Span;
    use std::cell::{Cell, RefCell};

    const START_MS: i64 = 1_767_225_600_000;

    fn mesh() -> Mesh {
        let text = "[mesh]\nname = 'm'\nkey_file = 'k'\ncontrollers = ['cubic', 'bbr']\n\
            [[site]]\nname = 'lab'\naddress = '192.0.2.1'\n[[site]]\nname = 'sea'\naddress = '192.0.2.2'\n";
        Mesh::parse("m.toml", text).unwrap()
    }

    /// Transfers of both controllers in a minute; they fail from the thirtieth on.
    fn add_transfers(store: &mut Store, minute: i64) {
        let done = Measurement {
            bytes: 8_000_000,
            duration: Span::from_secs(1),
            delivery_rate: None,
            rtt: Span::from_millis(40),
            min_rtt: Span::from_millis(40),
            segments: 5600,
            retransmitted: 0,
            receive_window_limited: 0.0,
            send_buffer_limited: 0.0,
            cpu: Span::ZERO,
        };
        for controller in 0..2 {
            let outcome = match minute {
                ..30 => Outcome::Done(Box::new(done.clone())),
                _ => Outcome::Failed(TransferError::Unreachable),
            };
            let pair = Pair { from: 0, to: 1 };
            let at_ms = START_MS + minute * 60_000 + i64::from(controller);
            let period = at_ms.div_euclid(60_000);
            store.add(&Row::Transfer(Transfer { at_ms, period, pair, controller, outcome })).unwrap();
        }
    }

    /// Follows the records at these minutes of the clock, before each of which `prepare` is called.
    fn follow(live: &LiveChanges, minutes: &[i64], prepare: impl FnMut(i64)) {
        let (left, prepare) = (Cell::new(minutes), RefCell::new(prepare));
        prepare.borrow_mut()(minutes[0]);
        let now = || START_MS + left.get()[0] * 60_000;
        let sleep = |time: Duration| {
            if time == INTERVAL {
                left.set(&left.get()[1..]);
                left.get().first().into_iter().for_each(|minute| prepare.borrow_mut()(*minute));
            }
            !left.get().is_empty()
        };
        live.run(now, sleep);
    }

    #[test]
    fn changes_are_followed_and_survive_a_set_clock() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path(), ["lab", "sea"], ["cubic", "bbr"]).unwrap();
        let live = LiveChanges::new(&mesh(), 0, directory.path().to_owned());
        let mut head = History { sites: vec!["lab".into(), "sea".into()], ..History::default() };
        assert_eq!(live.detected(&head), None);
        (0..40).for_each(|minute| add_transfers(&mut store, minute));
        let follow = |minutes: &[i64]| follow(&live, minutes, |_| ());
        follow(&[45]);
        let detected = live.detected(&head).unwrap();
        assert_eq!(detected.from_ms, Some(START_MS + 43 * 60_000 - ms(REPLAY)));
        assert_eq!(detected.changes.len(), 1);
        assert_eq!(detected.changes[0].begin, START_MS / 60_000 + 30);
        // Other indices of the names, and a site that is not in a report.
        head.sites.insert(0, "new".into());
        assert_eq!(live.detected(&head).unwrap().changes[0].shifts[0].pair, Pair { from: 1, to: 2 });
        head.sites.pop();
        assert!(live.detected(&head).unwrap().changes.is_empty());
        // A clock that is days ahead, and right again.
        follow(&[46, 50_000, 46]);
        let again = live.detected(&History { sites: vec!["lab".into(), "sea".into()], ..head }).unwrap();
        assert_eq!(again.changes.len(), 1);
    }

    #[test]
    fn a_clock_set_back_by_hours_does_not_stop_the_detection() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path(), ["lab", "sea"], ["cubic", "bbr"]).unwrap();
        (0..20).for_each(|minute| add_transfers(&mut store, minute));
        let live = LiveChanges::new(&mesh(), 0, directory.path().to_owned());
        // Five hours ahead, and right again when the transfers begin to fail.
        follow(&live, &[22, 320, 22, 45], |minute| {
            if minute == 45 {
                (20..40).for_each(|minute| add_transfers(&mut store, minute));
            }
        });
        let detected = live.detected(&live.head).unwrap();
        assert_eq!(detected.changes.len(), 1, "{detected:?}");
        assert_eq!(detected.changes[0].begin, START_MS / 60_000 + 30);
    }

    #[test]
    fn a_store_with_former_sites_and_controllers_is_followed_by_their_names() {
        let directory = tempfile::tempdir().unwrap();
        drop(Store::open(directory.path(), ["old", "sea"], ["reno", "vegas", "bbr"]).unwrap());
        let mut store = Store::open(directory.path(), ["lab", "sea"], ["cubic", "bbr"]).unwrap();
        (0..40).for_each(|minute| add_transfers(&mut store, minute));
        let live = LiveChanges::new(&mesh(), 0, directory.path().to_owned());
        follow(&live, &[45], |_| ());
        let (_, sites, controllers) = store.names().unwrap();
        let head = History { sites, controllers, ..History::default() };
        let detected = live.detected(&head).unwrap();
        assert_eq!(detected.changes.len(), 1, "{detected:?}");
        assert_eq!(head.name(detected.changes[0].shifts[0].pair), "lab → sea");
    }

    /// A minute that begins at the end of a period is stored when its last reply can have arrived.
    #[test]
    fn probe_minutes_are_stored_before_their_period_is_read() {
        for period_s in [1, 10, 60, 600] {
            let mut mesh = mesh();
            mesh.period = Span::from_secs(period_s);
            let live = LiveChanges::new(&mesh, 0, PathBuf::new());
            let end_ms = (START_MS / live.period_ms() + 1) * live.period_ms();
            let stored_ms = end_ms + 91_000;
            assert!(live.finished(stored_ms - 1) <= START_MS / live.period_ms(), "{period_s} s");
            assert!(live.finished(stored_ms + live.period_ms()) > START_MS / live.period_ms());
        }
    }

    #[test]
    fn shutdown_does_not_wait_for_the_replay() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path(), ["lab", "sea"], ["cubic", "bbr"]).unwrap();
        (0..300).for_each(|minute| add_transfers(&mut store, minute));
        let live = LiveChanges::new(&mesh(), 0, directory.path().to_owned());
        let calls = Cell::new(0);
        live.run(
            || START_MS + 300 * 60_000,
            |_| {
                calls.set(calls.get() + 1);
                calls.get() < 10
            },
        );
        assert!(calls.get() < 14, "{}", calls.get());
    }
}
