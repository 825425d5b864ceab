//! One `[[flow]]`: a connection, or several identical ones.

use super::{AccessSpec, AckFrequency, App, CpuSpec, Direction, Fault, Scenario, Start, Vocabulary};
use fullpipe_policy::Network;
use fullpipe_units::{Bytes, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The value of a controller setting; numbers and booleans need no quotes.
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

/// Prefix of `cc` for a policy file.
const POLICY: &str = "policy:";

/// The file name in `policy:FILE`, which may be empty; `None` for other controllers.
pub fn policy_file(cc: &str) -> Option<&str> {
    cc.strip_prefix(POLICY)
}

/// One `[[flow]]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowSpec {
    /// Congestion controller. `policy:FILE.json` is a trained policy in a file next to the
    /// scenario.
    pub cc: String,
    /// Controller settings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Setting>,
    /// The policy's network: the contents of the file that `cc` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Network>,
    /// Label; by default the controller's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Number of connections.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u32,
    /// Time between the starts of the `count` connections.
    #[serde(default, skip_serializing_if = "Span::is_zero")]
    pub stagger: Span,
    /// When it starts (sends its SYN): at a time, or after another connection has ended or
    /// delivered a given amount.
    #[serde(default, skip_serializing_if = "Start::is_first")]
    pub start: Start,
    /// When its application stops sending; by default at the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Span>,
    /// Bytes it sends in total; by default unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// Application pattern; by default it always has data to send.
    #[serde(default, skip_serializing_if = "is_bulk")]
    pub app: App,
    /// The receiver's buffer limit (`tcp_rmem[2]`), up to which the window tunes itself; by default
    /// large enough never to limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<Bytes>,
    /// Whether the receive window is auto-tuned as in Linux, from 128 KiB up to `receive_buffer`
    /// (by default 32 MiB), counting only the part of the buffer that holds payload (Dynamic
    /// Right-Sizing, `tcp_rcv_space_adjust`, `tcp_rmem`, `scaling_ratio`). By default the simulator
    /// advertises half of the buffer and grows it by an older rule; without a `receive_buffer` the
    /// window is fully open from the start, in both engines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_tuning: bool,
    /// Initial receive buffer with `auto_tuning` (`tcp_rmem[1]`); by default 128 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_receive_buffer: Option<Bytes>,
    /// The sender's buffer limit (`tcp_wmem[2]`); by default large enough never to limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<Bytes>,
    /// Two-way propagation delay of this flow on top of the path's.
    #[serde(default, skip_serializing_if = "Span::is_zero")]
    pub extra_rtt: Span,
    /// An access link that its data crosses before the shared path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessSpec>,
    /// Initial congestion window in packets (RFC 6928: 10).
    #[serde(default = "ten", skip_serializing_if = "is_ten")]
    pub initial_window: u32,
    /// Whether it negotiates Explicit Congestion Notification (RFC 3168).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ecn: bool,
    /// Whether it sends as Linux does with segmentation offload (`tcp_tso_autosize`,
    /// `tcp_tso_should_defer`): in bursts of up to a millisecond, deferring small ones until more
    /// of the window is open, and with Linux's accounting of the send buffer. Default: yes in
    /// the lab, no in the simulator. `false` in the lab disables deferral
    /// (`tcp_tso_win_divisor`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tso: Option<bool>,
    /// Whether a controller without a pacing rate is paced as under the `fq` qdisc: at twice the
    /// window per round trip in slow start, at 1.2 times afterwards (`tcp_update_pacing_rate`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paced: bool,
    /// Timer ticks per second of the sender's kernel (`CONFIG_HZ`), 24 to 1200. Retransmission,
    /// probe and reordering timers then expire as in Linux: one tick late, and rounded up to an
    /// eighth of their length from 63 ticks on (`kernel/time/timer.c`). By default timers are
    /// exact. (Simulator only; the lab's kernel has its own ticks.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_hz: Option<u32>,
    /// CPU cost at its endpoints; by default none. (Simulator only; the lab's endpoints are real.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuSpec>,
    /// ACK frequency of its receiver, as requested from a QUIC receiver
    /// (draft-ietf-quic-ack-frequency); by default as Linux's TCP. (Simulator only.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_frequency: Option<AckFrequency>,
    /// Direction of its data.
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

/// `CONFIG_HZ` of Linux's architectures.
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

    /// The name of the policy file in `cc`, if any.
    pub fn policy_file(&self) -> Option<&str> {
        policy_file(&self.cc).filter(|file| !file.is_empty())
    }

    /// Loads the policy file named in `cc`, unless the policy is already present.
    pub(super) fn load_policy(&mut self, open: &dyn Fn(&str) -> Result<String, String>) -> Result<(), Fault> {
        let Some(file) = self.policy_file().filter(|_| self.policy.is_none()) else { return Ok(()) };
        let text = open(file).map_err(|reason| Fault::new("cc", reason))?;
        let network: Network =
            text.parse().map_err(|e| Fault::new("cc", format!("{file} is not a valid policy: {e}")))?;
        self.policy = Some(network);
        Ok(())
    }

    /// The first of its settings that only the simulator supports.
    pub fn simulator_only_setting(&self) -> Option<Fault> {
        let (key, reason, help) = if self.ack_frequency.is_some() {
            (
                "ack_frequency",
                "not supported in the lab: the kernel's TCP decides when it acknowledges",
                "use the simulator; in the lab, `aggregate` on a link thins ACKs",
            )
        } else if self.timer_hz.is_some() {
            ("timer_hz", "not supported in the lab: the kernel has its own ticks", "use the simulator")
        } else if self.cpu.is_some() {
            ("cpu", "not supported in the lab: its endpoints use this machine's CPUs", "use the simulator")
        } else {
            return None;
        };
        Some(Fault::new(key, reason).help(help))
    }

    pub(super) fn validate(&self, scenario: &Scenario, vocabulary: &Vocabulary) -> Result<(), Fault> {
        match &self.policy {
            None => vocabulary.check_controller(&self.cc)?,
            Some(_) if policy_file(&self.cc).is_none() => {
                return Err(Fault::new(
                    "policy",
                    format!("`policy` needs a `policy:` controller, got `{}`", self.cc),
                )
                .help("write `cc = \"policy:FILE.json\"`"));
            }
            Some(_) if !self.settings.is_empty() => {
                return Err(Fault::new("settings", "a policy has no settings"));
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
            return Err(Fault::new("size", "must be above zero"));
        }
        if !(1..=100_000).contains(&self.initial_window) {
            let reason = format!("{} is not between 1 and 100000 packets", self.initial_window);
            return Err(Fault::new("initial_window", reason));
        }
        if self.first_receive_buffer.is_some() && !self.auto_tuning {
            return Err(Fault::new("first_receive_buffer", "has no effect without `auto_tuning`")
                .help("add `auto_tuning = true`"));
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
            return Err(Fault::new("extra_rtt", format!("must be at most 1h, got {}", self.extra_rtt)));
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
