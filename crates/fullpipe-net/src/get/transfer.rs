//! The data phase of a download.

use super::sink::Sink;
use super::{Download, GetError, PIECE, Progress, Request};
use crate::diagnose::{ReceiverEvidence, diagnose_receiver};
use crate::sample::SocketSample;
use fullpipe_kernel::tcp_info::TcpInfo;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub(super) struct Transfer<'a> {
    socket: &'a TcpStream,
    began: Instant,
    first_byte: f64,
    resumed_at: u64,
    /// Expected bytes, if known.
    length: Option<u64>,
    hint: &'static str,
    bytes: u64,
    /// Time spent writing and hashing.
    busy_writing: Duration,
}

impl<'a> Transfer<'a> {
    pub fn new(
        socket: &'a TcpStream,
        began: Instant,
        first_byte: f64,
        resumed_at: u64,
        length: Option<u64>,
        hint: &'static str,
    ) -> Transfer<'a> {
        Transfer {
            socket,
            began,
            first_byte,
            resumed_at,
            length,
            hint,
            bytes: 0,
            busy_writing: Duration::ZERO,
        }
    }

    pub fn run(
        &mut self,
        mut body: impl Read,
        sink: &mut Sink,
        interrupt: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), GetError> {
        let mut piece = vec![0; PIECE];
        let mut reported_at = Instant::now();
        loop {
            let so_far = self.resumed_at + self.bytes;
            let broken = |source| GetError::Broken { bytes: so_far, source, hint: self.hint };
            match body.read(&mut piece) {
                _ if interrupt.load(Relaxed) => {
                    return Err(GetError::Interrupted { bytes: so_far, hint: self.hint });
                }
                Ok(0) if self.length.is_some_and(|n| n != self.bytes) => {
                    return Err(broken(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the response ended early",
                    )));
                }
                Ok(0) => return Ok(()),
                Ok(n) => {
                    let arrived = Instant::now();
                    if self.length.is_some_and(|most| self.bytes + n as u64 > most) {
                        return Err(broken(io::Error::other("the response is longer than announced")));
                    }
                    sink.write(&piece[..n])?;
                    self.busy_writing += arrived.elapsed();
                    self.bytes += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(broken(source)),
            }
            if reported_at.elapsed() > Duration::from_millis(200) {
                reported_at = Instant::now();
                progress(Progress {
                    bytes: self.resumed_at + self.bytes,
                    total: self.length.map(|n| n.saturating_add(self.resumed_at)),
                    seconds: self.began.elapsed().as_secs_f64(),
                });
            }
        }
    }

    pub fn finish(
        self,
        url: &str,
        request: &Request,
        sink: Sink,
        controller: Option<String>,
    ) -> Result<Download, GetError> {
        let seconds = self.began.elapsed().as_secs_f64();
        let info = TcpInfo::query(&self.socket).ok();
        let socket = SocketSample::query(&self.socket).unwrap_or_default();
        let window = socket.rcv_wnd.or(info.map(|i| i.rcv_ssthresh.into())).unwrap_or(0);
        let rtt = if socket.rcv_rtt_us > 0 { socket.rcv_rtt_us } else { socket.rtt_us };
        let limit = diagnose_receiver(&ReceiverEvidence {
            seconds: seconds - self.first_byte,
            bytes: self.bytes,
            busy_writing: self.busy_writing.as_secs_f64(),
            window,
            rtt: socket.min_rtt_us.unwrap_or(rtt).min(rtt) as f64 / 1e6,
            out_of_order: socket.rcv_ooopack.unwrap_or(0),
        });
        let sha256 = sink.sha256();
        let matches = request.sha256.as_ref().map(|expected| {
            sha256.as_deref().is_some_and(|found| found.eq_ignore_ascii_case(expected.trim()))
        });
        let (file, content) = sink.finish(matches != Some(false))?;
        Ok(Download {
            url: url.to_owned(),
            bytes: self.bytes,
            resumed_at: self.resumed_at,
            seconds,
            first_byte: self.first_byte,
            sha256,
            matches,
            controller,
            socket,
            limit,
            file,
            content,
        })
    }
}
