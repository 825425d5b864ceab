//! Report of an experiment.

use crate::effect::COMPARED;
use crate::joined::{Joined, Places};
use crate::{Bias, Counts, Effect, Ledger, Line, Log, Metric, Outcome, Overlap, Plan, Statistic, verdict};
use serde::Serialize;
use std::collections::BTreeMap;

/// Name and version of the format.
const SCHEMA: &str = "fullpipe/split-report/1";
/// Error probability of each interval.
const ALPHA: f64 = 0.05;
/// Maximum ports reported separately.
const MAX_PORTS: usize = 16;

/// Report of one arm.
#[derive(Clone, Debug, Serialize)]
pub struct ArmReport {
    /// Label.
    pub label: String,
    /// Controller; `None` for a holdout.
    pub controller: Option<String>,
    /// Whether it is the control.
    pub is_control: bool,
    /// Closed connections.
    pub connections: u64,
    /// Assigned units: connections, prefixes or periods.
    pub units: u64,
    /// Connections that delivered at least the minimum transfer.
    pub transfers: u64,
    /// Payload acknowledged, bytes.
    pub delivered_bytes: u64,
    /// Payload received, bytes.
    pub received_bytes: u64,
    /// Payload sent, with retransmissions, bytes.
    pub sent_bytes: u64,
    /// Payload retransmitted, bytes.
    pub resent_bytes: u64,
    /// Segments retransmitted.
    pub resent_segments: u64,
    /// Connections whose program changed the controller after opening.
    pub changed_controller: u64,
    /// Connections that ended with an error.
    pub failed: u64,
    /// Median goodput of transfers, bit/s.
    pub goodput_p50_bps: Option<f64>,
    /// Median RTT, ms.
    pub rtt_p50_ms: Option<f64>,
    /// 95th percentile of the RTT, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Median minimum RTT, ms.
    pub min_rtt_p50_ms: Option<f64>,
}

/// Simulated bias of this experiment at a shared bottleneck like that of its connections.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulated {
    /// The arm.
    pub arm: String,
    /// Description of the simulated path.
    pub path: String,
    /// Simulated shares and full roll-outs.
    pub bias: Bias,
}

/// Effects in a subgroup of connections.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// `port 443`, `RTT 10–50 ms`.
    pub name: String,
    /// Number of connections.
    pub connections: u64,
    /// Effects on goodput, RTT and retransmissions, with simultaneous intervals for all groups.
    pub effects: Vec<Effect>,
}

/// Report of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name and version of the format.
    pub schema: &'static str,
    /// The plan.
    pub plan: Plan,
    /// Reports by arm.
    pub arms: Vec<ArmReport>,
    /// Final counters of the eBPF program.
    pub counts: Option<Counts>,
    /// Always-valid p-value of the sample-ratio test.
    pub sample_ratio_p: f64,
    /// Minimum always-valid p-value of the A/A test of the control, corrected for the number of
    /// metrics; `None` with too little data.
    pub aa_p: Option<f64>,
    /// Share of connections open at the same time as one of another arm from the same client.
    pub overlap_share: Option<f64>,
    /// Connections excluded because they opened in a wash-out.
    pub washed_out: u64,
    /// Effects of all arms except the control.
    pub effects: Vec<Effect>,
    /// Effects by local port and RTT class.
    pub groups: Vec<Group>,
    /// Results from a joined application log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined: Option<Joined>,
    /// Simulated bias at shared bottlenecks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub simulated: Vec<Simulated>,
    /// Events during the experiment.
    pub events: Vec<String>,
    /// Summary in one or two sentences.
    pub verdict: String,
    /// Findings as text.
    pub findings: Vec<String>,
    /// Limitations as text.
    pub warnings: Vec<String>,
}

/// Accumulated lines of an experiment.
#[derive(Debug)]
pub(crate) struct Analysis {
    ledger: Ledger,
    ports: BTreeMap<u16, Ledger>,
    classes: BTreeMap<usize, Ledger>,
    overlap: Overlap,
    counts: Option<Counts>,
    events: Vec<String>,
    ended: bool,
    /// Arms by cookie, if a log is joined.
    places: Option<Places>,
}

/// Classes of the minimum RTT by upper bound in ms.
const CLASSES: [(f64, &str); 4] = [
    (10.0, "RTT below 10 ms"),
    (50.0, "RTT 10–50 ms"),
    (150.0, "RTT 50–150 ms"),
    (f64::INFINITY, "RTT above 150 ms"),
];

impl Analysis {
    fn new(plan: &Plan) -> Self {
        Analysis {
            ledger: Ledger::new(plan),
            ports: BTreeMap::new(),
            classes: BTreeMap::new(),
            overlap: Overlap::default(),
            counts: None,
            events: Vec::new(),
            ended: false,
            places: None,
        }
    }

    fn add(&mut self, line: &Line) {
        let plan = self.ledger.plan().clone();
        match line {
            Line::Connection(o) => self.connection(o, &plan),
            Line::Shares { generation, shares, unix_s, why } => {
                self.ledger.set_shares(*generation, shares);
                let shares: Vec<String> = plan
                    .arms
                    .all()
                    .iter()
                    .zip(shares)
                    .map(|(arm, share)| format!("{} {share}", arm.label))
                    .collect();
                self.events.push(format!("{}: {} ({why})", after(&plan, *unix_s), shares.join(", ")));
            }
            Line::Period(period) => self.ledger.add_period(period),
            Line::Counts(counts) => self.counts = Some(counts.clone()),
            Line::End { unix_s, why } => {
                self.ended = true;
                self.events.push(format!("{}: ended ({why})", after(&plan, *unix_s)));
            }
            Line::Plan { .. } => {}
        }
    }

    fn connection(&mut self, o: &Outcome, plan: &Plan) {
        self.ledger.add(o);
        self.overlap.add(o);
        if let (Some(places), Some(place)) = (&mut self.places, self.ledger.place(o)) {
            places.insert(o.cookie, place);
        }
        let port = o.local.port();
        // Actively opened connections have ephemeral local ports.
        if !o.active && (self.ports.contains_key(&port) || self.ports.len() < MAX_PORTS) {
            self.ports.entry(port).or_insert_with(|| Ledger::new(plan)).add(o);
        }
        if let Some(rtt) = o.min_rtt_ms {
            let class = CLASSES.iter().position(|(end, _)| rtt < *end).unwrap_or(CLASSES.len() - 1);
            self.classes.entry(class).or_insert_with(|| Ledger::new(plan)).add(o);
        }
    }
}

/// Formats the time since the start.
fn after(plan: &Plan, unix_s: f64) -> String {
    let s = (unix_s - plan.began_unix_s).max(0.0);
    if s < 120.0 {
        format!("after {s:.0} s")
    } else if s < 7200.0 {
        format!("after {:.0} min", s / 60.0)
    } else {
        format!("after {:.1} h", s / 3600.0)
    }
}

impl Report {
    /// The report of the lines of a file.
    ///
    /// # Errors
    /// The first error of `lines`.
    pub fn from_lines<E>(plan: &Plan, lines: impl IntoIterator<Item = Result<Line, E>>) -> Result<Report, E> {
        Report::from_lines_with_log(plan, lines, None)
    }

    /// The report of the lines of a file, joined with an application log.
    ///
    /// # Errors
    /// The first error of `lines`.
    pub fn from_lines_with_log<E>(
        plan: &Plan,
        lines: impl IntoIterator<Item = Result<Line, E>>,
        log: Option<&Log>,
    ) -> Result<Report, E> {
        let mut analysis = Analysis::new(plan);
        analysis.places = log.map(|_| Places::new());
        for line in lines {
            analysis.add(&line?);
        }
        Ok(Report::from_analysis(analysis, log))
    }

    /// Whether arms overlap so much that differences may not hold for roll-outs.
    pub fn has_overlap(&self) -> bool {
        self.overlap_share.is_some_and(|share| share > verdict::MAX_OVERLAP)
    }

    /// Adds the simulated bias at a shared bottleneck.
    pub fn add_simulated(&mut self, simulated: Simulated) {
        let (arm, control) = (&simulated.arm, &self.plan.control);
        if let Some(point) = simulated.bias.points.first() {
            let (split, whole) = (point.goodput_ratio, simulated.bias.goodput_ratio);
            self.warnings.push(format!(
                "simulated for {}: an experiment with {:.0} % of {arm} shows a goodput ratio of \
                 ×{split:.2} to {control}, a full roll-out ×{whole:.2}: bias ×{:.2}",
                simulated.path,
                point.share * 100.0,
                point.bias
            ));
        }
        self.simulated.push(simulated);
    }

    fn from_analysis(analysis: Analysis, log: Option<&Log>) -> Report {
        let ledger = &analysis.ledger;
        let plan = ledger.plan().clone();
        let effects = Effect::all(ledger, &COMPARED, ALPHA);
        let halves: Vec<f64> =
            Metric::ALL.into_iter().filter_map(|metric| ledger.control_halves(metric, ALPHA)?.p).collect();
        let aa_p = halves.iter().copied().min_by(f64::total_cmp).map(|p| (p * halves.len() as f64).min(1.0));
        let mut report = Report {
            schema: SCHEMA,
            arms: arms(ledger),
            counts: analysis.counts.clone(),
            sample_ratio_p: ledger.ratio_p_value(),
            aa_p,
            overlap_share: analysis.overlap.share(),
            washed_out: ledger.washed_out(),
            groups: groups(&analysis),
            events: analysis.events.clone(),
            joined: log
                .zip(analysis.places.as_ref())
                .map(|(log, places)| Joined::new(log, places, &plan, ALPHA)),
            simulated: Vec::new(),
            verdict: String::new(),
            findings: Vec::new(),
            warnings: Vec::new(),
            effects,
            plan,
        };
        report.findings = verdict::findings(&report);
        report.warnings = verdict::warnings(&report, analysis.ended);
        report.verdict = verdict::verdict(&report);
        report
    }
}

fn arms(ledger: &Ledger) -> Vec<ArmReport> {
    let control = ledger.plan().control_index();
    let arm_report = |(place, arm): (usize, &crate::Arm)| {
        let tally = ledger.tally(place);
        let level = |metric: Metric, q: f64| tally.sample(metric).quantile(q).map(f64::exp);
        ArmReport {
            label: arm.label.clone(),
            controller: arm.controller.clone(),
            is_control: place == control,
            connections: tally.connections,
            units: ledger.units(place),
            transfers: tally.transfers,
            delivered_bytes: tally.delivered_bytes,
            received_bytes: tally.received_bytes,
            sent_bytes: tally.sent_bytes,
            resent_bytes: tally.resent_bytes,
            resent_segments: tally.resent_segments,
            changed_controller: tally.changed_controller,
            failed: tally.failed,
            goodput_p50_bps: level(Metric::Goodput, 0.5),
            rtt_p50_ms: level(Metric::Rtt, 0.5),
            rtt_p95_ms: level(Metric::Rtt, 0.95),
            min_rtt_p50_ms: tally.min_rtt.quantile(0.5).map(f64::exp),
        }
    };
    ledger.plan().arms.all().iter().enumerate().map(arm_report).collect()
}

fn groups(analysis: &Analysis) -> Vec<Group> {
    const METRICS: [(Metric, Statistic); 3] = [
        (Metric::Goodput, Statistic::Mean),
        (Metric::Rtt, Statistic::Mean),
        (Metric::Retransmitted, Statistic::Mean),
    ];
    let ports = analysis.ports.iter().map(|(port, ledger)| (format!("port {port}"), ledger));
    let classes = analysis.classes.iter().map(|(class, ledger)| (CLASSES[*class].1.to_owned(), ledger));
    // A single port or class equals the whole experiment.
    let ports: Vec<_> = if analysis.ports.len() > 1 { ports.collect() } else { Vec::new() };
    let classes: Vec<_> = if analysis.classes.len() > 1 { classes.collect() } else { Vec::new() };
    let alpha = ALPHA / (ports.len() + classes.len()).max(1) as f64;
    ports
        .into_iter()
        .chain(classes)
        .map(|(name, ledger)| Group {
            name,
            connections: ledger.connections(),
            effects: Effect::all(ledger, &METRICS, alpha),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::ledger::tests::plan;
    use crate::outcome::example;
    use std::convert::Infallible;

    fn report(plan: &Plan, lines: Vec<Line>) -> Report {
        Report::from_lines(plan, lines.into_iter().map(Ok::<_, Infallible>)).unwrap()
    }

    fn lines(count: u32, slowdown: f64) -> Vec<Line> {
        (0..count)
            .map(|n| {
                let arm = (n % 2) as u8;
                let mut o = example(arm, &format!("10.0.{}.1:{}", n % 200, 2000 + n % 50_000));
                o.opened_unix_s = f64::from(n) * 10.0;
                o.busy_s = (1.0 + f64::from(n / 2 % 10) / 10.0) * if arm == 0 { slowdown } else { 1.0 };
                o.min_rtt_ms = Some(if n % 4 < 2 { 5.0 } else { 40.0 });
                Line::Connection(o)
            })
            .collect()
    }

    #[test]
    fn a_difference_is_reported_overall_and_by_group() {
        let plan = plan("connection", &["bbr=50%", "cubic=50%"]);
        let mut all = lines(2000, 0.5);
        all.push(Line::End { unix_s: 20_000.0, why: "asked to".to_owned() });
        let report = report(&plan, all);
        let goodput = &report.effects[0];
        assert_eq!(
            (goodput.metric, goodput.estimate.statistic, goodput.estimate.verdict),
            (Metric::Goodput, Statistic::Mean, "better")
        );
        assert!((goodput.estimate.difference - 2.0_f64.ln()).abs() < 1e-9);
        assert!(report.findings[0].contains("bbr vs cubic, goodput: +100.0 %"), "{:?}", report.findings);
        assert!(
            report.findings.iter().any(|finding| finding.contains("rtt: no significant difference")),
            "{:?}",
            report.findings
        );
        assert_eq!(report.groups.len(), 2, "one port, two classes");
        assert!(
            report
                .groups
                .iter()
                .all(|group| group.connections == 1000 && group.effects[0].estimate.verdict == "better")
        );
        assert_eq!(report.warnings, Vec::<String>::new());
        assert_eq!(report.arms[0].transfers, 1000);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["schema"], &json["effects"][0]["metric"]), (&SCHEMA.into(), &"goodput".into()));
    }

    #[test]
    fn invalid_results_have_warnings() {
        let plan = plan("connection", &["bbr=10%", "cubic=90%"]);
        let mut all = lines(2000, 1.0);
        let counts = Counts {
            opened: vec![1500, 1500],
            closed: vec![1000, 1000],
            refused: vec![3, 0],
            lost: 5,
            program_chose: 7,
            ..Counts::default()
        };
        all.push(Line::Counts(counts));
        let report = report(&plan, all);
        for expected in [
            "sample ratio mismatch",
            "5 closed connections were not recorded",
            "refused",
            "left alone",
            "not closed",
            "no end",
        ] {
            assert!(
                report.warnings.iter().any(|warning| warning.contains(expected)),
                "{expected}: {:?}",
                report.warnings
            );
        }
        assert!(report.sample_ratio_p < 1e-9);
    }

    #[test]
    fn application_values_are_compared_by_arm() {
        let plan = plan("connection", &["bbr=50%", "cubic=50%"]);
        let mut all = lines(2000, 1.0);
        for (n, line) in all.iter_mut().enumerate() {
            if let Line::Connection(o) = line {
                o.cookie = n as u64;
            }
        }
        // Two lines per connection: BBR takes half of the time and fails as often.
        let mut csv = "cookie,url,ttfb_ms,failed,balance\n".to_owned();
        for n in 0..4000 {
            let cookie = n % 2000;
            let ms = (100.0 + f64::from(cookie / 2 % 10)) * if cookie % 2 == 0 { 0.5 } else { 1.0 };
            csv += &format!("{cookie},/,{ms},{},{}\n", cookie / 2 % 20 == 0, cookie as i64 - 5);
        }
        csv += "9999,/,5,true,1\noops\n";
        let log = Log::read(csv.as_bytes()).unwrap();
        let report =
            Report::from_lines_with_log(&plan, all.into_iter().map(Ok::<_, Infallible>), Some(&log)).unwrap();
        let joined = report.joined.as_ref().unwrap();
        assert_eq!((joined.connections, joined.others, joined.rows, joined.invalid), (2000, 1, 4001, 1));
        let names: Vec<_> =
            joined.figures.iter().map(|f| (f.name.as_str(), f.values, f.effects.len())).collect();
        assert_eq!(names, [("ttfb_ms", 4000, 3), ("failed", 4000, 1)]);
        let ttfb = &joined.figures[0].effects[0];
        assert!((ttfb.difference - 0.5_f64.ln()).abs() < 1e-9 && ttfb.verdict == "less", "{ttfb:?}");
        assert_eq!(joined.figures[1].effects[0].verdict, "unclear");
        assert!(joined.not_compared[0].starts_with("balance"), "{:?}", joined.not_compared);
        assert!(report.warnings.iter().any(|c| c.contains("line 4003: 1 fields")), "{:?}", report.warnings);
        let text = crate::terminal(&report);
        assert!(text.contains("ttfb_ms") && text.contains("-50.0 %"), "{text}");
        let page = crate::page(&report);
        assert!(page.contains("ttfb_ms") && page.contains("<svg"), "{page}");
    }

    #[test]
    fn the_verdict_is_a_sentence() {
        let plan = plan("connection", &["bbr=50%", "cubic=50%"]);
        let better = report(&plan, lines(2000, 0.5));
        assert_eq!(better.verdict, "bbr is better than cubic in goodput (+100.0 %).");
        assert_eq!(report(&plan, lines(2000, 2.0)).verdict, "bbr is worse than cubic in goodput (-50.0 %).");
        assert_eq!(
            report(&plan, lines(2000, 1.0)).verdict,
            "No significant difference between bbr and cubic."
        );
        let mut overlapping = better;
        overlapping.overlap_share = Some(0.5);
        assert!(overlapping.has_overlap());
        let level = |goodput_bps| Level { goodput_bps, rtt_ms: 40.0, retransmitted: 0.0 };
        let bias = Bias::new(level(10.0), level(10.0), &[(0.5, level(15.0), level(5.0))]);
        overlapping.add_simulated(Simulated { arm: "bbr".into(), path: "10 connections".into(), bias });
        let warning = overlapping.warnings.last().unwrap();
        assert!(warning.contains("50 % of bbr shows") && warning.contains("bias ×3.00"), "{warning}");
    }

    #[test]
    fn user_text_is_escaped() {
        let mut plan = plan("connection", &["bbr=50%", "cubic=50%"]);
        plan.cgroup = "/<script>alert(1)</script>".to_owned();
        plan.condition = "sport < 5 & \"x\"".to_owned();
        let page = crate::page(&report(&plan, lines(400, 1.0)));
        assert!(!page.contains("<script>") && page.contains("&lt;script&gt;"), "{page}");
        assert!(page.contains("sport &lt; 5 &amp; &quot;x&quot;"), "{page}");
    }

    #[test]
    fn an_empty_experiment_has_no_results() {
        let plan = plan("time=10s", &["bbr=50%", "cubic=50%"]);
        let report = report(&plan, vec![]);
        assert!(report.findings[0].contains("not enough data"), "{:?}", report.findings);
        assert_eq!((report.sample_ratio_p, report.aa_p, report.overlap_share), (1.0, None, None));
    }
}
