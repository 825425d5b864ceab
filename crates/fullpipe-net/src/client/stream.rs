//! One stream at the client's end, with the thread that moves it.

use crate::iperf3::Params;
use crate::sample::SocketSample;
use crate::transfer::{Budget, Carrier, DEFAULT_SEND_BLOCK, Lane, Orders};
use fullpipe_units::Rate;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// One stream.
pub(super) struct Stream {
    pub lane: Lane,
    thread: Mutex<Option<JoinHandle<()>>>,
    last: Mutex<Option<SocketSample>>,
}

impl Stream {
    pub fn new(id: u64, sends: bool, carrier: Carrier) -> Self {
        Stream { lane: Lane::new(id, sends, carrier), thread: Mutex::default(), last: Mutex::default() }
    }

    /// Moves bytes from now on, in a thread of its own.
    pub fn start(
        self: &Arc<Self>,
        params: &Params,
        block_chosen: bool,
        budget: Option<Arc<Budget>>,
        stop: &Arc<AtomicBool>,
    ) -> io::Result<()> {
        let datagrams = matches!(self.lane.carrier, Carrier::Udp(_));
        let orders = Orders {
            block: if block_chosen || datagrams { params.block as usize } else { DEFAULT_SEND_BLOCK },
            rate: (params.rate > 0).then(|| Rate::from_bits_per_sec(params.rate)),
            cap: None,
            wide: params.udp_counters_64bit,
        };
        let (me, stop) = (Arc::clone(self), Arc::clone(stop));
        let thread = std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            // A stream that breaks shows as a stall or as a word on the control connection.
            let _ = me.lane.carry(&orders, budget.as_deref(), &stop);
        })?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Ends the thread, whose stop flag must be set, and the connection's data.
    pub fn end(&self, abort: bool) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = self.lane.sample();
        self.lane.shut_down(abort);
        let _ = thread.join();
    }

    /// The socket's state when the test ended.
    pub fn last(&self) -> Option<SocketSample> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
