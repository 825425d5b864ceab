//! One experiment of a case: its scenario file and its judge.

use crate::TestPath;
use crate::observed::{Failures, Observed};
use fullpipe_experiment::scenario::{Case, Setting as Value, Vocabulary, parse};

/// Reports the failures of a run.
pub(crate) type Judge = fn(&Observed<'_>, &mut Failures);

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
        let cases = parse(name, &self.text(cc), &Vocabulary::new([cc]), &none).map_err(|e| e.to_string())?;
        let mut case = cases.into_iter().next().ok_or("no run")?;
        for flow in &mut case.scenario.flows {
            let settings = settings.iter().map(|(k, v)| ((*k).to_owned(), Value::Text((*v).to_owned())));
            flow.settings.extend(settings);
        }
        Ok(case)
    }

    fn text(&self, cc: &str) -> String {
        let Experiment { path, seconds, step, buffer, link, reverse, flow, triggers, .. } = self;
        let (rate, half) = (path.rate, path.rtt / 2);
        format!(
            "duration = \"{seconds:.6}s\"\nsample = \"{step:.9}s\"\n\
             [[path.forward]]\nrate = \"{rate}\"\ndelay = \"{half}\"\nqueue = \"{buffer}\"\n{link}\n\
             [[path.reverse]]\ndelay = \"{half}\"\n{reverse}\n\
             [[flow]]\ncc = {cc:?}\n{flow}\n{triggers}"
        )
    }
}

/// A trigger with `when` and `then` as in a scenario file.
pub(crate) fn trigger(when: &str, then: &str) -> String {
    format!("[[trigger]]\nwhen = {{ {when} }}\nthen = {{ {then} }}\n")
}
