//! Runs over a simulated and an emulated path, and reports of them.

use super::outcome::Outcome;
use fullpipe_experiment::{Recording, Results};
use fullpipe_lab::LabError;
use fullpipe_report::{About, Format};
use fullpipe_run::race::{Contestant, Race};
use fullpipe_run::{Batch, Engine, Job, LabOptions, RunError};
use fullpipe_units::{Fraction, Rate, Span};

/// Random loss of 1 %, where BBR delivers tens of times as much as CUBIC (README).
pub fn simulator() -> Outcome {
    let run =
        || race(&["bbr", "cubic"], &Race { duration: Span::from_secs(10), ..Race::default() }, Engine::Sim);
    let (first, second) = match (run(), run()) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(e), _) | (_, Err(e)) => return Outcome::failed(e.to_string()),
    };
    // Compared as text, since missing samples are NaN, which equals nothing.
    if text(&first) != text(&second) {
        return Outcome::failed("two runs with the same seed differ");
    }
    let rates = first.iter().map(|run| run.summary.goodput_bps / 1e6).collect::<Vec<_>>();
    let found =
        format!("bbr {:.1} and cubic {:.2} Mbit/s on 100 Mbit/s, 100 ms, 1 % loss", rates[0], rates[1]);
    if rates[0] < 5.0 * rates[1] {
        return Outcome::failed(format!("{found}: bbr should be many times as fast as cubic"));
    }
    Outcome::works(found)
}

/// Every report format, of a run with its time series.
pub fn reports() -> Outcome {
    let short = Race { duration: Span::from_secs(2), ..Race::default() };
    let results = match race(&["bbr"], &short, Engine::Sim) {
        Ok(runs) => Results::new(runs),
        Err(e) => return Outcome::failed(e.to_string()),
    };
    let about = About { title: "self-test".to_owned(), command: "fullpipe self-test".to_owned() };
    let mut written = Vec::new();
    for format in Format::ALL {
        let name = format.extension();
        let mut bytes = Vec::new();
        match format.write(&results, &about, &mut bytes) {
            Ok(()) if bytes.is_empty() => return Outcome::failed(format!("{name}: nothing was written")),
            Ok(()) => {}
            Err(e) => return Outcome::failed(format!("{name}: {e}")),
        }
        if *format == Format::Json {
            match serde_json::from_slice::<Results>(&bytes) {
                Ok(read) if text(&read) == text(&results) => {}
                Ok(_) => {
                    return Outcome::failed("json: reading it back gives other results than were written");
                }
                Err(e) => return Outcome::failed(format!("json: cannot read it back: {e}")),
            }
        }
        written.push(name);
    }
    Outcome::works(written.join(", "))
}

/// The kernel's Reno, which every kernel has, for two seconds.
pub fn lab() -> Outcome {
    let slow = Race {
        rate: Rate::from_bits_per_sec(20_000_000),
        rtt: Span::from_millis(20),
        loss: Fraction::ZERO,
        duration: Span::from_secs(2),
        ..Race::default()
    };
    let run = match race(&["reno"], &slow, Engine::Lab) {
        Ok(mut runs) => runs.remove(0),
        Err(RunError::Lab(LabError::Impossible(reason))) => return Outcome::impossible_because(reason),
        Err(e) => return Outcome::failed(e.to_string()),
    };
    if !run.valid {
        return Outcome::inconclusive(format!(
            "it runs, but the run is invalid: {}",
            run.invalid_because.join("; ")
        ));
    }
    if run.summary.bytes_delivered == 0 {
        return Outcome::failed("the kernel's reno delivered nothing over an emulated path");
    }
    let rate = run.summary.goodput_bps / 1e6;
    Outcome::works(format!(
        "the kernel's reno reached {rate:.1} Mbit/s over an emulated path of 20 Mbit/s, 20 ms"
    ))
}

fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("recordings are JSON")
}

/// The runs of `names` one after another.
fn race(names: &[&str], race: &Race, engine: Engine) -> Result<Vec<Recording>, RunError> {
    let engines = [engine];
    let contestants: Vec<Contestant> = names
        .iter()
        .map(|name| Contestant::parse(name, &engines).expect("a controller that every engine knows"))
        .collect();
    let cases = race.cases(&contestants, &engines).expect("a valid race");
    let jobs = cases.into_iter().map(|case| Job { engine, case }).collect();
    let lab = LabOptions { retries: 1, ..LabOptions::default() };
    Batch::new(jobs).with_lab(lab).run(&()).into_runs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::self_test::outcome::Verdict;

    #[test]
    fn the_simulator_and_its_reports_work_anywhere() {
        for outcome in [simulator(), reports()] {
            assert_eq!(outcome.verdict, Verdict::Works, "{}", outcome.found);
        }
    }
}
