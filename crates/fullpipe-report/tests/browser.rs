//! The page in a real browser: are the plots drawn, do the controls work, does nothing else happen?

mod support;

use fullpipe_experiment::Results;
use fullpipe_report::{About, Format, colour_of};
use fullpipe_testing::{Browsed, browse};

/// Works the page as a reader would and writes down what it finds as attributes of the root element.
const READER: &str = include_str!("support/reader.js");

/// What the reader found in the page of `results`.
fn read(results: &Results, about: &About) -> Option<Browsed> {
    let mut out = Vec::new();
    Format::Html.write(results, about, &mut out).unwrap();
    let page = String::from_utf8(out).unwrap();
    let colours: Vec<String> = results.runs.iter().map(|r| colour_of(&r.cc).light_hex()).collect();
    let colours = serde_json::to_string(&colours).unwrap();
    let colours = format!("<script type=\"application/json\" id=\"colours\">{colours}</script>");
    let (before, after) = page.rsplit_once("</body>").unwrap();
    browse(&format!("{before}{colours}</body>{after}"), READER, (1400, 2200))
}

fn assert_quiet(page: &Browsed) {
    assert_eq!(page.note("end"), "yes");
    assert!(!page.dom.contains("data-error="), "{}", page.beginning());
    // The reader's own reading back of pixels is remarked upon; nothing else may be.
    let complaints: Vec<&str> =
        page.log.lines().filter(|l| l.contains(":CONSOLE") && !l.contains("willReadFrequently")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert_eq!(page.note("requests"), "0", "the page asked for something");
    assert_eq!(page.note("pwned"), "no");
}

#[test]
fn the_plots_are_drawn_and_the_controls_work() {
    let race = support::race(30.0);
    let Some(page) = read(&race, &About { title: "A race".into(), command: String::new() }) else {
        return;
    };
    assert_quiet(&page);
    let panels = page.note("panels");
    for panel in ["goodput", "rtt", "queue", "inflight", "cwnd", "pacing", "bw", "states"] {
        assert!(panels.split(' ').any(|p| p == panel), "{panel} is missing of {panels}");
    }
    let drawn: Vec<u32> = page.note("drawn").split(' ').map(|n| n.parse().unwrap()).collect();
    assert_eq!(drawn.len(), race.runs.len());
    assert!(drawn.iter().all(|n| *n > 200), "every run has its colour in the plot of goodput: {drawn:?}");
    let number = |name: &str| page.note(name).parse::<u32>().unwrap();
    assert_eq!(number("hidden"), 0, "a run that is switched off is not drawn");
    assert!(number("back") > 200 && number("log") > 200);
    assert_eq!(page.note("zoomed"), "true");
    assert_eq!(page.note("unzoomed"), "true");
    let readout = page.note("readout");
    assert!(race.runs.iter().all(|r| readout.contains(&r.cc)), "the cursor is shared: {readout}");
    assert_eq!(number("themes") as usize, panels.split(' ').count());
}

#[test]
fn hostile_labels_stay_text() {
    let evil =
        "</script><script>window.pwned=1</script><img src=http://127.0.0.1:9/x onerror=\"window.pwned=2\">";
    let mut results = support::together(2.0);
    let run = &mut results.runs[0];
    run.label = evil.to_owned();
    run.path.description = evil.to_owned();
    run.provenance.scenario = evil.to_owned();
    run.links[0].label = evil.to_owned();
    for flow in &mut run.flows {
        flow.label = evil.to_owned();
        flow.states[0].state = evil.to_owned();
    }
    let Some(page) = read(&results, &About { title: evil.into(), command: evil.into() }) else {
        return;
    };
    assert_quiet(&page);
    assert!(page.note("readout").contains("window.pwned=1"), "the label is shown as it was written");
}
