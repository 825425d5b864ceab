//! History of the displayed connections.

use crate::connection::Connection;
use crate::reader::Snapshot;
use fullpipe_units::{Rate, Span};
use std::collections::{HashMap, VecDeque};

/// Maximum samples kept per connection.
const MAX_POINTS: usize = 300;
/// Maximum connections with a history: the first ones in the list, and the selected one.
const MAX_CONNECTIONS: usize = 200;

/// One sample of one connection; NaN where unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub t_s: f64,
    pub sending_mbps: f64,
    pub bw_mbps: f64,
    pub srtt_ms: f64,
    pub min_rtt_ms: f64,
    pub cwnd_segments: f64,
    pub inflight_segments: f64,
}

#[derive(Debug, Default)]
pub(super) struct Histories(HashMap<u64, VecDeque<Point>>);

impl Histories {
    pub(super) fn add(&mut self, snapshot: &Snapshot, selected: Option<u64>) {
        let mut histories = HashMap::with_capacity(MAX_CONNECTIONS + 1);
        for (at, connection) in snapshot.connections.iter().enumerate() {
            if at >= MAX_CONNECTIONS && Some(connection.cookie) != selected {
                continue;
            }
            let mut points = self.0.remove(&connection.cookie).unwrap_or_default();
            if points.len() == MAX_POINTS {
                points.pop_front();
            }
            points.push_back(Point::new(snapshot.t_s, connection));
            histories.insert(connection.cookie, points);
        }
        // Keep a selected connection that has closed until the user leaves it.
        if let Some((cookie, points)) = selected.and_then(|s| Some((s, self.0.remove(&s)?))) {
            histories.entry(cookie).or_insert(points);
        }
        self.0 = histories;
    }

    pub(super) fn points(&self, cookie: u64) -> impl Iterator<Item = &Point> {
        self.0.get(&cookie).into_iter().flatten()
    }
}

impl Point {
    fn new(t_s: f64, connection: &Connection) -> Point {
        let mbps = |r: Option<Rate>| r.map_or(f64::NAN, |r| r.as_bits_per_sec_f64() / 1e6);
        let ms = |s: Option<Span>| s.map_or(f64::NAN, Span::as_millis_f64);
        let figures = connection.figures.as_ref();
        Point {
            t_s,
            sending_mbps: mbps(connection.sending),
            bw_mbps: mbps(connection.model.as_ref().and_then(|b| b.bw)),
            srtt_ms: ms(figures.map(|f| f.srtt)),
            min_rtt_ms: ms(figures.and_then(|f| f.min_rtt)),
            cwnd_segments: figures.map_or(f64::NAN, |f| f.cwnd_segments.into()),
            inflight_segments: figures.map_or(f64::NAN, |f| f.inflight_segments.into()),
        }
    }
}
