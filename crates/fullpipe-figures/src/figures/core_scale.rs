//! Thousands of flows on a core link, and tens at the edge.

use super::{chapter, n, scenario};
use crate::view::{dotted, max, mean, median, min, published, published_line};
use crate::{Figure, Finding, Outcome, Runs};
use fullpipe_experiment::Case;
use fullpipe_experiment::recording::{EventKind, FlowRecording, Recording, Variation, column, jain};
use fullpipe_experiment::scenario::FlowSpec;
use fullpipe_path::AggregateSpec;
use fullpipe_report::controller_colour;
use fullpipe_report::picture::{Axis, Curve, Mark, Panel, Picture};
use fullpipe_units::{Rate, Span};

pub(super) const FIGURE: Figure = Figure {
    id: "core-scale",
    title: "Thousands of flows on a core link, and tens at the edge",
    source: "Philip et al., IMC 2021",
    about: "1000, 3000 and 5000 flows of one kind on 10 Gbit/s, and 10, 30 and 50 on 100 Mbit/s, with \
            buffers of 100 ms, for 40 s; the published runs took an hour and more. In the short form, which \
            is also that of `all`, the core is a tenth: 1 Gbit/s and 100, 300 and 500 flows.",
    published: "lines: BBR's least index, 0.4 in the core and 0.7 at the edge (IMC 2021, as its repetition \
                quotes it), and 40 % of a link for one BBR flow (Ware et al., IMC 2019); diamonds: that \
                repetition on CloudLab, an hour and more, with buffers of 240 and 300 ms (Parasrampuria, \
                2023). Of BBR v3 nothing.",
    file: "scenarios/figures/core-scale.toml",
    text: scenario!("core-scale"),
    chapter: chapter!("core-scale"),
    revise: Some(core_and_edge),
    judge,
    in_lab: false,
    short: Some(short_form),
};

/// Ratio of rate and flows between core and edge.
const EDGE_PART: u32 = 100;
/// Ratio of rate and flows between the core and its short form.
const SHORT_PART: u32 = 10;

/// RTTs of the BBR flows, and the controllers that a single BBR flow competes with.
const RTTS: [&str; 2] = ["20ms", "100ms"];
const CROWDS: [&str; 2] = ["reno", "cubic"];

/// Parameters of a run besides its controller and number of flows.
const LINK: &str = "link";
const RTT: &str = "rtt";
const ACKS: &str = "acks";
const CROWD: &str = "crowd";

/// Duration and warm-up of the run with a single BBR flow among many: it grows by a quarter per
/// cycle of eight round trips.
const CROWD_DURATION: Span = Span::from_secs(120);
const CROWD_WARMUP: Span = Span::from_secs(90);

/// A case with one `part`-th of the rate and the flows, which start within the same time.
fn scaled(case: &Case, part: u32) -> Case {
    let mut case = case.clone();
    let link = &mut case.scenario.path.forward[0];
    link.rate = link.rate.map(|rate| Rate::from_bits_per_sec(rate.as_bits_per_sec() / u64::from(part)));
    let flows = &mut case.scenario.flows;
    let others = flows.len() as u32 - 1;
    let all = (flows[0].count + others) / part;
    flows[0].count = all - others;
    flows[0].stagger = flows[0].stagger * u64::from(part);
    if let Some(count) = case.varied.iter_mut().find(|v| v.key == "flow.count") {
        count.value = all.to_string();
    }
    case
}

/// All cases in the core and at the edge.
fn core_and_edge(cases: Vec<Case>) -> Vec<Case> {
    let mut core = Vec::new();
    for case in cases {
        let with = |key: &str, value: &str, change: &dyn Fn(&mut Case)| {
            let mut case = case.clone();
            case.varied.push(Variation::new(key, value));
            change(&mut case);
            case
        };
        core.push(with(RTT, "20ms", &|_| ()));
        match case.scenario.cc().as_str() {
            "bbr" | "bbr3" => core.push(with(RTT, "100ms", &|case| {
                let path = &mut case.scenario.path;
                path.forward[0].delay = Span::from_millis(50);
                path.reverse[0].delay = Span::from_millis(50);
            })),
            "reno" => core.push(with(ACKS, "in bunches", &|case| {
                let every = Some(Span::from_millis(5));
                case.scenario.path.reverse[0].aggregate =
                    Some(AggregateSpec { every, ..AggregateSpec::default() });
            })),
            _ => {}
        }
        if case.value("flow.count") == Some("5000") && matches!(case.scenario.cc().as_str(), "reno" | "cubic")
        {
            for one in ["bbr", "bbr3"] {
                core.push(with(CROWD, one, &|case| {
                    let s = &mut case.scenario;
                    s.duration = CROWD_DURATION;
                    s.warmup = CROWD_WARMUP;
                    s.flows[0].count -= 1;
                    s.flows.push(FlowSpec::bulk(one));
                }));
            }
        }
    }
    let on = |link: &str, mut case: Case| {
        case.varied.push(Variation::new(LINK, link));
        case
    };
    let edge: Vec<Case> = core.iter().map(|case| on("edge", scaled(case, EDGE_PART))).collect();
    core.into_iter().map(|case| on("core", case)).chain(edge).collect()
}

/// The core scaled to a tenth; the edge unchanged.
fn short_form(cases: Vec<Case>) -> Vec<Case> {
    let shorter =
        |case: Case| if case.value(LINK) == Some("core") { scaled(&case, SHORT_PART) } else { case };
    cases.into_iter().map(shorter).collect()
}

/// Runs of a controller on a link with this value of a parameter.
fn select<'a>(
    runs: &'a Runs,
    cc: &'a str,
    link: &'a str,
    key: &'a str,
    value: &'a str,
) -> Vec<&'a (Case, Recording)> {
    let wanted = |case: &Case| case.value(LINK) == Some(link) && case.value(key) == Some(value);
    runs.for_controller(cc).filter(|(case, _)| wanted(case)).collect()
}

/// A value of each run over its number of flows.
fn by_flows(runs: &[&(Case, Recording)], of: impl Fn(&Case, &Recording) -> f64) -> Vec<(f64, f64)> {
    runs.iter().map(|(case, run)| (run.flows.len() as f64, of(case, run))).collect()
}

fn goodputs(run: &Recording) -> Vec<f64> {
    run.flows.iter().map(|f| f.summary.goodput_bps).collect()
}

/// Goodput of the median and the largest flow, relative to a fair share.
fn median_and_largest(run: &Recording) -> (f64, f64) {
    let all = goodputs(run);
    let fair = mean(&all);
    (median(&all) / fair, max(&all) / fair)
}

/// Number of window reductions after the warm-up: one per recovery and timeout.
fn halvings(case: &Case, flow: &FlowRecording) -> f64 {
    let from = case.scenario.warmup.as_secs_f64();
    let reduces = |kind| matches!(kind, EventKind::RecoveryEntered | EventKind::RetransmissionTimeout);
    flow.events.iter().filter(|e| e.at_s > from && reduces(e.kind)).count() as f64
}

fn losses(_: &Case, flow: &FlowRecording) -> f64 {
    flow.summary.packets_lost as f64
}

/// Fits C in the law of Mathis et al., goodput = C · segment / (RTT · √p), over all flows, and
/// returns it with the median relative error. p is the share of packets counted by `count`.
fn mathis(case: &Case, run: &Recording, of: impl Fn(&Case, &FlowRecording) -> f64) -> (f64, f64) {
    let points = run.flows.iter().filter_map(|flow| {
        let rtt = flow.summary.rtt_ms.p50? / 1e3;
        let share = of(case, flow) / flow.summary.packets_sent as f64;
        (share > 0.0)
            .then(|| (f64::from(case.scenario.smss()) * 8.0 / (rtt * share.sqrt()), flow.summary.goodput_bps))
    });
    let points: Vec<(f64, f64)> = points.collect();
    let product: f64 = points.iter().map(|(x, y)| x * y).sum();
    let square: f64 = points.iter().map(|(x, _)| x * x).sum();
    let c = product / square;
    let off: Vec<f64> = points.iter().map(|(x, y)| (c * x - y).abs() / y).collect();
    (c, median(&off))
}

/// Losses per window reduction.
fn losses_per_halving(case: &Case, run: &Recording) -> f64 {
    let halvings: f64 = run.flows.iter().map(|flow| halvings(case, flow)).sum();
    run.summary.packets_lost as f64 / halvings
}

/// Share of the single flow in percent.
fn share_of_one(run: &Recording) -> f64 {
    let all = goodputs(run);
    100.0 * all.last().copied().unwrap_or(f64::NAN) / all.iter().sum::<f64>()
}

/// Formats values as `0.93, 0.96 and 0.97`.
fn list(points: &[(f64, f64)], digits: usize) -> String {
    let values: Vec<String> = points.iter().map(|(_, v)| format!("{v:.digits$}")).collect();
    match values.as_slice() {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// A value of the NewReno runs with single and with bunched ACKs, in the core and at the edge.
struct NewReno {
    core: Vec<(f64, f64)>,
    edge: Vec<(f64, f64)>,
    core_bunched: Vec<(f64, f64)>,
    edge_bunched: Vec<(f64, f64)>,
}

impl NewReno {
    fn new(runs: &Runs, of: impl Fn(&Case, &Recording) -> f64) -> Self {
        let those = |link, key, value| by_flows(&select(runs, "reno", link, key, value), &of);
        NewReno {
            core: those("core", RTT, "20ms"),
            edge: those("edge", RTT, "20ms"),
            core_bunched: those("core", ACKS, "in bunches"),
            edge_bunched: those("edge", ACKS, "in bunches"),
        }
    }

    fn all(&self) -> Vec<f64> {
        [&self.edge, &self.core, &self.edge_bunched, &self.core_bunched]
            .into_iter()
            .flatten()
            .map(|p| p.1)
            .collect()
    }

    /// All values as text.
    fn text(&self, digits: usize) -> String {
        let [edge, core, edge_bunched, core_bunched] =
            [&self.edge, &self.core, &self.edge_bunched, &self.core_bunched]
                .map(|points| list(points, digits));
        format!("edge {edge}, core {core}; ACKs in bunches: edge {edge_bunched}, core {core_bunched}")
    }

    /// Curves: edge and core are not connected, bunched ACKs are dashed.
    fn curves(&self, colour: [u8; 3], what: &str) -> [Curve; 2] {
        let bunched =
            Curve { dash: 1, ..edge_and_core(what, colour, &self.edge_bunched, &self.core_bunched) };
        [edge_and_core(what, colour, &self.edge, &self.core), bunched]
    }
}

/// The points of edge and core as one curve with a gap.
fn edge_and_core(label: &str, colour: [u8; 3], edge: &[(f64, f64)], core: &[(f64, f64)]) -> Curve {
    let gap = [(f64::NAN, f64::NAN)];
    let points = edge.iter().chain(&gap).chain(core).copied();
    Curve { colour, ..dotted(label, points.collect()) }
}

/// Ratio of maximum to minimum.
fn spread(values: &[f64]) -> f64 {
    max(values) / min(values)
}

fn values(points: &[(f64, f64)]) -> Vec<f64> {
    points.iter().map(|p| p.1).collect()
}

fn judge(runs: &Runs) -> Outcome {
    let findings = [fairness(runs), mathis_law(runs), one_among_many(runs)].concat();
    Outcome { findings, picture: picture(runs), notes: notes(runs) }
}

/// Jain's index of these runs over their number of flows.
fn index(runs: &Runs, cc: &str, link: &str, rtt: &str) -> Vec<(f64, f64)> {
    by_flows(&select(runs, cc, link, RTT, rtt), |_, run| jain(&goodputs(run)))
}

/// Fairness among flows of the same controller.
fn fairness(runs: &Runs) -> Vec<Finding> {
    let [reno, cubic] = ["reno", "cubic"].map(|cc| index(runs, cc, "core", "20ms"));
    let both = |cc: &str, link: &str| RTTS.map(|rtt| index(runs, cc, link, rtt));
    let worst = |cc: &str, link: &str| min(&values(&both(cc, link).concat()));
    let in_words = |cc: &str, link: &str| {
        let [near, far] = both(cc, link).map(|points| list(&points, 2));
        format!("{near} at 20 ms, {far} at 100 ms")
    };
    let loss_based = min(&values(&[reno.clone(), cubic.clone()].concat()));
    let few = index(runs, "bbr", "edge", "20ms").first().map_or(f64::NAN, |p| p.1);
    let middle = |rtt| by_flows(&select(runs, "bbr3", "core", RTT, rtt), |_, run| median_and_largest(run).0);
    let [near, far] = RTTS.map(middle);
    vec![
        Finding::new(
            "thousands of NewReno or CUBIC flows have like shares",
            "index > 0.99, over an hour",
            format!("NewReno {}, CUBIC {}, over 25 s", list(&reno, 2), list(&cubic, 2)),
            "≥ 0.9",
            loss_based >= 0.9,
        )
        .differing(
            loss_based < 0.99,
            "in 25 s a flow has a few sawteeth, in an hour a thousand: what the index lacks of 1 falls as \
             one over the time (0.065, 0.020 and 0.005 for 100 flows in 25, 100 and 400 s)",
        ),
        Finding::new(
            "BBR's shares in the core are unlike",
            "index down to 0.4 (0.64 in the repetition)",
            in_words("bbr", "core"),
            "≤ 0.8 somewhere",
            worst("bbr", "core") <= 0.8,
        )
        .differing(
            true,
            "here it is the start that makes them so, and it fades within minutes (of 300 flows on 1 Gbit/s \
             at 100 ms 0.63 in the first 40 s, 0.90 after two minutes); the published shares are of an hour \
             and more",
        ),
        Finding::new(
            "at the edge, too, where more than ten meet",
            "index down to 0.7",
            in_words("bbr", "edge"),
            "≤ 0.8 somewhere; ten at 20 ms ≥ 0.99",
            worst("bbr", "edge") <= 0.8 && few >= 0.99,
        )
        .differing(
            worst("bbr", "edge") < 0.65,
            "at 100 ms the buffer is one BDP, which the two in flight fill; in the repetition's, of 2.4, \
             the index is 1.00 at the edge",
        ),
        Finding::new(
            "most BBR v3 flows in the core have near a fair share, though few may have much more",
            "(not published)",
            format!(
                "the middle flow has {} of it at 20 ms, {} at 100 ms; index {}",
                list(&near, 2),
                list(&far, 2),
                in_words("bbr3", "core")
            ),
            "the middle flow ≥ 0.7",
            min(&values(&[near, far].concat())) >= 0.7,
        ),
    ]
}

/// What determines the throughput of NewReno.
fn mathis_law(runs: &Runs) -> Vec<Finding> {
    let ratio = NewReno::new(runs, losses_per_halving);
    let c_of_losses = NewReno::new(runs, |case, run| mathis(case, run, losses).0).all();
    let c_of_halvings = NewReno::new(runs, |case, run| mathis(case, run, halvings).0).all();
    let off_by_losses = NewReno::new(runs, |case, run| 100.0 * mathis(case, run, losses).1).core;
    let off_by_halvings = NewReno::new(runs, |case, run| 100.0 * mathis(case, run, halvings).1).core;
    let closer: Vec<f64> =
        off_by_losses.iter().zip(&off_by_halvings).map(|(loss, halving)| loss.1 / halving.1).collect();
    let [core, edge, core_bunched, edge_bunched] =
        [&ratio.core, &ratio.edge, &ratio.core_bunched, &ratio.edge_bunched]
            .map(|points| mean(&values(points)));
    let range_text = |values: &[f64]| format!("{:.2} to {:.2}", min(values), max(values));
    vec![
        Finding::new(
            "there is more than one loss per halving, and in the core more than at the edge",
            "1.7 at the edge, 6 to 9 in the core (1.9 to 2.3 and 2.6 to 4.2 in the repetition)",
            ratio.text(1),
            "≥ 1.3 everywhere; in bunches 1.3 times as many in the core",
            min(&ratio.all()) >= 1.3 && core_bunched >= 1.3 * edge_bunched,
        )
        .differing(
            core < 1.3 * edge,
            "a simulated host sends packet by packet, and what a full queue drops is spread over the flows; \
             only where ACKs come in bunches, and packets after them, does a flow lose several at once",
        ),
        Finding::new(
            "Mathis' constant is the same for all flows from halvings, and not from losses",
            "1.24 to 1.33 by halvings, 1.70 to 2.74 by losses (the repetition)",
            format!("{} by halvings, {} by losses", range_text(&c_of_halvings), range_text(&c_of_losses)),
            "by losses spread 1.25 times as wide or more",
            spread(&c_of_losses) >= 1.25 * spread(&c_of_halvings),
        ),
        Finding::new(
            "in the core halvings predict a flow's goodput better than losses do",
            "the middle flow is off by 1.0 to 1.3 %, by losses 3.8 to 12 % (the repetition)",
            format!("off by {} %, by losses {} %", list(&off_by_halvings, 1), list(&off_by_losses, 1)),
            "≥ 1.5 times as closely at each number of flows",
            min(&closer) >= 1.5,
        ),
    ]
}

/// The run of one flow of `one` among many of `crowd`.
fn among<'a>(runs: &'a Runs, one: &str, crowd: &str, link: &str) -> Option<&'a Recording> {
    let both = format!("{crowd}+{one}");
    let found = runs.runs.iter().find(|(case, run)| run.cc == both && case.value(LINK) == Some(link));
    found.map(|(_, run)| run)
}

/// What one flow of BBR takes from many others.
fn one_among_many(runs: &Runs) -> Vec<Finding> {
    let of = |one: &str, link: &str| {
        CROWDS.map(|crowd| among(runs, one, crowd, link).map_or(f64::NAN, share_of_one))
    };
    let others = |link: &str| among(runs, "bbr", "reno", link).map_or(0, |run| run.flows.len() - 1);
    let in_words = |one: &str| {
        let on = |link: &str| format!("{} % among {}", of(one, link).map(n).join(" and "), others(link));
        format!("{}, {} of NewReno and CUBIC", on("core"), on("edge"))
    };
    let [v1, v3] = ["bbr", "bbr3"].map(|one| [of(one, "core"), of(one, "edge")].concat());
    let flows = ["core", "core", "edge", "edge"].map(|link| others(link) as f64 + 1.0);
    let fairs: Vec<f64> = v1.iter().zip(flows).map(|(share, flows)| share / 100.0 * flows).collect();
    vec![
        Finding::new(
            "one BBR flow grows to many times a fair share, however many others there are",
            "near 40 % among 16 of CUBIC, not depending on their number (Ware et al., IMC 2019)",
            in_words("bbr"),
            "10 fair shares and 4 % of the link or more, 60 % or less, in the last 30 of 120 s",
            v1.iter().all(|share| (4.0..=60.0).contains(share)) && fairs.iter().all(|times| *times >= 10.0),
        )
        .differing(
            min(&v1) < 15.0,
            "among thousands it has to grow a thousandfold, and among 4999 of CUBIC it still does after 120 \
             s",
        ),
        Finding::new(
            "one BBR v3 flow does not",
            "(not published)",
            in_words("bbr3"),
            "half of BBR v1's or less",
            // Over eight seeds at the edge 3.6 to 18.8 %, 8.9 % in the mean, where v1 has 35 to 48 %.
            v3.iter().zip(&v1).all(|(v3, v1)| *v3 <= v1 / 2.0),
        ),
    ]
}

/// Of thousands the repetition's, on CloudLab, with 20 and with 100 ms: flows and index of BBR (its
/// `JFI_CloudLab.csv`).
const REPEATED_INDEX: [[(f64, f64); 6]; 2] = [
    [(10.0, 0.9996), (30.0, 1.0), (50.0, 1.0), (1000.0, 1.0), (3000.0, 1.0), (5000.0, 1.0)],
    [(10.0, 0.9997), (30.0, 1.0), (50.0, 1.0), (1000.0, 0.806), (3000.0, 0.958), (5000.0, 0.637)],
];
/// Mathis' constant by halvings and by losses at the router, at 20 ms (its `C_CloudLab.csv`).
const REPEATED_C_OF_HALVINGS: [(f64, f64); 6] =
    [(10.0, 1.288), (30.0, 1.259), (50.0, 1.237), (1000.0, 1.328), (3000.0, 1.287), (5000.0, 1.269)];
const REPEATED_C_OF_LOSSES: [(f64, f64); 6] =
    [(10.0, 1.952), (30.0, 1.776), (50.0, 1.702), (1000.0, 2.740), (3000.0, 2.265), (5000.0, 2.025)];

/// The colour of what is counted by losses, beside NewReno's own for halvings.
const OF_LOSSES: [u8; 3] = [110, 110, 110];

fn picture(runs: &Runs) -> Picture {
    let flows = || {
        let ticks = [10, 50, 100, 500, 1000, 5000].map(|k| (f64::from(k), k.to_string())).to_vec();
        Axis { ticks, ..Axis::log("flows").with_range(8.0, 6300.0) }
    };
    let fair = |rtt: &str, ccs: &[&str], repeated: [(f64, f64); 6]| {
        let of = |cc: &&str| {
            edge_and_core(
                cc,
                controller_colour(cc).light,
                &index(runs, cc, "edge", rtt),
                &index(runs, cc, "core", rtt),
            )
        };
        let low = [[(30.0, 0.7), (50.0, 0.7)], [(1000.0, 0.4), (5000.0, 0.4)]]
            .map(|line| published_line("bbr", line));
        Panel {
            title: format!("Jain's index of flows of one kind, {}", rtt.replace("ms", " ms")),
            x: flows(),
            y: Axis::linear("1: all have as much").with_range(0.0, 1.05),
            curves: low.into_iter().chain(ccs.iter().map(of)).chain([published("bbr", repeated)]).collect(),
            marks: vec![],
        }
    };
    let constant = |of: fn(&Case, &FlowRecording) -> f64, colour, what| {
        NewReno::new(runs, move |case, run| mathis(case, run, of).0).curves(colour, what)
    };
    let published_losses = Curve { colour: OF_LOSSES, ..published("reno", REPEATED_C_OF_LOSSES) };
    let constants = Panel {
        title: "NewReno: C in Mathis' law (dashed: ACKs in bunches)".into(),
        x: flows(),
        y: Axis::linear("C").with_range(0.0, 3.5),
        curves: (constant(losses, OF_LOSSES, "C by losses").into_iter())
            .chain(constant(halvings, controller_colour("reno").light, "C by halvings"))
            .chain([published_losses, published("reno", REPEATED_C_OF_HALVINGS)])
            .collect(),
        marks: vec![],
    };
    Picture {
        title: "Tens of flows at the edge, thousands in the core".into(),
        subtitle: "10 to 50 flows meet at the edge, the others in the core. BBR's flows have like shares at \
                   20 ms, but for single ones, and unlike at 100. What NewReno gets follows how often it \
                   halves its window, not how much it loses. One BBR flow grows among the many until it has \
                   much of the link."
            .into(),
        panels: vec![
            fair("20ms", &["reno", "cubic", "bbr", "bbr3"], REPEATED_INDEX[0]),
            fair("100ms", &["bbr", "bbr3"], REPEATED_INDEX[1]),
            constants,
            single_flow_panel(runs),
        ],
        columns: 2,
        panel_height: 330,
        ..Picture::default()
    }
}

/// Growth of a single flow among many.
fn single_flow_panel(runs: &Runs) -> Panel {
    let lines = ["bbr", "bbr3"].into_iter().flat_map(|one| {
        CROWDS.iter().enumerate().filter_map(move |(dash, crowd)| {
            let run = among(runs, one, crowd, "core")?;
            let limit = run.path.goodput_limit_bps?;
            let series = &run.flows.last()?.series;
            let points = series.points(column::GOODPUT_BPS, 0.0, f64::INFINITY);
            let points = points.into_iter().map(|(t, bps)| (t, 100.0 * bps / limit));
            Some(Curve { dash, ..Curve::line(one, controller_colour(one).light, points) })
        })
    });
    let lines: Vec<Curve> = lines.collect();
    let others = among(runs, "bbr", "reno", "core").map_or(0, |run| run.flows.len() - 1);
    Panel {
        title: format!("One flow among {others} of NewReno (dashed: of CUBIC)"),
        x: Axis::linear("seconds").with_range(0.0, CROWD_DURATION.as_secs_f64()),
        y: Axis::log("% of the link").with_range(0.01, 100.0),
        curves: [published_line("bbr", [(0.0, 40.0), (CROWD_DURATION.as_secs_f64(), 40.0)])]
            .into_iter()
            .chain(lines)
            .collect(),
        marks: vec![Mark::Horizontal { y: 100.0 / (others as f64 + 1.0), label: "a fair share".into() }],
    }
}

/// Median and largest shares: among thousands, a single flow can dominate the index.
fn notes(runs: &Runs) -> Vec<String> {
    let kinds = ["bbr", "bbr3"].into_iter().flat_map(|cc| RTTS.map(|rtt| (cc, rtt)));
    let texts = kinds.map(|(cc, rtt)| {
        let each = select(runs, cc, "core", RTT, rtt).into_iter().map(|(_, run)| {
            let (middle, largest) = median_and_largest(run);
            format!("{} and {} of {}", n(middle), n(largest), run.flows.len())
        });
        let each: Vec<String> = each.collect();
        format!("{cc} at {}: {}", rtt.replace("ms", " ms"), each.join(", "))
    });
    let texts: Vec<String> = texts.collect();
    vec![format!("The middle flow and the largest have, in fair shares: {}.", texts.join("; "))]
}
