//! A controller whose window and rate somebody else sets, between two steps of an episode.

use fullpipe_cc::registry::{About, Build, BuildError, Setting, Settings};
use fullpipe_cc::{
    Ack, Config, CongestionControl, Lost, Rate, Recovery, RecoveryContext, Sent, Snapshot, Span, Time,
};
use fullpipe_policy::{Account, LEAST_WINDOW, MOST_WINDOW};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// What an agent is told to do, and what it has seen since it was last asked.
#[derive(Debug)]
pub struct Desk {
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// None for as fast as the window allows.
    pub pacing: Option<Rate>,
    pub smss: u32,
    /// Since the last step.
    pub seen: Account,
    pub srtt: Option<Span>,
    /// Of the whole episode.
    pub min_rtt: Option<Span>,
    pub inflight: u64,
    pub delivered: u64,
    pub lost: u64,
    pub begun: bool,
}

impl Desk {
    /// The next window is `cwnd` bytes, but of 2 packets to `most` (or what any policy may have), and the pacing rate `pacing` bit/s.
    pub fn order(&mut self, cwnd: f64, most: f64, pacing: Option<f64>) {
        let smss = f64::from(self.smss.max(1));
        let most = most.clamp(LEAST_WINDOW, MOST_WINDOW);
        self.cwnd = cwnd.clamp(LEAST_WINDOW * smss, most * smss) as u64;
        self.pacing = pacing.map(|bps| Rate::from_bits_per_sec(bps.clamp(1e3, 1e12) as u64));
    }
}

/// The desks of the agents of all episodes, by number.
static DESKS: LazyLock<Mutex<HashMap<u32, Arc<Mutex<Desk>>>>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU32 = AtomicU32::new(1);

fn desks() -> MutexGuard<'static, HashMap<u32, Arc<Mutex<Desk>>>> {
    DESKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in the list of desks, for as long as its episode lasts.
pub struct Place {
    pub number: u32,
    desk: Arc<Mutex<Desk>>,
}

impl Place {
    pub fn new() -> Place {
        let number = NEXT.fetch_add(1, Relaxed);
        let desk = Desk {
            cwnd: 0,
            pacing: None,
            smss: 0,
            seen: Account::default(),
            srtt: None,
            min_rtt: None,
            inflight: 0,
            delivered: 0,
            lost: 0,
            begun: false,
        };
        let desk = Arc::new(Mutex::new(desk));
        desks().insert(number, Arc::clone(&desk));
        Place { number, desk }
    }

    pub fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        desks().remove(&self.number);
    }
}

/// The controller at a desk.
pub struct Agent {
    desk: Arc<Mutex<Desk>>,
}

impl Agent {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Build for Agent {
    const ABOUT: About = About {
        name: "agent",
        aliases: &[],
        kernel: None,
        about: "a window and a rate that a policy sets",
        settings: &[Setting { key: "desk", values: "a number", default: "none", about: "which policy" }],
    };

    fn build<'a>(config: &Config, settings: Settings<'a>) -> Result<Self, BuildError<'a>> {
        let number = settings.number("desk", 0, 1, u32::MAX)?;
        let desk = desks().get(&number).cloned();
        // A scenario that somebody runs without an episode has a policy that never changes what it began with.
        let desk = desk.unwrap_or_else(|| Arc::clone(&Place::new().desk));
        let agent = Agent { desk };
        {
            let mut desk = agent.desk();
            desk.cwnd = config.initial_cwnd;
            desk.smss = config.smss;
        }
        Ok(agent)
    }
}

impl CongestionControl for Agent {
    fn on_handshake(&mut self, _now: Time, rtt: Span) {
        let mut desk = self.desk();
        desk.srtt = Some(rtt);
        desk.min_rtt = Some(rtt);
        desk.begun = true;
    }

    fn on_send(&mut self, sent: &Sent) {
        let mut desk = self.desk();
        desk.seen.on_send(sent);
        desk.inflight = sent.inflight + sent.bytes;
    }

    fn on_lost(&mut self, lost: &Lost) {
        let mut desk = self.desk();
        desk.seen.on_lost(lost);
        desk.lost = lost.lost;
    }

    fn on_ack(&mut self, ack: &Ack) {
        let mut desk = self.desk();
        desk.seen.on_ack(ack);
        desk.inflight = ack.inflight;
        desk.delivered = ack.delivered;
        desk.srtt = ack.srtt.or(desk.srtt);
        if let Some(rtt) = ack.rtt {
            desk.min_rtt = Some(desk.min_rtt.map_or(rtt, |least| least.min(rtt)));
        }
    }

    fn on_recovery(&mut self, event: Recovery, _context: &RecoveryContext) {
        if event == Recovery::EnterRto {
            self.desk().seen.timeouts += 1;
        }
    }

    fn on_mtu(&mut self, smss: u32) {
        self.desk().smss = smss;
    }

    fn cwnd(&self) -> u64 {
        self.desk().cwnd
    }

    fn ssthresh(&self) -> u64 {
        u64::MAX
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.desk().pacing
    }

    fn uses_prr(&self) -> bool {
        false
    }

    fn snapshot(&self) -> Snapshot {
        let desk = self.desk();
        Snapshot {
            state: "Agent",
            cwnd: desk.cwnd,
            pacing_rate: desk.pacing,
            min_rtt: desk.min_rtt,
            ..Snapshot::default()
        }
    }

    fn state(&self) -> &'static str {
        "Agent"
    }
}
