//! Time and memory of reports on the largest documented mesh: a day of 64 sites, two controllers and
//! a period of a minute. The bounds are for a busy machine and a build with debug assertions;
//! `docs/evidence/mesh.md` has the figures of a release build on a quiet one.

use fullpipe_mesh::analysis::{Detector, Period};
use fullpipe_mesh::chunk::{CHUNK_MS, MinuteSample, Samples, Throughput, TransferSample};
use fullpipe_mesh::message::{Row, Table};
use fullpipe_mesh::record::{
    History, Measurement, Minute, Outcome, Pair, RttBand, SiteId, Transfer, TransferError,
};
use fullpipe_mesh::report::{DetectedChanges, Report, Summary, page};
use fullpipe_mesh::store::{Source, Store};
use fullpipe_presentation::page::About;
use fullpipe_testing::{CountingAllocator, MemoryUse, alone};
use fullpipe_units::Span;
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SITES: SiteId = 64;
const PERIOD_MS: i64 = 60_000;
const PERIODS: i64 = 1440;
/// 1 January 2026, 00:00 UTC.
const START_MS: i64 = 1_767_225_600_000;
const FIRST_PERIOD: i64 = START_MS / PERIOD_MS;
/// Transfers, or minutes, in a report without a time span.
const MOST: u64 = 12_000_000;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Runs `work`; returns its result, its time, and its peak of additional memory in MiB.
fn measured<T>(work: impl FnOnce() -> T) -> (T, Duration, usize) {
    let (memory, began) = (MemoryUse::start(), Instant::now());
    let result = work();
    (result, began.elapsed(), memory.peak_mib())
}

fn names() -> Vec<String> {
    (0..SITES).map(|site| format!("site-{site}")).collect()
}

fn pairs() -> Vec<Pair> {
    let pairs = |from| (0..SITES).map(move |to| Pair { from, to });
    (0..SITES).flat_map(pairs).filter(|pair| pair.from != pair.to).collect()
}

fn open(directory: &Path) -> Store {
    let names = names();
    Store::open(directory, names.iter().map(String::as_str), ["cubic", "bbr"]).unwrap()
}

/// The transfer of a pair, period and controller.
fn transfer(pair: Pair, period: i64, controller: u16) -> Transfer {
    let (seed, delay) = (i64::from(pair.from) * 7 + i64::from(pair.to) * 13, pair.from + pair.to);
    let rtt = Span::from_millis(20 + u64::from(delay));
    let millis = if controller == 0 { 500 } else { 300 } + (period * 31 + seed) % 170;
    let number = START_MS / PERIOD_MS + period;
    let at_ms = number * PERIOD_MS + i64::from(pair.to) * 400 + i64::from(controller) * 30_000;
    let outcome = Outcome::Done(Box::new(Measurement {
        bytes: 8_000_000,
        duration: Span::from_millis(millis as u64),
        delivery_rate: None,
        rtt,
        min_rtt: rtt,
        segments: 5600,
        retransmitted: if (period + seed) % 3 == 0 { 20 } else { 0 },
        receive_window_limited: 0.0,
        send_buffer_limited: 0.0,
        cpu: Span::from_millis(5),
    }));
    Transfer { at_ms, period: number, pair, controller, outcome }
}

/// The probes of a pair and period.
fn minute(pair: Pair, period: i64) -> Minute {
    let rtt = Span::from_millis(20 + u64::from(pair.from) + u64::from(pair.to));
    let rtt = rtt + Span::from_micros((period * 37 % 900) as u64);
    let rtt = Some(RttBand { min: rtt, p50: rtt, p95: rtt * 2, max: rtt * 3 });
    let arrived = if period % 50 == 0 { 59 } else { 60 };
    let at_ms = (START_MS / PERIOD_MS + period) * PERIOD_MS;
    Minute { at_ms, pair, sent: 60, arrived, answered: arrived, rtt }
}

/// A store with the chunks of a day, and without rows.
fn chunks_of_a_day(directory: &Path) {
    drop(open(directory));
    let mut db = Connection::open(directory.join("mesh.db")).unwrap();
    let transaction = db.transaction().unwrap();
    for span in START_MS / CHUNK_MS..START_MS / CHUNK_MS + PERIODS * PERIOD_MS / CHUNK_MS {
        let start = span * CHUNK_MS;
        // Of 17 kinds, since to make each of 17 million records takes longer than to read it.
        let kinds: Vec<Vec<u8>> = (0..17).map(|kind| chunk(span, kind)).collect();
        for sender in 1..=i64::from(SITES) {
            for receiver in (1..=i64::from(SITES)).filter(|receiver| *receiver != sender) {
                let data = &kinds[((sender * 5 + receiver * 3 + span) % 17) as usize];
                transaction
                    .prepare_cached("INSERT INTO chunk VALUES (NULL, ?, ?, ?, ?)")
                    .unwrap()
                    .execute(params![span, sender, receiver, data])
                    .unwrap();
            }
        }
        let pairs = i64::from(SITES) * i64::from(SITES - 1);
        transaction
            .execute(
                "INSERT INTO half_hour VALUES (?, ?, ?, ?, ?)",
                params![span, pairs * 60, pairs * 30, start, start + CHUNK_MS - PERIOD_MS],
            )
            .unwrap();
    }
    transaction.commit().unwrap();
}

/// A chunk of half an hour.
fn chunk(span: i64, kind: u16) -> Vec<u8> {
    let mut samples = Samples::default();
    for nth in 0..CHUNK_MS / PERIOD_MS {
        let period = span * (CHUNK_MS / PERIOD_MS) + nth;
        for controller in 0..2 {
            let done = transfer(Pair { from: kind, to: 20 + kind }, period - FIRST_PERIOD, controller);
            let goodput_bps = done.outcome.done().unwrap().goodput().as_bits_per_sec_f64() as f32;
            let retransmitted = if nth % 3 == 0 { 0.01 } else { 0.0 };
            let is_failed = (nth + i64::from(kind)) % 29 == 0;
            samples.transfers.push(TransferSample {
                at_ms: period * PERIOD_MS + i64::from(controller) * 30_000,
                period,
                controller: 1 + u32::from(controller),
                result: match is_failed {
                    false => Ok(Throughput { goodput_bps, retransmitted }),
                    true => Err(TransferError::Stalled),
                },
            });
        }
        // Some minutes without replies, some with a lost request.
        let arrived = [60, 59, 60, 0, 60][(period + i64::from(kind)).rem_euclid(5) as usize];
        let rtt = 20.0 + f32::from(kind) + (period % 48) as f32 / 8.0;
        let rtt_ms = (arrived > 0).then_some([rtt, rtt + 1.5, rtt + 20.25]);
        samples.minutes.push(MinuteSample { at_ms: period * PERIOD_MS, sent: 60, arrived, rtt_ms });
    }
    samples.to_bytes()
}

/// The page of a store, as a node makes it.
fn page_of(store: &Store) -> String {
    let summary = Summary::new(store.load_compact(START_MS..i64::MAX, MOST).unwrap()).unwrap();
    let report = Report::from_summary(&summary, DetectedChanges::default());
    assert_eq!(report.pairs.len(), pairs().len());
    assert!(report.pairs.iter().all(|pair| pair.transfers == 2 * PERIODS as u64));
    page(&summary, &report, &About::default())
}

#[test]
fn page_of_a_day_of_64_sites_takes_bounded_time_and_memory() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    chunks_of_a_day(directory.path());
    let store = Store::read(directory.path()).unwrap();
    let (text, took, peak) = measured(|| page_of(&store));
    println!("64 sites, a day: {} kB of HTML in {took:?}, {peak} MiB of memory", text.len() >> 10);
    assert!(text.len() < 15 << 20, "{} bytes", text.len());
    assert!(took < Duration::from_secs(45), "{took:?}");
    assert!(peak <= 64, "{peak} MiB");
}

/// The encoded chunks of a sender are in memory once, in a buffer of their bound.
#[test]
fn chunks_of_a_sender_take_bounded_memory() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let sample = |n: i64| TransferSample {
        at_ms: n * 10,
        period: n * 0x1234_5678_9abc,
        controller: 1,
        result: Err(TransferError::Stalled),
    };
    let data = Samples { transfers: (0..2000).map(sample).collect(), ..Samples::default() }.to_bytes();
    let mut db = Connection::open(directory.path().join("mesh.db")).unwrap();
    let transaction = db.transaction().unwrap();
    let spans = (17 << 20) / 63 / data.len() as i64;
    for span in 0..spans {
        for receiver in 2..=i64::from(SITES) {
            let query = "INSERT INTO chunk VALUES (NULL, ?, 1, ?, ?)";
            transaction.prepare_cached(query).unwrap().execute(params![span, receiver, data]).unwrap();
        }
        let query = "INSERT INTO half_hour VALUES (?, 126000, 0, ?, ?)";
        transaction.execute(query, params![span, span * CHUNK_MS, span * CHUNK_MS]).unwrap();
    }
    transaction.commit().unwrap();
    let store = Store::read(directory.path()).unwrap();
    let records = store.load_compact(i64::MIN..i64::MAX, u64::MAX).unwrap();
    let mut directions = 0;
    let (_, took, peak) = measured(|| records.visit(&mut |_, _| directions += 1).unwrap());
    println!("{directions} directions of a sender with {} kB of chunks: {took:?}, {peak} MiB", 17 << 10);
    assert_eq!(directions, 63);
    assert!(peak <= 24, "{peak} MiB");
}

/// Rows of a mesh are added to chunks in pieces of bounded time, of which each leaves a store that
/// can be read.
#[test]
fn rows_of_64_sites_are_added_to_chunks_in_bounded_pieces() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path());
    fill(&mut store, 0..2);
    let (mut pieces, mut longest) = (0, Duration::ZERO);
    loop {
        let (more, took, peak) = measured(|| store.update_chunks(5000).unwrap());
        pieces += 1;
        longest = longest.max(took);
        assert!(peak <= 16, "{peak} MiB");
        if !more {
            break;
        }
    }
    println!("{pieces} pieces, the longest {longest:?}");
    assert!(pieces >= 4 && longest < Duration::from_secs(5), "{pieces} {longest:?}");
    assert_eq!(store.count_unchunked_rows().unwrap(), 0);
    let summary = Summary::new(store.load_compact(i64::MIN..i64::MAX, MOST).unwrap()).unwrap();
    assert_eq!(Report::from_summary(&summary, DetectedChanges::default()).pairs.len(), pairs().len());
}

/// All records of some periods, as sites push them.
fn fill(store: &mut Store, periods: std::ops::Range<i64>) {
    let names = names();
    for from in 0..SITES {
        let own: Vec<Pair> = pairs().into_iter().filter(|pair| pair.from == from).collect();
        let source = Source {
            site: names[usize::from(from)].clone(),
            store: u64::from(from) + 1,
            sites: names.clone(),
            controllers: vec!["cubic".into(), "bbr".into()],
        };
        let each = |period: i64| own.iter().map(move |pair| (*pair, period));
        let transfers = periods.clone().flat_map(each).flat_map(|(pair, period)| {
            (0..2).map(move |controller| Row::Transfer(transfer(pair, period, controller)))
        });
        let transfers: Vec<Row> = transfers.collect();
        let minutes: Vec<Row> =
            periods.clone().flat_map(each).map(|(pair, period)| Row::Minute(minute(pair, period))).collect();
        store.import(&source, Table::Transfers, &transfers, 1, None).unwrap();
        store.import(&source, Table::Minutes, &minutes, 1, None).unwrap();
    }
}

/// The records of one period.
fn period(number: i64) -> History {
    History {
        sites: names(),
        controllers: vec!["cubic".into(), "bbr".into()],
        period: Span::from_secs(60),
        transfers: pairs()
            .into_iter()
            .flat_map(|pair| (0..2).map(move |cc| transfer(pair, number, cc)))
            .collect(),
        minutes: pairs().into_iter().map(|pair| minute(pair, number)).collect(),
        ..History::default()
    }
}

#[test]
fn a_detector_of_64_sites_takes_bounded_memory() {
    let _alone = alone();
    // Of an eighth of the directions, with a baseline that is full.
    let few = |mut history: History| {
        history.transfers.retain(|t| t.pair.from % 8 == 0);
        history.minutes.retain(|m| m.pair.from % 8 == 0);
        history
    };
    let mut detector = Detector::new(2, Span::from_secs(60));
    let memory = MemoryUse::start();
    let began = Instant::now();
    for number in 0..270 {
        let history = few(period(number));
        detector.observe(&Period::whole(&history, START_MS / PERIOD_MS + number));
    }
    let mib = (memory.bytes() * 8) >> 20;
    println!("a detector of 64 sites: {mib} MiB, {:?} for 270 periods of an eighth", began.elapsed());
    assert!(mib <= 64, "{mib} MiB");
}

/// Figures of a release build, with a store of all rows in a directory of its own, which stays:
/// `FULLPIPE_STORE=/tmp/day cargo test --release -p fullpipe-mesh --test it scale:: -- --ignored
/// --nocapture --test-threads 1`
#[test]
#[ignore = "takes minutes and 1.5 GB of disk"]
fn figures_of_a_day_of_64_sites() {
    let _alone = alone();
    let directory = PathBuf::from(std::env::var_os("FULLPIPE_STORE").expect("FULLPIPE_STORE=DIRECTORY"));
    std::fs::create_dir_all(&directory).unwrap();
    let mut store = open(&directory);
    store.set_period(Span::from_secs(60)).unwrap();
    if store.newest_ms(i64::MAX).unwrap().is_none() {
        let began = Instant::now();
        for five in 0..PERIODS / 5 {
            fill(&mut store, five * 5..five * 5 + 5);
        }
        println!("rows: {:?}", began.elapsed());
    }
    if store.count_unchunked_rows().unwrap() > 0 {
        let (began, mut longest) = (Instant::now(), Duration::ZERO);
        loop {
            let (more, took, _) = measured(|| store.update_chunks(5000).unwrap());
            longest = longest.max(took);
            if !more {
                break;
            }
        }
        println!("chunks of all rows: {:?}, the longest piece {longest:?}", began.elapsed());
    }
    let reader = Store::read(&directory).unwrap();
    for _ in 0..3 {
        let (text, took, peak) = measured(|| page_of(&reader));
        println!("page: {took:?}, {peak} MiB, {} kB of HTML", text.len() >> 10);
    }
    let mut detector = Detector::new(2, Span::from_secs(60));
    let memory = MemoryUse::start();
    let began = Instant::now();
    for number in 0..300 {
        let start = START_MS + number * PERIOD_MS;
        let history = reader.history(start..start + PERIOD_MS).unwrap();
        detector.observe(&Period::whole(&history, START_MS / PERIOD_MS + number));
    }
    println!(
        "detector: {:?} for each period with its rows, {} MiB after 300",
        began.elapsed() / 300,
        memory.bytes() >> 20
    );
    assert!(detector.changes().is_empty(), "{:?}", detector.changes().len());
}
