//! Copies a file over loopback by QUIC with TLS 1.3, with one of fullpipe's controllers at the
//! sending end of quinn, and prints the controller's state.
//!
//! ```text
//! cargo run --release -p fullpipe-quic --features quinn --example quinn_file -- [CONTROLLER [FILE [COPY]]]
//! ```
//! Without a file it sends 256 MiB of zeros. COPY must not exist; without it, what arrives is
//! discarded.
//! quinn takes the window alone: see [`fullpipe_quic::quinn`] for what that means for BBR.

mod file_transfer;

use fullpipe_quic::ControllerSpec;
use fullpipe_quic::quinn::{Controller, Factory};
use quinn as stack;
use quinn::{Connection, TransportConfig};
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<(), file_transfer::Failure> {
    file_transfer::run("cubic").await
}

fn transport(controller: ControllerSpec) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(Arc::new(Factory::new(controller)));
    transport
}

/// The controller is the application's own type: its state can be read while it works.
fn print_state(connection: &Connection) {
    if let Ok(controller) = connection.congestion_state().into_any().downcast::<Controller>() {
        let snapshot = controller.snapshot();
        let lost = connection.stats().path.lost_packets;
        println!("{}, window {} kB, {lost} packets lost", snapshot.state, snapshot.cwnd / 1000);
    }
}
