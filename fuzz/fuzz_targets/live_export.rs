//! What scrapers say they want, and what strangers on the host have called their controllers, units
//! and containers: the form that is handed out is one that was named, and no name breaks the
//! metrics.
#![no_main]

use fullpipe_kernel::tcp_info::State;
use fullpipe_live::export::{Classes, Form, GroupBy, Page, Tally, negotiate};
use fullpipe_live::{Connection, Figures, Owner, PathModel, Snapshot};
use fullpipe_units::{Rate, Span};
use libfuzzer_sys::fuzz_target;

/// Numbers of every size out of bytes; zeros when they are used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn number(&mut self) -> u64 {
        let (shift, low) = (self.byte(), u64::from(self.byte()));
        if shift & 0x80 == 0 { low << (shift & 0x3f) } else { u64::MAX - (low << (shift & 0x3f)) }
    }

    fn span(&mut self) -> Span {
        Span::from_nanos(self.number())
    }

    fn rate(&mut self) -> Rate {
        Rate::from_bytes_per_sec(self.number())
    }

    fn figures(&mut self) -> Figures {
        Figures {
            srtt: self.span(),
            min_rtt: Some(self.span()),
            rto: Span::ZERO,
            mss_bytes: self.number() as u32,
            cwnd_segments: self.number() as u32,
            ssthresh_segments: None,
            inflight_segments: 0,
            recovery: "open",
            pacing: None,
            delivery: Some(self.rate()),
            delivery_app_limited: self.byte() & 1 != 0,
            acked_bytes: Some(self.number()),
            received_bytes: Some(self.number()),
            sent_segments: Some(self.number() as u32),
            retransmitted_segments: self.number() as u32,
            unsent_bytes: None,
            receive_window_bytes: None,
        }
    }
}

/// Lines of comments, of samples, and nothing else: a name, labels in quotes, a number.
fn series(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with("# ")).inspect(|line| sample(line)).count()
}

fn sample(line: &str) {
    let name =
        line.bytes().take_while(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_').count();
    let mut rest = &line[name..];
    assert!(name > 0, "{line}");
    if let Some(labels) = rest.strip_prefix('{') {
        let (mut quoted, mut escaped) = (false, false);
        let end = labels.bytes().position(|b| {
            match b {
                _ if escaped => {
                    assert!(b"\\\"n".contains(&b), "{line}");
                    escaped = false;
                }
                b'\\' => escaped = quoted,
                b'"' => quoted = !quoted,
                _ => {}
            }
            b == b'}' && !quoted
        });
        rest = &labels[end.expect("labels that end") + 1..];
    }
    let value = rest.strip_prefix(' ').expect("a space before the value");
    assert!(value.parse::<f64>().is_ok(), "{line}");
}

/// How many messages there are, each after its length.
fn messages(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let digits = bytes.iter().take_while(|b| **b & 0x80 != 0).count() + 1;
        let length = bytes[..digits].iter().rev().fold(0, |sum, b| sum << 7 | usize::from(b & 0x7f));
        bytes = &bytes[digits + length..];
        count += 1;
    }
    count
}

fuzz_target!(|input: (&str, &[u8])| {
    let (text, bytes) = input;
    let mut lines = text.split('\n');
    let accept = lines.next().unwrap_or_default();
    let form = negotiate(accept.split('\0'));
    let named = |name: &str| accept.to_ascii_lowercase().contains(name);
    match form {
        Form::Protobuf => assert!(named("application/vnd.google.protobuf") && named("delimited")),
        Form::OpenMetrics => assert!(named("application/openmetrics-text")),
        Form::Text => {}
    }

    let mut input = Input(bytes);
    let (controllers, groups): (Vec<&str>, Vec<&str>) = lines.partition(|line| !line.starts_with('/'));
    let by =
        [GroupBy::Unit, GroupBy::Container, GroupBy::Port(vec![443])][usize::from(input.byte() % 3)].clone();
    let mut tally = Tally::new(Classes::new(Vec::new(), by));
    let ends = ["10.0.0.1:443", "[2001:db8::1]:50000"].map(|end| end.parse().expect("an address"));
    for look in 0..2_u32 {
        let connections = controllers.iter().enumerate().map(|(nth, controller)| Connection {
            cookie: nth as u64,
            local: ends[0],
            remote: ends[1],
            state: State::Established,
            controller: Some((*controller).into()),
            watched: Span::ZERO,
            owner: Owner {
                process: None,
                cgroup: groups.get(nth % groups.len().max(1)).map(|group| (*group).into()),
            },
            sending: None,
            receiving: None,
            retransmitted: None,
            limits: Vec::new(),
            model: Some(Box::new(PathModel {
                state: Some((*controller).to_owned()),
                bw: Some(input.rate()),
                min_rtt: Some(input.span()),
                ..PathModel::default()
            })),
            figures: Some(input.figures()),
        });
        tally.add(&Snapshot {
            schema: "fullpipe/watch/1",
            unix_s: f64::from(look) + 1.7e9,
            t_s: f64::from(look),
            complete: true,
            unseen: Vec::new(),
            totals: Vec::new(),
            connections: connections.collect(),
        });
    }
    let families = tally.families();
    let page = Page::render(&families);
    let open = page.openmetrics.strip_suffix("# EOF\n").expect("an end");
    assert_eq!(series(open), page.series());
    assert!(series(&page.text) <= page.series());
    let told = families.iter().filter(|family| !family.samples.is_empty()).count();
    assert_eq!(messages(&page.protobuf), told);
});
