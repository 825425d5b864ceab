//! What connections did while they were on the screen.

use crate::connection::Connection;
use crate::reader::Snapshot;
use fullpipe_units::{Rate, Span};
use std::collections::{HashMap, VecDeque};

/// Looks that are kept of a connection.
const LONGEST: usize = 300;
/// Connections of which they are kept: those that stand first, and the selected one.
const MOST: usize = 200;

/// One look at one connection; NaN where nothing is known.
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
        let mut kept = HashMap::with_capacity(MOST + 1);
        for (at, connection) in snapshot.connections.iter().enumerate() {
            if at >= MOST && Some(connection.cookie) != selected {
                continue;
            }
            let mut points = self.0.remove(&connection.cookie).unwrap_or_default();
            if points.len() == LONGEST {
                points.pop_front();
            }
            points.push_back(Point::of(snapshot.t_s, connection));
            kept.insert(connection.cookie, points);
        }
        // One that has closed is looked at until the user turns away.
        if let Some((cookie, points)) = selected.and_then(|s| Some((s, self.0.remove(&s)?))) {
            kept.entry(cookie).or_insert(points);
        }
        self.0 = kept;
    }

    pub(super) fn of(&self, cookie: u64) -> impl Iterator<Item = &Point> {
        self.0.get(&cookie).into_iter().flatten()
    }
}

impl Point {
    fn of(t_s: f64, connection: &Connection) -> Point {
        let mbps = |r: Option<Rate>| r.map_or(f64::NAN, |r| r.as_bits_per_sec_f64() / 1e6);
        let ms = |s: Option<Span>| s.map_or(f64::NAN, Span::as_millis_f64);
        let figures = connection.figures.as_ref();
        Point {
            t_s,
            sending_mbps: mbps(connection.sending),
            bw_mbps: mbps(connection.beliefs.as_ref().and_then(|b| b.bw)),
            srtt_ms: ms(figures.map(|f| f.srtt)),
            min_rtt_ms: ms(figures.and_then(|f| f.min_rtt)),
            cwnd_segments: figures.map_or(f64::NAN, |f| f.cwnd_segments.into()),
            inflight_segments: figures.map_or(f64::NAN, |f| f.inflight_segments.into()),
        }
    }
}
