//! Every wrapper of a controller forwards every method of `CongestionControl`: one that is left out
//! would silently get its default.

use fullpipe_cc::{
    Ack, CongestionControl, Lost, Rate, Recovery, RecoveryContext, Sent, Snapshot, Span, Time,
    forward_congestion_control,
};
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Records the name of each call and returns no default.
#[derive(Default)]
struct Probe(Mutex<BTreeSet<&'static str>>);

impl Probe {
    fn record<T>(&self, name: &'static str, out: T) -> T {
        self.0.lock().unwrap().insert(name);
        out
    }
}

#[deny(clippy::missing_trait_methods)]
impl CongestionControl for Probe {
    fn on_handshake(&mut self, now: Time, rtt: Span) {
        assert_eq!((now, rtt), (Time::from_nanos(1), Span::from_nanos(2)));
        self.record("on_handshake", ());
    }
    fn on_send(&mut self, sent: &Sent) {
        assert_eq!(sent.bytes, 3);
        self.record("on_send", ());
    }
    fn on_lost(&mut self, lost: &Lost) {
        assert_eq!(lost.bytes, 4);
        self.record("on_lost", ());
    }
    fn on_ack(&mut self, ack: &Ack) {
        assert_eq!(ack.newly_acked, 5);
        self.record("on_ack", ());
    }
    fn on_recovery(&mut self, event: Recovery, _: &RecoveryContext) {
        assert_eq!(event, Recovery::Exit);
        self.record("on_recovery", ());
    }
    fn on_mtu(&mut self, smss: u32) {
        assert_eq!(smss, 6);
        self.record("on_mtu", ());
    }
    fn cwnd(&self) -> u64 {
        self.record("cwnd", 7)
    }
    fn ssthresh(&self) -> u64 {
        self.record("ssthresh", 8)
    }
    fn pacing_rate(&self) -> Option<Rate> {
        self.record("pacing_rate", Some(Rate::from_bytes_per_sec(9)))
    }
    fn send_quantum(&self) -> u64 {
        self.record("send_quantum", 10)
    }
    fn uses_prr(&self) -> bool {
        self.record("uses_prr", false)
    }
    fn claims_ecn(&self) -> bool {
        self.record("claims_ecn", true)
    }
    fn in_cwr(&self) -> bool {
        self.record("in_cwr", true)
    }
    fn marks_app_limited(&self) -> bool {
        self.record("marks_app_limited", true)
    }
    fn snapshot(&self) -> Snapshot {
        self.record("snapshot", Snapshot { cwnd: 11, ..Snapshot::default() })
    }
    fn state(&self) -> &'static str {
        self.record("state", "Probing")
    }
    fn as_any(&mut self) -> Option<&mut dyn Any> {
        self.record("as_any", ());
        Some(self)
    }
}

/// Calls every method, by static dispatch, so that a wrapper's own implementation is called.
fn call_all<C: CongestionControl>(mut c: C) {
    c.on_handshake(Time::from_nanos(1), Span::from_nanos(2));
    c.on_send(&Sent { bytes: 3, ..Sent::at(Time::ZERO) });
    c.on_lost(&Lost { bytes: 4, ..Lost::at(Time::ZERO) });
    c.on_ack(&Ack { newly_acked: 5, ..Ack::at(Time::ZERO) });
    let context = RecoveryContext { now: Time::ZERO, inflight: 0, delivered: 0, lost: 0 };
    c.on_recovery(Recovery::Exit, &context);
    c.on_mtu(6);
    assert_eq!((c.cwnd(), c.ssthresh(), c.send_quantum()), (7, 8, 10));
    assert_eq!(c.pacing_rate(), Some(Rate::from_bytes_per_sec(9)));
    assert_eq!((c.uses_prr(), c.claims_ecn(), c.in_cwr(), c.marks_app_limited()), (false, true, true, true));
    assert_eq!((c.snapshot().cwnd, c.state()), (11, "Probing"));
    let probe = c.as_any().and_then(|any| any.downcast_mut::<Probe>()).expect("the probe itself");
    let called: Vec<&str> = probe.0.lock().unwrap().iter().copied().collect();
    assert_eq!(called, methods());
}

/// The methods of the trait, from its source, sorted.
fn methods() -> Vec<&'static str> {
    let source = include_str!("../../src/control.rs");
    let (_, rest) = source.split_once("\npub trait CongestionControl: Send {\n").expect("the trait");
    let (body, _) = rest.split_once("\n}\n").expect("its end");
    let names = body.lines().filter_map(|line| line.strip_prefix("    fn ")?.split_once('('));
    let mut names: Vec<&str> = names.map(|(name, _)| name).collect();
    names.sort_unstable();
    assert!(names.len() > 10, "{names:?}");
    names
}

/// As a simulator's: one of several controllers.
enum Wrapped {
    Own(Probe),
    #[allow(dead_code, reason = "a second arm of the match")]
    Boxed(Box<dyn CongestionControl>),
}

forward_congestion_control! {
    impl[] for Wrapped {
        Self::Own(c) => *c,
        Self::Boxed(c) => **c,
    }
}

#[test]
fn references_forward_every_method() {
    call_all(Probe::default());
    call_all(&mut Probe::default());
    call_all(&mut Probe::default() as &mut dyn CongestionControl);
}

#[test]
fn enums_forward_every_method() {
    call_all(Wrapped::Own(Probe::default()));
    call_all(Wrapped::Boxed(Box::new(Probe::default())));
}

#[cfg(feature = "alloc")]
#[test]
fn boxes_forward_every_method() {
    call_all(Box::new(Probe::default()));
    call_all(Box::new(Probe::default()) as Box<dyn CongestionControl>);
}
