//! Whether a host is reachable as before.

use super::Reason;
use super::trial::Trial;
use crate::facts::{Facts, Presence};
use crate::host::{Host, View};
use std::net::IpAddr;

/// Ports on which sshd listens: the default one and those of its configuration.
pub fn ssh_ports(view: &dyn View) -> Vec<u16> {
    let folder = "/etc/ssh/sshd_config.d";
    let more = view.list(folder).unwrap_or_default().into_iter().map(|name| format!("{folder}/{name}"));
    let mut ports = vec![22];
    for file in std::iter::once("/etc/ssh/sshd_config".to_owned()).chain(more) {
        let text = view.content(&file).unwrap_or_default();
        let named = text.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let is_port = words.next().is_some_and(|word| word.eq_ignore_ascii_case("port"));
            words.next().filter(|_| is_port)?.parse::<u16>().ok()
        });
        ports.extend(named);
    }
    ports.sort_unstable();
    ports.dedup();
    let all = listening(view);
    ports.retain(|port| all.contains(port));
    ports
}

/// TCP ports with listeners, without those on loopback only.
fn listening(view: &dyn View) -> Vec<u16> {
    const LISTEN: &str = "0A";
    const LOOPBACK: [&str; 2] = ["0100007F", "00000000000000000000000001000000"];
    let mut ports = Vec::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = view.content(file).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, local, _, LISTEN, ..] = words[..] else { continue };
            let Some((address, port)) = local.split_once(':') else { continue };
            if !LOOPBACK.contains(&address) {
                ports.extend(u16::from_str_radix(port, 16));
            }
        }
    }
    ports
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

/// Failed checks; empty if all pass.
pub fn missing(host: &dyn Host, trial: &Trial) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let was = &trial.network;
    match host.network() {
        Err(e) => reasons.push(Reason::new("network", format!("cannot be read: {e}"))),
        Ok(now) => {
            let gone = was.addresses.iter().filter(|address| !now.addresses.contains(address));
            reasons.extend(gone.map(|address| Reason::new("address", format!("{address} is missing"))));
            // A new lease may have another address.
            let has = |wanted: u8| {
                now.leased.contains(&wanted) || now.addresses.iter().any(|one| family(*one) == wanted)
            };
            let none = was.leased.iter().filter(|wanted| !has(**wanted));
            reasons.extend(none.map(|wanted| Reason::new("address", format!("no IPv{wanted} address"))));
            for wanted in was.default_routes.iter().filter(|wanted| !now.default_routes.contains(wanted)) {
                reasons.push(Reason::new("route", format!("no IPv{wanted} default route")));
            }
            for gateway in was.gateways.iter().filter(|gateway| gateway.answers) {
                let of_the_same =
                    |other: &&crate::host::Gateway| family(other.address) == family(gateway.address);
                if !now.gateways.iter().filter(of_the_same).any(|other| other.answers) {
                    reasons.push(Reason::new("gateway", format!("{} does not answer", gateway.address)));
                }
            }
        }
    }
    let now = ssh_ports(host);
    let silent = trial.ssh.iter().filter(|port| !now.contains(port));
    reasons.extend(silent.map(|port| Reason::new("ssh", format!("no listener on port {port}"))));
    reasons.extend(without(host, &trial.controller));
    reasons
}

/// A reason if the running kernel lacks a controller. Its module is loaded as a test, and unloaded.
fn without(host: &dyn Host, controller: &str) -> Option<Reason> {
    let facts = Facts::gather(host);
    let reason = |text: String| Some(Reason::new("controller", text));
    match facts.controller(controller) {
        Presence::Ready(_) => None,
        Presence::Missing(from) => reason(format!("{controller} is not available ({from})")),
        Presence::Loadable(_) | Presence::Unknown => {
            let module = format!("tcp_{controller}");
            match host.load_module(&module) {
                Err(e) => reason(format!("{controller} cannot be loaded: {e}")),
                Ok(()) => {
                    // It stays loaded if it is in use by now.
                    let _ = host.unload_module(&module);
                    None
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Directory, Model};

    #[test]
    fn ssh_ports_are_configured_and_listening() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("etc/ssh/sshd_config", "# Port 1\nport 2222\nPort 2223\n");
        write("etc/ssh/sshd_config.d/own.conf", "Port 2224\n");
        write(
            "proc/net/tcp",
            "  sl  local_address rem_address   st\n   0: 00000000:08AE 00000000:0000 0A\n   1: 0100007F:08AF \
             00000000:0000 0A\n   2: 0100000A:08B0 0100000A:0001 01\n",
        );
        write(
            "proc/net/tcp6",
            "  sl\n   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A\n",
        );
        assert_eq!(ssh_ports(&Model::new(Directory::new(root.path()))), [22, 2222]);
    }
}
