//! Batches: the same bytes with any number of threads, and the results of an interrupted batch.

use fullpipe_experiment::recording::ProcessingOrder;
use fullpipe_experiment::scenario::{Case, parse};
use fullpipe_run::{Batch, Engine, Job, Monitor, Outcome, RunError, vocabulary};
use fullpipe_units::Span;
use std::sync::atomic::{AtomicUsize, Ordering};

fn jobs(file: &str) -> Vec<Job> {
    let none = |_: &str| Err(String::new());
    let cases: Vec<Case> = parse("x.toml", file, &vocabulary(&[Engine::Sim]), &none).unwrap();
    cases.into_iter().map(|case| Job { engine: Engine::Sim, case }).collect()
}

const RACE: &str = "duration = '2s'\nrepeats = 4\n[path]\nrate = '20mbit'\nrtt = '50ms'\nloss = '1%'\n\
                    [[flow]]\ncc = 'bbr'\n[[flow]]\ncc = 'cubic'\n[[check]]\nflow = 'bbr'\n\
                    goodput = '> 1mbit'\n";

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_thread() {
    let run = |threads| Batch::new(jobs(RACE)).threads(threads).run(&()).results;
    let json = |results| serde_json::to_string(&results).unwrap();
    let alone = run(1);
    assert_ne!(alone.runs[0].flows[0].series, alone.runs[1].flows[0].series);
    assert!(json(alone) == json(run(3)));
}

#[test]
fn a_run_of_many_flows_gives_the_same_bytes_on_any_number_of_threads() {
    let file = "duration = '2s'\n[path]\nrate = '200mbit'\nrtt = '50ms'\nloss = '1%'\n\
                [[flow]]\ncc = 'bbr'\ncount = 60\n[[flow]]\ncc = 'cubic'\ncount = 60\n";
    let run = |threads| {
        let outcome = Batch::new(jobs(file)).threads_per_run(threads).run(&());
        serde_json::to_string(&outcome.results).unwrap()
    };
    let alone = run(1);
    for threads in [0, 2, 5] {
        assert!(alone == run(threads), "{threads}");
    }
}

#[test]
fn a_run_records_its_varied_values_and_its_checks() {
    let results = Batch::new(jobs(RACE)).run(&()).results;
    let run = &results.runs[2];
    assert_eq!((run.label.as_str(), run.varied("seed")), ("bbr+cubic, seed 3", Some("3")));
    assert!(run.checks.len() == 1 && run.checks[0].passed, "{:?}", run.checks);
    assert!(run.checks[0].value.unwrap() > 1e6);
    assert!(run.flows.iter().all(|flow| flow.distributions.is_none()), "only figures are published");
}

#[test]
fn recordings_of_bbr3_name_the_draft_and_others_do_not() {
    use fullpipe_cc::bbr::v3::{DRAFT_COMMIT, DRAFT_REVISION};
    let draft = |cc: &str| {
        let file = format!("duration = '1s'\n[path]\nrate = '10mbit'\nrtt = '20ms'\n[[flow]]\ncc = '{cc}'\n");
        Batch::new(jobs(&file)).run(&()).results.runs.remove(0).provenance.draft
    };
    let named = Some(format!("{DRAFT_REVISION}, commit {DRAFT_COMMIT}"));
    assert_eq!(draft("bbr3"), named);
    assert_eq!(draft("bbr3' \nsettings = { variant = 'linux' }\nlabel = 'other"), named);
    assert_eq!((draft("bbr"), draft("cubic")), (None, None));
}

#[test]
fn recordings_of_many_flows_say_how_they_were_processed_and_why() {
    let processing = |count: u32, jitter: &str| {
        let file = format!(
            "duration = '100ms'\n[[path.forward]]\nrate = '100mbit'\ndelay = '10ms'\n{jitter}\
             [[path.reverse]]\ndelay = '10ms'\n[[flow]]\ncc = 'cubic'\ncount = {count}\n"
        );
        let run = Batch::new(jobs(&file)).run(&()).results.runs.remove(0);
        run.provenance.processing.map(|p| (p.order, p.because))
    };
    assert_eq!(processing(99, ""), None);
    let (order, because) = processing(100, "").unwrap();
    assert!(order == ProcessingOrder::Windows && because.contains("many flows"), "{because}");
    let (order, because) = processing(100, "jitter = '1ms'\n").unwrap();
    assert!(order == ProcessingOrder::Events && because.contains("no constant delay"), "{because}");
}

#[test]
fn quantiles_of_several_flows_are_of_all_their_packets() {
    // Two flows on a path each by their extra delay: together half of the packets took 40 ms, half 240
    // ms.
    let file = "duration = '20s'\nsample = '10s'\n[path]\nrate = '100mbit'\nrtt = '40ms'\n\
                [[flow]]\ncc = 'fixed'\nsettings = { window = 10 }\ncount = 1\n\
                [[flow]]\ncc = 'fixed'\nsettings = { window = 60 }\nextra_rtt = '200ms'\n\
                [[flow]]\ncc = 'reno'\nsize = '10k'\n\
                [[check]]\nflow = 'fixed'\nrtt_min = '40ms .. 41ms'\nrtt_p50 = '40ms .. 242ms'\n\
                rtt_p99 = '239ms .. 245ms'\nqueue_max = '<= 20ms'\n";
    let results = Batch::new(jobs(file)).run(&()).results;
    assert!(results.runs[0].checks.iter().all(|c| c.passed), "{:#?}", results.runs[0].checks);
}

/// Interrupts once so many runs are finished.
struct After(usize, AtomicUsize);

impl Monitor for After {
    fn interrupted(&self) -> bool {
        self.1.load(Ordering::Relaxed) >= self.0
    }

    fn finished(&self, left: Span) {
        assert!(left <= Span::from_secs(2));
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_interrupted_batch_keeps_the_finished_runs() {
    let run = |after| Batch::new(jobs(RACE)).threads(1).run(&After(after, AtomicUsize::new(0)));
    let Outcome { results, numbers, interrupted, failures } = run(2);
    assert!(interrupted && failures.is_empty());
    assert_eq!((results.runs.len(), numbers), (2, vec![0, 1]));
    assert!(matches!(run(0).into_runs(), Err(RunError::Interrupted)));
    assert_eq!(run(9).into_runs().unwrap().len(), 4);
}

#[test]
fn a_failed_run_does_not_affect_the_others() {
    let mut jobs = jobs(RACE);
    jobs[1].case.scenario.flows[0].settings =
        [("no_such".to_owned(), fullpipe_experiment::scenario::Setting::Integer(1))].into();
    let outcome = Batch::new(jobs).run(&());
    assert_eq!(outcome.numbers, [0, 2, 3]);
    assert!(outcome.failures[0].to_string().contains("seed 2"), "{}", outcome.failures[0]);
    assert!(outcome.failures[0].to_string().contains("no_such"), "{}", outcome.failures[0]);
}
