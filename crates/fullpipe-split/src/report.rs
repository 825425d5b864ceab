//! Everything that is told of a split, in figures.

use crate::effect::COMPARED;
use crate::joined::{Joined, Places};
use crate::{Bias, Counts, Effect, Ledger, Line, Log, Metric, Outcome, Overlap, Plan, Statistic, words};
use serde::Serialize;
use std::collections::BTreeMap;

/// The name and version of the form.
const SCHEMA: &str = "fullpipe/split-report/1";
/// Of each interval.
const ALPHA: f64 = 0.05;
/// Ports that are told apart.
const MOST_PORTS: usize = 16;

/// What is told of an arm.
#[derive(Clone, Debug, Serialize)]
pub struct ArmReport {
    /// Its label.
    pub label: String,
    /// What its connections got; none: what they would have got.
    pub controller: Option<String>,
    /// Whether the others are held against it.
    pub is_control: bool,
    /// Connections that closed and are counted here.
    pub connections: u64,
    /// What was assigned: connections, prefixes or periods.
    pub units: u64,
    /// Connections that delivered at least the least transfer.
    pub transfers: u64,
    /// Payload acknowledged, bytes.
    pub delivered_bytes: u64,
    /// Received, bytes.
    pub received_bytes: u64,
    /// Sent, bytes, what was sent again counted in.
    pub sent_bytes: u64,
    /// Sent again, bytes.
    pub resent_bytes: u64,
    /// Sent again, segments.
    pub resent_segments: u64,
    /// Those whose program chose another controller after they opened.
    pub chose_later: u64,
    /// Those that ended by an error.
    pub failed: u64,
    /// Median goodput of transfers, bit/s.
    pub goodput_p50_bps: Option<f64>,
    /// Median RTT, ms.
    pub rtt_p50_ms: Option<f64>,
    /// 95th percentile of the RTT, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Median of the least RTT, ms.
    pub least_rtt_p50_ms: Option<f64>,
}

/// How far this split may be off where arms meet at a bottleneck, simulated for one like that of its connections.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulated {
    /// The arm.
    pub arm: String,
    /// What was simulated, in words.
    pub path: String,
    /// Its shares and whole roll-outs.
    pub bias: Bias,
}

/// Effects among some of the connections.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// `port 443`, `RTT 10–50 ms`.
    pub name: String,
    /// Connections in it.
    pub connections: u64,
    /// Goodput, RTT and retransmissions; the intervals hold for all groups together.
    pub effects: Vec<Effect>,
}

/// Everything that is told of a split.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The name and version of this form.
    pub schema: &'static str,
    /// What was asked.
    pub plan: Plan,
    /// By arm.
    pub arms: Vec<ArmReport>,
    /// What the program in the kernel counted, at last.
    pub counts: Option<Counts>,
    /// Always-valid p-value of the arms having got the shares that they were to get.
    pub sample_ratio_p: f64,
    /// The least always-valid p-value of the control's halves differing, corrected for the number of metrics; none while there
    /// is too little.
    pub same_arm_p: Option<f64>,
    /// The share of connections that were open together with one of another arm from the same client.
    pub met_share: Option<f64>,
    /// Connections left out because they opened in a wash-out.
    pub washed_out: u64,
    /// Of all arms but the control.
    pub effects: Vec<Effect>,
    /// By local port and by class of RTT.
    pub groups: Vec<Group>,
    /// What an application's log says of the connections, where one was joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined: Option<Joined>,
    /// How far the differences may be off where arms meet, as far as it was simulated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub simulated: Vec<Simulated>,
    /// What happened meanwhile.
    pub events: Vec<String>,
    /// All of it in a sentence or two.
    pub verdict: String,
    /// What was found, in words.
    pub found: Vec<String>,
    /// What cannot be concluded, and why.
    pub cautions: Vec<String>,
}

/// What the lines of a split add up to.
#[derive(Debug)]
pub(crate) struct Analysis {
    ledger: Ledger,
    ports: BTreeMap<u16, Ledger>,
    classes: BTreeMap<usize, Ledger>,
    overlap: Overlap,
    counts: Option<Counts>,
    events: Vec<String>,
    ended: bool,
    /// Where a log is to be joined.
    places: Option<Places>,
}

/// Classes of the least RTT, by their upper ends in ms.
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
                self.ledger.reshare(*generation, shares);
                let told: Vec<String> = plan
                    .arms
                    .all()
                    .iter()
                    .zip(shares)
                    .map(|(arm, share)| format!("{} {share}", arm.label))
                    .collect();
                self.events.push(format!("{}: {} ({why})", after(&plan, *unix_s), told.join(", ")));
            }
            Line::Period(period) => self.ledger.add_period(period),
            Line::Counts(counts) => self.counts = Some(counts.clone()),
            Line::End { unix_s, why } => {
                self.ended = true;
                self.events.push(format!("{}: over ({why})", after(&plan, *unix_s)));
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
        // Connections that this host opened have ports that mean nothing.
        if !o.active && (self.ports.contains_key(&port) || self.ports.len() < MOST_PORTS) {
            self.ports.entry(port).or_insert_with(|| Ledger::new(plan)).add(o);
        }
        if let Some(rtt) = o.min_rtt_ms {
            let class = CLASSES.iter().position(|(end, _)| rtt < *end).unwrap_or(CLASSES.len() - 1);
            self.classes.entry(class).or_insert_with(|| Ledger::new(plan)).add(o);
        }
    }
}

/// How long after the beginning something was.
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
    /// What the lines of a split's file come to.
    ///
    /// # Errors
    /// The first that `lines` has.
    pub fn of<E>(plan: &Plan, lines: impl IntoIterator<Item = Result<Line, E>>) -> Result<Report, E> {
        Report::with(plan, lines, None)
    }

    /// The same, joined with what an application says of the connections.
    ///
    /// # Errors
    /// The first that `lines` has.
    pub fn with<E>(
        plan: &Plan,
        lines: impl IntoIterator<Item = Result<Line, E>>,
        log: Option<&Log>,
    ) -> Result<Report, E> {
        let mut analysis = Analysis::new(plan);
        analysis.places = log.map(|_| Places::new());
        for line in lines {
            analysis.add(&line?);
        }
        Ok(Report::make(analysis, log))
    }

    /// Whether so many connections met another arm's that the differences may not be those of roll-outs.
    pub fn is_shared(&self) -> bool {
        self.met_share.is_some_and(|met| met > words::SHARED)
    }

    /// Tells how far off the differences may be, by what was simulated for a bottleneck that arms share.
    pub fn add_simulated(&mut self, simulated: Simulated) {
        let (arm, control) = (&simulated.arm, &self.plan.control);
        if let Some(point) = simulated.bias.points.first() {
            let (split, whole) = (point.goodput_ratio, simulated.bias.goodput_ratio);
            self.cautions.push(format!(
                "simulated for {}: a split with {:.0} % of {arm} shows ×{split:.2} goodput against {control} where a whole \
                 roll-out brings ×{whole:.2}: off by ×{:.2}",
                simulated.path,
                point.share * 100.0,
                point.bias
            ));
        }
        self.simulated.push(simulated);
    }

    fn make(analysis: Analysis, log: Option<&Log>) -> Report {
        let ledger = &analysis.ledger;
        let plan = ledger.plan().clone();
        let effects = Effect::all(ledger, &COMPARED, ALPHA);
        let same: Vec<f64> =
            Metric::ALL.into_iter().filter_map(|metric| ledger.same(metric, ALPHA)?.p).collect();
        let same_arm_p =
            same.iter().copied().min_by(f64::total_cmp).map(|least| (least * same.len() as f64).min(1.0));
        let mut report = Report {
            schema: SCHEMA,
            arms: arms(ledger),
            counts: analysis.counts.clone(),
            sample_ratio_p: ledger.ratio_p_value(),
            same_arm_p,
            met_share: analysis.overlap.share(),
            washed_out: ledger.washed_out(),
            groups: groups(&analysis),
            events: analysis.events.clone(),
            joined: log
                .zip(analysis.places.as_ref())
                .map(|(log, places)| Joined::new(log, places, &plan, ALPHA)),
            simulated: Vec::new(),
            verdict: String::new(),
            found: Vec::new(),
            cautions: Vec::new(),
            effects,
            plan,
        };
        report.found = words::found(&report);
        report.cautions = words::cautions(&report, analysis.ended);
        report.verdict = words::verdict(&report);
        report
    }
}

fn arms(ledger: &Ledger) -> Vec<ArmReport> {
    let control = ledger.plan().control_place();
    let of = |(place, arm): (usize, &crate::Arm)| {
        let tally = ledger.tally(place);
        let exp = |metric: Metric, q: f64| tally.sample(metric).quantile(q).map(f64::exp);
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
            chose_later: tally.chose,
            failed: tally.failed,
            goodput_p50_bps: exp(Metric::Goodput, 0.5),
            rtt_p50_ms: exp(Metric::Rtt, 0.5),
            rtt_p95_ms: exp(Metric::Rtt, 0.95),
            least_rtt_p50_ms: tally.least_rtt.quantile(0.5).map(f64::exp),
        }
    };
    ledger.plan().arms.all().iter().enumerate().map(of).collect()
}

fn groups(analysis: &Analysis) -> Vec<Group> {
    const FIGURES: [(Metric, Statistic); 3] = [
        (Metric::Goodput, Statistic::Mean),
        (Metric::Rtt, Statistic::Mean),
        (Metric::Retransmitted, Statistic::Mean),
    ];
    let ports = analysis.ports.iter().map(|(port, ledger)| (format!("port {port}"), ledger));
    let classes = analysis.classes.iter().map(|(class, ledger)| (CLASSES[*class].1.to_owned(), ledger));
    // One port or one class is everything, which is told already.
    let ports: Vec<_> = if analysis.ports.len() > 1 { ports.collect() } else { Vec::new() };
    let classes: Vec<_> = if analysis.classes.len() > 1 { classes.collect() } else { Vec::new() };
    let alpha = ALPHA / (ports.len() + classes.len()).max(1) as f64;
    ports
        .into_iter()
        .chain(classes)
        .map(|(name, ledger)| Group {
            name,
            connections: ledger.connections(),
            effects: Effect::all(ledger, &FIGURES, alpha),
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
        Report::of(plan, lines.into_iter().map(Ok::<_, Infallible>)).unwrap()
    }

    fn lines(count: u32, slow: f64) -> Vec<Line> {
        (0..count)
            .map(|n| {
                let arm = (n % 2) as u8;
                let mut o = example(arm, &format!("10.0.{}.1:{}", n % 200, 2000 + n % 50_000));
                o.opened_unix_s = f64::from(n) * 10.0;
                o.busy_s = (1.0 + f64::from(n / 2 % 10) / 10.0) * if arm == 0 { slow } else { 1.0 };
                o.min_rtt_ms = Some(if n % 4 < 2 { 5.0 } else { 40.0 });
                Line::Connection(o)
            })
            .collect()
    }

    #[test]
    fn a_difference_is_said_in_words_and_held_against_its_groups() {
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
        assert!(report.found[0].contains("bbr against cubic, goodput: +100.0 %"), "{:?}", report.found);
        assert!(
            report.found.iter().any(|said| said.contains("rtt: no difference is sure")),
            "{:?}",
            report.found
        );
        assert_eq!(report.groups.len(), 2, "one port, two classes");
        assert!(
            report
                .groups
                .iter()
                .all(|group| group.connections == 1000 && group.effects[0].estimate.verdict == "better")
        );
        assert_eq!(report.cautions, Vec::<String>::new());
        assert_eq!(report.arms[0].transfers, 1000);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["schema"], &json["effects"][0]["metric"]), (&SCHEMA.into(), &"goodput".into()));
    }

    #[test]
    fn what_must_not_be_believed_is_said() {
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
        for said in [
            "did not get",
            "5 connections closed unrecorded",
            "refused",
            "left alone",
            "not closed",
            "no end",
        ] {
            assert!(
                report.cautions.iter().any(|caution| caution.contains(said)),
                "{said}: {:?}",
                report.cautions
            );
        }
        assert!(report.sample_ratio_p < 1e-9);
    }

    #[test]
    fn an_applications_figures_are_compared_by_arm() {
        let plan = plan("connection", &["bbr=50%", "cubic=50%"]);
        let mut all = lines(2000, 1.0);
        for (n, line) in all.iter_mut().enumerate() {
            if let Line::Connection(o) = line {
                o.cookie = n as u64;
            }
        }
        // Two lines for each connection: bbr's take half the time, and fail as often.
        let mut csv = "cookie,url,ttfb_ms,failed,balance\n".to_owned();
        for n in 0..4000 {
            let cookie = n % 2000;
            let ms = (100.0 + f64::from(cookie / 2 % 10)) * if cookie % 2 == 0 { 0.5 } else { 1.0 };
            csv += &format!("{cookie},/,{ms},{},{}\n", cookie / 2 % 20 == 0, cookie as i64 - 5);
        }
        csv += "9999,/,5,true,1\noops\n";
        let log = Log::read(csv.as_bytes()).unwrap();
        let report = Report::with(&plan, all.into_iter().map(Ok::<_, Infallible>), Some(&log)).unwrap();
        let joined = report.joined.as_ref().unwrap();
        assert_eq!((joined.connections, joined.others, joined.rows, joined.bad), (2000, 1, 4001, 1));
        let names: Vec<_> =
            joined.figures.iter().map(|f| (f.name.as_str(), f.values, f.effects.len())).collect();
        assert_eq!(names, [("ttfb_ms", 4000, 3), ("failed", 4000, 1)]);
        let ttfb = &joined.figures[0].effects[0];
        assert!((ttfb.difference - 0.5_f64.ln()).abs() < 1e-9 && ttfb.verdict == "less", "{ttfb:?}");
        assert_eq!(joined.figures[1].effects[0].verdict, "unclear");
        assert!(joined.left_out[0].starts_with("balance"), "{:?}", joined.left_out);
        assert!(report.cautions.iter().any(|c| c.contains("line 4003: 1 fields")), "{:?}", report.cautions);
        let told = crate::terminal(&report);
        assert!(told.contains("ttfb_ms") && told.contains("-50.0 %"), "{told}");
        let page = crate::page(&report);
        assert!(page.contains("ttfb_ms") && page.contains("<svg"), "{page}");
    }

    #[test]
    fn the_verdict_is_a_sentence() {
        let plan = plan("connection", &["bbr=50%", "cubic=50%"]);
        let better = report(&plan, lines(2000, 0.5));
        assert_eq!(better.verdict, "bbr is better than cubic in goodput (+100.0 %).");
        assert_eq!(report(&plan, lines(2000, 2.0)).verdict, "bbr is worse than cubic in goodput (-50.0 %).");
        assert_eq!(report(&plan, lines(2000, 1.0)).verdict, "No difference between bbr and cubic is sure.");
        let mut shared = better;
        shared.met_share = Some(0.5);
        assert!(shared.is_shared());
        let level = |goodput_bps| Level { goodput_bps, rtt_ms: 40.0, retransmitted: 0.0 };
        let bias = Bias::new(level(10.0), level(10.0), &[(0.5, level(15.0), level(5.0))]);
        shared.add_simulated(Simulated { arm: "bbr".into(), path: "10 connections".into(), bias });
        let said = shared.cautions.last().unwrap();
        assert!(said.contains("50 % of bbr shows ×3.00") && said.contains("off by ×3.00"), "{said}");
    }

    #[test]
    fn user_text_is_no_markup() {
        let mut plan = plan("connection", &["bbr=50%", "cubic=50%"]);
        plan.cgroup = "/<script>alert(1)</script>".to_owned();
        plan.only = "sport < 5 & \"x\"".to_owned();
        let page = crate::page(&report(&plan, lines(400, 1.0)));
        assert!(!page.contains("<script>") && page.contains("&lt;script&gt;"), "{page}");
        assert!(page.contains("sport &lt; 5 &amp; &quot;x&quot;"), "{page}");
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        let plan = plan("time=10s", &["bbr=50%", "cubic=50%"]);
        let report = report(&plan, vec![]);
        assert!(report.found[0].contains("too little"), "{:?}", report.found);
        assert_eq!((report.sample_ratio_p, report.same_arm_p, report.met_share), (1.0, None, None));
    }
}
