//! One experiment of a case: its scenario file and its judge.

use crate::observed::Observed;
use crate::{Judgement, TestPath};
use fullpipe_experiment::scenario::{App, Case, Scenario, Setting as Value, Vocabulary, is_quic, parse};
use fullpipe_units::{Bytes, Rate};

/// Reports the failures of a run.
pub(crate) type Judge = fn(&Observed<'_>, &mut Judgement);

/// A flow on a path with a judge. The strings are lines of the scenario file.
pub(crate) struct Experiment {
    pub path: TestPath,
    /// Duration in seconds.
    pub seconds: f64,
    /// Sampling interval in seconds.
    pub step: f64,
    /// Queue limit, as in a scenario file.
    pub buffer: &'static str,
    pub judge: Judge,
    /// Additional keys of the forward link.
    pub link: String,
    /// Additional keys of the reverse link.
    pub reverse: String,
    /// Additional keys of the flow.
    pub flow: String,
    /// Triggers, each from [`trigger`].
    pub triggers: String,
}

impl Experiment {
    /// A plain bulk flow.
    pub fn new(path: &TestPath, seconds: f64, step: f64, buffer: &'static str, judge: Judge) -> Self {
        Experiment {
            path: *path,
            seconds,
            step,
            buffer,
            judge,
            link: String::new(),
            reverse: String::new(),
            flow: String::new(),
            triggers: String::new(),
        }
    }

    /// The run with the controller `cc`; `name` is the file name in errors.
    pub fn case(&self, name: &str, cc: &str, settings: &[(&str, &str)]) -> Result<Case, String> {
        let none = |file: &str| Err(format!("`{file}`: a case's scenario names no files"));
        let vocabulary = Vocabulary::new([PLACEHOLDER]);
        let cases = parse(name, &self.text(), &vocabulary, &none).map_err(|e| e.to_string())?;
        let mut case = cases.into_iter().next().ok_or("no run")?;
        for flow in &mut case.scenario.flows {
            cc.clone_into(&mut flow.cc);
            let settings = settings.iter().map(|(k, v)| ((*k).to_owned(), Value::Text((*v).to_owned())));
            flow.settings.extend(settings);
        }
        if is_quic(cc) {
            fit_quic(&mut case.scenario);
        }
        Ok(case)
    }

    fn text(&self) -> String {
        let Experiment { path, seconds, step, buffer, link, reverse, flow, triggers, .. } = self;
        let (rate, half) = (path.rate, path.rtt / 2);
        format!(
            "duration = \"{seconds:.6}s\"\nsample = \"{step:.9}s\"\n\
             [[path.forward]]\nrate = \"{rate}\"\ndelay = \"{half}\"\nqueue = \"{buffer}\"\n{link}\n\
             [[path.reverse]]\ndelay = \"{half}\"\n{reverse}\n\
             [[flow]]\ncc = \"{PLACEHOLDER}\"\n{flow}\n{triggers}"
        )
    }
}

/// The controller in the text of a scenario: the name of a program may have any characters.
pub(crate) const PLACEHOLDER: &str = "cc";

/// What an application of TCP writes to fill a packet of 1500 bytes.
pub(crate) const WRITE_BYTES: u64 = 1448;

/// The same over QUIC: headers and the frame around the data take up to 45 of the 1472 bytes of a
/// datagram (RFC 9000 §17.3, §19.8).
const QUIC_WRITE_BYTES: u64 = 1427;

/// A receive window that does not limit the flow on any path of the cases: QUIC counts a sender that
/// waits for the receiver as limited by the application.
const QUIC_RECEIVE_WINDOW: u64 = 64_000_000;

/// Changes what assumes TCP: a write fills a packet, as many of them per second.
fn fit_quic(scenario: &mut Scenario) {
    let fit = |app: &mut App| {
        if let App::Rate { rate, chunk } = app
            && chunk.0 == WRITE_BYTES
        {
            *chunk = Bytes(QUIC_WRITE_BYTES);
            let bps = rate.as_bits_per_sec_f64() * QUIC_WRITE_BYTES as f64 / WRITE_BYTES as f64;
            *rate = Rate::from_bits_per_sec(bps as u64);
        }
    };
    for flow in &mut scenario.flows {
        flow.receive_buffer = Some(Bytes(QUIC_RECEIVE_WINDOW));
        fit(&mut flow.app);
    }
    for trigger in &mut scenario.triggers {
        trigger.then.app.iter_mut().for_each(fit);
    }
}

/// A trigger with `when` and `then` as in a scenario file.
pub(crate) fn trigger(when: &str, then: &str) -> String {
    format!("[[trigger]]\nwhen = {{ {when} }}\nthen = {{ {then} }}\n")
}
