//! One stream at the client's end.

use crate::iperf3::Params;
use crate::sample::SocketSample;
use crate::transfer::{self, Budget, DEFAULT_SEND_BLOCK, Meter};
use fullpipe_kernel::tcp_info::{self, TcpInfo};
use fullpipe_units::Rate;
use std::io;
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What carries a stream.
pub(super) enum Carrier {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// What a stream's counters stood at.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    pub bytes: u64,
    pub packets: u64,
    pub lost: u64,
    pub retransmits: u64,
}

/// One stream.
pub(super) struct Stream {
    pub id: u64,
    pub sends: bool,
    pub meter: Meter,
    carrier: Carrier,
    thread: Mutex<Option<JoinHandle<()>>>,
    last: Mutex<Option<SocketSample>>,
}

impl Stream {
    pub fn new(id: u64, sends: bool, carrier: Carrier) -> Self {
        Stream {
            id,
            sends,
            meter: Meter::default(),
            carrier,
            thread: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Moves bytes from now on, in a thread of its own.
    pub fn start(
        self: &Arc<Self>,
        params: &Params,
        block_chosen: bool,
        budget: Option<Arc<Budget>>,
        stop: &Arc<AtomicBool>,
    ) -> io::Result<()> {
        let rate = (params.rate > 0).then(|| Rate::from_bits_per_sec(params.rate));
        let (block, wide) = (params.block as usize, params.udp_counters_64bit);
        let (me, stop) = (Arc::clone(self), Arc::clone(stop));
        let thread = std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            // A stream that breaks shows as a stall or as a word on the control connection.
            let _ = match (&me.carrier, me.sends) {
                (Carrier::Tcp(socket), true) => {
                    let block = if block_chosen { block } else { DEFAULT_SEND_BLOCK };
                    transfer::send(socket, block, rate, budget.as_deref(), &me.meter, &stop)
                }
                (Carrier::Tcp(socket), false) => transfer::discard(socket, None, &me.meter, &stop),
                (Carrier::Udp(socket), true) => {
                    transfer::send_datagrams(socket, block, wide, rate, budget.as_deref(), &me.meter, &stop)
                }
                (Carrier::Udp(socket), false) => transfer::receive_datagrams(socket, wide, &me.meter, &stop),
            };
        })?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Ends the thread, whose stop flag must be set, and the connection's data.
    pub fn end(&self, abort: bool) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = self.sample();
        if let Carrier::Tcp(socket) = &self.carrier {
            if abort {
                // The reset comes with the close; until then the thread ends by its time-out.
                let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
            } else {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
        let _ = thread.join();
    }

    /// The socket's state now.
    pub fn sample(&self) -> Option<SocketSample> {
        match &self.carrier {
            Carrier::Tcp(socket) => SocketSample::of(socket).ok(),
            Carrier::Udp(_) => None,
        }
    }

    /// The socket's state when the test ended.
    pub fn last(&self) -> Option<SocketSample> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The controller in use, of a sender.
    pub fn controller(&self) -> Option<String> {
        match &self.carrier {
            Carrier::Tcp(socket) if self.sends => tcp_info::controller(socket).ok(),
            _ => None,
        }
    }

    /// Bytes that are through: acknowledged where we send over TCP, else counted.
    pub fn progress(&self) -> u64 {
        let unacked = match &self.carrier {
            Carrier::Tcp(socket) if self.sends => transfer::unacked(socket),
            _ => 0,
        };
        self.meter.bytes().saturating_sub(unacked)
    }

    /// What the counters stand at.
    pub fn mark(&self) -> Mark {
        let info = match &self.carrier {
            Carrier::Tcp(socket) => TcpInfo::of(socket).ok(),
            Carrier::Udp(_) => None,
        };
        Mark {
            bytes: self.progress(),
            packets: self.meter.packets(),
            lost: self.meter.lost(),
            retransmits: info.map_or(0, |i| i.total_retrans.into()),
        }
    }
}
