//! The page in a real browser: are the plots drawn, do the controls work, does nothing else happen?

mod support;

use fullpipe_experiment::Results;
use fullpipe_report::{About, Format, controller_colour};
use fullpipe_testing::{BrowserOutput, View, browse, visit};

/// Works the page as a reader would and writes down what it finds as attributes of the root
/// element.
const READER: &str = include_str!("support/reader.js");

/// What the reader found in the page of `results`.
fn read(results: &Results, about: &About) -> Option<BrowserOutput> {
    let mut out = Vec::new();
    Format::Html.write(results, about, &mut out).unwrap();
    let page = String::from_utf8(out).unwrap();
    let colours: Vec<String> = results.runs.iter().map(|r| controller_colour(&r.cc).light_hex()).collect();
    let colours = serde_json::to_string(&colours).unwrap();
    let colours = format!("<script type=\"application/json\" id=\"colours\">{colours}</script>");
    let (before, after) = page.rsplit_once("</body>").unwrap();
    browse(&format!("{before}{colours}</body>{after}"), READER, (1400, 2200))
}

fn assert_quiet(page: &BrowserOutput) {
    assert_eq!(page.note("end"), "yes");
    assert!(!page.dom.contains("data-error="), "{}", page.excerpt());
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
    let link = page.note("playground").strip_prefix("playground.html#s=").unwrap_or_default();
    assert!(link.len() > 20 && link.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)), "{link}");
    assert!(page.note("readout").contains("window.pwned=1"), "the label is shown as it was written");
}

#[test]
fn only_scenarios_that_a_page_can_run_link_to_the_playground() {
    let inline = "[path.forward.trace]\nms = [1, 2]\n".to_owned();
    let many: String = (0..20_000).map(|ms| format!("{}, ", ms * 7919 % 100_003)).collect();
    let scenarios = [
        ("[[path.forward]]\ntrace = \"traces/train.trace\"\n".to_owned(), false),
        ("[path]\nforward = [{ delay = \"9ms\", trace = 'train.trace' }]\n".to_owned(), false),
        ("[sweep]\n\"path.forward.0.trace\" = [\"a.trace\", \"b.trace\"]\n".to_owned(), false),
        ("[[flow]]\ncc = \"policy:trained.json\"\n".to_owned(), false),
        ("[[flow]]\ncc = 'policy:trained.json'\n".to_owned(), false),
        // Longer than a link may be.
        (inline.replace("1, 2", &many[..60_000]), false),
        (inline.replace("1, 2", &many), false),
        (inline, true),
        ("[[path.forward]]\ntrace = { ms = [1, 2] }\n".to_owned(), true),
        ("title = \"A trace\"\n[path]\ncellular = { min = \"1mbit\", max = \"9mbit\" }\n".to_owned(), true),
        ("about = \"No policy: no trace\"\n[[flow]]\ncc = \"bbr\"\n".to_owned(), true),
    ];
    let mut results = support::race(2.0);
    let run = results.runs.swap_remove(0);
    results.runs = scenarios.iter().map(|_| run.clone()).collect();
    for (run, (text, _)) in results.runs.iter_mut().zip(&scenarios) {
        run.provenance.scenario.clone_from(text);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.html");
    let mut out = Vec::new();
    Format::Html.write(&results, &About { title: "Links".into(), command: String::new() }, &mut out).unwrap();
    std::fs::write(&file, out).unwrap();
    // The last scenario gets a link; the others get half a second more.
    let reader = r##"(async () => {
        const boxes = [...document.querySelectorAll("details.scenario")];
        for (const box of boxes) box.open = true;
        for (let tries = 0; tries < 200; tries++) {
            await new Promise((r) => setTimeout(r, 10));
            if (boxes.at(-1).querySelector("a.playground")) break;
        }
        await new Promise((r) => setTimeout(r, 500));
        const linked = (box) => box.querySelector("a.playground") !== null;
        return boxes.map((box) => [box.querySelector("pre").textContent, linked(box)]);
    })()"##;
    let view = View { width: 1400, height: 900, dark: false, picture: None };
    let Some(page) = visit(&format!("file://{}", file.display()), reader, view) else { return };
    assert!(page.errors.is_empty(), "{:?}", page.errors);
    let shown = page.value.as_array().unwrap();
    assert_eq!(shown.len(), scenarios.len());
    for (shown, (text, linked)) in shown.iter().zip(&scenarios) {
        assert_eq!(shown[0], text.trim_end(), "{text:.80}");
        assert_eq!(shown[1], *linked, "{text:.80}");
    }
}

#[test]
fn on_a_phone_tables_and_pictures_scroll_and_the_page_does_not() {
    let mut results = support::race(2.0);
    let runs = std::mem::take(&mut results.runs);
    for loss in ["0.1%", "1%", "10%"] {
        for run in &runs {
            let mut run = run.clone();
            run.label = format!("{}, loss {loss}, and a long label besides", run.cc);
            run.varied = vec![fullpipe_experiment::recording::Variation::new("path.loss", loss)];
            results.runs.push(run);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.html");
    let mut out = Vec::new();
    Format::Html
        .write(&results, &About { title: "A sweep".into(), command: "fullpipe race".into() }, &mut out)
        .unwrap();
    std::fs::write(&file, out).unwrap();
    let reader = r##"(async () => {
        while (!document.documentElement.dataset.charts) await new Promise((r) => setTimeout(r, 50));
        const pressed = () => [...document.querySelectorAll("#lines button[data-line]")]
            .filter((b) => b.getAttribute("aria-pressed") === "true").map((b) => b.textContent);
        const choice = document.querySelector("#choices select");
        const before = pressed().length;
        choice.value = "1%";
        choice.dispatchEvent(new Event("change"));
        return {
            wider: document.documentElement.scrollWidth - 390,
            // Of the summary's first row: its name and goodput are within the window, and the name stays in
            // place when the table is scrolled.
            ends: (() => {
                const row = document.querySelector("table.summary tbody tr");
                const box = row.closest(".scroll");
                const name = () => row.querySelector("th").getBoundingClientRect();
                const figure = row.querySelector("td.goodput span").getBoundingClientRect().right;
                const before = name().left;
                box.scrollLeft = 200;
                const moved = [box.scrollLeft, name().left - before];
                box.scrollLeft = 0;
                return { figure, moved };
            })(),
            scrolls: [...document.querySelectorAll(".scroll, figure")]
                .some((e) => e.scrollWidth > e.clientWidth),
            key: choice.dataset.key, values: [...choice.options].map((o) => o.value), before,
            chosen: pressed(),
            legend: [...document.querySelectorAll("[data-panel=states] .legend span")]
                .map((e) => e.textContent),
        };
    })()"##;
    for dark in [false, true] {
        let picture = std::env::var_os("FULLPIPE_PICTURES").map(|dir| {
            std::path::PathBuf::from(dir).join(if dark { "sweep-phone-dark.png" } else { "sweep-phone.png" })
        });
        let view = View { width: 390, height: 844, dark, picture: picture.as_deref() };
        let Some(page) = visit(&format!("file://{}", file.display()), reader, view) else { return };
        assert!(page.errors.is_empty(), "{:?}", page.errors);
        let seen = &page.value;
        assert!(seen["wider"].as_i64().unwrap() <= 0 && seen["scrolls"] == true, "{seen:#}");
        assert!(seen["ends"]["figure"].as_f64().unwrap() < 390.0, "the goodput is out of sight: {seen:#}");
        assert_eq!(seen["ends"]["moved"], serde_json::json!([200, 0]), "the run's name stays: {seen:#}");
        // Runs over time are chosen by what was swept.
        assert_eq!(seen["key"], "loss");
        assert_eq!(seen["values"], serde_json::json!(["", "0.1%", "1%", "10%"]));
        let chosen: Vec<&str> =
            seen["chosen"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
        assert!(chosen.len() == 4 && chosen.iter().all(|label| label.contains("loss 1%,")), "{seen:#}");
        // The legend names every state.
        let legend = seen["legend"].to_string();
        for state in ["Startup", "ProbeBW", "SlowStart", "CongestionAvoidance"] {
            assert!(legend.contains(state), "{legend}");
        }
    }
}
