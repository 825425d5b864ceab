//! Connections that transfer data while they are sampled.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A connection over loopback that sends until it is dropped.
pub struct Busy {
    /// The sending end.
    pub port: u16,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    pub fn start() -> Busy {
        Busy::driven_by(None)
    }

    /// With a controller, if the kernel has it.
    pub fn driven_by(controller: Option<&str>) -> Busy {
        Busy::begin(controller, Duration::from_millis(20), Duration::ZERO)
    }

    /// With a controller and a slow reader, so that the application is never the limit and the
    /// kernel has delivery rates.
    pub fn never_out_of_data(controller: &str) -> Busy {
        Busy::begin(Some(controller), Duration::ZERO, Duration::from_millis(5))
    }

    fn begin(controller: Option<&str>, between_writes: Duration, between_reads: Duration) -> Busy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        if let Some(controller) = controller {
            fullpipe_kernel::tcp_info::pin(&client, controller).unwrap();
        }
        let port = client.local_addr().unwrap().port();
        let (mut server, _) = listener.accept().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let sender = thread::spawn(move || {
            while !flag.load(Relaxed) {
                // More than a window, so that the application is not always the limit.
                client.write_all(&vec![1; 256 << 10]).unwrap();
                thread::sleep(between_writes);
            }
        });
        let receiver = thread::spawn(move || {
            let mut buffer = [0; 65536];
            while server.read(&mut buffer).is_ok_and(|n| n > 0) {
                thread::sleep(between_reads);
            }
        });
        Busy { port, stop, threads: vec![sender, receiver] }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.threads.drain(..).for_each(|t| t.join().unwrap());
    }
}
