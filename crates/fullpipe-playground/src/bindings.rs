//! What the page calls, and controllers written in the page.

use crate::{Outcome, Packet, export, simulate};
use fullpipe_cc::registry::{Build, BuildError, ControllerInfo, Settings};
use fullpipe_cc::{Ack, Config, CongestionControl, Recovery, RecoveryContext, Snapshot};
use fullpipe_sim::Controllers;
use fullpipe_units::{Rate, Span};
use js_sys::{Array, Float64Array, Function};
use std::cell::RefCell;
use wasm_bindgen::prelude::*;

thread_local! {
    /// The page's controller: a function of `(kind, id, a, b, c, d, e, f)` that returns a number.
    static SCRIPT: RefCell<Option<Function>> = const { RefCell::new(None) };
    static LAST: RefCell<Option<Outcome>> = const { RefCell::new(None) };
    static CREATED: RefCell<u32> = const { RefCell::new(0) };
}

/// Uses `script` for flows whose controller is `mine`; `undefined` removes it.
#[wasm_bindgen(js_name = setController)]
pub fn set_controller(script: Option<Function>) {
    SCRIPT.with(|held| *held.borrow_mut() = script);
    CREATED.with(|created| *created.borrow_mut() = 0);
}

fn controllers() -> Controllers {
    let known = Controllers::new();
    if SCRIPT.with(|held| held.borrow().is_some()) { known.with::<Scripted>() } else { known }
}

/// Runs a scenario; the outcome as JSON, or the problem as JSON in the error.
#[wasm_bindgen]
pub fn run(scenario: &str) -> Result<String, String> {
    match simulate(scenario, &controllers()) {
        Ok(outcome) => {
            let text = serde_json::to_string(&outcome).unwrap_or_default();
            LAST.with(|last| *last.borrow_mut() = Some(outcome));
            Ok(text)
        }
        Err(problem) => Err(serde_json::to_string(&problem).unwrap_or_default()),
    }
}

/// The packets of the last outcome, one array per flow, with three numbers per packet: when it was
/// sent, when it arrived (NaN if it was dropped), and 1 for a retransmission, else 0.
#[wasm_bindgen(js_name = lastPackets)]
pub fn last_packets() -> Array {
    let numbers = |packets: &Vec<Packet>| {
        let values = |p: &Packet| [p.0, p.1.unwrap_or(f64::NAN), f64::from(u8::from(p.2))];
        Float64Array::from(&packets.iter().flat_map(values).collect::<Vec<f64>>()[..])
    };
    LAST.with(|last| last.borrow().iter().flat_map(|outcome| &outcome.packets).map(numbers).collect())
}

/// Checks a scenario without running it; the problem as JSON, or nothing.
#[wasm_bindgen]
pub fn check(scenario: &str) -> Option<String> {
    crate::cases(scenario, &controllers())
        .err()
        .map(|problem| serde_json::to_string(&problem).unwrap_or_default())
}

/// The last outcome in another form.
#[wasm_bindgen(js_name = exportLast)]
pub fn export_last(extension: &str, title: &str) -> Result<Vec<u8>, String> {
    LAST.with(|last| match last.borrow().as_ref() {
        Some(outcome) => export(outcome, extension, title).map_err(|problem| problem.message),
        None => Err("nothing has been run".to_owned()),
    })
}

/// Every controller, as JSON: `[{name, about, settings: [{key, values, default, about}]}]`.
#[wasm_bindgen(js_name = listControllers)]
pub fn list_controllers() -> String {
    let settings = |about: &ControllerInfo| {
        let one = |s: &fullpipe_cc::registry::Setting| {
            let (key, values, default, about) = (s.key, s.values, s.default, s.about);
            serde_json::json!({"key": key, "values": values, "default": default, "about": about})
        };
        about.settings.iter().map(one).collect::<Vec<_>>()
    };
    let all = Controllers::new();
    let listed: Vec<_> = all
        .descriptions()
        .map(|info| serde_json::json!({"name": info.name, "about": info.about, "settings": settings(info)}))
        .collect();
    serde_json::Value::from(listed).to_string()
}

/// A controller in JavaScript. It keeps its state in the page, under its number.
struct Scripted {
    id: u32,
    smss: f64,
    cwnd: u64,
}

/// The event passed to the page: the first argument of its function.
#[derive(Clone, Copy)]
enum Call {
    /// A connection starts: segment size and initial window in bytes.
    Start = 0,
    /// An ACK: time and RTT in ms, bytes acknowledged, bytes lost, bytes in flight, delivery rate
    /// in bit/s.
    Ack = 1,
    /// Fast recovery begins: time in ms, bytes in flight.
    Loss = 2,
    /// The retransmission timer fired: time in ms, bytes in flight.
    Timeout = 3,
    /// Asks for the pacing rate in bit/s; 0 for none.
    PacingRate = 4,
}

impl Scripted {
    fn call(&self, call: Call, a: [f64; 6]) -> f64 {
        SCRIPT.with(|held| {
            let held = held.borrow();
            let Some(script) = held.as_ref() else { return f64::NAN };
            let arguments = Array::new();
            for value in [f64::from(call as u32), f64::from(self.id)].into_iter().chain(a) {
                arguments.push(&JsValue::from_f64(value));
            }
            script.apply(&JsValue::UNDEFINED, &arguments).ok().and_then(|v| v.as_f64()).unwrap_or(f64::NAN)
        })
    }

    /// Takes over the window that the page returned, between two segments and 1 GB.
    fn set(&mut self, cwnd: f64) {
        if cwnd.is_finite() {
            self.cwnd = cwnd.clamp(2.0 * self.smss, 1e9) as u64;
        }
    }
}

impl CongestionControl for Scripted {
    fn on_ack(&mut self, ack: &Ack) {
        let ms = |span: Option<Span>| span.map_or(f64::NAN, |s| s.as_millis_f64());
        let rate = ack.sample.rate.map_or(f64::NAN, |rate| rate.as_bits_per_sec_f64());
        let figures = [
            ack.now.as_secs_f64() * 1e3,
            ms(ack.rtt),
            ack.newly_acked as f64,
            ack.newly_lost as f64,
            ack.inflight as f64,
            rate,
        ];
        let cwnd = self.call(Call::Ack, figures);
        self.set(cwnd);
    }

    fn on_recovery(&mut self, event: Recovery, context: &RecoveryContext) {
        let call = match event {
            Recovery::EnterFast => Call::Loss,
            Recovery::EnterRto => Call::Timeout,
            // The ends of an episode, and whatever kinds of event are added later.
            _ => return,
        };
        let cwnd =
            self.call(call, [context.now.as_secs_f64() * 1e3, context.inflight as f64, 0.0, 0.0, 0.0, 0.0]);
        self.set(cwnd);
    }

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn ssthresh(&self) -> u64 {
        self.cwnd
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let bps = self.call(Call::PacingRate, [0.0; 6]);
        (bps.is_finite() && bps >= 1e3).then(|| Rate::from_bits_per_sec(bps.min(1e12) as u64))
    }

    fn uses_prr(&self) -> bool {
        false
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: "Scripted",
            cwnd: self.cwnd,
            pacing_rate: self.pacing_rate(),
            ..Snapshot::default()
        }
    }
}

impl Build for Scripted {
    const INFO: ControllerInfo = ControllerInfo {
        name: "mine",
        aliases: &[],
        kernel: None,
        about: "the controller written in this page",
        settings: &[],
    };

    type Params = ();

    fn parse<'a>(_: Settings<'a>) -> Result<(), BuildError<'a>> {
        Ok(())
    }

    fn build(config: &Config, (): &()) -> Self {
        let id = CREATED.with(|created| created.replace_with(|n| n.wrapping_add(1)));
        let mut made = Scripted { id, smss: f64::from(config.smss), cwnd: config.initial_cwnd };
        let cwnd = made.call(Call::Start, [made.smss, config.initial_cwnd as f64, 0.0, 0.0, 0.0, 0.0]);
        made.set(cwnd);
        made
    }
}
