//! The page in a real browser: drawing, controls, and its size with a week of 56 pairs.

use fullpipe_experiment::{Recording, Scenario};
use fullpipe_mesh::location::Location;
use fullpipe_mesh::record::{History, Pair, SiteId};
use fullpipe_mesh::report::{Report, Summary, page};
use fullpipe_mesh::simulate::{Fault, InjectedFault, SimulatedMesh};
use fullpipe_path::{JitterSpec, Limit, LinkSpec};
use fullpipe_presentation::page::About;
use fullpipe_testing::browse;
use fullpipe_units::{Bytes, Fraction, Rate, Span};

fn simulate(scenario: &Scenario, seed: u64) -> Result<Recording, String> {
    fullpipe_sim::Simulation::new(scenario, seed).run().map_err(|e| e.to_string())
}

/// Operates the page like a reader and stores observations as attributes of the root element.
const READER: &str = r##"
const root = document.documentElement;
const note = (name, text) => { root.dataset["t" + name] = text; };
// Axes, grid and text are grey: only data is drawn in colour.
const drawn = (where) => [...document.querySelectorAll(where + " canvas")].filter((c) => {
  const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
  let n = 0;
  for (let i = 0; i < d.length; i += 4) {
    const [r, g, b, a] = d.subarray(i, i + 4);
    if (a > 0 && Math.max(r, g, b) - Math.min(r, g, b) > 60) n++;
  }
  return n > 500;
}).length;
setTimeout(() => {
  note("Plots", drawn("#plots-of-pair"));
  note("Cells", document.querySelectorAll(".matrix button").length);
  document.querySelectorAll(".matrix button")[3].click();
  note("Chosen", document.getElementById("pair").value);
  document.getElementById("turn").click();
  note("Turned", document.getElementById("pair").selectedOptions[0].textContent.trim());
  document.getElementById("theme").click();
  note("Dark", root.classList.contains("dark"));
  note("Wide", document.documentElement.scrollWidth <= innerWidth);
  setTimeout(() => {
    note("Again", drawn("#plots-of-pair"));
    note("Cdf", drawn("#cdf"));
    note("End", "yes");
  }, 1000);
}, 2000);
"##;

fn world(sites: SiteId, periods: u32) -> SimulatedMesh {
    let mut world = SimulatedMesh {
        sites: (0..sites).map(|site| format!("site-{site}")).collect(),
        controllers: vec!["cubic".into(), "bbr".into()],
        period: Span::from_secs(60),
        limit: Span::from_secs(20),
        size: Bytes(8_000_000),
        receive_buffer: None,
        start_ms: 1_767_225_600_000,
        periods,
        seed: 1,
        pool: 4,
        links: Default::default(),
        faults: vec![InjectedFault {
            from: periods / 2,
            until: u32::MAX,
            location: Location::Direction(Pair { from: 0, to: 1 }),
            fault: Fault::Loss(Fraction::from_billionths(10_000_000)),
        }],
    };
    for pair in world.pairs() {
        let apart = u64::from(pair.from.abs_diff(pair.to));
        let link = LinkSpec {
            rate: Some(Rate::from_bits_per_sec(50_000_000 + 20_000_000 * u64::from(pair.to))),
            delay: Span::from_millis(4 + 12 * apart),
            queue: Some(Limit::Bdp(0.1 + 0.2 * apart as f64).into()),
            jitter: Some(JitterSpec::from(Span::from_micros(300))),
            ..LinkSpec::default()
        };
        world.links.insert(pair, link);
    }
    world
}

fn render(history: &History) -> String {
    let about = About { title: "A mesh".into(), command: "fullpipe probe report".into() };
    page(&Summary::from(history), &Report::new(history, None), &about)
}

#[test]
fn the_page_draws_a_pair_and_its_controls_work() {
    let history = world(4, 240).history(simulate).unwrap();
    let page = render(&history);
    for text in ["Changes", "site-0 → site-1", "bbr vs cubic", "loss"] {
        assert!(page.contains(text), "{text}");
    }
    let Some(page) = browse(&page, READER, (1280, 2000)) else { return };
    assert!(!page.dom.contains("data-error="), "{}", page.excerpt());
    assert_eq!((page.note("end"), page.note("plots"), page.note("cells")), ("yes", "3", "12"));
    assert_eq!((page.note("chosen"), page.note("turned")), ("3", "site-0 → site-1 ◆"));
    assert_eq!((page.note("dark"), page.note("again"), page.note("cdf")), ("true", "3", "1"));
    assert_eq!(page.note("wide"), "true", "the page is wider than its window");
}

#[test]
fn a_week_of_56_pairs_is_a_page_below_2_5_megabytes() {
    let page = render(&world(8, 10_080).history(simulate).unwrap());
    // Half an hour per step: two million characters are parsed and drawn in a fraction of a second.
    assert!(page.len() < 2_500_000, "{} bytes", page.len());
    let Some(page) = browse(&page, READER, (1280, 2000)) else { return };
    assert!(!page.dom.contains("data-error="), "{}", page.excerpt());
    assert_eq!((page.note("plots"), page.note("cells")), ("3", "56"));
}
