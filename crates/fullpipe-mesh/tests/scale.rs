//! Time and memory of the page of a node in a mesh of 64 sites, with as many records as a page has.
//! On a quiet machine, built for release: a second and 60 MB. The bounds are for a busy one.

use fullpipe_mesh::record::{History, Measurement, Minute, Outcome, Pair, RttBand, Transfer};
use fullpipe_mesh::report::{Report, page};
use fullpipe_report::About;
use fullpipe_units::Span;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SITES: u16 = 64;
/// Transfers, and probe minutes, that the page of so many sites has (`PAGE_RECORDS` of `probe run`).
const RECORDS: usize = 80_000;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Counts the bytes in use.
struct Counting;

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let in_use = IN_USE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(in_use, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The last minutes of a mesh with two controllers and a period of a minute.
fn history() -> History {
    let pairs = || (0..SITES).flat_map(|from| (0..SITES).map(move |to| Pair { from, to }));
    let pairs: Vec<Pair> = pairs().filter(|pair| pair.from != pair.to).collect();
    let milliseconds = |pair: Pair| 20 + u64::from(pair.from) + u64::from(pair.to);
    let transfer = |n: usize| {
        let (pair, controller) = (pairs[n / 2 % pairs.len()], (n % 2) as u16);
        let period = (n / 2 / pairs.len()) as i64;
        let rtt = Span::from_millis(milliseconds(pair));
        let outcome = Outcome::Done(Box::new(Measurement {
            bytes: 8_000_000,
            duration: Span::from_millis(500 + (n % 17) as u64 * 10),
            delivery_rate: None,
            rtt,
            min_rtt: rtt,
            segments: 5600,
            retransmitted: (n % 7) as u32,
            receive_window_limited: 0.0,
            send_buffer_limited: 0.0,
            cpu: Span::from_millis(5),
        }));
        Transfer { at_ms: period * 60_000 + (n % 60_000) as i64, period, pair, controller, outcome }
    };
    let minute = |n: usize| {
        let pair = pairs[n % pairs.len()];
        let rtt = Span::from_millis(milliseconds(pair));
        let rtt = Some(RttBand { min: rtt, p50: rtt, p95: rtt, max: rtt });
        let at_ms = (n / pairs.len()) as i64 * 60_000;
        Minute { at_ms, pair, sent: 60, arrived: 60, answered: 59, rtt }
    };
    History {
        sites: (0..SITES).map(|site| format!("site-{site}")).collect(),
        controllers: vec!["cubic".into(), "bbr".into()],
        period: Span::from_secs(60),
        transfers: (0..RECORDS).map(transfer).collect(),
        minutes: (0..RECORDS).map(minute).collect(),
        ..History::default()
    }
}

#[test]
fn page_of_64_sites_takes_bounded_time_and_memory() {
    let before = IN_USE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let history = history();
    let began = Instant::now();
    let report = Report::new(&history, false);
    let text = page(&history, &report, &About::default());
    let (took, peak) = (began.elapsed(), (PEAK.load(Relaxed) - before) >> 20);
    println!("64 sites: {} MB of HTML in {took:?}, {peak} MiB of memory", text.len() >> 20);
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(peak <= 128, "{peak} MiB");
}
