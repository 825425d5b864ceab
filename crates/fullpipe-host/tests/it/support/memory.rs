//! Files in memory that keep apart what is written and what would survive a loss of power.

use fullpipe_host::host::{Attributes, Files, Node, Stat, View, parent};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

pub const ACCESS_LIST: &str = "system.posix_acl_access";

/// The bits of group and others that a model's access list (`mask=6 other=0`) implies.
fn mode_of_list(list: &[u8]) -> u32 {
    let text = String::from_utf8_lossy(list);
    let bits = |name: &str| {
        let mut words = text.split(' ');
        words.find_map(|word| word.strip_prefix(name)?.parse::<u32>().ok()).unwrap_or_default()
    };
    bits("mask=") << 3 | bits("other=")
}

#[derive(Clone, PartialEq, Debug)]
pub enum Entry {
    Directory { mode: u32 },
    Link { target: String, uid: u32, gid: u32 },
    File { inode: usize, mode: u32, uid: u32, gid: u32, attributes: Attributes },
}

#[derive(Clone, Debug, Default)]
struct Inode {
    now: Vec<u8>,
    /// What a sync made durable; a file that was never synced may come back empty.
    durable: Vec<u8>,
}

/// What of the unsynced writes survives.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Loss {
    /// Nothing: neither names nor bytes.
    Everything,
    /// Names survive and bytes do not, as when a rename reaches the disk before the data.
    Bytes,
    /// All of it.
    Nothing,
}

#[derive(Debug, Default)]
pub struct Memory {
    now: RefCell<BTreeMap<String, Entry>>,
    durable: RefCell<BTreeMap<String, Entry>>,
    inodes: RefCell<Vec<Inode>>,
    locked: Rc<Cell<bool>>,
}

/// What a running kernel makes, and a restart forgets.
pub fn volatile(path: &str) -> bool {
    ["/proc", "/sys", "/run", "/kernel.json"].iter().any(|p| path == *p || path.starts_with(&format!("{p}/")))
}

impl Memory {
    /// Another machine in the same state.
    pub fn copy(&self) -> Memory {
        Memory {
            now: self.now.clone(),
            durable: self.durable.clone(),
            inodes: self.inodes.clone(),
            locked: Rc::default(),
        }
    }

    /// Puts a file there, durably, with the directories above it.
    pub fn put(&self, path: &str, bytes: &[u8], mode: u32) {
        self.directories(parent(path));
        let inode = self.new_inode(bytes, bytes);
        self.both(path, Entry::File { inode, mode, uid: 0, gid: 0, attributes: Attributes::new() });
    }

    pub fn put_link(&self, path: &str, target: &str) {
        self.directories(parent(path));
        self.both(path, Entry::Link { target: target.into(), uid: 0, gid: 0 });
    }

    pub fn directories(&self, path: &str) {
        if path != "/" && !self.now.borrow().contains_key(path) {
            self.directories(parent(path));
            self.both(path, Entry::Directory { mode: 0o755 });
        }
    }

    pub fn set_mode(&self, path: &str, to: u32, owner: (u32, u32)) {
        let mut entry = self.now.borrow()[path].clone();
        if let Entry::File { mode, uid, gid, .. } = &mut entry {
            (*mode, *uid, *gid) = (to, owner.0, owner.1);
        }
        self.both(path, entry);
    }

    pub fn put_attribute(&self, path: &str, name: &str, value: &[u8]) {
        let mut entry = self.now.borrow()[path].clone();
        if let Entry::File { attributes, .. } = &mut entry {
            attributes.insert(name.into(), value.to_vec());
        }
        self.both(path, entry);
    }

    fn both(&self, path: &str, entry: Entry) {
        self.now.borrow_mut().insert(path.into(), entry.clone());
        self.durable.borrow_mut().insert(path.into(), entry);
    }

    fn new_inode(&self, now: &[u8], durable: &[u8]) -> usize {
        let mut inodes = self.inodes.borrow_mut();
        inodes.push(Inode { now: now.to_vec(), durable: durable.to_vec() });
        inodes.len() - 1
    }

    /// Every path with all that belongs to it.
    pub fn dump(&self) -> BTreeMap<String, String> {
        let inodes = self.inodes.borrow();
        let text = |entry: &Entry| match entry {
            Entry::File { inode, mode, uid, gid, attributes } => {
                let attributes: Vec<_> =
                    attributes.iter().map(|(name, value)| (name, String::from_utf8_lossy(value))).collect();
                let text = String::from_utf8_lossy(&inodes[*inode].now);
                format!("{mode:o} {uid}:{gid} {attributes:?} {text:?}")
            }
            other => format!("{other:?}"),
        };
        self.now.borrow().iter().map(|(path, entry)| (path.clone(), text(entry))).collect()
    }

    /// What a restart brings back of the kernel: kept aside to be given to
    /// [`Memory::replace_volatile`].
    pub fn volatile_entries(&self) -> BTreeMap<String, Entry> {
        self.now.borrow().iter().filter(|(p, _)| volatile(p)).map(|(p, e)| (p.clone(), e.clone())).collect()
    }

    pub fn replace_volatile(&self, entries: &BTreeMap<String, Entry>) {
        let mut now = self.now.borrow_mut();
        now.retain(|p, _| !volatile(p));
        now.extend(entries.iter().map(|(p, e)| (p.clone(), e.clone())));
    }

    /// The process that held the lock is gone.
    pub fn release(&self) {
        self.locked.set(false);
    }

    /// The power goes.
    pub fn lose(&self, loss: Loss) {
        self.release();
        if loss == Loss::Everything {
            let mut kept: BTreeMap<String, Entry> = self.durable.borrow().clone();
            // A name whose directory was lost is lost with it.
            let orphan =
                |kept: &BTreeMap<String, Entry>, p: &str| parent(p) != "/" && !kept.contains_key(parent(p));
            while let Some(path) = kept.keys().find(|p| orphan(&kept, p)).cloned() {
                kept.remove(&path);
            }
            self.now.replace(kept);
        }
        if loss != Loss::Nothing {
            let mut inodes = self.inodes.borrow_mut();
            for entry in self.now.borrow().iter().filter(|(p, _)| !volatile(p)).map(|(_, e)| e) {
                if let Entry::File { inode, .. } = entry {
                    inodes[*inode].now = inodes[*inode].durable.clone();
                }
            }
        }
        for inode in self.inodes.borrow_mut().iter_mut() {
            inode.durable.clone_from(&inode.now);
        }
        self.durable.replace(self.now.borrow().clone());
    }

    fn entry(&self, path: &str) -> io::Result<Entry> {
        if path == "/" {
            return Ok(Entry::Directory { mode: 0o755 });
        }
        self.now.borrow().get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn name(&self, path: &str) -> io::Result<String> {
        let directory = self.resolve(parent(path))?;
        let last = path.rsplit('/').next().unwrap_or_default();
        Ok(format!("{}/{last}", directory.trim_end_matches('/')))
    }

    fn insert(&self, path: &str, entry: Entry) -> io::Result<()> {
        let name = self.name(path)?;
        if self.now.borrow().contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.entry(parent(&name))?;
        self.now.borrow_mut().insert(name, entry);
        Ok(())
    }
}

impl View for Memory {
    fn stat(&self, path: &str) -> io::Result<Stat> {
        self.stat_literal(&self.name(path)?)
    }

    fn stat_literal(&self, path: &str) -> io::Result<Stat> {
        Ok(match self.entry(path)? {
            Entry::Directory { mode } => Stat { node: Node::Directory, mode, uid: 0, gid: 0, links: 1 },
            Entry::Link { target, uid, gid } => {
                Stat { node: Node::Link(target), mode: 0o777, uid, gid, links: 1 }
            }
            Entry::File { inode, mode, uid, gid, .. } => {
                let is_name =
                    |entry: &&Entry| matches!(entry, Entry::File { inode: one, .. } if *one == inode);
                let links = self.now.borrow().values().filter(is_name).count() as u64;
                Stat { node: Node::File, mode, uid, gid, links }
            }
        })
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        match self.entry(&self.resolve(path)?)? {
            Entry::File { inode, .. } => Ok(self.inodes.borrow()[inode].now.clone()),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn attributes(&self, path: &str) -> io::Result<Attributes> {
        match self.entry(&self.resolve(path)?)? {
            Entry::File { attributes, .. } => Ok(attributes),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let directory = self.resolve(directory)?;
        match self.entry(&directory)? {
            Entry::Directory { .. } => {}
            _ => return Err(io::ErrorKind::NotADirectory.into()),
        }
        let prefix = format!("{}/", directory.trim_end_matches('/'));
        let now = self.now.borrow();
        let names = now.keys().filter_map(|p| p.strip_prefix(&prefix)).filter(|n| !n.contains('/'));
        Ok(names.map(str::to_owned).collect())
    }
}

impl Files for Memory {
    fn create(&self, path: &str, content: &[u8], mode: u32, uid: u32, gid: u32) -> io::Result<()> {
        let inode = self.new_inode(content, b"");
        self.insert(path, Entry::File { inode, mode, uid, gid, attributes: Attributes::new() })
    }

    fn append(&self, path: &str, content: &[u8]) -> io::Result<()> {
        match self.entry(&self.resolve(path)?)? {
            Entry::File { inode, .. } => self.inodes.borrow_mut()[inode].now.extend_from_slice(content),
            _ => return Err(io::ErrorKind::IsADirectory.into()),
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.name(from)?, self.name(to)?);
        let entry = self.now.borrow_mut().remove(&from).ok_or(io::ErrorKind::NotFound)?;
        self.now.borrow_mut().insert(to, entry);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let name = self.name(path)?;
        match self.entry(&name)? {
            Entry::Directory { .. } => Err(io::ErrorKind::IsADirectory.into()),
            _ => {
                self.now.borrow_mut().remove(&name);
                Ok(())
            }
        }
    }

    fn link(&self, path: &str, target: &str, uid: u32, gid: u32) -> io::Result<()> {
        self.insert(path, Entry::Link { target: target.into(), uid, gid })
    }

    fn make_directory(&self, path: &str, mode: u32) -> io::Result<()> {
        self.insert(path, Entry::Directory { mode })
    }

    fn remove_directory(&self, path: &str) -> io::Result<()> {
        if !self.list(path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let name = self.name(path)?;
        self.now.borrow_mut().remove(&name);
        Ok(())
    }

    fn sync(&self, path: &str) -> io::Result<()> {
        let path = self.resolve(path)?;
        match self.entry(&path)? {
            Entry::File { inode, .. } => {
                let inode = &mut self.inodes.borrow_mut()[inode];
                inode.durable = inode.now.clone();
            }
            _ => {
                let (now, mut durable) = (self.now.borrow(), self.durable.borrow_mut());
                durable.retain(|p, _| parent(p) != path || now.contains_key(p));
                for (p, entry) in now.iter().filter(|(p, _)| parent(p) == path) {
                    durable.insert(p.clone(), entry.clone());
                }
            }
        }
        Ok(())
    }

    fn set_attributes(&self, path: &str, wanted: &Attributes) -> io::Result<()> {
        let name = self.name(path)?;
        match self.now.borrow_mut().get_mut(&name) {
            Some(Entry::File { attributes, mode, .. }) => {
                if let Some(list) = wanted.get(ACCESS_LIST) {
                    // As the kernel does: the list has the bits of the group and of others.
                    *mode = *mode & 0o7700 | mode_of_list(list);
                }
                attributes.clone_from(wanted);
                Ok(())
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn lock(&self, _path: &str) -> io::Result<Box<dyn std::any::Any>> {
        if self.locked.replace(true) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "process 1"));
        }
        Ok(Box::new(Held(self.locked.clone())))
    }
}

struct Held(Rc<Cell<bool>>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
