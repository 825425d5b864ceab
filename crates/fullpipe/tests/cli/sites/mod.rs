//! Sites of a mesh, as processes of fullpipe.

use crate::program::{fullpipe, output_within, tied};
use fullpipe_mesh::record::{History, Outcome, TransferError};
use fullpipe_mesh::store::Store;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Generous: anything awaited happens much sooner, or never.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A mesh file and a directory with a store for each site.
pub struct Mesh {
    pub directory: tempfile::TempDir,
    pub names: Vec<&'static str>,
    pub addresses: Vec<String>,
    pub port: u16,
    pub patience: Duration,
}

/// A port that is free for TCP and UDP at all loopback addresses, most likely long enough.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        if std::net::UdpSocket::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

impl Mesh {
    /// Site `i` is at 127.0.0.(i + 1); `more` is added to the table `[mesh]`.
    pub fn new(names: &[&'static str], more: &str) -> Mesh {
        Mesh::at(names, |i| format!("127.0.0.{}", i + 1), more)
    }

    /// Sites at these addresses.
    pub fn at(names: &[&'static str], address: impl Fn(usize) -> String, more: &str) -> Mesh {
        let directory = tempfile::tempdir().unwrap();
        // If root runs the tests, the nodes run as the user `nobody`.
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mesh = Mesh {
            directory,
            names: names.to_vec(),
            addresses: (0..names.len()).map(address).collect(),
            port: free_port(),
            patience: TIMEOUT,
        };
        mesh.write("mesh.toml", more);
        let made = mesh.run(&["key", "--out", &mesh.path("mesh.key")]);
        assert!(made.status.success(), "{made:?}");
        mesh
    }

    pub fn write(&self, file: &str, more: &str) {
        let mut text = format!("[mesh]\nname = 'm'\nkey_file = 'mesh.key'\nport = {}\n{more}\n", self.port);
        for (name, address) in self.names.iter().zip(&self.addresses) {
            text += &format!("[[site]]\nname = '{name}'\naddress = '{address}'\n");
        }
        std::fs::write(self.path(file), text).unwrap();
    }

    pub fn path(&self, file: &str) -> String {
        self.directory.path().join(file).display().to_string()
    }

    pub fn run(&self, args: &[&str]) -> Output {
        let mut command = fullpipe();
        command.arg("probe").args(args);
        output_within(&mut command, TIMEOUT).expect("it did not end in time")
    }

    pub fn node(&self, name: &str) -> Node {
        self.node_with(name, "mesh.toml", &[])
    }

    pub fn node_with(&self, name: &str, file: &str, options: &[&str]) -> Node {
        self.node_in(name, file, options, None)
    }

    /// In the network of another process, if given.
    pub fn node_in(&self, name: &str, file: &str, options: &[&str], network: Option<u32>) -> Node {
        let at = self.names.iter().position(|n| *n == name).unwrap();
        let mut command = match network {
            None => fullpipe(),
            Some(process) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/proc/{process}/ns/net")).arg(crate::program::path());
                tied(&mut command).stdin(Stdio::null());
                command
            }
        };
        command.args(["probe", "run", &self.path(file), "--site", name, "--verbose"]);
        command.args(["--store", &self.path(name), "-B", &self.addresses[at]]).args(options);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let printed: Arc<Mutex<String>> = Arc::default();
        let (out, heard) = (child.stderr.take().unwrap(), Arc::clone(&printed));
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                heard.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let node = Node { child, printed };
        node.says("listening on port");
        node
    }

    pub fn history(&self, name: &str) -> History {
        Store::read(self.directory.path().join(name).as_path()).unwrap().history(i64::MIN..i64::MAX).unwrap()
    }

    pub fn whole(&self, name: &str) {
        let store = Store::read(self.directory.path().join(name).as_path()).unwrap();
        assert_eq!(store.integrity_error().unwrap(), None, "{name}");
    }

    /// Waits until the store of `name` satisfies a condition.
    pub fn until(&self, name: &str, what: &str, wanted: impl Fn(&History) -> bool) -> History {
        let began = Instant::now();
        loop {
            let history = self.history(name);
            if wanted(&history) {
                return history;
            }
            assert!(began.elapsed() < self.patience, "{name}: no {what} in {:?}", history.transfers);
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// A node's process.
pub struct Node {
    pub child: Child,
    printed: Arc<Mutex<String>>,
}

impl Node {
    pub fn log(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    pub fn says(&self, what: &str) {
        let began = Instant::now();
        while !self.log().contains(what) {
            assert!(began.elapsed() < TIMEOUT, "its log lacks '{what}': {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Its current memory in kilobytes.
    pub fn memory_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Shuts it down cleanly.
    pub fn stop(self) -> String {
        self.signal(Signal::SIGTERM);
        self.ended()
    }

    /// Waits until it has ended cleanly, after a signal.
    pub fn ended(mut self) -> String {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}: {}", self.log());
                return self.log();
            }
            assert!(began.elapsed() < TIMEOUT, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs an ignored test of this file in its own network.
pub fn in_a_network(part: &str, limit: Duration) {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"]);
    command.args(["sh", "-ec", "mount -t proc proc /proc; ip link set lo up; exec \"$@\"", "sh"]);
    command.arg(own).args(["--exact", part, "--ignored", "--nocapture"]).stdin(Stdio::null());
    let output = output_within(tied(&mut command), limit).expect("it did not end in time");
    let printed =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && printed.contains("unshare failed") {
        assert!(std::env::var_os("CI").is_none(), "{printed}");
        println!("SKIPPED: this machine lets no one make user namespaces: {printed}");
        return;
    }
    assert!(output.status.success(), "{printed}");
    printed.lines().filter(|line| line.starts_with("probe:")).for_each(|line| println!("{line}"));
}

pub fn done(history: &History) -> usize {
    history.transfers.iter().filter(|t| matches!(t.outcome, Outcome::Done(_))).count()
}

pub fn failed(history: &History, error: TransferError) -> usize {
    history.transfers.iter().filter(|t| t.outcome == Outcome::Failed(error)).count()
}

/// Each period, pair and controller has one record, from the first period to the last.
pub fn accounted(history: &History, from: &str, peers: usize) {
    let own = history.sites.iter().position(|s| s == from).unwrap() as u16;
    let own: Vec<_> = history.transfers.iter().filter(|t| t.pair.from == own).collect();
    let mut periods: Vec<i64> = own.iter().map(|t| t.period).collect();
    periods.sort_unstable();
    periods.dedup();
    // The last one may have been in progress.
    let whole = &periods[..periods.len() - 1];
    for period in whole {
        let of_it = own.iter().filter(|t| t.period == *period).count();
        assert_eq!(of_it, peers * history.controllers.len(), "{from}, period {period} of {periods:?}");
    }
    assert_eq!(whole.len() as i64, whole[whole.len() - 1] - whole[0] + 1, "none is left out: {periods:?}");
}
