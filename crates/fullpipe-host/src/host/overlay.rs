//! A host as it would be after planned changes.

use super::{Node, Stat, View, resolve_by};
use crate::plan::FileState;
use std::collections::BTreeMap;
use std::io;

/// A view with some paths replaced. Directories that exist only in the plan are not listed by their
/// parents.
pub struct Overlay<'a> {
    below: &'a dyn View,
    changed: BTreeMap<String, FileState>,
}

impl<'a> Overlay<'a> {
    /// `below` with each of `changes` (path without links, new state) in its place.
    pub fn new(below: &'a dyn View, changes: impl IntoIterator<Item = (String, FileState)>) -> Self {
        Overlay { below, changed: changes.into_iter().collect() }
    }
}

impl View for Overlay<'_> {
    fn stat(&self, path: &str) -> io::Result<Stat> {
        match self.changed.get(path) {
            None => self.below.stat(path),
            Some(FileState::Absent) => Err(io::ErrorKind::NotFound.into()),
            Some(FileState::File { mode, uid, gid, .. }) => {
                Ok(Stat { node: Node::File, mode: *mode, uid: *uid, gid: *gid, links: 1 })
            }
            Some(FileState::Link { target, uid, gid }) => {
                Ok(Stat { node: Node::Link(target.clone()), mode: 0o777, uid: *uid, gid: *gid, links: 1 })
            }
            Some(FileState::Directory { mode }) => {
                Ok(Stat { node: Node::Directory, mode: *mode, uid: 0, gid: 0, links: 1 })
            }
        }
    }

    fn stat_literal(&self, path: &str) -> io::Result<Stat> {
        if self.changed.contains_key(path) { self.stat(path) } else { self.below.stat_literal(path) }
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let resolved = resolve_by(path, &|p| self.stat_literal(p))?;
        match self.changed.get(&resolved) {
            None => self.below.read(&resolved),
            Some(FileState::File { content, .. }) => Ok(content.to_vec()),
            Some(_) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn unread(&self) -> Vec<String> {
        self.below.unread()
    }

    fn refuse(&self, path: &str, why: &str) {
        self.below.refuse(path, why);
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let resolved = resolve_by(directory, &|p| self.stat_literal(p))?;
        let planned = matches!(self.changed.get(&resolved), Some(FileState::Directory { .. }));
        let mut names = match self.below.list(&resolved) {
            Ok(names) => names,
            Err(_) if planned => Vec::new(),
            Err(e) => return Err(e),
        };
        let prefix = format!("{}/", resolved.trim_end_matches('/'));
        for (path, state) in &self.changed {
            let Some(name) = path.strip_prefix(&prefix).filter(|n| !n.contains('/')) else { continue };
            names.retain(|n| n != name);
            if *state != FileState::Absent {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}
