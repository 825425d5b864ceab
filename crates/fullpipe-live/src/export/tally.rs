//! Adds looks up to metrics.

use super::classes::{Classes, OTHER};
use super::family::{Family, Metric, Sample, Value};
use super::histogram::Histogram;
use super::processor::Processor;
use crate::connection::{Connection, Figures};
use crate::reader::Snapshot;
use fullpipe_experiment::connection::Limitation;
use fullpipe_units::{Rate, Span};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Of controller and class there are at most this many, and one that takes all others: it bounds the series.
pub const MOST_PAIRS: usize = 16;
/// A pair without connections is kept this long where others want its room, so that what it counted is scraped.
const KEPT_S: f64 = 600.0;
/// Controllers and states that are counted.
const MOST_STATES: usize = 32;

const ROUND_TRIPS: &[f64] = &[0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 1.0];
const QUEUES: &[f64] = &[0.0005, 0.002, 0.005, 0.02, 0.05, 0.2, 1.0];
/// 0.1, 1, 10 and 100 Mbit/s, 1, 10 and 100 Gbit/s.
const RATES: &[f64] = &[12.5e3, 125e3, 1.25e6, 12.5e6, 125e6, 1.25e9, 12.5e9];
const WINDOWS: &[f64] = &[15e3, 60e3, 250e3, 1e6, 4e6, 16e6, 64e6];
const SHARES: &[f64] = &[0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1];

const CONNECTIONS: Metric = Metric::gauge("fullpipe_tcp_connections", "Connections at the last look.", "");
const STATES: Metric =
    Metric::gauge("fullpipe_bbr_connections", "Connections at the last look by BBR's state.", "");
const LIMITED: Metric =
    Metric::counter("fullpipe_tcp_limited_seconds", "Time of connections by what limited them.", "seconds");
const USED: Metric = Metric::counter(
    "fullpipe_class_cpu_seconds",
    "Processor time of a unit or container, all that it does.",
    "seconds",
);

/// Each with the bounds of its histogram.
const DISTRIBUTIONS: [(Metric, &[f64]); 8] = [
    (
        Metric::histogram(
            "fullpipe_tcp_rtt_seconds",
            "Smoothed round-trip times of connections that sent.",
            "seconds",
        ),
        ROUND_TRIPS,
    ),
    (
        Metric::histogram(
            "fullpipe_tcp_min_rtt_seconds",
            "Least round-trip times of connections that sent.",
            "seconds",
        ),
        ROUND_TRIPS,
    ),
    (
        Metric::histogram(
            "fullpipe_tcp_queueing_seconds",
            "What round trips were above the least: time in queues.",
            "seconds",
        ),
        QUEUES,
    ),
    (
        Metric::histogram(
            "fullpipe_tcp_delivery_rate_bytes_per_second",
            "Delivery rates that the network limited.",
            "bytes_per_second",
        ),
        RATES,
    ),
    (
        Metric::histogram("fullpipe_tcp_cwnd_bytes", "Congestion windows of connections that sent.", "bytes"),
        WINDOWS,
    ),
    (
        Metric::histogram(
            "fullpipe_tcp_retransmitted_ratio",
            "Segments sent again of those sent, by connection.",
            "ratio",
        ),
        SHARES,
    ),
    (
        Metric::histogram(
            "fullpipe_bbr_bandwidth_bytes_per_second",
            "What BBR believes of the bottleneck's bandwidth.",
            "bytes_per_second",
        ),
        RATES,
    ),
    (
        Metric::histogram(
            "fullpipe_bbr_min_rtt_seconds",
            "What BBR believes of the round-trip propagation time.",
            "seconds",
        ),
        ROUND_TRIPS,
    ),
];

const COUNTERS: [Metric; 4] = [
    Metric::counter("fullpipe_tcp_acked_bytes", "Payload that was acknowledged.", "bytes"),
    Metric::counter("fullpipe_tcp_received_bytes", "Payload that was received.", "bytes"),
    Metric::counter("fullpipe_tcp_sent_segments", "Data segments sent, with those sent again.", "segments"),
    Metric::counter("fullpipe_tcp_retransmitted_segments", "Segments sent again.", "segments"),
];

/// What is counted of a controller and a class.
#[derive(Clone, Debug)]
struct Pair {
    created: f64,
    connections: u64,
    /// When it had connections last.
    last_s: f64,
    counted: [u64; 4],
    limited: [f64; Limitation::ALL.len()],
    distributions: Vec<Histogram>,
}

/// The counters of a connection, in the order of [`COUNTERS`].
type Counted = [u64; 4];

/// The sum of all looks.
#[derive(Debug)]
pub struct Tally {
    classes: Classes,
    pairs: BTreeMap<(String, String), Pair>,
    /// What each connection had moved, and at which look that was.
    known: HashMap<u64, (u64, Counted)>,
    states: BTreeMap<(String, String), u64>,
    processor: Processor,
    last_s: Option<f64>,
    looks: u64,
    incomplete: u64,
    failed: u64,
    began: f64,
}

impl Tally {
    /// Nothing yet; connections will be put into `classes`.
    pub fn new(classes: Classes) -> Tally {
        Tally {
            classes,
            pairs: BTreeMap::new(),
            known: HashMap::new(),
            states: BTreeMap::new(),
            processor: Processor::default(),
            last_s: None,
            looks: 0,
            incomplete: 0,
            failed: 0,
            began: 0.0,
        }
    }

    /// Counts a look that the kernel did not answer.
    pub fn failed(&mut self) {
        self.failed += 1;
    }

    /// Adds a look. What connections moved before the first one is not counted, what a connection moved between the
    /// last look at it and its end neither.
    pub fn add(&mut self, snapshot: &Snapshot) {
        let first = self.last_s.is_none();
        if first {
            self.began = snapshot.unix_s;
        }
        let elapsed = snapshot.t_s - self.last_s.unwrap_or(snapshot.t_s);
        self.last_s = Some(snapshot.t_s);
        self.looks += 1;
        self.incomplete += u64::from(!snapshot.complete);
        self.states.clear();
        self.pairs.values_mut().for_each(|pair| pair.connections = 0);
        let look = self.looks;
        for connection in &snapshot.connections {
            let class = self.classes.of(connection).into_owned();
            // A handshake, or what is left of a connection: nobody drives it.
            let Some(controller) = connection.controller.as_deref().map(str::to_owned) else { continue };
            if let Some(state) = connection.beliefs.as_ref().and_then(|b| b.state.clone()) {
                let key = (controller.clone(), state);
                if self.states.len() < MOST_STATES || self.states.contains_key(&key) {
                    *self.states.entry(key).or_default() += 1;
                }
            }
            let pair = pair(&mut self.pairs, controller, class, snapshot.unix_s);
            pair.connections += 1;
            pair.last_s = snapshot.t_s;
            let Some(figures) = &connection.figures else { continue };
            let now = counted(figures);
            let before = match self.known.insert(connection.cookie, (look, now)) {
                Some((_, before)) => before,
                None if first => continue,
                // What was not there before has moved all it has since then.
                None => [0; 4],
            };
            let moved = since(before, now);
            // Who reads counters takes one that begins anew for a restart.
            pair.counted.iter_mut().zip(moved).for_each(|(sum, moved)| *sum = sum.wrapping_add(moved));
            for limit in &connection.limits {
                pair.limited[place(limit.by)] += limit.share * elapsed;
            }
            if moved[2] > 0 {
                pair.observe(connection, figures, moved[3] as f64 / moved[2] as f64);
            }
        }
        let groups: BTreeSet<_> =
            snapshot.connections.iter().filter_map(|connection| self.classes.group_of(connection)).collect();
        self.processor.look(&groups);
        // The kernel's dump leaves a socket out now and then whose bucket changes meanwhile: it has not begun anew when it is
        // back.
        self.known.retain(|_, (at, _)| look - *at < 3);
        // Classes come and go, as sessions and containers do; the room of the gone is needed by others.
        if self.pairs.len() >= MOST_PAIRS {
            self.pairs.retain(|_, pair| pair.connections > 0 || snapshot.t_s - pair.last_s < KEPT_S);
            let pairs = &self.pairs;
            self.processor.retain(|class| pairs.keys().any(|(_, known)| known == class));
        }
    }

    /// The metrics.
    pub fn families(&self) -> Vec<Family> {
        let states = self.states.iter().map(|((controller, state), count)| {
            let labels = vec![("controller", controller.clone()), ("state", state.clone())];
            Sample::number(labels, *count as f64)
        });
        let mut families =
            vec![CONNECTIONS.of(self.by_pair(|pair| pair.connections as f64)), STATES.of(states)];
        families.extend(COUNTERS.into_iter().enumerate().map(|(at, metric)| {
            let created = self.pairs.values().map(|pair| pair.created);
            let counted = self.by_pair(|pair| pair.counted[at] as f64);
            metric.of(counted.zip(created).map(|(sample, created)| sample.since(created)))
        }));
        families.push(LIMITED.of(self.limited()));
        families.push(USED.of(self.used()));
        families.extend(DISTRIBUTIONS.into_iter().enumerate().map(|(at, (metric, _))| {
            let told = self.pairs.iter().filter(|(_, pair)| pair.distributions[at].count() > 0);
            metric.of(told.map(|(key, pair)| Sample {
                labels: labels(key),
                value: Value::Distribution(pair.distributions[at].clone()),
                created: Some(pair.created),
            }))
        }));
        families.extend(self.own());
        families
    }

    /// A number of each controller and class.
    fn by_pair(&self, of: impl Fn(&Pair) -> f64) -> impl Iterator<Item = Sample> {
        self.pairs.iter().map(move |(key, pair)| Sample::number(labels(key), of(pair)))
    }

    fn limited(&self) -> impl Iterator<Item = Sample> {
        self.pairs.iter().flat_map(|(key, pair)| {
            // Policers are found in captures; the kernel does not tell of them.
            let told = Limitation::ALL.into_iter().zip(pair.limited);
            told.filter(|(by, _)| *by != Limitation::Policer).map(|(by, seconds)| {
                let mut labels = labels(key);
                labels.push(("by", by.name().replace(' ', "_")));
                Sample::number(labels, seconds)
            })
        })
    }

    fn used(&self) -> impl Iterator<Item = Sample> {
        let classes: BTreeSet<&String> = self.pairs.keys().map(|(_, class)| class).collect();
        classes.into_iter().filter_map(|class| {
            let seconds = self.processor.seconds(class)?;
            Some(Sample::number(vec![("class", class.clone())], seconds).since(self.began))
        })
    }

    /// What this tally itself came to.
    fn own(&self) -> [Family; 3] {
        [
            ("fullpipe_looks", "Looks at the host's connections.", self.looks),
            ("fullpipe_looks_incomplete", "Looks during which the kernel's table changed.", self.incomplete),
            ("fullpipe_looks_failed", "Looks that the kernel did not answer.", self.failed),
        ]
        .map(|(name, help, count)| {
            Metric::counter(name, help, "").of([Sample::number(Vec::new(), count as f64).since(self.began)])
        })
    }
}

fn labels((controller, class): &(String, String)) -> Vec<(&'static str, String)> {
    vec![("controller", controller.clone()), ("class", class.clone())]
}

impl Pair {
    fn new(created: f64) -> Pair {
        Pair {
            created,
            connections: 0,
            last_s: 0.0,
            counted: [0; 4],
            limited: [0.0; Limitation::ALL.len()],
            distributions: DISTRIBUTIONS.iter().map(|(_, bounds)| Histogram::new(bounds)).collect(),
        }
    }

    /// Counts one connection that has sent since the look before.
    fn observe(&mut self, connection: &Connection, figures: &Figures, again: f64) {
        let seconds = |span: Option<Span>| span.map_or(f64::NAN, Span::as_secs_f64);
        let bytes = |rate: Option<Rate>| rate.map_or(f64::NAN, |r| r.as_bytes_per_sec() as f64);
        let beliefs = connection.beliefs.as_ref();
        let modelled = beliefs.filter(|b| b.bw.is_some());
        let values = [
            seconds(Some(figures.srtt).filter(|s| !s.is_zero())),
            seconds(figures.min_rtt),
            seconds(connection.queueing()),
            // A sample taken while the application had nothing to send says nothing of the path.
            bytes(figures.delivery.filter(|_| !figures.delivery_app_limited)),
            f64::from(figures.cwnd_segments) * f64::from(figures.mss_bytes),
            again,
            bytes(modelled.and_then(|b| b.bw)),
            seconds(modelled.and_then(|b| b.min_rtt)),
        ];
        self.distributions.iter_mut().zip(values).for_each(|(histogram, value)| histogram.observe(value));
    }
}

/// Where a controller's connections of a class are counted: by themselves while there is room.
fn pair(
    pairs: &mut BTreeMap<(String, String), Pair>,
    controller: String,
    class: String,
    now: f64,
) -> &mut Pair {
    let wanted = (controller, class);
    let room = || pairs.keys().filter(|(c, k)| c != OTHER || k != OTHER).count() < MOST_PAIRS;
    let key = if pairs.contains_key(&wanted) || room() {
        wanted
    } else {
        let of_the_controller = (wanted.0, OTHER.to_owned());
        if pairs.contains_key(&of_the_controller) {
            of_the_controller
        } else {
            (OTHER.to_owned(), OTHER.to_owned())
        }
    };
    pairs.entry(key).or_insert_with(|| Pair::new(now))
}

/// What moved between two looks. The kernel's counters of segments have 32 bits and go round.
fn since(before: Counted, now: Counted) -> Counted {
    std::array::from_fn(|i| match i {
        2 | 3 => u64::from((now[i] as u32).wrapping_sub(before[i] as u32)),
        _ => now[i].saturating_sub(before[i]),
    })
}

fn counted(figures: &Figures) -> Counted {
    [
        figures.acked_bytes.unwrap_or(0),
        figures.received_bytes.unwrap_or(0),
        u64::from(figures.sent_segments.unwrap_or(0)),
        u64::from(figures.retransmitted_segments),
    ]
}

fn place(by: Limitation) -> usize {
    Limitation::ALL.iter().position(|l| *l == by).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{By, Page};
    use crate::filter::Filter;
    use crate::reader::SCHEMA;
    use fullpipe_experiment::connection::LimitShare;

    fn snapshot(t_s: f64, connections: Vec<Connection>) -> Snapshot {
        Snapshot {
            schema: SCHEMA,
            unix_s: 1e9 + t_s,
            t_s,
            complete: true,
            unseen: Vec::new(),
            totals: Vec::new(),
            connections,
        }
    }

    fn connection(cookie: u64, port: u16, controller: &str, segments: u32) -> Connection {
        let ms = Span::from_millis;
        Connection {
            cookie,
            local: ([10, 0, 0, 1], port).into(),
            remote: ([10, 0, 0, 2], 5000).into(),
            state: fullpipe_kernel::tcp_info::State::Established,
            controller: Some(controller.into()),
            watched: Span::ZERO,
            owner: crate::Owner::default(),
            sending: None,
            receiving: None,
            retransmitted: None,
            limits: vec![LimitShare { by: Limitation::Bandwidth, share: 0.5 }],
            beliefs: (controller == "bbr").then(|| {
                Box::new(crate::Beliefs {
                    state: Some("ProbeBW".to_owned()),
                    bw: Some(Rate::from_bytes_per_sec(1_000_000)),
                    min_rtt: Some(ms(40)),
                    ..Default::default()
                })
            }),
            figures: Some(Figures {
                srtt: ms(50),
                min_rtt: Some(ms(40)),
                rto: ms(250),
                mss_bytes: 1000,
                cwnd_segments: 20,
                ssthresh_segments: None,
                inflight_segments: 10,
                recovery: "Open",
                pacing: None,
                delivery: Some(Rate::from_bytes_per_sec(900_000)),
                delivery_app_limited: false,
                acked_bytes: Some(u64::from(segments) * 1000),
                received_bytes: Some(7),
                sent_segments: Some(segments),
                retransmitted_segments: segments / 10,
                unsent_bytes: None,
                receive_window_bytes: None,
            }),
        }
    }

    fn tally() -> Tally {
        Tally::new(Classes::new(Vec::new(), By::Port(vec![443])))
    }

    #[test]
    fn what_moves_after_the_first_look_is_counted_and_no_more() {
        let mut tally = tally();
        tally.add(&snapshot(0.0, vec![connection(1, 443, "bbr", 5000)]));
        tally.add(&snapshot(2.0, vec![connection(1, 443, "bbr", 5100), connection(2, 443, "bbr", 20)]));
        // The first is idle, the second is closed.
        tally.add(&snapshot(4.0, vec![connection(1, 443, "bbr", 5100)]));
        let page = Page::of(&tally.families()).openmetrics;
        let has = |line: &str| assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
        let labels = "{controller=\"bbr\",class=\"port 443\"}";
        has(&format!("fullpipe_tcp_connections{labels} 1.0"));
        has(&format!("fullpipe_tcp_acked_bytes_total{labels} 120000.0"));
        has(&format!("fullpipe_tcp_sent_segments_total{labels} 120.0"));
        has(&format!("fullpipe_tcp_retransmitted_segments_total{labels} 12.0"));
        has("fullpipe_tcp_limited_seconds_total{controller=\"bbr\",class=\"port 443\",by=\"bandwidth\"} 3.0");
        has(&format!("fullpipe_tcp_rtt_seconds_count{labels} 2"));
        has("fullpipe_tcp_queueing_seconds_bucket{controller=\"bbr\",class=\"port 443\",le=\"0.005\"} 0");
        has("fullpipe_tcp_queueing_seconds_bucket{controller=\"bbr\",class=\"port 443\",le=\"0.02\"} 2");
        has(&format!("fullpipe_bbr_bandwidth_bytes_per_second_sum{labels} 2000000.0"));
        has("fullpipe_bbr_connections{controller=\"bbr\",state=\"ProbeBW\"} 1.0");
        has("fullpipe_looks_total 3.0");
    }

    #[test]
    fn what_one_look_misses_has_not_begun_anew_and_counters_go_round() {
        let mut tally = tally();
        let sent = |tally: &Tally| {
            let page = Page::of(&tally.families()).text;
            let line =
                page.lines().find(|l| l.starts_with("fullpipe_tcp_sent_segments_total")).unwrap().to_owned();
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
        };
        tally.add(&snapshot(0.0, vec![connection(1, 443, "bbr", 5000)]));
        tally.add(&snapshot(1.0, vec![]));
        tally.add(&snapshot(2.0, vec![connection(1, 443, "bbr", 5007)]));
        assert_eq!(sent(&tally), 7.0);
        tally.add(&snapshot(3.0, vec![connection(1, 443, "bbr", u32::MAX)]));
        let before = sent(&tally);
        tally.add(&snapshot(4.0, vec![connection(1, 443, "bbr", 9)]));
        assert_eq!(sent(&tally) - before, 10.0);
    }

    #[test]
    fn classes_that_are_gone_make_room() {
        let mut tally = Tally::new(Classes::new(Vec::new(), By::Port((1..1000).collect())));
        let at = |t: f64, from: u16| {
            snapshot(t, (from..from + 16).map(|port| connection(port.into(), port, "cubic", 9)).collect())
        };
        tally.add(&at(0.0, 1));
        tally.add(&at(1000.0, 100));
        tally.add(&at(1001.0, 100));
        let page = Page::of(&tally.families()).text;
        assert!(
            page.contains("fullpipe_tcp_connections{controller=\"cubic\",class=\"port 115\"} 1"),
            "{page}"
        );
    }

    #[test]
    fn there_are_at_most_two_thousand_series_whatever_the_load() {
        let listed = (1..200)
            .map(|port| (format!("class {port}"), Filter::parse(&format!("sport = :{port}")).unwrap()));
        let mut tally = Tally::new(Classes::new(listed.collect(), By::Port(Vec::new())));
        let all = |segments| {
            let each = (0..4000u64).map(|i| {
                let controller = format!("cc{}", i % 50);
                let mut c = connection(i, 1 + (i % 300) as u16, "bbr", segments);
                c.controller = Some(controller.into());
                c.beliefs.as_mut().unwrap().state = Some(format!("state {}", i % 77));
                c
            });
            each.collect::<Vec<_>>()
        };
        tally.add(&snapshot(0.0, all(10)));
        tally.add(&snapshot(1.0, all(20)));
        let page = Page::of(&tally.families());
        assert!(page.series() <= 2000, "{}", page.series());
        // Nothing is lost: what has no room of its own is counted with the others.
        let total: f64 = page
            .text
            .lines()
            .filter(|l| l.starts_with("fullpipe_tcp_acked_bytes_total"))
            .map(|l| l.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum();
        assert_eq!(total, 4000.0 * 10_000.0);
    }
}
