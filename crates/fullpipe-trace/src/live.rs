//! Captures the packets of an interface instead of reading a file.

use crate::filter::Filter;
use crate::input::{Counters, Frame};
use crate::wire::Link;
use fullpipe_kernel::packets::Capture;
use fullpipe_kernel::rtnetlink::Rtnetlink;
use fullpipe_units::Time;
use nix::errno::Errno;
use std::io;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Name for all interfaces.
const ANY: &str = "any";

/// Interval between checks for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The kernel delivers packets within this time; keeps those captured before the end.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(60);

/// An interface could not be captured.
#[derive(Debug, Error)]
pub enum LiveError {
    /// The interface does not exist.
    #[error("no interface {name}; use one of {available}, or `any` for all")]
    NoInterface {
        /// The name that was given.
        name: String,
        /// The existing interfaces.
        available: String,
    },
    /// The process lacks CAP_NET_RAW.
    #[error(
        "capturing packets requires CAP_NET_RAW: run as root (`sudo fullpipe trace --live …`), grant it to \
         the program (`sudo setcap cap_net_raw+ep \"$(command -v fullpipe)\"`), or read a file from another \
         capture program (`tcpdump -w FILE`, `fullpipe trace FILE`)"
    )]
    NotAllowed,
    /// The kernel refused a packet socket or its ring buffer.
    #[error(
        "cannot capture packets: {0}; this requires CONFIG_PACKET in the kernel (`modprobe af_packet`) and \
         32 MB of memory"
    )]
    Impossible(io::Error),
    /// The capture failed later.
    #[error("the capture on {name} failed: {source}")]
    Lost {
        /// The interface.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
}

/// Captures on `interface`, or on all if it is `any`, until `ended` returns true, and calls `frame`
/// for each frame that may match `filter`. Returns the number of packets captured and dropped.
///
/// Memory: a ring buffer of 32 MB. Frames are truncated after their headers. The host is not
/// changed.
///
/// # Errors
/// See [`LiveError`]. If the interface goes down, the packets captured until then are returned.
pub fn capture_interface(
    interface: &str,
    filter: &Filter,
    mut ended: impl FnMut() -> bool,
    mut frame: impl FnMut(&Frame<'_>),
) -> Result<Counters, LiveError> {
    let name = Some(interface).filter(|name| *name != ANY);
    let mut packets = Capture::open(name, &filter.program()).map_err(|e| refused(interface, e))?;
    let mut counters = Counters::default();
    let mut record = |p: fullpipe_kernel::packets::Packet<'_>| {
        counters.frames += 1;
        let at = Time::from_nanos(p.at);
        frame(&Frame { at, link: Link::Raw, length: p.length.max(p.bytes.len() as u32), bytes: p.bytes });
    };
    let mut lost = None;
    while !ended() {
        if let Err(source) = packets.poll(POLL_INTERVAL, &mut record) {
            lost = Some(source);
            break;
        }
    }
    let until = Instant::now() + DRAIN_TIMEOUT;
    while lost.is_none() && Instant::now() < until {
        lost = packets.poll(until.saturating_duration_since(Instant::now()), &mut record).err();
    }
    counters.dropped = packets.counts().dropped;
    match lost {
        Some(source) if counters.frames == 0 => Err(LiveError::Lost { name: interface.to_owned(), source }),
        _ => Ok(counters),
    }
}

fn refused(interface: &str, e: io::Error) -> LiveError {
    match Errno::from_raw(e.raw_os_error().unwrap_or_default()) {
        Errno::EPERM | Errno::EACCES => LiveError::NotAllowed,
        Errno::ENODEV | Errno::ENXIO => {
            let links = Rtnetlink::open().and_then(|mut kernel| kernel.links()).unwrap_or_default();
            let names: Vec<String> = links.into_iter().map(|link| link.name).collect();
            LiveError::NoInterface { name: interface.to_owned(), available: names.join(", ") }
        }
        _ => LiveError::Impossible(e),
    }
}
