//! One stream at the client, with its thread.

use crate::iperf3::Params;
use crate::sample::SocketSample;
use crate::transfer::{Allowance, Budget, DEFAULT_SEND_BLOCK, Endpoint, Numbering, StreamOptions, Transport};
use fullpipe_units::Rate;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// One stream.
pub(super) struct Stream {
    pub endpoint: Endpoint,
    thread: Mutex<Option<JoinHandle<()>>>,
    last: Mutex<Option<SocketSample>>,
}

impl Stream {
    pub fn new(id: u64, sends: bool, transport: Transport) -> Self {
        Stream {
            endpoint: Endpoint::new(id, sends, transport),
            thread: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Starts the transfer in a separate thread.
    pub fn start(
        self: &Arc<Self>,
        params: &Params,
        block_chosen: bool,
        iperf2: bool,
        budget: Option<Arc<Budget>>,
        stop: &Arc<AtomicBool>,
    ) -> io::Result<()> {
        let datagrams = matches!(self.endpoint.transport, Transport::Udp(_));
        // iperf3 servers count whole blocks.
        let whole_blocks = params.rate > 0 && params.extension.is_none() && !iperf2;
        let options = StreamOptions {
            block: if block_chosen || datagrams || whole_blocks {
                params.block as usize
            } else {
                DEFAULT_SEND_BLOCK
            },
            whole_blocks,
            rate: (params.rate > 0).then(|| Rate::from_bits_per_sec(params.rate)),
            numbering: match iperf2 {
                true => Numbering::Iperf2,
                false => Numbering::Iperf3 { wide: params.udp_counters_64bit },
            },
        };
        let (me, stop) = (Arc::clone(self), Arc::clone(stop));
        let thread = std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            // A failed stream shows up as a stall or on the control connection.
            let budget = budget.as_deref().filter(|_| me.endpoint.sends);
            let _ = me.endpoint.run(&options, Allowance { budget, bucket: None }, &stop);
        })?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Whether the transfer has ended.
    pub fn is_finished(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the connection's data and joins the thread; the stop flag must be set.
    pub fn end(&self, abort: bool) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = self.endpoint.sample();
        self.endpoint.shut_down(abort);
        let _ = thread.join();
    }

    /// The socket's state at the end of the test.
    pub fn last(&self) -> Option<SocketSample> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
