//! Draws a picture of each case: states, rates and inflight of a part of one run.
//!
//! Rates are shares of the link's payload rate at the start and inflight is in bandwidth-delay
//! products, so that implementations with packets of other sizes have the same picture.

use super::runs::{Reference, test_path};
use fullpipe_conformance::{Case, TestPath};
use fullpipe_experiment::recording::{EventKind, Recording, Series, column};
use fullpipe_report::picture::{Axis, Curve, Mark, Panel, Picture, Stroke};

/// What is drawn of a case.
pub struct CasePicture {
    case: &'static str,
    rate_mbit: u64,
    rtt_ms: u64,
    /// Which of the case's runs, from 1.
    run: usize,
    part: Part,
}

/// The part of a run that is drawn.
enum Part {
    /// Seconds of the run.
    Seconds(f64, f64),
    /// Round trips before and after the first entry into a state.
    Around(&'static str, f64, f64),
    /// Round trips before and after the first event of a kind.
    AroundEvent(EventKind, f64, f64),
}

use Part::{Around, AroundEvent, Seconds};

const fn picture(case: &'static str, part: Part) -> CasePicture {
    CasePicture { case, rate_mbit: 100, rtt_ms: 20, run: 1, part }
}

const PICTURES: [CasePicture; 22] = [
    picture("exiting-startup-on-bandwidth-plateau", Seconds(0.0, 0.4)),
    // Hundreds of packets a round, as the case needs.
    CasePicture {
        rtt_ms: 100,
        ..picture("exiting-startup-on-loss-when-application-limited", Seconds(0.0, 4.8))
    },
    picture("exiting-drain-based-on-inflight", Around("Drain", 4.0, 8.0)),
    picture("exiting-drain-based-on-time", Around("Drain", 4.0, 26.0)),
    picture("exiting-probe-up-on-bandwidth-plateau", Around("ProbeBW_UP", 8.0, 14.0)),
    picture("exiting-probe-up-on-loss-when-application-limited", Around("ProbeBW_UP", 6.0, 20.0)),
    CasePicture {
        run: 2,
        ..picture(
            "never-exiting-probe-up-or-startup-when-application-limited-with-no-loss",
            Around("ProbeBW_UP", 15.0, 60.0),
        )
    },
    picture("exiting-probe-down-on-inflight", Around("ProbeBW_UP", 0.0, 15.0)),
    // Where no coexistence with Reno ends the wait earlier.
    CasePicture { rtt_ms: 100, ..picture("exiting-probe-down-after-max-time", Seconds(2.0, 12.0)) },
    picture("entering-and-exiting-probe-rtt", Around("ProbeRTT", 10.0, 25.0)),
    picture("skipping-probe-rtt-due-to-application-limited-sending", Seconds(0.0, 20.0)),
    picture("achieving-expected-startup-bandwidth-on-a-link-with-aggregation", Seconds(0.0, 0.7)),
    picture("achieving-expected-cruise-bandwidth-on-a-link-with-aggregation", Seconds(1.0, 1.3)),
    CasePicture {
        rate_mbit: 10,
        rtt_ms: 1,
        ..picture("correctly-managing-sub-packet-bdps", Seconds(4.8, 5.6))
    },
    picture("increasing-bandwidth-10x-and-ensuring-full-bandwidth-is-reached", Seconds(5.5, 8.5)),
    picture("decreasing-bandwidth-10x-and-ensuring-max-bandwidth-adapts-down", Seconds(4.5, 15.0)),
    picture("handling-token-bucket-policers", Seconds(1.0, 3.0)),
    picture("handling-spurious-fast-recovery", AroundEvent(EventKind::SpuriousLoss, 6.0, 8.0)),
    picture("handling-spurious-rto-recovery", AroundEvent(EventKind::RetransmissionTimeout, 20.0, 80.0)),
    picture("entering-and-exiting-probe-rtt-during-startup", Seconds(4.5, 6.5)),
    picture("handling-loss-during-probe-up-after-inflight-longterm-is-set", Seconds(2.7, 3.3)),
    picture("handling-application-limited-sending-during-probe-refill", Around("ProbeBW_REFILL", 6.0, 20.0)),
];

/// The picture of a case.
pub fn of_case(case: &Case) -> Option<&'static CasePicture> {
    PICTURES.iter().find(|picture| picture.case == case.name)
}

/// Colours by Okabe and Ito, distinct with any kind of colour vision, and darker where the originals
/// would be too pale on white.
const INK: [u8; 3] = [0x22, 0x30, 0x3c];
const BLUE: [u8; 3] = [0x00, 0x72, 0xb2];
const VERMILION: [u8; 3] = [0xd5, 0x5e, 0x00];
const GREEN: [u8; 3] = [0x00, 0x9e, 0x73];
const PURPLE: [u8; 3] = [0x82, 0x24, 0x7b];
const GREY: [u8; 3] = [0x5f, 0x66, 0x70];

/// Samples per curve, so that a picture is small.
const MAX_POINTS: usize = 400;

const WIDTH: u32 = 600;
const PANEL_HEIGHT: u32 = 150;

/// Label of the link's rate.
const LINK: &str = "link";

/// From bottom to top, in the order of the pacing gain.
const STATES: [&str; 7] =
    ["ProbeRTT", "Drain", "ProbeBW_DOWN", "ProbeBW_CRUISE", "ProbeBW_REFILL", "ProbeBW_UP", "Startup"];

impl CasePicture {
    /// The path of its run.
    pub fn path(&self) -> TestPath {
        test_path(self.rate_mbit, self.rtt_ms)
    }

    /// Draws the runs of the two variants as SVG.
    pub fn draw(&self, draft: &Reference, linux: &Reference) -> Result<String, String> {
        let none = || format!("{} has no run {}", self.case, self.run);
        let index = self.run - 1;
        let draft_run = draft.recordings.get(index).ok_or_else(none)?;
        let linux_run = linux.recordings.get(index).ok_or_else(none)?;
        let during = self.during(draft_run)?;
        let rtt = draft.place.path.rtt.as_secs_f64();
        let limit = draft_run.path.goodput_limit_bps.ok_or("the link has no rate")?;
        let both = [draft_run, linux_run].map(|run| Drawn { run, during, limit, bdp: limit / 8.0 * rtt });
        let path = &draft_run.path.description;
        // A bold title would need a second font in the file.
        let picture = Picture {
            subtitle: format!("{}: {path}. Lines: draft; wide pale lines: linux.", draft.place.case.heading),
            panels: vec![states(&both), rates(&both), inflight(&both)],
            width: WIDTH,
            panel_height: PANEL_HEIGHT,
            ..Picture::default()
        };
        Ok(picture.svg())
    }

    /// Begin and end of what is drawn, in seconds.
    fn during(&self, run: &Recording) -> Result<(f64, f64), String> {
        let rtt = self.path().rtt.as_secs_f64();
        let flow = &run.flows[0];
        let around = |at: Option<f64>, what: String, before: f64, after: f64| match at {
            Some(at) => Ok(((at - before * rtt).max(0.0), at + after * rtt)),
            None => Err(format!("{}: no {what} to draw", self.case)),
        };
        match self.part {
            Seconds(from, to) => Ok((from, to)),
            Around(state, before, after) => {
                let entered =
                    flow.states.iter().find(|change| change.state == state).map(|change| change.at_s);
                around(entered, state.to_owned(), before, after)
            }
            AroundEvent(kind, before, after) => {
                let happened = flow.events.iter().find(|event| event.kind == kind).map(|event| event.at_s);
                around(happened, format!("{kind:?}"), before, after)
            }
        }
    }
}

/// A run of which a part is drawn.
struct Drawn<'a> {
    run: &'a Recording,
    during: (f64, f64),
    /// Payload rate of the link at the start, bit/s.
    limit: f64,
    /// Bytes of payload.
    bdp: f64,
}

impl Drawn<'_> {
    /// A column of the flow in this unit.
    fn points(&self, name: &str, unit: f64) -> Vec<(f64, f64)> {
        self.points_of(&self.run.flows[0].series, name, unit)
    }

    fn points_of(&self, series: &Series, name: &str, unit: f64) -> Vec<(f64, f64)> {
        let values = series.get(name).unwrap_or(&[]);
        let all = series.t_s.iter().copied().zip(values.iter().map(|v| v / unit));
        let drawn: Vec<_> = all.filter(|(t, _)| (self.during.0..=self.during.1).contains(t)).collect();
        drawn.iter().step_by(drawn.len().div_ceil(MAX_POINTS).max(1)).copied().collect()
    }

    /// Rate of the link.
    fn link(&self) -> Vec<(f64, f64)> {
        let unit = self.run.path.rate_bps.unwrap_or(f64::NAN);
        let link = self.run.links.iter().find(|link| link.label.starts_with("forward"));
        link.map(|link| self.points_of(&link.series, column::RATE_BPS, unit)).unwrap_or_default()
    }

    /// Steps from state to state, with the place of each in `names`.
    fn states(&self, names: &[&str]) -> Vec<(f64, f64)> {
        let (from, to) = self.during;
        let mut steps: Vec<(f64, f64)> = Vec::new();
        for change in self.run.flows[0].states.iter().filter(|change| change.at_s <= to) {
            let Some(place) = names.iter().position(|name| *name == change.state) else { continue };
            let at = change.at_s.max(from);
            steps.extend(steps.last().map(|last| (at, last.1)));
            steps.push((at, place as f64));
        }
        steps.extend(steps.last().map(|last| (to, last.1)));
        steps
    }

    fn was_in(&self, state: &str) -> bool {
        let (from, to) = self.during;
        let intervals = self.run.flows[0].state_intervals(to, |s| s == state);
        intervals.into_iter().any(|(begin, end)| end >= from && begin <= to)
    }
}

fn states(both: &[Drawn<'_>; 2]) -> Panel {
    let names: Vec<&str> =
        STATES.into_iter().filter(|state| both.iter().any(|drawn| drawn.was_in(state))).collect();
    let curves = [line("", INK, both[0].states(&names)), band(INK, both[1].states(&names))];
    let y = Axis::named("", names.iter().map(|name| (*name).to_owned()).collect());
    Panel { y, ..over_time(both[0].during, ("", ""), curves) }
}

fn rates(both: &[Drawn<'_>; 2]) -> Panel {
    let [draft, linux] = both;
    let curves = [
        band(INK, linux.points(column::BW_BPS, linux.limit)),
        Curve { dash: 2, ..line(LINK, GREY, draft.link()) },
        line("pacing rate", VERMILION, draft.points(column::PACING_BPS, draft.limit)),
        line("bandwidth estimate", INK, draft.points(column::BW_BPS, draft.limit)),
    ];
    over_time(draft.during, ("", "share of the link"), curves)
}

fn inflight(both: &[Drawn<'_>; 2]) -> Panel {
    let [draft, linux] = both;
    let of_draft = |name: &str| draft.points(name, draft.bdp);
    let curves = [
        band(BLUE, linux.points(column::INFLIGHT_BYTES, linux.bdp)),
        line("cwnd", GREEN, of_draft(column::CWND_BYTES)),
        Curve { dash: 1, ..line("inflight_longterm", PURPLE, of_draft(column::INFLIGHT_LONGTERM_BYTES)) },
        Curve { dash: 2, ..line("inflight_shortterm", PURPLE, of_draft(column::INFLIGHT_SHORTTERM_BYTES)) },
        line("inflight", BLUE, of_draft(column::INFLIGHT_BYTES)),
    ];
    let marks = vec![Mark::Horizontal { y: 1.0, label: "1 BDP".into() }];
    Panel { marks, ..over_time(draft.during, ("seconds", "BDP"), curves) }
}

fn over_time(
    during: (f64, f64),
    (label, unit): (&str, &str),
    curves: impl IntoIterator<Item = Curve>,
) -> Panel {
    let x = Axis::linear(label).with_range(during.0, during.1);
    let curves: Vec<Curve> =
        curves.into_iter().filter(|c| c.points.iter().any(|p| p.1.is_finite())).collect();
    // The link may be far above what a policer lets pass.
    let fitted = curves.iter().filter(|c| c.label != LINK).flat_map(|c| &c.points);
    let top = 1.08 * fitted.map(|p| p.1).filter(|y| y.is_finite()).fold(0.0, f64::max);
    let pixel = ((during.1 - during.0) / f64::from(WIDTH), top / f64::from(PANEL_HEIGHT));
    let simplified = |c: Curve| Curve { points: simplified(&c.points, pixel), ..c };
    let curves = curves.into_iter().map(simplified).collect();
    Panel { x, y: Axis::linear(unit).with_range(0.0, top), curves, ..Panel::default() }
}

fn line(label: &str, colour: [u8; 3], points: Vec<(f64, f64)>) -> Curve {
    Curve::line(label, colour, points)
}

/// The other variant.
fn band(colour: [u8; 3], points: Vec<(f64, f64)>) -> Curve {
    Curve { stroke: Stroke::Band, ..Curve::line("linux", colour, points) }
}

/// How far a simplified curve may be off, in pixels.
const TOLERANCE: f64 = 0.7;

/// The curve with as few points as look the same (Ramer, Douglas and Peucker). A point without a
/// value stays and interrupts the curve.
fn simplified(points: &[(f64, f64)], pixel: (f64, f64)) -> Vec<(f64, f64)> {
    let mut kept = vec![false; points.len()];
    let mut start = 0;
    for part in points.chunk_by(|a, b| a.1.is_finite() == b.1.is_finite()) {
        let end = start + part.len() - 1;
        (kept[start], kept[end]) = (true, true);
        if part[0].1.is_finite() {
            keep_corners(points, pixel, (start, end), &mut kept);
        }
        start = end + 1;
    }
    points.iter().zip(kept).filter(|(_, kept)| *kept).map(|(point, _)| *point).collect()
}

fn keep_corners(points: &[(f64, f64)], pixel: (f64, f64), ends: (usize, usize), kept: &mut [bool]) {
    let placed = |i: usize| (points[i].0 / pixel.0, points[i].1 / pixel.1);
    let mut chords = vec![ends];
    while let Some((first, last)) = chords.pop() {
        let ((x0, y0), (x1, y1)) = (placed(first), placed(last));
        let length = (x1 - x0).hypot(y1 - y0).max(1e-9);
        let distance = |i: usize| {
            let (x, y) = placed(i);
            ((x1 - x0) * (y0 - y) - (x0 - x) * (y1 - y0)).abs() / length
        };
        let inner = (first + 1..last).map(|i| (i, distance(i)));
        let farthest = inner.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, far)| *far > TOLERANCE);
        if let Some((corner, _)) = farthest {
            kept[corner] = true;
            chords.extend([(first, corner), (corner, last)]);
        }
    }
}
