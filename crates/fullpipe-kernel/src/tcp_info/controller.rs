//! `TCP_CONGESTION`: the congestion controller of a socket.

use crate::facts::available_controllers;
use crate::sockopt;
use std::io;
use std::os::fd::AsFd;

/// The longest name the kernel stores, with its terminating zero (`TCP_CA_NAME_MAX`).
const NAME_MAX: usize = 16;

/// Names of the congestion controllers that exist for Linux, whether or not the running kernel has
/// them.
pub const LINUX_CONTROLLERS: [&str; 18] = [
    "reno",
    "cubic",
    "bbr",
    "bic",
    "cdg",
    "dctcp",
    "highspeed",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "nv",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
    "bbr3",
];

/// Controllers that `fullpipe cc load` can load, each with its Linux counterpart.
pub const EBPF_CONTROLLERS: [(&str, &str); 3] =
    [("fp_bbr1", "bbr"), ("fp_bbr3", "bbr3"), ("fp_hybla", "hybla")];

/// How to make a missing controller available.
fn remedy(name: &str, available: &[String]) -> String {
    let short = |ours: &str| ours.trim_start_matches("fp_").to_owned();
    match EBPF_CONTROLLERS.iter().find(|(ours, linux)| *ours == name || *linux == name || short(ours) == name)
    {
        Some((ours, _)) if available.iter().any(|loaded| loaded == ours) => {
            format!("it is loaded under the name `{ours}`: use that name")
        }
        Some((ours, linux)) => {
            let short = short(ours);
            let load =
                format!("`fullpipe cc load {short}` as root loads it as an eBPF program: then use `{ours}`");
            // Mainline has modules for all but BBR v3.
            if *linux == name && *linux != "bbr3" {
                format!(
                    "`modprobe tcp_{name}` as root loads it if the kernel has the module; otherwise {load}"
                )
            } else {
                load
            }
        }
        None => format!("`modprobe tcp_{name}` as root loads it if the kernel has the module"),
    }
}

/// An error when setting a socket's congestion controller.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// Invalid name.
    #[error("invalid name of a congestion controller `{0}`: use 1 to 15 letters, digits, `_` or `-`")]
    Name(String),
    /// The kernel has no such controller, or may not load it.
    #[error(
        "congestion controller `{name}` is not available (available: {}); {}",
        available.join(", "),
        remedy(name, available)
    )]
    Unknown {
        /// The requested name.
        name: String,
        /// Available controllers.
        available: Vec<String>,
    },
    /// Only a privileged process may select this controller.
    #[error(
        "this process may not use `{0}`: it is not in net.ipv4.tcp_allowed_congestion_control, \
         and the process lacks CAP_NET_ADMIN"
    )]
    NotAllowed(String),
    /// The socket uses another controller than requested.
    #[error("requested congestion controller `{requested}`, but the socket uses `{used}`")]
    Ignored {
        /// The requested name.
        requested: String,
        /// The name read back.
        used: String,
    },
    /// Another error of the socket.
    #[error("cannot set the congestion controller `{0}`: {1}")]
    Socket(String, #[source] io::Error),
}

/// The current congestion controller of the socket.
///
/// # Errors
/// When the descriptor is not a TCP socket.
pub fn controller(socket: &impl AsFd) -> io::Result<String> {
    let mut name = [0; NAME_MAX];
    let length = sockopt::get(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut name)?;
    let name = name[..length].split(|&b| b == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Refuses what cannot be the name of a controller.
///
/// # Errors
/// [`PinError::Name`].
pub fn check_name(name: &str) -> Result<(), PinError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match name.is_empty() || name.len() >= NAME_MAX || !name.bytes().all(plain) {
        true => Err(PinError::Name(name.to_owned())),
        false => Ok(()),
    }
}

/// Sets the congestion controller of the socket, whatever the default, and verifies it. Accepted
/// connections inherit the controller of their listening socket.
///
/// # Errors
/// [`PinError`] for a missing or forbidden controller, or an error of the socket.
pub fn pin(socket: &impl AsFd, name: &str) -> Result<(), PinError> {
    check_name(name)?;
    sockopt::set(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes()).map_err(|e| {
        match e.raw_os_error() {
            Some(libc::ENOENT) => PinError::Unknown {
                name: name.to_owned(),
                available: available_controllers().unwrap_or_default(),
            },
            Some(libc::EPERM) => PinError::NotAllowed(name.to_owned()),
            _ => PinError::Socket(name.to_owned(), e),
        }
    })?;
    match controller(socket) {
        Ok(used) if used == name => Ok(()),
        Ok(used) => Err(PinError::Ignored { requested: name.to_owned(), used }),
        Err(e) => Err(PinError::Socket(name.to_owned(), e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn accepted_connections_inherit_the_controller() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        pin(&listener, "reno").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        pin(&client, "cubic").unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(controller(&server).unwrap(), "reno");
        assert_eq!(controller(&client).unwrap(), "cubic");
    }

    #[test]
    fn an_unknown_controller_error_lists_available_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = pin(&listener, "nosuchcc").unwrap_err().to_string();
        assert!(error.contains("`nosuchcc`") && error.contains("reno"), "{error}");
        assert!(matches!(pin(&listener, ""), Err(PinError::Name(_))));
        assert!(matches!(pin(&listener, "sixteencharacter"), Err(PinError::Name(_))));
        assert!(matches!(pin(&listener, "a b"), Err(PinError::Name(_))));
    }

    #[test]
    fn errors_name_the_loadable_counterpart() {
        let error = |name: &str, available: &[&str]| {
            let available = available.iter().map(|&name| name.to_owned()).collect();
            PinError::Unknown { name: name.to_owned(), available }.to_string()
        };
        let loaded = error("bbr3", &["reno", "fp_bbr3"]);
        assert!(loaded.contains("`fp_bbr3`: use that name") && !loaded.contains("modprobe"), "{loaded}");
        for name in ["bbr1", "fp_bbr1", "bbr"] {
            let absent = error(name, &["reno"]);
            assert!(absent.contains("`fullpipe cc load bbr1`") && absent.contains("`fp_bbr1`"), "{absent}");
        }
        assert!(error("vegas", &["reno"]).contains("`modprobe tcp_vegas`"));
        assert!(error("bbr", &["reno"]).contains("`modprobe tcp_bbr`"));
        assert!(!error("bbr3", &["reno"]).contains("modprobe"));
    }

    #[test]
    fn a_socket_that_is_not_tcp_is_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(controller(&socket).is_err());
        assert!(matches!(pin(&socket, "reno"), Err(PinError::Socket(..))));
    }
}
