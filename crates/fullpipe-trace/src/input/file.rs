//! Frames out of a capture file, in one pass.

use super::compression::plain;
use crate::error::{Damage, TraceError};
use crate::wire::Link;
use fullpipe_units::Time;
use pcap_parser::pcapng::Block;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Linktype, PcapBlockOwned, PcapError, PcapHeader};
use std::io::Read;

/// Bytes that are read at a time.
const BUFFER: usize = 1 << 18;
/// Greatest block that is read: a packet of 256 kB, what `tcpdump -s 0` asks for at most, with all its options. A
/// length field that says more is damaged.
const LARGEST: usize = 1 << 24;

/// One captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// When it was captured, since 1970.
    pub at: Time,
    /// The link layer it begins with.
    pub link: Link,
    /// Length on the link; `bytes` may be fewer.
    pub length: u32,
    /// What was captured of it.
    pub bytes: &'a [u8],
}

/// What the file said besides its frames.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Frames of all kinds.
    pub frames: u64,
    /// Frames on links that are not read.
    pub unknown_link: u64,
    /// Packets that the capturing machine dropped, where the file tells.
    pub dropped: u64,
    /// Blocks that were skipped because their inside was damaged.
    pub damaged_blocks: u64,
}

/// How reading ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// What was counted.
    pub counters: Counters,
    /// Where the file broke off, if it did not end well.
    pub damage: Option<Damage>,
}

/// Reads the capture that `source` gives and hands each frame to `frame`, in the file's order. `name` is what errors
/// call it.
///
/// Memory: one buffer, which grows to the greatest packet and at most to 16 MB.
///
/// # Errors
/// If there is no capture, or one of a link layer that is not read. A capture that is damaged further on is no error:
/// the outcome says where.
pub fn read<'a>(
    name: &str,
    source: impl Read + Send + 'a,
    mut frame: impl FnMut(&Frame<'_>),
) -> Result<Outcome, TraceError> {
    let source = plain(source).map_err(|source| TraceError::Read { name: name.to_owned(), source })?;
    let mut reader = pcap_parser::create_reader(BUFFER, Patient(source)).map_err(|e| match e {
        PcapError::ReadError => TraceError::Read {
            name: name.to_owned(),
            source: std::io::Error::new(std::io::ErrorKind::InvalidData, "it is compressed and damaged"),
        },
        PcapError::Eof => {
            TraceError::NotACapture { name: name.to_owned(), hint: " (it is empty)".to_owned() }
        }
        _ => TraceError::NotACapture { name: name.to_owned(), hint: String::new() },
    })?;
    let mut state = State::default();
    let damage = loop {
        match step(reader.as_mut(), &mut state, &mut frame) {
            Step::Next => {}
            Step::End => break None,
            Step::Broken(reason) => break Some(Damage { offset: reader.consumed() as u64, reason }),
        }
    };
    if state.counters.frames > 0
        && state.counters.unknown_link == state.counters.frames
        && let Some(link) = state.refused
    {
        return Err(TraceError::Link { name: name.to_owned(), link });
    }
    Ok(Outcome { counters: state.counters, damage })
}

/// Fills what it is asked for as far as there is anything: the parsers' first read must see a whole header, whatever
/// pieces a pipe or a decompressor gives.
struct Patient<R>(R);

impl<R: Read> Read for Patient<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut n = 0;
        while n < out.len() {
            match self.0.read(&mut out[n..]) {
                Ok(0) => break,
                Ok(more) => n += more,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // What came before the failure is still good.
                Err(_) if n > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(n)
    }
}

enum Step {
    Next,
    End,
    Broken(String),
}

/// What packets' blocks refer back to.
#[derive(Default)]
struct State {
    counters: Counters,
    legacy: Option<Legacy>,
    interfaces: Vec<Interface>,
    /// The first link type that is not read.
    refused: Option<i32>,
}

struct Legacy {
    link: Option<Link>,
    nanoseconds: bool,
}

struct Interface {
    link: Option<Link>,
    /// Units of its clock in a second.
    units: u64,
    /// Seconds to add.
    offset: i64,
    snaplen: u32,
    dropped: u64,
}

fn step(reader: &mut dyn PcapReaderIterator, state: &mut State, frame: &mut impl FnMut(&Frame<'_>)) -> Step {
    if state.legacy.is_none() && is_less_than_a_block(reader.data()) {
        return Step::Broken("what stands here is no packet".to_owned());
    }
    let (used, failure) = match reader.next() {
        Ok((used, block)) => {
            state.block(&block, frame);
            (used, None)
        }
        Err(PcapError::Eof) => return Step::End,
        Err(PcapError::Incomplete(_)) => (0, None),
        Err(PcapError::BufferTooSmall) => (0, Some(Refill::Grow)),
        Err(PcapError::UnexpectedEof) => (0, Some(Refill::Short)),
        Err(PcapError::ReadError) => return Step::Broken("it cannot be read further".to_owned()),
        Err(_) => (0, Some(Refill::Malformed)),
    };
    if used > 0 {
        reader.consume(used);
        return Step::Next;
    }
    match failure {
        Some(Refill::Short) if reader.data().is_empty() => return Step::End,
        // A length inside a block may ask for more than the block holds, and the file to its end.
        Some(Refill::Short) => {
            return match state.skip(reader) {
                Step::Next => Step::Next,
                _ => Step::Broken(format!(
                    "the file ends inside a packet, {} bytes into it",
                    reader.data().len()
                )),
            };
        }
        Some(Refill::Malformed) => return state.skip(reader),
        Some(Refill::Grow) => {
            if let Step::Next = state.skip(reader) {
                return Step::Next;
            }
            let larger = reader.data().len().max(BUFFER).saturating_mul(2);
            if larger > LARGEST || !reader.grow(larger) {
                return Step::Broken(format!("a packet claims to be larger than {LARGEST} bytes"));
            }
        }
        None => {}
    }
    match reader.refill() {
        Ok(()) => Step::Next,
        Err(_) => Step::Broken("it cannot be read or decompressed further".to_owned()),
    }
}

/// Whether a block of a process's information, of which pcap-parser 0.17 takes any length from 4 on, is shorter than the 12
/// bytes that every block has: it would subtract those from it.
fn is_less_than_a_block(data: &[u8]) -> bool {
    let Some((kind, rest)) = data.split_first_chunk::<4>() else { return false };
    let read = match kind {
        [1, 0, 0, 0x80] => u32::from_le_bytes,
        [0x80, 0, 0, 1] => u32::from_be_bytes,
        _ => return false,
    };
    rest.first_chunk().is_some_and(|length| read(*length) < 12)
}

enum Refill {
    Grow,
    Short,
    Malformed,
}

impl State {
    /// Passes over a pcapng block whose inside cannot be understood but whose length can.
    fn skip(&mut self, reader: &mut dyn PcapReaderIterator) -> Step {
        let unreadable = || Step::Broken("what stands here is no packet".to_owned());
        let data = reader.data();
        if self.legacy.is_some() || data.len() < 12 {
            return unreadable();
        }
        let word = |at: usize| data.get(at..at + 4).and_then(|w| w.try_into().ok());
        for read in [u32::from_le_bytes, u32::from_be_bytes] {
            let Some(length) = word(4).map(read) else { continue };
            let length = length as usize;
            let closed = length >= 12
                && length.is_multiple_of(4)
                && length <= data.len()
                && word(length - 4).map(read) == Some(length as u32);
            if closed {
                self.counters.damaged_blocks += 1;
                reader.consume(length);
                return Step::Next;
            }
        }
        unreadable()
    }

    fn block(&mut self, block: &PcapBlockOwned<'_>, frame: &mut impl FnMut(&Frame<'_>)) {
        match block {
            PcapBlockOwned::LegacyHeader(header) => self.header(header),
            PcapBlockOwned::Legacy(packet) => {
                let Some(legacy) = &self.legacy else { return };
                let fraction = u64::from(packet.ts_usec) * if legacy.nanoseconds { 1 } else { 1_000 };
                let at =
                    Time::from_nanos((u64::from(packet.ts_sec) * 1_000_000_000).saturating_add(fraction));
                let link = legacy.link;
                self.give(link, at, packet.origlen, packet.data, frame);
            }
            PcapBlockOwned::NG(block) => self.pcapng(block, frame),
        }
    }

    fn header(&mut self, header: &PcapHeader) {
        let link = Link::numbered(header.network.0);
        self.refuse(link, header.network);
        self.legacy = Some(Legacy { link, nanoseconds: header.is_nanosecond_precision() });
    }

    fn refuse(&mut self, link: Option<Link>, number: Linktype) {
        if link.is_none() {
            self.refused.get_or_insert(number.0);
        }
    }

    fn pcapng(&mut self, block: &Block<'_>, frame: &mut impl FnMut(&Frame<'_>)) {
        match block {
            // Interfaces are numbered anew in each section.
            Block::SectionHeader(_) => self.interfaces.clear(),
            Block::InterfaceDescription(i) => {
                let link = Link::numbered(i.linktype.0);
                self.refuse(link, i.linktype);
                self.interfaces.push(Interface {
                    link,
                    units: i.ts_resolution().filter(|u| *u > 0).unwrap_or(1_000_000),
                    offset: i.ts_offset(),
                    snaplen: i.snaplen,
                    dropped: 0,
                });
            }
            Block::EnhancedPacket(p) => {
                let Some(interface) = self.interfaces.get(p.if_id as usize) else {
                    self.counters.damaged_blocks += 1;
                    return;
                };
                let link = interface.link;
                let at = interface.time(u64::from(p.ts_high) << 32 | u64::from(p.ts_low));
                let captured = (p.caplen as usize).min(p.data.len());
                self.give(link, at, p.origlen, &p.data[..captured], frame);
            }
            Block::SimplePacket(p) => {
                // It has neither time nor captured length: the length is the lesser of its own and the interface's.
                let Some(interface) = self.interfaces.first() else {
                    self.counters.damaged_blocks += 1;
                    return;
                };
                let limit = if interface.snaplen == 0 { p.origlen } else { p.origlen.min(interface.snaplen) };
                let link = interface.link;
                let captured = (limit as usize).min(p.data.len());
                self.give(link, Time::ZERO, p.origlen, &p.data[..captured], frame);
            }
            Block::InterfaceStatistics(s) => {
                // isb_ifdrop (5) and isb_osdrop (7) count from the capture's beginning: the latest is the sum.
                let drops = |code: u16| {
                    let option = s.options.iter().find(|o| o.code.0 == code)?;
                    let bytes: [u8; 8] = option.value.get(..8)?.try_into().ok()?;
                    let big = s.block_type == 5_u32.swap_bytes();
                    Some(if big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
                };
                let total = [5, 7].into_iter().filter_map(drops).fold(0, u64::saturating_add);
                if let Some(interface) = self.interfaces.get_mut(s.if_id as usize) {
                    let new = total.saturating_sub(interface.dropped);
                    interface.dropped = total.max(interface.dropped);
                    self.counters.dropped = self.counters.dropped.saturating_add(new);
                }
            }
            _ => {}
        }
    }

    fn give(
        &mut self,
        link: Option<Link>,
        at: Time,
        length: u32,
        bytes: &[u8],
        frame: &mut impl FnMut(&Frame<'_>),
    ) {
        self.counters.frames += 1;
        match link {
            Some(link) => frame(&Frame { at, link, length: length.max(bytes.len() as u32), bytes }),
            None => self.counters.unknown_link += 1,
        }
    }
}

impl Interface {
    fn time(&self, units: u64) -> Time {
        let whole = (units / self.units) as i128 + i128::from(self.offset);
        let part = u128::from(units % self.units) * 1_000_000_000 / u128::from(self.units);
        let ns = whole.saturating_mul(1_000_000_000).saturating_add(part as i128);
        Time::from_nanos(ns.clamp(0, i128::from(u64::MAX)) as u64)
    }
}
