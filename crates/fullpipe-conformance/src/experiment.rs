//! One experiment of a case: its scenario file, and what must be seen in the run.

use crate::TestPath;
use crate::observed::{Failures, Observed};
use fullpipe_experiment::scenario::{Case, Setting as Value, Vocabulary, parse};

/// Says what does not hold in a run.
pub(crate) type Judge = fn(&Observed<'_>, &mut Failures);

/// A flow on a path, and who judges what was recorded of it. The texts are lines of the scenario file.
pub(crate) struct Experiment {
    pub path: TestPath,
    /// How long it lasts.
    pub seconds: f64,
    /// Seconds between two rows of the recording.
    pub step: f64,
    /// Limit of the queue, as the file has it.
    pub buffer: &'static str,
    pub judge: Judge,
    /// More to say of the way there.
    pub link: String,
    /// More to say of the way back.
    pub back: String,
    /// More to say of the flow.
    pub flow: String,
    /// Changes that wait for a state, each made by [`trigger`].
    pub triggers: String,
}

impl Experiment {
    /// A flow that sends all it can, with nothing special about it.
    pub fn new(path: &TestPath, seconds: f64, step: f64, buffer: &'static str, judge: Judge) -> Self {
        Experiment {
            path: *path,
            seconds,
            step,
            buffer,
            judge,
            link: String::new(),
            back: String::new(),
            flow: String::new(),
            triggers: String::new(),
        }
    }

    /// What an engine runs, with the flow under `cc`; `name` stands for the file in messages.
    pub fn case(&self, name: &str, cc: &str, settings: &[(&str, &str)]) -> Result<Case, String> {
        let none = |file: &str| Err(format!("`{file}`: a case's scenario stands alone"));
        let cases = parse(name, &self.text(cc), &Vocabulary::new([cc]), &none).map_err(|e| e.to_string())?;
        let mut case = cases.into_iter().next().ok_or("no run")?;
        for flow in &mut case.scenario.flows {
            let settings = settings.iter().map(|(k, v)| ((*k).to_owned(), Value::Text((*v).to_owned())));
            flow.settings.extend(settings);
        }
        Ok(case)
    }

    fn text(&self, cc: &str) -> String {
        let Experiment { path, seconds, step, buffer, link, back, flow, triggers, .. } = self;
        let (rate, half) = (path.rate, path.rtt / 2);
        format!(
            "duration = \"{seconds:.6}s\"\nsample = \"{step:.9}s\"\n\
             [[path.forward]]\nrate = \"{rate}\"\ndelay = \"{half}\"\nqueue = \"{buffer}\"\n{link}\n\
             [[path.reverse]]\ndelay = \"{half}\"\n{back}\n\
             [[flow]]\ncc = \"{cc}\"\n{flow}\n{triggers}"
        )
    }
}

/// A change that waits for a state: `when` and `then` as a scenario file has them.
pub(crate) fn trigger(when: &str, then: &str) -> String {
    format!("[[trigger]]\nwhen = {{ {when} }}\nthen = {{ {then} }}\n")
}
