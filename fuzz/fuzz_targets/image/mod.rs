//! A host whose files are in memory.

use fullpipe_host::host::{Attributes, Files, Node, Stat, View};
use std::any::Any;
use std::collections::HashMap;
use std::io;

/// The parts of an input, up to a 0xff each: a number, and content.
pub fn parts(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes
        .split(|&b| b == 0xff)
        .filter_map(<[u8]>::split_first)
        .map(|(&number, content)| (usize::from(number), content))
}

/// Files in memory; nothing can be changed. Looked up by hash, because comparing names is what a
/// fuzzer's instrumentation makes slow.
#[derive(Debug)]
pub struct Image {
    files: HashMap<&'static str, Vec<u8>>,
    /// What is in each directory.
    directories: HashMap<&'static str, Vec<&'static str>>,
}

impl Image {
    /// An image with `files`.
    pub fn from_files(files: HashMap<&'static str, Vec<u8>>) -> Image {
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
        Ok(Stat { node, mode: 0o644, uid: 0, gid: 0, links: 1 })
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
    fn set_attributes(&self, _: &str, _: &Attributes) -> io::Result<()> {
        refused()
    }
}
