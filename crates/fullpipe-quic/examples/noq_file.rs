//! Copies a file over loopback by QUIC with TLS 1.3, with one of fullpipe's controllers at the
//! sending end of noq, and prints the controller's state.
//!
//! ```text
//! cargo run --release -p fullpipe-quic --features noq --example noq_file -- [CONTROLLER [FILE [COPY]]]
//! ```
//! Without a file it sends 256 MiB of zeros. COPY must not exist; without it, what arrives is
//! discarded.
//! noq paces by the controller's rate, as BBR needs it.

mod file_transfer;

use fullpipe_quic::ControllerSpec;
use fullpipe_quic::noq::{Controller, Factory};
use noq as stack;
use noq::{Connection, PathId, TransportConfig};
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<(), file_transfer::Failure> {
    file_transfer::run("bbr3").await
}

fn transport(controller: ControllerSpec) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(Arc::new(Factory::new(controller)));
    transport
}

/// The controller is the application's own type: its state can be read while it works.
fn print_state(connection: &Connection) {
    let Some(state) = connection.congestion_state(PathId::ZERO) else { return };
    if let Ok(controller) = state.into_any().downcast::<Controller>() {
        let snapshot = controller.snapshot();
        let lost = connection.stats().lost_packets;
        println!("{}, window {} kB, {lost} packets lost", snapshot.state, snapshot.cwnd / 1000);
    }
}
