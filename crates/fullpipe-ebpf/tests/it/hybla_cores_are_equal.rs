//! The C core of Hybla and the Rust one grow and cut the window alike over simulated paths.

use crate::transport::{Path, Random, run};
use fullpipe_cc::hybla::Hybla;
use fullpipe_cc::loss_based::LossBased;
use fullpipe_cc::{
    Ack, Config, CongestionControl, Lost, Rate, Recovery, RecoveryContext, Sent, Snapshot, Span, Time,
};
use fullpipe_ebpf::native;

struct Both {
    rust: Hybla,
    c: LossBased<native::HyblaGrowth>,
    calls: u64,
    largest: u64,
}

impl Both {
    fn each(&mut self, mut call: impl FnMut(&mut dyn CongestionControl)) {
        call(&mut self.rust);
        call(&mut self.c);
        self.calls += 1;
        self.largest = self.largest.max(self.rust.cwnd());
        let left = (self.rust.window().cwnd, self.rust.window().cwnd_count, self.rust.window().ssthresh);
        let right = (self.c.window().cwnd, self.c.window().cwnd_count, self.c.window().ssthresh);
        assert_eq!(left, right, "call {} (left: Rust, right: C) {:?}", self.calls, self.c.growth().state());
        assert_eq!(self.rust.snapshot(), self.c.snapshot());
        assert_eq!(self.rust.growth().rho_8(), self.c.growth().state().rho_8);
    }
}

impl CongestionControl for Both {
    fn on_handshake(&mut self, now: Time, rtt: Span) {
        self.each(|cc| cc.on_handshake(now, rtt));
    }

    fn on_send(&mut self, sent: &Sent) {
        self.each(|cc| cc.on_send(sent));
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.each(|cc| cc.on_lost(lost));
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.each(|cc| cc.on_ack(ack));
    }

    fn on_recovery(&mut self, event: Recovery, context: &RecoveryContext) {
        self.each(|cc| cc.on_recovery(event, context));
    }

    fn on_mtu(&mut self, smss: u32) {
        self.each(|cc| cc.on_mtu(smss));
    }

    fn cwnd(&self) -> u64 {
        self.rust.cwnd()
    }

    fn ssthresh(&self) -> u64 {
        self.rust.ssthresh()
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.rust.pacing_rate()
    }

    fn send_quantum(&self) -> u64 {
        self.rust.send_quantum()
    }

    fn snapshot(&self) -> Snapshot {
        self.rust.snapshot()
    }
}

#[test]
fn on_simulated_paths_short_and_long() {
    let (mut calls, mut largest) = (0, 0);
    for seed in 0..48 {
        let mut random = Random(seed);
        let path = Path {
            rate: 1u64 << (14 + random.below(11)),
            // Up to a satellite's.
            rtt: Span::from_micros(200 + u64::from(random.below(600_000))),
            buffer: 20_000 << random.below(6),
            loss: [0, 0, 1, 10][random.below(4) as usize],
            reorder: 0,
            marks: [0, 5][random.below(2) as usize],
            pauses: random.below(2) == 1,
            seed,
        };
        let config = Config { seed, ..Config::default() };
        let mut both = Both {
            rust: LossBased::new(&config, fullpipe_cc::hybla::HyblaGrowth::new(25)),
            c: LossBased::new(&config, native::HyblaGrowth::new()),
            calls: 0,
            largest: 0,
        };
        both.on_handshake(Time::ZERO, path.rtt);
        run(&mut both, &path, Span::from_secs(30), 12_000);
        calls += both.calls;
        largest = largest.max(both.largest);
    }
    println!("{calls} calls, largest window {largest} bytes");
    assert!(calls > 200_000 && largest > 1_000_000, "{calls} calls, largest window {largest}");
}
