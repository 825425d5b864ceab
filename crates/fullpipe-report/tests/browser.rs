//! The page in a real browser: are the plots drawn, do the controls work, does nothing else happen?

mod support;

use fullpipe_experiment::Results;
use fullpipe_report::{About, Format, colour_of};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Works the page as a reader would and writes down what it finds as attributes of the root element.
const READER: &str = include_str!("support/reader.js");

/// What the browser made of `page`: the document after all scripts, and what it logged.
fn browse(page: &str) -> Option<(String, String)> {
    let browser = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        let found = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_ok_and(|s| s.success())
    });
    let Some(browser) = browser else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no Chromium: see ci/packages.txt");
        println!("SKIPPED: no Chromium to open the page with");
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.html");
    std::fs::write(&file, page).unwrap();
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let dom = std::fs::File::create(dir.path().join("dom")).unwrap();
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=20000", "--window-size=1400,2200"])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", file.display()))
        .stdout(dom)
        .stderr(log)
        .spawn()
        .unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(300) {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the browser did not finish: {}", read(&dir.path().join("log")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Some((read(&dir.path().join("dom")), read(&dir.path().join("log"))))
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
}

/// The page of `results` with the reader in it.
fn page(results: &Results, about: &About) -> String {
    let mut out = Vec::new();
    Format::Html.write(results, about, &mut out).unwrap();
    let page = String::from_utf8(out).unwrap();
    let colours: Vec<String> = results.runs.iter().map(|r| colour_of(&r.cc).light_hex()).collect();
    let colours = serde_json::to_string(&colours).unwrap();
    let colours = format!("<script type=\"application/json\" id=\"colours\">{colours}</script>");
    let (before, after) = page.rsplit_once("</body>").unwrap();
    format!("{before}{colours}<script>{READER}</script></body>{after}")
}

/// The note `name` that the reader left.
fn note(dom: &str, name: &str) -> String {
    let start = format!("data-t-{name}=\"");
    let from =
        dom.find(&start).unwrap_or_else(|| panic!("no note `{name}` in {}", &dom[..dom.len().min(600)]));
    dom[from + start.len()..].split('"').next().unwrap().to_owned()
}

fn assert_quiet(dom: &str, log: &str) {
    assert_eq!(note(dom, "end"), "yes");
    assert!(!dom.contains("data-error="), "{}", &dom[..dom.len().min(400)]);
    // The reader's own reading back of pixels is remarked upon; nothing else may be.
    let complaints: Vec<&str> =
        log.lines().filter(|l| l.contains(":CONSOLE") && !l.contains("willReadFrequently")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert_eq!(note(dom, "requests"), "0", "the page asked for something");
    assert_eq!(note(dom, "pwned"), "no");
}

#[test]
fn the_plots_are_drawn_and_the_controls_work() {
    let race = support::race(30.0);
    let Some((dom, log)) = browse(&page(&race, &About { title: "A race".into(), command: String::new() }))
    else {
        return;
    };
    assert_quiet(&dom, &log);
    let panels = note(&dom, "panels");
    for panel in ["goodput", "rtt", "queue", "inflight", "cwnd", "pacing", "bw", "states"] {
        assert!(panels.split(' ').any(|p| p == panel), "{panel} is missing of {panels}");
    }
    let drawn: Vec<u32> = note(&dom, "drawn").split(' ').map(|n| n.parse().unwrap()).collect();
    assert_eq!(drawn.len(), race.runs.len());
    assert!(drawn.iter().all(|n| *n > 200), "every run has its colour in the plot of goodput: {drawn:?}");
    let number = |name: &str| note(&dom, name).parse::<u32>().unwrap();
    assert_eq!(number("hidden"), 0, "a run that is switched off is not drawn");
    assert!(number("back") > 200 && number("log") > 200);
    assert_eq!(note(&dom, "zoomed"), "true");
    assert_eq!(note(&dom, "unzoomed"), "true");
    let readout = note(&dom, "readout");
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
    let Some((dom, log)) = browse(&page(&results, &About { title: evil.into(), command: evil.into() }))
    else {
        return;
    };
    assert_quiet(&dom, &log);
    assert!(note(&dom, "readout").contains("window.pwned=1"), "the label is shown as it was written");
}
