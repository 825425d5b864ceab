//! Connections over random paths: loss, late packets, outages, jitter, pauses of the application,
//! requests, a shrinking MTU, changing ports.

use crate::world::{World, flow, link};
use fullpipe_cc::CONTROLLERS;
use fullpipe_experiment::recording::EventKind;
use fullpipe_path::LinkSpec;
use fullpipe_quic::harness::{Options, Rebinding, Stacks};
use fullpipe_sim::Opening;
use fullpipe_testing::Random;
use fullpipe_units::{Span, Time};

/// A link and the end of its last outage.
fn random_link(random: &mut Random, bottleneck: bool) -> (LinkSpec, Time) {
    let delay = if random.one_in(2) { random.between(1, 20) } else { random.between(1, 200) };
    let mut text = format!("delay = '{delay}ms'\n");
    if bottleneck {
        let rate = if random.one_in(3) { random.between(500, 5000) } else { random.between(5000, 200_000) };
        text += &format!("rate = '{rate}kbit'\nqueue = '{}p'\n", random.between(5, 300));
    }
    if random.one_in(2) {
        let permille = if random.one_in(3) { random.between(1, 200) } else { random.between(1, 20) };
        text += &format!("loss = '{:.1}%'\n", permille as f64 / 10.0);
    }
    if random.one_in(4) {
        let permille = random.between(1, 100);
        text += &format!(
            "reorder = {{ share = '{:.1}%', by = '{}ms' }}\n",
            permille as f64 / 10.0,
            random.between(1, 100)
        );
    } else if random.one_in(4) {
        text += &format!("jitter = '{}ms'\n", random.between(1, 30));
    }
    let mut up = Time::ZERO;
    if random.one_in(5) {
        let (at, length) = (random.between(0, 4000), random.between(10, 3000));
        text += &format!("blackouts = [{{ at = '{at}ms', for = '{length}ms' }}]\n");
        up = Time::ZERO + Span::from_millis(at + length);
    }
    (link(&text), up)
}

/// What the cases came across, to see that all of it occurs.
#[derive(Default, Debug)]
struct Coverage {
    completed: u64,
    packets: u64,
    spurious: u64,
    timeouts: u64,
    idle_restarts: u64,
    /// Silent senders of noq after a change of port, and how many are with noq's own CUBIC.
    silent: u64,
    silent_own: u64,
}

/// What the application does: writes bytes, asks for a response if it does so, and waits.
#[derive(Debug)]
struct Part {
    bytes: u64,
    request: Option<u64>,
    pause: Span,
}

#[derive(Debug)]
struct Case {
    number: u64,
    cc: String,
    options: Options,
    ecn: bool,
    default_window: bool,
    /// Whether large packets stop to pass after the second part.
    shrinks: bool,
    parts: Vec<Part>,
    forward: LinkSpec,
    reverse: LinkSpec,
    /// The end of the last outage.
    up: Time,
}

impl Case {
    fn new(number: u64) -> Self {
        let mut random = Random::new(number);
        let about = &CONTROLLERS[random.below(CONTROLLERS.len() as u64) as usize];
        let stack = ["noq", "quinn"][random.below(2) as usize];
        let (forward, forward_up) = random_link(&mut random, true);
        let (reverse, reverse_up) = random_link(&mut random, false);
        let options = Options {
            mtu_discovery: random.one_in(3),
            rebinding: random.one_in(4).then(|| Rebinding {
                every: Span::from_millis(random.between(200, 3000)),
                times: random.between(1, 4) as u32,
            }),
        };
        Case {
            number,
            cc: format!("{}@{stack}", about.name),
            options,
            ecn: random.one_in(3),
            default_window: random.one_in(4),
            shrinks: options.mtu_discovery && random.one_in(2),
            parts: (0..random.between(1, 4))
                .map(|_| Part {
                    bytes: random.between(1, 600_000),
                    request: random.one_in(6).then(|| random.between(0, 3000)),
                    pause: Span::from_millis(random.between(1, 2000)),
                })
                .collect(),
            forward,
            reverse,
            up: forward_up.max(reverse_up),
        }
    }

    fn rebinds_noq(&self) -> bool {
        self.options.rebinding.is_some() && self.cc.ends_with("@noq")
    }

    /// Runs it with `cc`. Fails if the sender had data and was silent for ten seconds.
    fn run(&self, cc: &str, coverage: &mut Coverage) -> Result<(), Span> {
        let mut flow = flow(cc);
        flow.ecn = self.ecn;
        if self.default_window {
            flow.receive_buffer = None;
        }
        let opening = Opening { flow: &flow, mtu: 1500, seed: self.number };
        let transport = Stacks.open_with(&opening, self.options).unwrap();
        let (forward, reverse) = (self.forward.clone(), self.reverse.clone());
        let mut world = World::with(transport, &[forward], &[reverse], self.number);
        world.open();
        let mut written = 0;
        for (i, part) in self.parts.iter().enumerate() {
            written += part.bytes;
            world.write(part.bytes);
            if let Some(bytes) = part.request {
                world.request(bytes);
            }
            if self.shrinks && i == 1 {
                world.mtu = 1300;
            }
            self.watch(&mut world, part.pause, written)?;
        }
        world.finish(false);
        self.watch(&mut world, Span::from_secs(60), written)?;
        assert!(world.transport.delivered() <= written, "{self:?}");
        coverage.completed += u64::from(world.transport.delivered() == written);
        coverage.packets += world.sent;
        coverage.spurious += world.recorded(EventKind::SpuriousLoss);
        coverage.timeouts += world.recorded(EventKind::RetransmissionTimeout);
        coverage.idle_restarts += world.recorded(EventKind::IdleRestart);
        Ok(())
    }

    /// Runs for `span`, or until everything is delivered. The connection stays open.
    fn watch(&self, world: &mut World, span: Span, written: u64) -> Result<(), Span> {
        let end = world.now + span;
        while world.now < end {
            let next = end.min(world.now + Span::from_secs(1));
            world
                .run_until(next, |world| world.transport.delivered() == written && world.transport.is_idle());
            assert_eq!(world.failure(), None, "{self:?}");
            if world.transport.delivered() == written {
                return Ok(());
            }
            let silent = world.now.since(world.last_sent.max(self.up));
            if silent > Span::from_secs(10) {
                return Err(silent);
            }
        }
        Ok(())
    }
}

/// Runs cases. After a change of the peer's port, the receiving end of noq 1.4.0 now and then stops
/// acknowledging what it receives, and the sender's probe timeout doubles without end. That has to
/// be as rare as with the stack's own CUBIC; everything else is a failure.
fn run_cases(numbers: std::ops::Range<u64>) {
    let cases = numbers.end - numbers.start;
    let mut coverage = Coverage::default();
    for number in numbers {
        let case = Case::new(number);
        if let Err(silent) = case.run(&case.cc, &mut coverage) {
            assert!(case.rebinds_noq(), "silent for {silent}: {case:?}");
            coverage.silent += 1;
        }
        if case.rebinds_noq() {
            coverage.silent_own += u64::from(case.run("noq/cubic", &mut Coverage::default()).is_err());
        }
    }
    println!("{cases} cases: {coverage:?}");
    assert!(coverage.completed > cases * 8 / 10, "{coverage:?}");
    assert!(coverage.spurious > 0 && coverage.timeouts > 0 && coverage.idle_restarts > 0, "{coverage:?}");
    let (silent, own) = (coverage.silent, coverage.silent_own);
    assert!(silent <= own + own / 2 + 5, "{silent} silent senders, {own} with noq's own CUBIC");
}

#[test]
fn connections_survive_random_paths() {
    run_cases(0..300);
}

/// `CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true cargo test --release -p fullpipe-quic --test it --
/// --ignored ten_thousand`.
#[test]
#[ignore = "takes minutes"]
fn connections_survive_ten_thousand_random_paths() {
    run_cases(0..10_000);
}
