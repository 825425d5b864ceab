//! Packets of an interface as they pass, instead of those of a file.

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

/// All interfaces together.
const ANY: &str = "any";

/// How often it is asked whether to end.
const STEP: Duration = Duration::from_millis(50);
/// The kernel hands over what it has within this: what passed before the end is still seen.
const LAST: Duration = Duration::from_millis(60);

/// Why one cannot look at an interface.
#[derive(Debug, Error)]
pub enum LiveError {
    /// It is not there.
    #[error("there is no interface {name}: name one of {there}, or `any` for all of them")]
    NoInterface {
        /// As it was called.
        name: String,
        /// Those that there are.
        there: String,
    },
    /// This process may not.
    #[error(
        "looking at packets takes the capability CAP_NET_RAW: run this as root (`sudo fullpipe trace --live …`), or give it to the program once and for all who may run it (`sudo setcap cap_net_raw+ep \"$(command -v fullpipe)\"`); or let who may capture, and read the file: `tcpdump -w FILE`, `fullpipe trace FILE`"
    )]
    NotAllowed,
    /// The kernel gave no packet socket or no ring.
    #[error(
        "cannot look at packets: {0}; it takes CONFIG_PACKET in the kernel (`modprobe af_packet`) and 32 MB of memory for the ring"
    )]
    Impossible(io::Error),
    /// It ended while it was looked at.
    #[error("looking at {name} ended: {source}")]
    Lost {
        /// The interface.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Looks at `interface`, or at all if it is `any`, until `ended`, and hands each frame that `filter` may match to `frame`.
/// Gives what there was and what the ring had no room for.
///
/// Memory: a ring of 32 MB. Frames are cut behind their headers. Nothing of the host is changed.
///
/// # Errors
/// See [`LiveError`]. An interface that goes down ends it with what was seen until then.
pub fn look(
    interface: &str,
    filter: &Filter,
    mut ended: impl FnMut() -> bool,
    mut frame: impl FnMut(&Frame<'_>),
) -> Result<Counters, LiveError> {
    let name = Some(interface).filter(|name| *name != ANY);
    let mut packets = Capture::open(name, &filter.program()).map_err(|e| refused(interface, e))?;
    let mut counters = Counters::default();
    let mut take = |p: fullpipe_kernel::packets::Packet<'_>| {
        counters.frames += 1;
        let at = Time::from_nanos(p.at);
        frame(&Frame { at, link: Link::Raw, length: p.length.max(p.bytes.len() as u32), bytes: p.bytes });
    };
    let mut lost = None;
    while !ended() {
        if let Err(source) = packets.poll(STEP, &mut take) {
            lost = Some(source);
            break;
        }
    }
    let until = Instant::now() + LAST;
    while lost.is_none() && Instant::now() < until {
        lost = packets.poll(until.saturating_duration_since(Instant::now()), &mut take).err();
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
            LiveError::NoInterface { name: interface.to_owned(), there: names.join(", ") }
        }
        _ => LiveError::Impossible(e),
    }
}
