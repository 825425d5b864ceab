//! Captures at the ends of the path, in pcap format with nanoseconds.
//!
//! A capture shows what `tcpdump` at that end would: packets that it sends, as they enter the path,
//! and packets that the path delivers to it. A super-packet is one record, as on a host with
//! offloads.

use crate::LabError;
use fullpipe_units::Time;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes kept of each packet: all headers.
const SNAPLEN: usize = 192;

/// LINKTYPE_ETHERNET.
const ETHERNET: u32 = 1;

struct Record {
    at: Time,
    length: u32,
    bytes: Vec<u8>,
}

/// The file name of one end's capture.
pub(crate) fn named(prefix: &Path, end: &str) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(format!("-{end}.pcap"));
    PathBuf::from(name)
}

/// The emulator threads' handle of one end's capture.
#[derive(Clone)]
struct Sink(Sender<Record>);

impl Sink {
    fn write(&self, at: Time, parts: [&[u8]; 2]) {
        let length = parts[0].len() + parts[1].len();
        let mut bytes = Vec::with_capacity(length.min(SNAPLEN));
        for part in parts {
            bytes.extend_from_slice(&part[..part.len().min(SNAPLEN - bytes.len())]);
        }
        // The writer stops only if the disk is full, which it reports itself.
        let _ = self.0.send(Record { at, length: length as u32, bytes });
    }
}

/// The captures of one direction of the path: at its source and at its destination.
pub(crate) struct Tap {
    from: Option<Sink>,
    to: Option<Sink>,
}

impl Tap {
    /// The tap of the direction between two ends; `None` if neither is captured.
    pub(crate) fn between(from: Option<&Capture>, to: Option<&Capture>) -> Option<Tap> {
        let sink = |c: Option<&Capture>| c.and_then(|c| c.sink.clone());
        let tap = Tap { from: sink(from), to: sink(to) };
        (tap.from.is_some() || tap.to.is_some()).then_some(tap)
    }

    /// A frame left its sender.
    pub(crate) fn arrival(&self, at: Time, frame: &[u8]) {
        if let Some(sink) = &self.from {
            sink.write(at, [frame, &[]]);
        }
    }

    /// A frame reached its receiver.
    pub(crate) fn departure(&self, at: Time, headers: &[u8], payload: &[u8]) {
        if let Some(sink) = &self.to {
            sink.write(at, [headers, payload]);
        }
    }
}

/// A capture file being written.
pub(crate) struct Capture {
    sink: Option<Sink>,
    writer: Option<JoinHandle<std::io::Result<()>>>,
}

impl Capture {
    /// Creates the file; times of the run count from now.
    pub(crate) fn create(path: &Path) -> Result<Self, LabError> {
        let file = fullpipe_files::create(path)
            .map_err(|e| LabError::Input(format!("cannot write the capture {}: {e}", path.display())))?;
        let (send, receive) = channel();
        let origin = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        let writer = thread::Builder::new()
            .spawn(move || write(file, origin, &receive))
            .map_err(|e| LabError::failed("cannot write a capture", e))?;
        Ok(Capture { sink: Some(Sink(send)), writer: Some(writer) })
    }

    /// Waits until everything is on disk. All taps must have been dropped.
    pub(crate) fn finish(mut self) -> Result<(), LabError> {
        drop(self.sink.take());
        match self.writer.take().map(JoinHandle::join) {
            Some(Ok(Err(e))) => Err(LabError::failed("cannot write a capture", e)),
            Some(Err(_)) => Err(LabError::Failed("the capture's writer panicked".to_owned())),
            _ => Ok(()),
        }
    }
}

fn write(file: File, origin: u64, records: &Receiver<Record>) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, file);
    // Magic number of nanosecond captures, version 2.4, no time zone or accuracy.
    for word in [0xa1b2_3c4d_u32, 2 | 4 << 16, 0, 0, SNAPLEN as u32, ETHERNET] {
        out.write_all(&word.to_le_bytes())?;
    }
    for record in records {
        let at = origin + record.at.as_nanos();
        let words = [
            (at / 1_000_000_000) as u32,
            (at % 1_000_000_000) as u32,
            record.bytes.len() as u32,
            record.length,
        ];
        for word in words {
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(&record.bytes)?;
    }
    out.flush()
}
