//! A connection, or several alike.

use super::{AccessSpec, AckFrequency, App, CpuSpec, Direction, Fault, Scenario, Start, Vocabulary};
use fullpipe_policy::Network;
use fullpipe_units::{Bytes, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A value of a controller's setting; numbers and booleans may be written as such.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Setting {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// Anything else.
    Text(String),
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Setting::Bool(b) => write!(f, "{b}"),
            Setting::Integer(n) => write!(f, "{n}"),
            Setting::Number(n) => write!(f, "{n}"),
            Setting::Text(t) => f.write_str(t),
        }
    }
}

/// What the name of a trained controller begins with.
const POLICY: &str = "policy:";

/// The file of the trained controller that `cc` names, which is none if only its place is there (`policy:`). None for other controllers.
pub fn policy_file(cc: &str) -> Option<&str> {
    cc.strip_prefix(POLICY)
}

/// One `[[flow]]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowSpec {
    /// Its congestion controller. `policy:FILE.json` is a trained one, in a file beside the scenario's.
    pub cc: String,
    /// The controller's settings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Setting>,
    /// What a trained controller decides by: the contents of the file that `cc` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Network>,
    /// What to call it; by default after its controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// How many connections like this.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u32,
    /// Time between the starts of the `count` connections.
    #[serde(default, skip_serializing_if = "Span::is_zero")]
    pub stagger: Span,
    /// When it starts (the SYN leaves): at a time, or once another connection has ended or has delivered so much.
    #[serde(default, skip_serializing_if = "Start::is_first")]
    pub start: Start,
    /// When its application stops sending; by default at the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Span>,
    /// How much it sends in all; by default as much as it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// When the application has something to send; by default always.
    #[serde(default, skip_serializing_if = "is_bulk")]
    pub app: App,
    /// The receiver's buffer limit (`tcp_rmem[2]`), up to which the window tunes itself; by default
    /// large enough never to limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<Bytes>,
    /// Whether the receiver's window is tuned as Linux does it, with the buffers that Linux ships with: from 128 KiB to
    /// `receive_buffer`, 32 MiB unless given, of which what packets fill with payload is window (Dynamic Right-Sizing,
    /// `tcp_rcv_space_adjust`, `tcp_rmem`, `scaling_ratio`). By default the simulator's window is half of the buffer and follows what
    /// arrives by an older rule, and a window without a `receive_buffer` is open from the start, in both engines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_tuning: bool,
    /// What a buffer begins with that `auto_tuning` has grow (`tcp_rmem[1]`); by default 128 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_receive_buffer: Option<Bytes>,
    /// The sender's buffer limit (`tcp_wmem[2]`); by default large enough never to limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<Bytes>,
    /// Two-way propagation delay of this flow on top of the path's.
    #[serde(default, skip_serializing_if = "Span::is_zero")]
    pub extra_rtt: Span,
    /// A link of its own that its data meets before the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessSpec>,
    /// Initial congestion window in packets (RFC 6928: 10).
    #[serde(default = "ten", skip_serializing_if = "is_ten")]
    pub initial_window: u32,
    /// Whether it negotiates Explicit Congestion Notification (RFC 3168).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ecn: bool,
    /// Whether its data leaves as Linux sends with segmentation offload (`tcp_tso_autosize`, `tcp_tso_should_defer`): in bursts of up
    /// to a millisecond, and what would make a small one waits for more of the window; and whether its send buffer holds what Linux's does.
    /// By default as the engine has it: the lab's kernel does it, the simulator does not. `false` in the lab: nothing waits (`tcp_tso_win_divisor`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tso: Option<bool>,
    /// Whether a controller that sets no pacing rate is paced as under the `fq` queue discipline: at twice its window a round trip in
    /// slow start, at 1.2 times it after (`tcp_update_pacing_rate`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paced: bool,
    /// Ticks a second of its sender's kernel, by which its timers for retransmissions, probes and reordering go off as Linux's do: with
    /// the tick after the one that is asked for, and what is 63 ticks away or more with the next eighth or a coarser one
    /// (`kernel/time/timer.c`). 24 to 1200. By default to the nanosecond. (The simulator only; the lab's kernel has its own.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_hz: Option<u32>,
    /// What the processors of its ends take; by default nothing. (The simulator only; the lab's ends are real.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuSpec>,
    /// How often its receiver acknowledges, as a QUIC receiver that is asked for it (draft-ietf-quic-ack-frequency); by default
    /// as Linux's TCP does. (The simulator only.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_frequency: Option<AckFrequency>,
    /// Which way its data goes.
    #[serde(default, skip_serializing_if = "is_forward")]
    pub direction: Direction,
}

fn one() -> u32 {
    1
}

fn is_one(n: &u32) -> bool {
    *n == 1
}

fn ten() -> u32 {
    10
}

fn is_ten(n: &u32) -> bool {
    *n == 10
}

fn is_bulk(app: &App) -> bool {
    *app == App::Bulk
}

fn is_forward(direction: &Direction) -> bool {
    *direction == Direction::Forward
}

/// What architectures configure Linux for (`CONFIG_HZ`).
const TIMER_HZ: std::ops::RangeInclusive<u32> = 24..=1200;

impl FlowSpec {
    /// A bulk flow of `cc` for the whole run.
    pub fn bulk(cc: impl Into<String>) -> Self {
        FlowSpec {
            cc: cc.into(),
            settings: BTreeMap::new(),
            policy: None,
            label: None,
            count: 1,
            stagger: Span::ZERO,
            start: Start::default(),
            stop: None,
            size: None,
            app: App::Bulk,
            receive_buffer: None,
            auto_tuning: false,
            first_receive_buffer: None,
            send_buffer: None,
            extra_rtt: Span::ZERO,
            access: None,
            initial_window: 10,
            ecn: false,
            tso: None,
            paced: false,
            timer_hz: None,
            cpu: None,
            ack_frequency: None,
            direction: Direction::Forward,
        }
    }

    /// The file of the trained controller that `cc` names.
    pub fn policy_file(&self) -> Option<&str> {
        policy_file(&self.cc).filter(|file| !file.is_empty())
    }

    /// Puts the contents of the trained controller's file beside its name, if they are not there yet.
    pub(super) fn load_policy(&mut self, open: &dyn Fn(&str) -> Result<String, String>) -> Result<(), Fault> {
        let Some(file) = self.policy_file().filter(|_| self.policy.is_none()) else { return Ok(()) };
        let text = open(file).map_err(|reason| Fault::new("cc", reason))?;
        let network: Network =
            text.parse().map_err(|e| Fault::new("cc", format!("{file} is no policy: {e}")))?;
        self.policy = Some(network);
        Ok(())
    }

    /// What it asks for that ends whose TCP is a kernel's cannot be asked for.
    pub fn simulator_only_setting(&self) -> Option<Fault> {
        let (key, reason, help) = if self.ack_frequency.is_some() {
            (
                "ack_frequency",
                "the kernel's TCP decides by itself when it acknowledges",
                "run it in the simulator; in the lab a link's `aggregate` thins ACKs on their way",
            )
        } else if self.timer_hz.is_some() {
            ("timer_hz", "the kernel's timers go off by its own ticks", "run it in the simulator")
        } else if self.cpu.is_some() {
            ("cpu", "the lab's ends take what this machine's processors take", "run it in the simulator")
        } else {
            return None;
        };
        Some(Fault::new(key, reason).help(help))
    }

    pub(super) fn validate(&self, scenario: &Scenario, vocabulary: &Vocabulary) -> Result<(), Fault> {
        match &self.policy {
            None => vocabulary.check_controller(&self.cc)?,
            Some(_) if policy_file(&self.cc).is_none() => {
                return Err(Fault::new("policy", format!("{} is no trained controller", self.cc))
                    .help("`cc = \"policy:FILE.json\"` names one"));
            }
            Some(_) if !self.settings.is_empty() => {
                return Err(Fault::new("settings", "a trained controller has none"));
            }
            Some(_) => {}
        }
        if !(1..=100_000).contains(&self.count) {
            return Err(Fault::new("count", format!("{} is not between 1 and 100000", self.count)));
        }
        let last_start = self.start.earliest() + self.stagger * u64::from(self.count - 1);
        if last_start >= scenario.duration {
            let key = match &self.start {
                _ if !self.stagger.is_zero() => "stagger",
                Start::At(_) => "start",
                Start::After(_) => "start.delay",
            };
            let reason =
                format!("the flow would start at {last_start}, but the run ends at {}", scenario.duration);
            return Err(Fault::new(key, reason));
        }
        if let Some(stop) = self.stop
            && stop <= last_start
        {
            return Err(Fault::new("stop", format!("{stop} is not after its start at {last_start}")));
        }
        if self.size == Some(Bytes(0)) {
            return Err(Fault::new("size", "a flow of no bytes sends nothing"));
        }
        if !(1..=100_000).contains(&self.initial_window) {
            let reason = format!("{} is not between 1 and 100000 packets", self.initial_window);
            return Err(Fault::new("initial_window", reason));
        }
        if self.first_receive_buffer.is_some() && !self.auto_tuning {
            return Err(Fault::new("first_receive_buffer", "a window that is not tuned has no first buffer")
                .help("write `auto_tuning = true` too"));
        }
        let buffers = [
            ("receive_buffer", self.receive_buffer),
            ("first_receive_buffer", self.first_receive_buffer),
            ("send_buffer", self.send_buffer),
        ];
        for (key, limit) in buffers {
            if let Some(limit) = limit
                && limit.0 < 2 * u64::from(scenario.mtu)
            {
                let reason = format!("{limit} holds less than two packets of {} bytes", scenario.mtu);
                return Err(Fault::new(key, reason));
            }
        }
        if self.extra_rtt > Span::from_secs(3600) {
            return Err(Fault::new("extra_rtt", format!("{} is more than an hour", self.extra_rtt)));
        }
        if let Some(access) = &self.access {
            access.validate(scenario, self).map_err(|f| f.under("access"))?;
        }
        if let Some(fault) = self.simulator_only_setting().filter(|_| vocabulary.uses_kernel_tcp) {
            return Err(fault);
        }
        if let Some(hz) = self.timer_hz.filter(|hz| !TIMER_HZ.contains(hz)) {
            let reason = format!("{hz} is not between {} and {}", TIMER_HZ.start(), TIMER_HZ.end());
            return Err(Fault::new("timer_hz", reason));
        }
        if let Some(cpu) = &self.cpu {
            cpu.validate().map_err(|f| f.under("cpu"))?;
        }
        if let Some(frequency) = &self.ack_frequency {
            frequency.validate().map_err(|f| f.under("ack_frequency"))?;
        }
        self.app.validate(self.count, scenario.duration).map_err(|f| f.under("app"))
    }
}
