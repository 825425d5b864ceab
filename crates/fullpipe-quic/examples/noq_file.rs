//! Copies a file over loopback by QUIC with TLS 1.3, with one of fullpipe's controllers at the
//! sending end of noq, and prints the controller's state.
//!
//! ```text
//! cargo run --release -p fullpipe-quic --features noq --example noq_file -- [CONTROLLER [FILE [COPY]]]
//! ```
//! Without a file it sends 256 MiB of zeros; without a name for the copy it discards what arrives.
//! noq paces by the controller's rate, as BBR needs it.

use fullpipe_quic::{ControllerSpec, noq::Controller, noq::Factory};
use noq::{ClientConfig, Connection, Endpoint, PathId, ServerConfig, TransportConfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

type Failure = Box<dyn Error + Send + Sync>;

/// Size of the transfer without a file.
const DEFAULT_BYTES: u64 = 256 << 20;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "bbr3".to_owned());
    let file = args.next().map(PathBuf::from);
    let copy = args.next().map(PathBuf::from);
    let controller = name.parse()?;
    let start = Instant::now();
    let received = transfer(controller, file, copy).await?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{name}: {received} bytes in {seconds:.2} s, {:.0} Mbit/s", received as f64 * 8e-6 / seconds);
    Ok(())
}

/// Sends `file` from one end to the other, and writes what arrives into `copy`. Returns its size.
async fn transfer(
    controller: ControllerSpec,
    file: Option<PathBuf>,
    copy: Option<PathBuf>,
) -> Result<u64, Failure> {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let certificate = key.cert.der().clone();
    let private = PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into());
    let server = server(controller, certificate.clone(), private)?;
    let address = server.local_addr()?;
    let file = match file {
        Some(path) => Some(open(&path).await?),
        None => None,
    };
    let sender = tokio::spawn(send(server, file));

    let client = client(certificate)?;
    let connection = client.connect(address, "localhost")?.await?;
    let mut stream = connection.accept_uni().await?;
    let received = match copy {
        Some(path) => copy_all(&mut stream, &mut File::create(path).await?).await?,
        None => copy_all(&mut stream, &mut tokio::io::sink()).await?,
    };
    connection.close(0u32.into(), b"received");
    client.wait_idle().await;
    sender.await??;
    Ok(received)
}

async fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).await.map_err(|error| format!("{}: {error}", path.display()).into())
}

fn server(
    controller: ControllerSpec,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<Endpoint, Failure> {
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(Arc::new(Factory::new(controller)));
    let mut config = ServerConfig::with_single_cert(vec![certificate], key)?;
    config.transport_config(Arc::new(transport));
    Ok(Endpoint::server(config, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?)
}

fn client(certificate: CertificateDer<'static>) -> Result<Endpoint, Failure> {
    let mut trusted = rustls::RootCertStore::empty();
    trusted.add(certificate)?;
    let client = Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    client.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(trusted))?);
    Ok(client)
}

/// Sends the file, or zeros, on a stream of the first connection, until the peer closes it.
async fn send(server: Endpoint, file: Option<File>) -> Result<(), Failure> {
    let connection = server.accept().await.ok_or("the endpoint was closed")?.await?;
    let mut stream = connection.open_uni().await?;
    match file {
        Some(mut file) => copy_all(&mut file, &mut stream).await?,
        None => copy_all(&mut tokio::io::repeat(0).take(DEFAULT_BYTES), &mut stream).await?,
    };
    stream.finish()?;
    connection.closed().await;
    print_state(&connection);
    Ok(())
}

async fn copy_all<R, W>(from: &mut R, to: &mut W) -> Result<u64, Failure>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let bytes = tokio::io::copy(from, to).await?;
    to.flush().await?;
    Ok(bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn file_arrives_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (file, copy) = (folder.path().join("file"), folder.path().join("copy"));
        let content: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&file, &content).unwrap();
        for name in ["cubic", "bbr3"] {
            let controller = ControllerSpec::parse(name).unwrap();
            let received = transfer(controller, Some(file.clone()), Some(copy.clone())).await.unwrap();
            assert_eq!(received, content.len() as u64);
            assert!(std::fs::read(&copy).unwrap() == content, "{name}: the copy differs");
        }
    }
}
