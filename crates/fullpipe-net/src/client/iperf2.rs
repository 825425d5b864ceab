//! Tests against a stock iperf 2 server.
//!
//! It has no control connection: each stream begins with a header, and ends where it is closed. TCP
//! servers return no counts; UDP servers return a report.

use super::stream::Stream;
use super::test::Test;
use super::{ClientError, Config, Interval, Outcome, connect};
use crate::control::readable;
use crate::foreign;
use crate::iperf2::{self, ACK_LEN, Amount, Datagram, Header, Mode, Report};
use crate::iperf3::{Cookie, Params, Protocol, Results, State, StreamResults, stream_id};
use crate::transfer::{Transport, wall_clock_us};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// After this, a server that has not answered as iperf3 is asked whether it speaks iperf 2.
pub(super) const SILENCE: Duration = Duration::from_millis(400);
/// How long a server may take to answer a header; versions before 2.0.10 do not.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the end of the data may take to arrive.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How often, and how many times, the end of the datagrams is sent.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);
const MAX_LAST_DATAGRAMS: usize = 20;
/// The default datagram of iperf 2.
const DATAGRAM: u32 = 1470;
/// The least datagram with a header.
const MIN_DATAGRAM: u32 = 76;
/// How long a write blocks.
const WRITE_TIMEOUT: Duration = Duration::from_millis(250);

/// Whether a server answers an iperf 2 header.
///
/// # Errors
/// If it answers as another protocol.
pub(super) fn is_spoken(config: &Config, interrupt: &AtomicBool) -> Result<bool, ClientError> {
    let socket = connect::first(config, None, interrupt)?;
    let mut header = Header { wants_ack: true, ..Header::absent() }.to_bytes().to_vec();
    // An end of a line for servers of text, which then answer soon; to iperf 2 it is data.
    header.extend(b"\r\n\r\n");
    match greet(&socket, &header) {
        Ok(version) => Ok(version.is_some()),
        Err(ClientError::Foreign(name)) if name != IPERF3 => Err(ClientError::Foreign(name)),
        Err(_) => Ok(false),
    }
}

/// The protocol that is tried first.
const IPERF3: &str = "iperf3";

/// Sends a header and reads the answer, which has the server's version.
fn greet(mut socket: &TcpStream, header: &[u8]) -> Result<Option<String>, ClientError> {
    socket.write_all(header)?;
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let mut answer = [0; ACK_LEN];
    let mut filled = 0;
    while filled < answer.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !readable(socket, left)? {
            break;
        }
        match socket.read(&mut answer[filled..])? {
            0 => return Err(ClientError::Closed),
            n => filled += n,
        }
        // iperf3 takes the header for a cookie and continues.
        if !answer.starts_with(&iperf2::ack()[..filled.min(8)]) {
            let name = match foreign::protocol(&answer[..filled]) {
                Some(name) => name,
                None if State::parse(answer[0]).is_ok() => IPERF3,
                None => "another protocol",
            };
            return Err(ClientError::Foreign(name));
        }
    }
    Ok((filled == answer.len()).then(|| iperf2::server_version(&answer)).flatten())
}

/// The parameters as iperf 2 takes them.
fn params(config: &Config) -> Result<Params, ClientError> {
    let mut params = config.params.clone();
    let server_sends = params.server_sends();
    let udp = params.protocol == Protocol::Udp;
    if udp && !config.block_chosen {
        params.block = DATAGRAM;
    }
    let bytes = params.byte_budget().unwrap_or(0);
    let lacks = match () {
        () if config.secret.is_some() => "prove a secret",
        () if params.get_server_output => "return its output",
        () if server_sends && params.congestion.is_some() => "choose the controller of the server's sockets",
        () if udp && server_sends => "measure UDP in this direction with fullpipe",
        () if udp && params.omit > 0 => "exclude the first seconds over UDP",
        () if udp && params.block < MIN_DATAGRAM => "use datagrams of less than 76 bytes",
        () if server_sends && bytes / u64::from(params.parallel.max(1)) > i32::MAX as u64 => {
            "request more than 2147483647 bytes per stream"
        }
        () => return Ok(params),
    };
    Err(ClientError::Iperf2Lacks(lacks))
}

fn header(config: &Config, params: &Params) -> Header {
    let streams = u64::from(params.parallel.max(1));
    Header {
        mode: match (params.bidirectional, params.reverse) {
            (true, _) => Mode::FullDuplex,
            (_, true) => Mode::Reverse,
            _ => Mode::Forward,
        },
        threads: params.parallel,
        port: config.port,
        block: if config.block_chosen { params.block } else { 0 },
        amount: match params.byte_budget() {
            Some(bytes) => Amount::Bytes(bytes / streams),
            None => Amount::Time(Duration::from_secs((params.seconds + params.omit).into())),
        },
        rate: params.rate,
        ..Header::absent()
    }
}

/// Runs one test.
pub(super) fn run(
    config: &Config,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
) -> Result<Outcome, ClientError> {
    let mut params = params(config)?;
    let header = header(config, &params);
    // Where the server sends, each stream has the same number of bytes.
    if let (Amount::Bytes(each), true) = (header.amount, params.server_sends()) {
        (params.bytes, params.blocks) = (each * u64::from(params.parallel.max(1)), 0);
    }
    let mut version = None;
    let mut streams = Vec::new();
    let mut ends = None;
    for _ in 0..params.parallel.max(1) {
        let add = |streams: &mut Vec<Arc<Stream>>, sends, transport| {
            let stream = Stream::new(stream_id(streams.len()), sends, transport);
            streams.push(Arc::new(stream));
        };
        if params.protocol == Protocol::Udp {
            let Some(&peer) = connect::addresses(config)?.first() else { return Err(ClientError::Closed) };
            let socket = connect::datagrams(config, peer, &params)?;
            ends.get_or_insert((socket.local_addr()?, peer));
            add(&mut streams, true, Transport::Udp(socket));
            continue;
        }
        let socket = match ends {
            None => connect::first(config, Some(&params), interrupt)?,
            Some((_, peer)) => connect::tcp(config, peer, Some(&params), interrupt)?,
        };
        let (_, peer) = *ends.get_or_insert((socket.local_addr()?, socket.peer_addr()?));
        debug_assert!(peer.port() > 0);
        socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
        if streams.is_empty() {
            version = greet(&socket, &Header { wants_ack: true, ..header.clone() }.to_bytes())?;
        } else {
            (&socket).write_all(&header.to_bytes())?;
        }
        if params.client_sends() {
            add(&mut streams, true, Transport::Tcp(socket.try_clone()?));
            if let Some(stream) = streams.last() {
                stream.endpoint.meter.add_bytes(iperf2::HEADER_LEN as u64);
            }
        }
        if params.server_sends() {
            add(&mut streams, false, Transport::Tcp(socket));
        }
    }
    let Some((local, peer)) = ends else { return Err(ClientError::Closed) };
    let mut test = Test::new(config, interrupt, None, Cookie::random()?, peer, params);
    test.streams = streams;
    test.iperf2 = Some(version.unwrap_or_else(|| "?".to_owned()));
    test.transfer(progress)?;
    let theirs = finish(&mut test)?;
    Ok(test.outcome(local, &theirs))
}

/// Ends the streams, and collects what the server reports.
fn finish(test: &mut Test<'_>) -> Result<Results, ClientError> {
    test.stop.store(true, Relaxed);
    let deadline = Instant::now() + END_TIMEOUT;
    let over = |test: &Test<'_>| Instant::now() >= deadline || test.interrupt.load(Relaxed);
    let is_udp = test.params.protocol == Protocol::Udp;
    if !test.config.abort || is_udp {
        let senders = || test.streams.iter().filter(|stream| stream.endpoint.sends);
        while senders().any(|stream| !stream.is_finished()) && !over(test) {
            std::thread::sleep(Duration::from_millis(2));
        }
        senders().for_each(|stream| stream.endpoint.finish_sending());
        for stream in senders() {
            if let Transport::Tcp(socket) = &stream.endpoint.transport {
                // Closing earlier could reset the connection.
                while !over(test) && !is_at_end(socket)? {}
            }
        }
    }
    let mut theirs = Results::default();
    if is_udp {
        for stream in &test.streams {
            if let Transport::Udp(socket) = &stream.endpoint.transport {
                let report = report(test, stream, socket)?;
                theirs.streams.push(StreamResults {
                    id: stream.endpoint.id,
                    bytes: report.bytes,
                    errors: report.lost,
                    packets: report.datagrams,
                    jitter: report.jitter,
                    seconds: report.seconds,
                    ..StreamResults::default()
                });
            }
        }
        // With those that were sent meanwhile, as the server counts.
        test.refresh();
    }
    test.stop_streams();
    Ok(theirs)
}

/// Ends a connection as a test ends, for up to a second, and lets the server finish its report:
/// 2.1.8 may crash if it is reset, or if the next connection arrives meanwhile.
pub(super) fn end(socket: &TcpStream) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(1);
    // A connection that the server has reset is at its end.
    let _ = socket.shutdown(Shutdown::Write);
    while Instant::now() < deadline && !is_at_end(socket)? {}
    std::thread::sleep(REPORT_INTERVAL);
    Ok(())
}

/// Reads what a server still sends, for up to 100 ms; whether it has closed the connection.
fn is_at_end(mut socket: &TcpStream) -> io::Result<bool> {
    if !readable(socket, Duration::from_millis(100))? {
        return Ok(false);
    }
    Ok(!matches!(socket.read(&mut [0; 4096]), Ok(1..)))
}

/// Sends the last datagram until the server reports.
fn report(test: &Test<'_>, stream: &Stream, socket: &UdpSocket) -> Result<Report, ClientError> {
    let meter = &stream.endpoint.meter;
    let number = meter.packets() + 1;
    let mut datagram = vec![0; test.params.block as usize];
    let mut answer = [0; 2048];
    for attempt in 0..MAX_LAST_DATAGRAMS {
        if test.interrupt.load(Relaxed) {
            return Err(ClientError::Interrupted);
        }
        Datagram { number, is_last: true, sent_us: wall_clock_us() }.write_with_header(&mut datagram);
        let sent = socket.send(&datagram);
        if attempt == 0 && sent.is_ok() {
            meter.add_bytes(datagram.len() as u64);
            meter.set_packets(number, 0, 0, 0.0);
        }
        let deadline = Instant::now() + REPORT_INTERVAL;
        while let left = deadline.saturating_duration_since(Instant::now())
            && !left.is_zero()
            && readable(socket, left)?
        {
            match socket.recv(&mut answer) {
                Ok(n) => {
                    if let Some(report) = Report::parse(&answer[..n]) {
                        return Ok(report);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return Err(ClientError::NoReport),
                Err(_) => break,
            }
        }
    }
    Err(ClientError::NoReport)
}
