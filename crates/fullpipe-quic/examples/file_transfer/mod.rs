//! What the examples have in common: a file, two endpoints on loopback, TLS. The stack, the
//! transport's configuration and what is printed are those of the parent module.

use super::stack::{ClientConfig, Endpoint, ServerConfig};
use fullpipe_quic::ControllerSpec;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub type Failure = Box<dyn Error + Send + Sync>;

/// Size of the transfer without a file.
const DEFAULT_BYTES: u64 = 256 << 20;

/// Runs with the command line's arguments.
pub async fn run(default_controller: &str) -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| default_controller.to_owned());
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
    // The first failure ends both: the other end would only report that the connection is closed.
    let ((), received) = tokio::try_join!(send(server, file), receive(client(certificate)?, address, copy))?;
    Ok(received)
}

fn server(
    controller: ControllerSpec,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<Endpoint, Failure> {
    let mut config = ServerConfig::with_single_cert(vec![certificate], key)?;
    config.transport_config(Arc::new(super::transport(controller)));
    Ok(Endpoint::server(config, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?)
}

fn client(certificate: CertificateDer<'static>) -> Result<Endpoint, Failure> {
    let mut trusted = rustls::RootCertStore::empty();
    trusted.add(certificate)?;
    #[allow(unused_mut, reason = "only quinn's is set through a mutable reference")]
    let mut client = Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    client.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(trusted))?);
    Ok(client)
}

/// Sends the file, or zeros, on a stream of the first connection, until the peer closes it.
async fn send(server: Endpoint, file: Option<PathBuf>) -> Result<(), Failure> {
    let connection = server.accept().await.ok_or("the endpoint was closed")?.await?;
    let mut stream = connection.open_uni().await?;
    match file {
        Some(path) => {
            let copied = async { copy_all(&mut File::open(&path).await?, &mut stream).await };
            copied.await.map_err(|error| named(&path, &*error))?
        }
        None => copy_all(&mut tokio::io::repeat(0).take(DEFAULT_BYTES), &mut stream).await?,
    };
    stream.finish()?;
    connection.closed().await;
    super::print_state(&connection);
    Ok(())
}

/// Receives a stream of a new connection, into the new file `copy` if it is named. Returns its size.
async fn receive(client: Endpoint, server: SocketAddr, copy: Option<PathBuf>) -> Result<u64, Failure> {
    let connection = client.connect(server, "localhost")?.await?;
    let mut stream = connection.accept_uni().await?;
    let received = match copy {
        Some(path) => {
            let copied = async { copy_all(&mut stream, &mut File::create_new(&path).await?).await };
            copied.await.map_err(|error| named(&path, &*error))?
        }
        None => copy_all(&mut stream, &mut tokio::io::sink()).await?,
    };
    connection.close(0u32.into(), b"received");
    client.wait_idle().await;
    Ok(received)
}

fn named(path: &Path, error: &(dyn Error + Send + Sync)) -> Failure {
    format!("{}: {error}", path.display()).into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn file_arrives_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let content: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&file, &content).unwrap();
        for name in ["cubic", "bbr3"] {
            let (controller, copy) = (ControllerSpec::parse(name).unwrap(), folder.path().join(name));
            let received = transfer(controller, Some(file.clone()), Some(copy.clone())).await.unwrap();
            assert_eq!(received, content.len() as u64);
            assert!(std::fs::read(&copy).unwrap() == content, "{name}: the copy differs");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn file_that_cannot_be_read_or_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (missing, copy) = (folder.path().join("missing"), folder.path().join("no folder/copy"));
        let spec = || ControllerSpec::parse("cubic").unwrap();
        for path in [&missing, &folder.path().to_owned()] {
            let failure = transfer(spec(), Some(path.clone()), None).await.unwrap_err().to_string();
            assert!(failure.starts_with(&path.display().to_string()), "{failure}");
        }
        let existing = folder.path().join("existing");
        std::fs::write(&existing, "kept").unwrap();
        for path in [&copy, &existing] {
            let failure = transfer(spec(), None, Some(path.clone())).await.unwrap_err().to_string();
            assert!(failure.starts_with(&path.display().to_string()), "{failure}");
        }
        assert_eq!(std::fs::read(&existing).unwrap(), b"kept");
    }
}
