//! Copies a file over loopback by QUIC with TLS 1.3, and prints rate and controller state.
//!
//! ```text
//! cargo run --example file_over_loopback -- [CONTROLLER [FILE]]
//! ```
//! Without a file it sends 256 MiB of zeros.

use fullpipe_quic_s2n::{ControllerSpec, Endpoint, Observation};
use s2n_quic::client::Connect;
use s2n_quic::provider::tls::rustls;
use s2n_quic::{Client, Server};
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Failure = Box<dyn Error + Send + Sync>;

/// Size of the transfer without a file.
const DEFAULT_BYTES: u64 = 256 << 20;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let text = args.next().unwrap_or_else(|| "bbr3".to_owned());
    let spec: ControllerSpec = text.parse()?;
    let file = args.next();

    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let certificate = key.cert.pem();
    let latest: Arc<Mutex<Option<Observation>>> = Arc::default();
    let server = start_server(spec, &certificate, &key.signing_key.serialize_pem(), latest.clone())?;
    let address = server.local_addr()?;
    let sender = tokio::spawn(async move { send(server, file.as_deref()).await });

    let start = Instant::now();
    let received = receive(address, &certificate, &latest).await?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{text}: {received} bytes in {seconds:.2} s, {:.0} Mbit/s", received as f64 * 8e-6 / seconds);
    // The client has closed the connection, which ends the sender, too.
    sender.abort();
    Ok(())
}

fn start_server(
    spec: ControllerSpec,
    certificate: &str,
    key: &str,
    latest: Arc<Mutex<Option<Observation>>>,
) -> Result<Server, Failure> {
    let endpoint = Endpoint::new(spec).with_observer(move |_, observation| {
        if let Ok(mut latest) = latest.lock() {
            *latest = Some(*observation);
        }
    });
    let server = Server::builder()
        .with_tls(rustls::Server::builder().with_certificate(certificate, key)?.build()?)?
        .with_io("127.0.0.1:0")?
        .with_congestion_controller(endpoint)?
        .start()?;
    Ok(server)
}

/// Sends the file, or zeros, on the first stream of the first connection.
async fn send(mut server: Server, file: Option<&str>) -> Result<(), Failure> {
    let mut connection = server.accept().await.ok_or("the server was stopped")?;
    let mut stream = connection.accept_bidirectional_stream().await?.ok_or("the client opened no stream")?;
    match file {
        Some(file) => {
            tokio::io::copy(&mut tokio::fs::File::open(Path::new(file)).await?, &mut stream).await?
        }
        None => tokio::io::copy(&mut tokio::io::repeat(0).take(DEFAULT_BYTES), &mut stream).await?,
    };
    stream.shutdown().await?;
    // Keeps the connection open until the client closes it.
    while connection.accept().await?.is_some() {}
    Ok(())
}

/// Receives to the end of the stream and prints the sender's state every half second.
async fn receive(
    server: SocketAddr,
    certificate: &str,
    latest: &Mutex<Option<Observation>>,
) -> Result<u64, Failure> {
    let client = Client::builder()
        .with_tls(rustls::Client::builder().with_certificate(certificate)?.build()?)?
        .with_io("127.0.0.1:0")?
        .start()?;
    let mut connection = client.connect(Connect::new(server).with_server_name("localhost")).await?;
    let mut stream = connection.open_bidirectional_stream().await?;
    stream.send(bytes::Bytes::from_static(b"GET")).await?;
    let (mut received, mut printed) = (0, Instant::now());
    while let Some(data) = stream.receive().await? {
        received += data.len() as u64;
        if printed.elapsed().as_millis() >= 500 {
            printed = Instant::now();
            print_state(received, latest);
        }
    }
    print_state(received, latest);
    Ok(received)
}

fn print_state(received: u64, latest: &Mutex<Option<Observation>>) {
    if let Ok(latest) = latest.lock()
        && let Some(observation) = *latest
    {
        let snapshot = observation.snapshot;
        let rate = snapshot.pacing_rate.map_or("none".to_owned(), |rate| rate.to_string());
        println!(
            "{:4} MB: {}, cwnd {} kB, pacing rate {rate}, {} B lost{}",
            received / 1_000_000,
            snapshot.state,
            snapshot.cwnd / 1000,
            observation.lost,
            if observation.in_recovery { ", in recovery" } else { "" },
        );
    }
}
