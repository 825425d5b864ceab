//! Accumulates samples into metrics.

use super::classes::{Classes, OTHER};
use super::family::{Family, Metric, Sample, Value};
use super::histogram::Histogram;
use super::processor::Processor;
use crate::connection::{Connection, Figures};
use crate::reader::Snapshot;
use fullpipe_experiment::connection::Limitation;
use fullpipe_units::{Rate, Span};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum pairs of controller and class, besides one for all others: bounds the number of series.
pub const MAX_PAIRS: usize = 16;
/// How long a pair without connections is kept when others need its place, so that its counts are
/// scraped.
const RETENTION_S: f64 = 600.0;
/// Maximum pairs of controller and state, besides one for all others.
const MAX_STATES: usize = 32;

const ROUND_TRIPS: &[f64] = &[0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 1.0];
const QUEUES: &[f64] = &[0.0005, 0.002, 0.005, 0.02, 0.05, 0.2, 1.0];
/// 0.1, 1, 10 and 100 Mbit/s, 1, 10 and 100 Gbit/s.
const RATES: &[f64] = &[12.5e3, 125e3, 1.25e6, 12.5e6, 125e6, 1.25e9, 12.5e9];
const WINDOWS: &[f64] = &[15e3, 60e3, 250e3, 1e6, 4e6, 16e6, 64e6];
const SHARES: &[f64] = &[0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1];

const CONNECTIONS: Metric = Metric::gauge("fullpipe_tcp_connections", "Connections in the last sample.", "");
const STATES: Metric =
    Metric::gauge("fullpipe_bbr_connections", "Connections in the last sample by BBR state.", "");
const LIMITED: Metric =
    Metric::counter("fullpipe_tcp_limited_seconds", "Connection time by limiting factor.", "seconds");
const USED: Metric = Metric::counter(
    "fullpipe_class_cpu_seconds",
    "CPU time of a unit or container, all of its work.",
    "seconds",
);

/// Histograms with their classic bounds.
const DISTRIBUTIONS: [(Metric, &[f64]); 8] = [
    (
        Metric::histogram(
            "fullpipe_tcp_rtt_seconds",
            "Smoothed round-trip times of connections that sent data.",
            "seconds",
        ),
        ROUND_TRIPS,
    ),
    (
        Metric::histogram(
            "fullpipe_tcp_min_rtt_seconds",
            "Minimum round-trip times of connections that sent data.",
            "seconds",
        ),
        ROUND_TRIPS,
    ),
    (
        Metric::histogram(
            "fullpipe_tcp_queueing_seconds",
            "Queueing delay: smoothed minus minimum round-trip time.",
            "seconds",
        ),
        QUEUES,
    ),
    (
        Metric::histogram(
            "fullpipe_tcp_delivery_rate_bytes_per_second",
            "Delivery rate samples that were not application-limited.",
            "bytes_per_second",
        ),
        RATES,
    ),
    (
        Metric::histogram(
            "fullpipe_tcp_cwnd_bytes",
            "Congestion windows of connections that sent data.",
            "bytes",
        ),
        WINDOWS,
    ),
    (
        Metric::histogram(
            "fullpipe_tcp_retransmitted_ratio",
            "Retransmitted share of the segments sent, per connection.",
            "ratio",
        ),
        SHARES,
    ),
    (
        Metric::histogram(
            "fullpipe_bbr_bandwidth_bytes_per_second",
            "Bottleneck bandwidth as estimated by BBR.",
            "bytes_per_second",
        ),
        RATES,
    ),
    (
        Metric::histogram(
            "fullpipe_bbr_min_rtt_seconds",
            "Round-trip propagation time as estimated by BBR.",
            "seconds",
        ),
        ROUND_TRIPS,
    ),
];

const COUNTERS: [Metric; 4] = [
    Metric::counter("fullpipe_tcp_acked_bytes", "Payload acknowledged.", "bytes"),
    Metric::counter("fullpipe_tcp_received_bytes", "Payload received.", "bytes"),
    Metric::counter("fullpipe_tcp_sent_segments", "Data segments sent, with retransmissions.", "segments"),
    Metric::counter("fullpipe_tcp_retransmitted_segments", "Segments retransmitted.", "segments"),
];

/// Metrics of one controller and class.
#[derive(Clone, Debug)]
struct Pair {
    created: f64,
    connections: u64,
    /// Time of the last sample with connections.
    last_s: f64,
    counted: [u64; 4],
    limited: [f64; Limitation::ALL.len()],
    distributions: Vec<Histogram>,
}

/// The counters of a connection, in the order of [`COUNTERS`].
type Counted = [u64; 4];

/// Sum of all samples.
#[derive(Debug)]
pub struct Tally {
    classes: Classes,
    pairs: BTreeMap<(String, String), Pair>,
    /// Counters of each connection, and the number of the sample they are from.
    known: HashMap<u64, (u64, Counted)>,
    states: BTreeMap<(String, String), u64>,
    processor: Processor,
    last_s: Option<f64>,
    samples: u64,
    incomplete: u64,
    failed: u64,
    began: f64,
}

impl Tally {
    /// An empty tally; connections are grouped by `classes`.
    pub fn new(classes: Classes) -> Tally {
        Tally {
            classes,
            pairs: BTreeMap::new(),
            known: HashMap::new(),
            states: BTreeMap::new(),
            processor: Processor::default(),
            last_s: None,
            samples: 0,
            incomplete: 0,
            failed: 0,
            began: 0.0,
        }
    }

    /// Counts a failed sample.
    pub fn count_failure(&mut self) {
        self.failed += 1;
    }

    /// Adds a sample. Data moved before the first sample is not counted, nor data that a connection
    /// moved between its last sample and its end.
    pub fn add(&mut self, snapshot: &Snapshot) {
        let first = self.last_s.is_none();
        if first {
            self.began = snapshot.unix_s;
        }
        let elapsed = snapshot.t_s - self.last_s.unwrap_or(snapshot.t_s);
        self.last_s = Some(snapshot.t_s);
        self.samples += 1;
        self.incomplete += u64::from(!snapshot.complete);
        self.states.clear();
        self.pairs.values_mut().for_each(|pair| pair.connections = 0);
        let sample = self.samples;
        for connection in &snapshot.connections {
            let class = self.classes.classify(connection).into_owned();
            // Connections in handshake or teardown have no controller.
            let Some(controller) = connection.controller.as_deref().map(str::to_owned) else { continue };
            if let Some(state) = bbr_state(connection, &controller) {
                let wanted = (controller.clone(), state.to_owned());
                let is_full = self.states.len() >= MAX_STATES && !self.states.contains_key(&wanted);
                let key = if is_full { (OTHER.to_owned(), OTHER.to_owned()) } else { wanted };
                *self.states.entry(key).or_default() += 1;
            }
            let pair = pair(&mut self.pairs, controller, class, snapshot.unix_s);
            pair.connections += 1;
            pair.last_s = snapshot.t_s;
            let Some(figures) = &connection.figures else { continue };
            let now = counted(figures);
            let before = match self.known.insert(connection.cookie, (sample, now)) {
                Some((_, before)) => before,
                None if first => continue,
                // A new connection: everything was moved since the previous sample.
                None => [0; 4],
            };
            let moved = since(before, now);
            // A counter that wraps around is read as a restart by Prometheus.
            pair.counted.iter_mut().zip(moved).for_each(|(sum, moved)| *sum = sum.wrapping_add(moved));
            for limit in &connection.limits {
                pair.limited[index(limit.by)] += limit.share * elapsed;
            }
            if moved[2] > 0 {
                pair.observe(connection, figures, moved[3] as f64 / moved[2] as f64);
            }
        }
        let groups: BTreeSet<_> =
            snapshot.connections.iter().filter_map(|connection| self.classes.group_of(connection)).collect();
        self.processor.sample(&groups);
        // A dump occasionally misses a socket whose hash bucket changes meanwhile: when it reappears, it
        // continues.
        self.known.retain(|_, (at, _)| sample - *at < 3);
        // Sessions and containers come and go; reuse the places of those that are gone.
        if self.pairs.len() >= MAX_PAIRS {
            self.pairs.retain(|_, pair| pair.connections > 0 || snapshot.t_s - pair.last_s < RETENTION_S);
            let pairs = &self.pairs;
            self.processor.retain(|class| pairs.keys().any(|(_, known)| known == class));
        }
    }

    /// The metric families.
    pub fn families(&self) -> Vec<Family> {
        let states = self.states.iter().map(|((controller, state), count)| {
            let labels = vec![("controller", controller.clone()), ("state", state.clone())];
            Sample::number(labels, *count as f64)
        });
        let mut families =
            vec![CONNECTIONS.family(self.by_pair(|pair| pair.connections as f64)), STATES.family(states)];
        families.extend(COUNTERS.into_iter().enumerate().map(|(at, metric)| {
            let created = self.pairs.values().map(|pair| pair.created);
            let counted = self.by_pair(|pair| pair.counted[at] as f64);
            metric.family(counted.zip(created).map(|(sample, created)| sample.created_at(created)))
        }));
        families.push(LIMITED.family(self.limited()));
        families.push(USED.family(self.used()));
        families.extend(DISTRIBUTIONS.into_iter().enumerate().map(|(at, (metric, _))| {
            let nonempty = self.pairs.iter().filter(|(_, pair)| pair.distributions[at].count() > 0);
            metric.family(nonempty.map(|(key, pair)| Sample {
                labels: labels(key),
                value: Value::Distribution(pair.distributions[at].clone()),
                created: Some(pair.created),
            }))
        }));
        families.extend(self.own());
        families
    }

    /// One number per controller and class.
    fn by_pair(&self, value: impl Fn(&Pair) -> f64) -> impl Iterator<Item = Sample> {
        self.pairs.iter().map(move |(key, pair)| Sample::number(labels(key), value(pair)))
    }

    fn limited(&self) -> impl Iterator<Item = Sample> {
        self.pairs.iter().flat_map(|(key, pair)| {
            // Policers are detected in captures, pacing in logs; the kernel does not report them.
            let is_known = |by| !matches!(by, Limitation::Policer | Limitation::Pacing);
            let reported = Limitation::ALL.into_iter().zip(pair.limited);
            reported.filter(move |(by, _)| is_known(*by)).map(|(by, seconds)| {
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
            Some(Sample::number(vec![("class", class.clone())], seconds).created_at(self.began))
        })
    }

    /// Metrics about the sampling itself.
    fn own(&self) -> [Family; 3] {
        [
            ("fullpipe_samples", "Samples of the host's connections.", self.samples),
            (
                "fullpipe_samples_incomplete",
                "Samples during which the kernel's socket table changed.",
                self.incomplete,
            ),
            ("fullpipe_samples_failed", "Samples that failed.", self.failed),
        ]
        .map(|(name, help, count)| {
            Metric::counter(name, help, "")
                .family([Sample::number(Vec::new(), count as f64).created_at(self.began)])
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

    /// Adds one connection that sent data since the previous sample.
    fn observe(&mut self, connection: &Connection, figures: &Figures, retransmitted: f64) {
        let seconds = |span: Option<Span>| span.map_or(f64::NAN, Span::as_secs_f64);
        let bytes = |rate: Option<Rate>| rate.map_or(f64::NAN, |r| r.as_bytes_per_sec() as f64);
        let model = connection.model.as_ref().filter(|m| m.bw.is_some());
        let values = [
            seconds(Some(figures.srtt).filter(|s| !s.is_zero())),
            seconds(figures.min_rtt),
            seconds(connection.queueing()),
            // An application-limited sample says nothing about the path.
            bytes(figures.delivery.filter(|_| !figures.delivery_app_limited)),
            f64::from(figures.cwnd_segments) * f64::from(figures.mss_bytes),
            retransmitted,
            bytes(model.and_then(|m| m.bw)),
            seconds(model.and_then(|m| m.min_rtt)),
        ];
        self.distributions.iter_mut().zip(values).for_each(|(histogram, value)| histogram.observe(value));
    }
}

/// The metrics that a controller and class are counted in: their own while there are places left.
fn pair(
    pairs: &mut BTreeMap<(String, String), Pair>,
    controller: String,
    class: String,
    now: f64,
) -> &mut Pair {
    let wanted = (controller, class);
    let has_room = || pairs.keys().filter(|(c, k)| c != OTHER || k != OTHER).count() < MAX_PAIRS;
    let key = if pairs.contains_key(&wanted) || has_room() {
        wanted
    } else {
        let rest_of_controller = (wanted.0, OTHER.to_owned());
        if pairs.contains_key(&rest_of_controller) {
            rest_of_controller
        } else {
            (OTHER.to_owned(), OTHER.to_owned())
        }
    };
    pairs.entry(key).or_insert_with(|| Pair::new(now))
}

/// The state that a connection is counted in, if its controller is BBR of any version. `unknown` if no
/// state is reported: before the first data, and for an eBPF program without root.
fn bbr_state<'a>(connection: &'a Connection, controller: &str) -> Option<&'a str> {
    let model = connection.model.as_deref().filter(|model| model.bw.is_some() || model.state.is_some());
    let is_bbr = model.is_some() || controller.contains("bbr");
    is_bbr.then(|| model.and_then(|model| model.state.as_deref()).unwrap_or("unknown"))
}

/// Difference between two samples. The kernel's segment counters have 32 bits and wrap around.
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

fn index(by: Limitation) -> usize {
    Limitation::ALL.iter().position(|l| *l == by).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{GroupBy, Page};
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
            model: (controller == "bbr").then(|| {
                Box::new(crate::PathModel {
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
        Tally::new(Classes::new(Vec::new(), GroupBy::Port(vec![443])))
    }

    #[test]
    fn only_data_moved_after_the_first_sample_is_counted() {
        let mut tally = tally();
        tally.add(&snapshot(0.0, vec![connection(1, 443, "bbr", 5000)]));
        tally.add(&snapshot(2.0, vec![connection(1, 443, "bbr", 5100), connection(2, 443, "bbr", 20)]));
        // The first connection is idle, the second is closed.
        tally.add(&snapshot(4.0, vec![connection(1, 443, "bbr", 5100)]));
        let page = Page::render(&tally.families()).openmetrics;
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
        has("fullpipe_samples_total 3.0");
    }

    #[test]
    fn every_bbr_connection_is_counted_in_one_state() {
        let states = [
            "Startup",
            "Drain",
            "ProbeRTT",
            "ProbeBW_UP",
            "ProbeBW_DOWN",
            "ProbeBW_CRUISE",
            "ProbeBW_REFILL",
        ];
        let in_state = |cookie: u64, controller: &str, state: Option<&str>| Connection {
            model: state.map(|state| {
                Box::new(crate::PathModel { state: Some(state.to_owned()), ..Default::default() })
            }),
            ..connection(cookie, 443, controller, 9)
        };
        let mut connections: Vec<_> =
            (0..).zip(states).map(|(n, state)| in_state(n, "bbr", Some(state))).collect();
        // Before its first data, and a program without a reader of its state.
        connections.push(in_state(7, "bbr", None));
        connections.push(in_state(8, "fp_bbr3", None));
        connections.push(connection(9, 443, "cubic", 9));
        let lines = |connections: Vec<Connection>| {
            let mut tally = tally();
            tally.add(&snapshot(0.0, connections));
            let page = Page::render(&tally.families()).text;
            let lines = page.lines().filter(|line| line.starts_with("fullpipe_bbr_connections{"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let found = lines(connections);
        let line = |cc: &str, state: &str| {
            format!("fullpipe_bbr_connections{{controller=\"{cc}\",state=\"{state}\"}} 1.0")
        };
        let mut expected: Vec<String> = states.iter().map(|state| line("bbr", state)).collect();
        expected.extend([line("bbr", "unknown"), line("fp_bbr3", "unknown")]);
        expected.sort_unstable();
        assert_eq!(found, expected);
        // Beyond the limit on series they are counted together.
        let many = (0..40).map(|n| in_state(n, &format!("bbr{n}"), Some("Drain"))).collect();
        let found = lines(many);
        assert_eq!(found.len(), MAX_STATES + 1);
        assert!(found.iter().any(|l| l.ends_with("{controller=\"other\",state=\"other\"} 8.0")), "{found:?}");
    }

    #[test]
    fn a_missed_sample_does_not_restart_counters_and_counters_wrap() {
        let mut tally = tally();
        let sent = |tally: &Tally| {
            let page = Page::render(&tally.families()).text;
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
    fn units_of_a_user_do_not_take_the_places_of_system_units() {
        let mut tally = Tally::new(Classes::new(Vec::new(), GroupBy::Unit));
        let in_group = |cookie: u64, path: String| Connection {
            owner: crate::Owner { process: None, cgroup: Some(path.into()) },
            ..connection(cookie, 443, "cubic", 9)
        };
        let user = "/user.slice/user-1000.slice/user@1000.service/app.slice";
        let mut connections: Vec<_> =
            (0..16).map(|n| in_group(n, format!("{user}/idle-{n}.service"))).collect();
        connections.push(in_group(16, format!("{user}/nginx.service")));
        connections.push(in_group(17, "/system.slice/nginx.service".to_owned()));
        tally.add(&snapshot(0.0, connections));
        let page = Page::render(&tally.families()).text;
        for line in [
            "fullpipe_tcp_connections{controller=\"cubic\",class=\"nginx.service\"} 1.0",
            "fullpipe_tcp_connections{controller=\"cubic\",class=\"user-1000.slice\"} 17.0",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn unused_classes_are_evicted() {
        let mut tally = Tally::new(Classes::new(Vec::new(), GroupBy::Port((1..1000).collect())));
        let at = |t: f64, from: u16| {
            snapshot(t, (from..from + 16).map(|port| connection(port.into(), port, "cubic", 9)).collect())
        };
        tally.add(&at(0.0, 1));
        tally.add(&at(1000.0, 100));
        tally.add(&at(1001.0, 100));
        let page = Page::render(&tally.families()).text;
        assert!(
            page.contains("fullpipe_tcp_connections{controller=\"cubic\",class=\"port 115\"} 1"),
            "{page}"
        );
    }

    #[test]
    fn at_most_two_thousand_series_under_any_load() {
        let listed = (1..200)
            .map(|port| (format!("class {port}"), Filter::parse(&format!("sport = :{port}")).unwrap()));
        let mut tally = Tally::new(Classes::new(listed.collect(), GroupBy::Port(Vec::new())));
        let all = |segments| {
            let each = (0..4000u64).map(|i| {
                let controller = format!("cc{}", i % 50);
                let mut c = connection(i, 1 + (i % 300) as u16, "bbr", segments);
                c.controller = Some(controller.into());
                c.model.as_mut().unwrap().state = Some(format!("state {}", i % 77));
                c
            });
            each.collect::<Vec<_>>()
        };
        tally.add(&snapshot(0.0, all(10)));
        tally.add(&snapshot(1.0, all(20)));
        let page = Page::render(&tally.families());
        assert!(page.series() <= 2000, "{}", page.series());
        // Connections without a place of their own are counted with the others.
        let total: f64 = page
            .text
            .lines()
            .filter(|l| l.starts_with("fullpipe_tcp_acked_bytes_total"))
            .map(|l| l.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum();
        assert_eq!(total, 4000.0 * 10_000.0);
    }
}
