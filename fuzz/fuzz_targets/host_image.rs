//! An image of a host whose files someone else wrote: the modelled kernel, sysctl.d, tuned, UFW, modules, the journal.
//! Whatever they say, looking at it ends, and plans are made or refused with a reason.
#![no_main]

use fullpipe_host::checks::{self, Question};
use fullpipe_host::host::{Files, Model, Node, Stat, View};
use fullpipe_host::journal::Store;
use fullpipe_host::plan::{self, Request};
use fullpipe_host::screen::{self, Style};
use fullpipe_host::status;
use libfuzzer_sys::fuzz_target;
use std::any::Any;
use std::collections::HashMap;
use std::io;

/// The files that are read; each part of the input, up to a 0xff, is one: the number of its name, then its content.
const NAMES: [&str; 24] = [
    "/kernel.json",
    "/etc/sysctl.conf",
    "/etc/sysctl.d/10-a.conf",
    "/etc/sysctl.d/99-b.conf",
    "/usr/lib/sysctl.d/50-c.conf",
    "/usr/lib/systemd/systemd-sysctl",
    "/etc/tuned/active_profile",
    "/etc/tuned/tuned-main.conf",
    "/etc/tuned/p/tuned.conf",
    "/etc/tuned/q/tuned.conf",
    "/etc/ufw/ufw.conf",
    "/etc/default/ufw",
    "/etc/ufw/sysctl.conf",
    "/etc/modules",
    "/etc/modules-load.d/x.conf",
    "/etc/os-release",
    "/proc/cmdline",
    "/proc/self/mounts",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/proc/sys/net/ipv4/tcp_available_congestion_control",
    "/proc/sys/net/core/default_qdisc",
    "/proc/sys/net/ipv4/tcp_rmem",
    "/lib/modules/6.1.0/modules.dep",
    "/var/lib/fullpipe/host.journal",
];
/// Makes tuned one of what sets sysctls at boot.
const TUNED: &str = "/etc/systemd/system/multi-user.target.wants/tuned.service";

/// Files in memory; nothing can be changed. Looked up by hash, because comparing names is what a fuzzer's instrumentation makes slow.
#[derive(Debug)]
struct Image {
    files: HashMap<&'static str, Vec<u8>>,
    /// What is in each directory.
    directories: HashMap<&'static str, Vec<&'static str>>,
}

impl Image {
    fn of(bytes: &[u8]) -> Image {
        let parts = bytes.split(|&b| b == 0xff).filter_map(<[u8]>::split_first);
        let named = parts.map(|(&n, content)| (NAMES[usize::from(n) % NAMES.len()], content.to_vec()));
        let files: HashMap<_, _> = named.chain([(TUNED, Vec::new())]).collect();
        let mut directories: HashMap<_, Vec<_>> = HashMap::from([("/", Vec::new())]);
        for name in files.keys() {
            let mut path = *name;
            while let Some((above, own)) = path.rsplit_once('/') {
                let above = if above.is_empty() { "/" } else { above };
                let is_new = !directories.contains_key(above);
                let inside = directories.entry(above).or_default();
                if !inside.contains(&own) {
                    inside.push(own);
                }
                if !is_new || above == "/" {
                    break;
                }
                path = above;
            }
        }
        directories.values_mut().for_each(|inside| inside.sort_unstable());
        Image { files, directories }
    }
}

impl View for Image {
    fn stat(&self, path: &str) -> io::Result<Stat> {
        let node = match (self.files.contains_key(path), self.directories.contains_key(path)) {
            (true, _) => Node::File,
            (_, true) => Node::Directory,
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Stat { node, mode: 0o644, uid: 0, gid: 0 })
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let short = if directory == "/" { directory } else { directory.trim_end_matches('/') };
        let inside = self.directories.get(short).ok_or(io::ErrorKind::NotFound)?;
        Ok(inside.iter().map(|name| (*name).to_owned()).collect())
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Files for Image {
    fn create(&self, _: &str, _: &[u8], _: u32, _: u32, _: u32) -> io::Result<()> {
        refused()
    }
    fn append(&self, _: &str, _: &[u8]) -> io::Result<()> {
        refused()
    }
    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        refused()
    }
    fn remove(&self, _: &str) -> io::Result<()> {
        refused()
    }
    fn link(&self, _: &str, _: &str, _: u32, _: u32) -> io::Result<()> {
        refused()
    }
    fn make_directory(&self, _: &str, _: u32) -> io::Result<()> {
        refused()
    }
    fn remove_directory(&self, _: &str) -> io::Result<()> {
        refused()
    }
    fn sync(&self, _: &str) -> io::Result<()> {
        refused()
    }
    fn lock(&self, _: &str) -> io::Result<Box<dyn Any>> {
        refused()
    }
}

fuzz_target!(|bytes: &[u8]| {
    let host = Model::new(Image::of(bytes));
    let style = Style { colour: false, width: 100 };
    let report = checks::examine(&host, &Question { controller: "bbr".into(), path: None });
    let _ = screen::doctor(style, &report, true);
    if let Ok(status) = status::status(&host, &Store::at("/var/lib/fullpipe")) {
        let _ = screen::status(style, &status);
    }
    if let Ok(plan) = plan::make(&host, &Request::new("bbr"), "/usr/bin/fullpipe") {
        let _ = screen::plan(style, &plan);
    }
});
