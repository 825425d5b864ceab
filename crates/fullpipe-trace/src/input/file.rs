//! Reads the frames of a capture file in one pass.

use super::compression::decompress;
use crate::error::{Damage, TraceError};
use crate::wire::Link;
use fullpipe_units::Time;
use pcap_parser::pcapng::Block;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{InterfaceDescriptionBlock, Linktype, OptionCode, PcapBlockOwned, PcapError, PcapHeader};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Bytes read at a time.
const BUFFER_BYTES: usize = 1 << 18;
/// Maximum block size: `tcpdump -s 0` captures at most 256 kB of a packet, plus options. A larger
/// length field is damaged.
const MAX_BLOCK_BYTES: usize = 1 << 24;

/// Maximum number of interfaces of a section.
const MAX_INTERFACES: usize = 1 << 16;

/// Why reading stopped when the source gave an error.
const UNREADABLE: &str = "the file cannot be read or decompressed further";

/// One captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// When it was captured, since 1970.
    pub at: Time,
    /// Link type of the frame.
    pub link: Link,
    /// Length on the link; `bytes` may be shorter.
    pub length: u32,
    /// The captured bytes.
    pub bytes: &'a [u8],
}

/// Counters of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Frames of all kinds.
    pub frames: u64,
    /// Frames with unsupported link types.
    pub unknown_link: u64,
    /// The same per link type.
    pub unread_links: BTreeMap<i32, u64>,
    /// Packets dropped by the capturing host, if the file has the number.
    pub dropped: u64,
    /// Damaged blocks that were skipped.
    pub damaged_blocks: u64,
}

/// The result of reading a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Counters.
    pub counters: Counters,
    /// Where and why reading stopped early.
    pub damage: Option<Damage>,
}

/// Reads the capture in `source` and calls `frame` for each frame in file order. `name` is the name
/// in errors.
///
/// Memory: one buffer that grows to the largest packet, at most to 16 MB.
///
/// # Errors
/// The file is not a capture, or has unsupported link types only. Damage further on is not an
/// error: see [`Outcome::damage`].
pub fn read<'a>(
    name: &str,
    source: impl Read + Send + 'a,
    mut frame: impl FnMut(&Frame<'_>),
) -> Result<Outcome, TraceError> {
    let source = decompress(source).map_err(|source| TraceError::Read { name: name.to_owned(), source })?;
    let failed = Arc::new(AtomicBool::new(false));
    let head = Arc::new(OnceLock::new());
    let reads = FullReads { source, failed: failed.clone(), head: head.clone() };
    let mut reader = pcap_parser::create_reader(BUFFER_BYTES, reads).map_err(|e| match e {
        PcapError::ReadError => TraceError::Read {
            name: name.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidData, "the compressed file is damaged"),
        },
        PcapError::Eof => {
            TraceError::NotACapture { name: name.to_owned(), hint: " (it is empty)".to_owned() }
        }
        _ => TraceError::NotACapture { name: name.to_owned(), hint: other_format(head.get()).to_owned() },
    })?;
    let mut state = State::default();
    let damage = loop {
        match step(reader.as_mut(), &mut state, &mut frame) {
            Step::Next => {}
            // Whatever is wrong with the last packet then, this is the cause.
            Step::End | Step::Damaged(_) if failed.load(Relaxed) && reader.reader_exhausted() => {
                break Some(Damage { offset: reader.consumed() as u64, reason: UNREADABLE.to_owned() });
            }
            Step::End => break None,
            Step::Damaged(reason) => break Some(Damage { offset: reader.consumed() as u64, reason }),
        }
    };
    if state.counters.frames > 0
        && state.counters.unknown_link == state.counters.frames
        && let Some(link) = state.unsupported
    {
        let packets = state.counters.frames;
        return Err(TraceError::Link { name: name.to_owned(), link, packets });
    }
    Ok(Outcome { counters: state.counters, damage })
}

/// Fills each read completely: the first read of the parsers needs a complete header, which a pipe
/// or a decompressor may deliver in pieces.
struct FullReads<R> {
    source: R,
    /// Whether there was an error after data. The file then ends at that point: the parsers read
    /// twice before they give the first packets, and would lose them.
    failed: Arc<AtomicBool>,
    /// The first bytes of the source.
    head: Arc<OnceLock<[u8; HEAD_BYTES]>>,
}

/// Bytes by which other formats are recognised.
const HEAD_BYTES: usize = 8;

/// How to read a file of another format, by its first bytes.
fn other_format(head: Option<&[u8; HEAD_BYTES]>) -> &'static str {
    match head {
        Some([0xfd, b'7', b'z', b'X', b'Z', ..]) => {
            " (it is compressed with xz: use `xz -dc FILE | fullpipe trace -`)"
        }
        Some([b'B', b'Z', b'h', ..]) => {
            " (it is compressed with bzip2: use `bzip2 -dc FILE | fullpipe trace -`)"
        }
        Some([0x04, 0x22, 0x4d, 0x18, ..]) => {
            " (it is compressed with LZ4: use `lz4 -dc FILE | fullpipe trace -`)"
        }
        Some(b"snoop\0\0\0") => " (it is a snoop capture: convert it with `editcap -F pcapng FILE OUT`)",
        _ => " (Wireshark's `editcap -F pcapng FILE OUT` converts captures of other formats)",
    }
}

impl<R: Read> Read for FullReads<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.failed.load(Relaxed) {
            return Ok(0);
        }
        let mut n = 0;
        while n < out.len() {
            match self.source.read(&mut out[n..]) {
                Ok(0) => break,
                Ok(more) => n += more,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if n > 0 => {
                    self.failed.store(true, Relaxed);
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        if let Some(head) = out[..n].first_chunk() {
            self.head.get_or_init(|| *head);
        }
        Ok(n)
    }
}

enum Step {
    Next,
    End,
    Damaged(String),
}

/// Reader state that packet blocks refer to.
#[derive(Default)]
struct State {
    counters: Counters,
    legacy: Option<Legacy>,
    interfaces: Vec<Interface>,
    /// The first unsupported link type.
    unsupported: Option<i32>,
}

struct Legacy {
    link: Result<Link, i32>,
    nanoseconds: bool,
}

struct Interface {
    /// The number of an unsupported link type.
    link: Result<Link, i32>,
    clock: Clock,
    snaplen: u32,
    dropped: u64,
}

fn step(reader: &mut dyn PcapReaderIterator, state: &mut State, frame: &mut impl FnMut(&Frame<'_>)) -> Step {
    if state.legacy.is_none() && is_short_process_block(reader.data()) {
        return Step::Damaged("the data is not a packet".to_owned());
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
        Err(PcapError::ReadError) => return Step::Damaged(UNREADABLE.to_owned()),
        Err(_) => (0, Some(Refill::Malformed)),
    };
    if used > 0 {
        reader.consume(used);
        return Step::Next;
    }
    match failure {
        Some(Refill::Short) if reader.data().is_empty() => return Step::End,
        // A length inside a block may exceed the block, and the file.
        Some(Refill::Short) => {
            return match state.skip(reader) {
                Step::Next => Step::Next,
                _ => Step::Damaged(format!(
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
            let larger = reader.data().len().max(BUFFER_BYTES).saturating_mul(2);
            if larger > MAX_BLOCK_BYTES || !reader.grow(larger) {
                return Step::Damaged(format!("a packet claims to be larger than {MAX_BLOCK_BYTES} bytes"));
            }
        }
        None => {}
    }
    match reader.refill() {
        Ok(()) => Step::Next,
        Err(_) => Step::Damaged(UNREADABLE.to_owned()),
    }
}

/// Whether a process information block is shorter than the 12 bytes of every block. pcap-parser
/// 0.17 accepts any length from 4 on and would underflow.
fn is_short_process_block(data: &[u8]) -> bool {
    let Some((kind, rest)) = data.split_first_chunk::<4>() else { return false };
    let read = match kind {
        [1, 0, 0, 0x80] => u32::from_le_bytes,
        [0x80, 0, 0, 1] => u32::from_be_bytes,
        _ => return false,
    };
    rest.first_chunk().is_some_and(|length| read(*length) < 12)
}

/// The obsolete Packet Block.
const PACKET_BLOCK: u32 = 2;

/// Whether a block is of type `number` in either byte order.
fn is_type(block_type: u32, number: u32) -> bool {
    block_type == number || is_big_endian(block_type, number)
}

/// Whether a block of type `number` is in big-endian order: pcap-parser reads the type as
/// little-endian.
fn is_big_endian(block_type: u32, number: u32) -> bool {
    block_type == number.swap_bytes()
}

enum Refill {
    Grow,
    Short,
    Malformed,
}

impl State {
    /// Skips a pcapng block with a valid length and damaged contents.
    fn skip(&mut self, reader: &mut dyn PcapReaderIterator) -> Step {
        let unreadable = || Step::Damaged("the data is not a packet".to_owned());
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
                self.deliver(link, at, packet.origlen, packet.data, frame);
            }
            PcapBlockOwned::NG(block) => self.pcapng(block, frame),
        }
    }

    fn header(&mut self, header: &PcapHeader) {
        // The upper 16 bits give the length of a frame check sequence and are not part of the link type
        // (draft-ietf-opsawg-pcap).
        let number = Linktype(header.network.0 & 0xffff);
        let link = Link::from_linktype(number.0).ok_or(number.0);
        self.note_unsupported(link);
        self.legacy = Some(Legacy { link, nanoseconds: header.is_nanosecond_precision() });
    }

    fn note_unsupported(&mut self, link: Result<Link, i32>) {
        if let Err(number) = link {
            self.unsupported.get_or_insert(number);
        }
    }

    fn pcapng(&mut self, block: &Block<'_>, frame: &mut impl FnMut(&Frame<'_>)) {
        match block {
            // Interface numbers start again in each section.
            Block::SectionHeader(_) => self.interfaces.clear(),
            Block::InterfaceDescription(i) => {
                let link = Link::from_linktype(i.linktype.0).ok_or(i.linktype.0);
                self.note_unsupported(link);
                if self.interfaces.len() >= MAX_INTERFACES {
                    self.counters.damaged_blocks += 1;
                    return;
                }
                self.interfaces.push(Interface {
                    link,
                    clock: Clock::new(i),
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
                let at = interface.clock.time(u64::from(p.ts_high) << 32 | u64::from(p.ts_low));
                let captured = (p.caplen as usize).min(p.data.len());
                self.deliver(link, at, p.origlen, &p.data[..captured], frame);
            }
            Block::SimplePacket(p) => {
                // The block has no timestamp and no captured length; that is the smaller of its length and
                // the snap length.
                let Some(interface) = self.interfaces.first() else {
                    self.counters.damaged_blocks += 1;
                    return;
                };
                let limit = if interface.snaplen == 0 { p.origlen } else { p.origlen.min(interface.snaplen) };
                let link = interface.link;
                let captured = (limit as usize).min(p.data.len());
                self.deliver(link, Time::ZERO, p.origlen, &p.data[..captured], frame);
            }
            Block::InterfaceStatistics(s) => {
                // isb_ifdrop (5) and isb_osdrop (7) count from the start of the capture: the latest value is
                // the total.
                let drops = |code: u16| {
                    let option = s.options.iter().find(|o| o.code.0 == code)?;
                    let bytes: [u8; 8] = option.value.get(..8)?.try_into().ok()?;
                    Some(if is_big_endian(s.block_type, 5) {
                        u64::from_be_bytes(bytes)
                    } else {
                        u64::from_le_bytes(bytes)
                    })
                };
                let total = [5, 7].into_iter().filter_map(drops).fold(0, u64::saturating_add);
                if let Some(interface) = self.interfaces.get_mut(s.if_id as usize) {
                    let new = total.saturating_sub(interface.dropped);
                    interface.dropped = total.max(interface.dropped);
                    self.counters.dropped = self.counters.dropped.saturating_add(new);
                }
            }
            Block::Unknown(block) if is_type(block.block_type, PACKET_BLOCK) => {
                self.packet_block(block.data, is_big_endian(block.block_type, PACKET_BLOCK), frame);
            }
            _ => {}
        }
    }

    /// Reads a Packet Block, which programs of before 2010 wrote instead of the Enhanced Packet
    /// Block.
    fn packet_block(&mut self, body: &[u8], big_endian: bool, frame: &mut impl FnMut(&Frame<'_>)) {
        let word = |at: usize| {
            let bytes = *body.get(at..)?.first_chunk()?;
            Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
        };
        // Two bytes of interface and two of dropped packets, the time, and both lengths.
        let packet = (|| {
            let id = *body.first_chunk::<2>()?;
            let id = if big_endian { u16::from_be_bytes(id) } else { u16::from_le_bytes(id) };
            let interface = self.interfaces.get(usize::from(id))?;
            let at = interface.clock.time(u64::from(word(4)?) << 32 | u64::from(word(8)?));
            let bytes = body.get(20..)?.get(..word(12)? as usize)?;
            Some((interface.link, at, word(16)?, bytes))
        })();
        match packet {
            Some((link, at, length, bytes)) => self.deliver(link, at, length, bytes, frame),
            None => self.counters.damaged_blocks += 1,
        }
    }

    fn deliver(
        &mut self,
        link: Result<Link, i32>,
        at: Time,
        length: u32,
        bytes: &[u8],
        frame: &mut impl FnMut(&Frame<'_>),
    ) {
        self.counters.frames += 1;
        match link {
            Ok(link) => frame(&Frame { at, link, length: length.max(bytes.len() as u32), bytes }),
            Err(number) => {
                self.counters.unknown_link += 1;
                *self.counters.unread_links.entry(number).or_default() += 1;
            }
        }
    }
}

/// The clock of an interface's timestamps.
struct Clock {
    ticks_per_s: u128,
    /// Offset of the timestamps in seconds.
    offset: i64,
}

impl Clock {
    /// pcap-parser 0.17 refuses resolutions that are powers of two and reads every offset as
    /// little-endian.
    fn new(block: &InterfaceDescriptionBlock<'_>) -> Clock {
        let option = |code: OptionCode| block.options.iter().find(|o| o.code == code);
        let resolution = option(OptionCode::IfTsresol).and_then(|o| o.value.first());
        // Above the largest number, every timestamp is in the first nanosecond.
        let ticks_per_s = match resolution.map_or((false, 6), |r| (r & 0x80 != 0, u32::from(r & 0x7f))) {
            (true, power) => 2_u128.saturating_pow(power),
            (false, power) => 10_u128.saturating_pow(power),
        };
        let offset = option(OptionCode::IfTsoffset).and_then(|o| o.value.first_chunk());
        let read = if is_big_endian(block.block_type, 1) { i64::from_be_bytes } else { i64::from_le_bytes };
        Clock { ticks_per_s, offset: offset.map_or(0, |bytes| read(*bytes)) }
    }

    fn time(&self, ticks: u64) -> Time {
        let ticks = u128::from(ticks);
        let whole = (ticks / self.ticks_per_s) as i128 + i128::from(self.offset);
        let part = ticks % self.ticks_per_s * 1_000_000_000 / self.ticks_per_s;
        let ns = whole.saturating_mul(1_000_000_000).saturating_add(part as i128);
        Time::from_nanos(ns.clamp(0, i128::from(u64::MAX)) as u64)
    }
}
