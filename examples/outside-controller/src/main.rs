//! A toy controller that keeps the queueing delay near 10 ms; it races CUBIC and BBR.
use fullpipe_cc::registry::{Build, BuildError, ControllerInfo, Settings};
use fullpipe_cc::{Ack, Config, CongestionControl, Recovery, RecoveryContext, Snapshot, Span, Time};
use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};
use fullpipe_sim::{Controllers, Simulation};

struct Toy {
    smss: u64,
    cwnd: u64,
    base_rtt: Span,
    hold_until: Time,
}

impl CongestionControl for Toy {
    fn on_ack(&mut self, ack: &Ack) {
        let rtt = ack.rtt.unwrap_or(self.base_rtt);
        self.base_rtt = self.base_rtt.min(rtt);
        if rtt > self.base_rtt + Span::from_millis(10) && ack.now > self.hold_until {
            self.cwnd = (self.cwnd * 3 / 4).max(2 * self.smss);
            self.hold_until = ack.now + rtt;
        } else if ack.cwnd_limited {
            self.cwnd += self.smss * ack.newly_acked / self.cwnd;
        }
    }
    fn on_recovery(&mut self, event: Recovery, _: &RecoveryContext) {
        if matches!(event, Recovery::EnterFast | Recovery::EnterRto) {
            self.cwnd = (self.cwnd * 3 / 4).max(2 * self.smss);
        }
    }
    fn cwnd(&self) -> u64 {
        self.cwnd
    }
    fn ssthresh(&self) -> u64 {
        self.cwnd // where proportional rate reduction arrives
    }
    fn snapshot(&self) -> Snapshot {
        Snapshot { state: "Steady", cwnd: self.cwnd, ..Snapshot::default() }
    }
}

impl Build for Toy {
    const INFO: ControllerInfo =
        ControllerInfo { name: "toy", aliases: &[], kernel: None, about: "a toy", settings: &[] };
    type Params = (); // no settings
    fn parse<'a>(_: Settings<'a>) -> Result<(), BuildError<'a>> {
        Ok(())
    }
    fn build(c: &Config, (): &()) -> Self {
        Toy { smss: c.smss.into(), cwnd: c.initial_cwnd, base_rtt: Span::MAX, hold_until: Time::ZERO }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let controllers = Controllers::new().with::<Toy>();
    for race in [&["toy"][..], &["cubic"], &["bbr"], &["toy", "cubic", "bbr"]] {
        let path = PathSpec::bottleneck("20mbit".parse()?, "40ms".parse()?, "2bdp".parse()?);
        let scenario = Scenario::new(path, race.iter().map(|cc| FlowSpec::bulk(*cc)).collect());
        for flow in Simulation::new(&scenario, 1).controllers(&controllers).run()?.flows {
            println!("{:<5} 1 of {}: {:5.2} Mbit/s", flow.cc, race.len(), flow.summary.goodput_bps / 1e6);
        }
    }
    Ok(())
}
