//! The complete state of a path, from which it is restored byte for byte.

use crate::error::Error;
use crate::host::{
    ACCESS_LIST, Attributes, CAPABILITY, Files, Node, Stat, View, is_computed, is_label, parent,
};
use crate::net::{hex, unhex};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::io;

/// Content of a file; serialised as text if it is UTF-8.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Content(pub Vec<u8>);

impl std::ops::Deref for Content {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Written {
    Text(String),
    Hex(String),
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => Written::Text(text.to_owned()),
            Err(_) => Written::Hex(hex(&self.0)),
        }
        .serialize(s)
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match Written::deserialize(d)? {
            Written::Text(text) => Ok(Content(text.into_bytes())),
            Written::Hex(digits) => {
                unhex(&digits).map(Content).ok_or_else(|| serde::de::Error::custom("not hexadecimal digits"))
            }
        }
    }
}

/// Recorded extended attributes, by name.
type Recorded = BTreeMap<String, Content>;

/// State of a path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileState {
    /// It does not exist.
    Absent,
    /// A regular file.
    File {
        /// Its bytes.
        content: Content,
        /// Its permission bits.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its extended attributes, access lists among them. Absent for a file that fullpipe creates,
        /// and in journals of earlier versions: then the file keeps those it has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attributes: Option<BTreeMap<String, Content>>,
    },
    /// A symbolic link.
    Link {
        /// Its target.
        target: String,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
    },
    /// A directory, without its content.
    Directory {
        /// Its permission bits.
        mode: u32,
    },
}

impl FileState {
    /// The state of `path` now.
    ///
    /// # Errors
    /// It cannot be read, or is neither a file, a link nor a directory.
    pub fn read(view: &dyn View, path: &str) -> io::Result<FileState> {
        let object = match view.object(path) {
            Ok(object) => object,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(FileState::Absent),
            Err(e) => return Err(e),
        };
        let stat = object.stat;
        Ok(match stat.node {
            Node::File => FileState::File {
                content: Content(object.content),
                mode: stat.mode,
                uid: stat.uid,
                gid: stat.gid,
                attributes: Some(recorded(object.attributes)),
            },
            Node::Link(target) => FileState::Link { target, uid: stat.uid, gid: stat.gid },
            Node::Directory => FileState::Directory { mode: stat.mode },
            Node::Other => {
                return Err(io::Error::other(format!("{path} is neither a file, a link nor a directory")));
            }
        })
    }

    /// Whether a directory was created without its mode: the process was killed between the two,
    /// with a umask that
    /// removes bits.
    pub(super) fn is_partial(
        &self,
        view: &dyn View,
        path: &str,
        before: &FileState,
        after: &FileState,
    ) -> bool {
        match (self, before, after) {
            (FileState::Directory { mode: now }, FileState::Absent, FileState::Directory { mode }) => {
                now != mode && now & !mode == 0 && view.list(path).is_ok_and(|names| names.is_empty())
            }
            _ => false,
        }
    }

    /// A new file with mode 0644 and the owner of `/etc`.
    pub fn new_file(view: &dyn View, text: &str) -> FileState {
        let (uid, gid) = view.stat("/etc").map_or((0, 0), |s| (s.uid, s.gid));
        let content = Content(text.as_bytes().to_vec());
        FileState::File { content, mode: 0o644, uid, gid, attributes: None }
    }

    /// This file with another content and the same metadata; `None` if it is not a file.
    pub fn with_content(&self, bytes: Vec<u8>) -> Option<FileState> {
        let mut other = self.clone();
        match &mut other {
            FileState::File { content, .. } => *content = Content(bytes),
            _ => return None,
        }
        Some(other)
    }

    /// Whether a path in this state is as `expected`. Security labels are not compared: the
    /// system's policy may change them at any time (a relabel), and every replacement of a file
    /// keeps its label.
    pub fn matches(&self, expected: &FileState) -> bool {
        let (Some(now), Some(wanted)) = (self.file(), expected.file()) else { return self == expected };
        let same_attributes = match (self.attributes(), expected.attributes()) {
            (Some(now), Some(wanted)) => unlabelled(now).eq(unlabelled(wanted)),
            // Not recorded: the file keeps those it has.
            _ => true,
        };
        now == wanted && same_attributes
    }

    /// Content of a file, and its mode, owner and group.
    fn file(&self) -> Option<(&Content, [u32; 3])> {
        match self {
            FileState::File { content, mode, uid, gid, .. } => Some((content, [*mode, *uid, *gid])),
            _ => None,
        }
    }

    /// Recorded attributes of a file.
    fn attributes(&self) -> Option<&Recorded> {
        match self {
            FileState::File { attributes, .. } => attributes.as_ref(),
            _ => None,
        }
    }

    /// Text of a file; empty for other types.
    pub fn text(&self) -> String {
        match self {
            FileState::File { content, .. } => String::from_utf8_lossy(content).into_owned(),
            _ => String::new(),
        }
    }

    /// Short description.
    pub fn describe(&self) -> String {
        match self {
            FileState::Absent => "absent".into(),
            FileState::File { content, mode, uid, gid, attributes } => {
                let names = attributes.iter().flatten().map(|(name, _)| name.as_str());
                let names: Vec<&str> = names.filter(|name| !is_label(name)).collect();
                let more = if names.is_empty() { String::new() } else { format!(", {}", names.join(", ")) };
                format!("a file of {} bytes, mode {mode:04o}, owner {uid}:{gid}{more}", content.len())
            }
            FileState::Link { target, .. } => format!("a link to {target}"),
            FileState::Directory { mode } => format!("a directory, mode {mode:04o}"),
        }
    }
}

/// Attributes without security labels and those that the kernel computes.
fn unlabelled(all: &BTreeMap<String, Content>) -> impl Iterator<Item = (&String, &Content)> {
    all.iter().filter(|(name, _)| !is_label(name) && !is_computed(name))
}

/// Temporary names of a new state; no boot program reads these suffixes. The first that is free is
/// used: a file that another program made under such a name stays.
fn temporaries(path: &str) -> impl Iterator<Item = String> {
    const MAX_NAMES: usize = 10;
    let suffix = |number: usize| if number == 0 { String::new() } else { number.to_string() };
    (0..MAX_NAMES).map(move |number| format!("{path}.fullpipe-new{}", suffix(number)))
}

/// Whether a file has the temporary name of `path`. Before a plan is in the journal, it is not
/// fullpipe's.
pub(crate) fn has_temporary(view: &dyn View, path: &str) -> Option<String> {
    temporaries(path).find(|name| view.stat(name).is_ok())
}

/// Whether `found` is what an interrupted write of `state` leaves.
fn is_left(view: &dyn View, found: &FileState, state: &FileState) -> bool {
    match (found, state) {
        (
            FileState::File { content, mode, uid, .. },
            FileState::File { content: whole, mode: wanted, uid: owner, .. },
        ) => {
            // It is created by the caller with mode 0600; owner and mode come after the content.
            let is_own = (view.trusts_owner(*uid) || uid == owner) && mode & !(wanted | 0o600) == 0;
            // After a loss of power the bytes may be missing, or zero.
            is_own && (whole.starts_with(content) || content.iter().all(|byte| *byte == 0))
        }
        (FileState::Link { target, .. }, FileState::Link { target: wanted, .. }) => target == wanted,
        _ => false,
    }
}

/// Removes what an interrupted [`install`] of one of `states` may have left beside `path`.
///
/// # Errors
/// From the file system.
pub fn tidy(files: &dyn Files, path: &str, states: &[&FileState]) -> io::Result<()> {
    tidy_if(files, path, &|found| states.iter().any(|state| is_left(files, found, state)))
}

/// Removes the temporary files of `path` that `is_own` recognises.
pub(crate) fn tidy_if(files: &dyn Files, path: &str, is_own: &dyn Fn(&FileState) -> bool) -> io::Result<()> {
    for name in temporaries(path) {
        // A file with a second name is not only fullpipe's.
        if !files.stat(&name).is_ok_and(|stat| stat.links == 1) {
            continue;
        }
        if FileState::read(files, &name).is_ok_and(|found| is_own(&found)) {
            files.remove(&name)?;
        }
    }
    Ok(())
}

/// A free temporary name of `path`.
fn free_temporary(files: &dyn Files, path: &str) -> io::Result<String> {
    let is_free = |name: &String| files.stat(name).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    temporaries(path).find(is_free).ok_or_else(|| {
        let text = format!("all temporary names of {path} (`{path}.fullpipe-new…`) are used by other files");
        io::Error::new(io::ErrorKind::AlreadyExists, text)
    })
}

fn recorded(attributes: Attributes) -> BTreeMap<String, Content> {
    attributes.into_iter().map(|(name, value)| (name, Content(value))).collect()
}

/// The attributes of a new file at `path`: those recorded, with the label that the path has now.
fn wanted_attributes(
    files: &dyn Files,
    path: &str,
    attributes: Option<&BTreeMap<String, Content>>,
) -> io::Result<Attributes> {
    let mut now = match files.stat(path) {
        Ok(Stat { node: Node::File, .. }) => files.attributes(path)?,
        _ => Attributes::new(),
    };
    now.remove(CAPABILITY);
    let Some(attributes) = attributes else { return Ok(now) };
    now.retain(|name, _| is_label(name));
    let mut wanted: Attributes =
        attributes.iter().map(|(name, value)| (name.clone(), value.to_vec())).collect();
    wanted.append(&mut now);
    Ok(wanted)
}

/// Privileges that running a file in this state gives: set-ID bits, capabilities.
fn privileges(state: &FileState) -> Option<String> {
    match state {
        FileState::File { mode, .. } if mode & 0o6000 != 0 => Some(format!("set-ID bits (mode {mode:04o})")),
        FileState::File { attributes: Some(attributes), .. } if attributes.contains_key(CAPABILITY) => {
            Some(format!("capabilities ({CAPABILITY})"))
        }
        FileState::Directory { mode } if mode & 0o6000 != 0 => Some(format!("set-ID bits (mode {mode:04o})")),
        _ => None,
    }
}

/// Fullpipe never writes a file with privileges, whatever a journal says.
fn refuse_privileges(path: &str, state: &FileState) -> io::Result<()> {
    match privileges(state) {
        None => Ok(()),
        Some(privileges) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("fullpipe writes no file with {privileges}: restore {path} by hand"),
        )),
    }
}

/// Refuses to replace a file that could not be restored: one with privileges, or with several names.
/// A replacement would separate these, and the old file could not be restored under all of them;
/// writing in place is not atomic, and would change a backup made of hard links.
pub(crate) fn refuse_unsafe_file(view: &dyn View, path: &str) -> crate::error::Result<()> {
    if let Ok(Stat { node: Node::File, links, .. }) = view.stat(path)
        && links > 1
    {
        return Err(Error::check(format_args!(
            "{path} has {links} names (hard links), and replacing it would leave the other names with the \
             old content; make it a file of its own first (`cp --preserve=all {path} {path}.new && mv \
             {path}.new {path}`); nothing was changed"
        )));
    }
    let state = FileState::read(view, path).map_err(|e| Error::io(format_args!("cannot read {path}"), &e))?;
    match privileges(&state).filter(|_| state.file().is_some()) {
        None => Ok(()),
        Some(privileges) => Err(Error::check(format_args!(
            "{path} has {privileges}, and fullpipe replaces no such file: remove them first (`chmod u-s,g-s \
             {path}`, `setcap -r {path}`); nothing was changed"
        ))),
    }
}

/// Installs `state` at `path` atomically and durably: written beside it, synced, renamed over it,
/// and the directory synced. After a power loss either the old or the new state is there.
///
/// # Errors
/// From the file system; then `path` is as it was.
pub fn install(files: &dyn Files, path: &str, state: &FileState) -> io::Result<()> {
    install_over(files, path, state, &|_| true)
}

/// Writes a file or link under a temporary name of `path`, which is returned; an error leaves nothing.
fn create_temporary(files: &dyn Files, path: &str, state: &FileState) -> io::Result<Option<String>> {
    let new = free_temporary(files, path)?;
    match state {
        FileState::File { content, mode, uid, gid, attributes } => {
            let attributes = wanted_attributes(files, path, attributes.as_ref())?;
            // With an access list the bits of the group are its mask. Until the list is set they would be
            // permissions of the group itself.
            let first = if attributes.contains_key(ACCESS_LIST) { mode & 0o7700 } else { *mode };
            files.create_with(&new, content, (first, *uid, *gid), &attributes)?;
        }
        FileState::Link { target, uid, gid } => files.link(&new, target, *uid, *gid)?,
        FileState::Absent | FileState::Directory { .. } => return Ok(None),
    }
    Ok(Some(new))
}

/// As [`install`], if the path is as `expected` right before it is replaced.
pub(super) fn install_over(
    files: &dyn Files,
    path: &str,
    state: &FileState,
    expected: &dyn Fn(&FileState) -> bool,
) -> io::Result<()> {
    refuse_privileges(path, state)?;
    tidy(files, path, &[state])?;
    let temporary = create_temporary(files, path, state)?;
    let check = || -> io::Result<()> {
        let now = FileState::read(files, path)?;
        if expected(&now) {
            return Ok(());
        }
        let text = format!("another program changed it in the meantime, to {}", now.describe());
        Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
    };
    if let Some(new) = temporary {
        let sync = || if matches!(state, FileState::File { .. }) { files.sync(&new) } else { Ok(()) };
        let placed = sync().and_then(|()| check()).and_then(|()| files.rename(&new, path));
        placed.inspect_err(|_| {
            // Report the first error; a leftover temporary file is harmless.
            let _ = files.remove(&new);
        })?;
        return files.sync(parent(path));
    }
    check()?;
    match state {
        FileState::File { .. } | FileState::Link { .. } => {}
        FileState::Directory { mode } => match files.stat(path) {
            Ok(now) if now.node == Node::Directory && now.mode != *mode => {
                // Made without its mode; one with files in it stays as it is.
                match files.remove_directory(path) {
                    Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                    outcome => outcome.and_then(|()| files.make_directory(path, *mode))?,
                }
            }
            Ok(_) => {}
            Err(_) => files.make_directory(path, *mode)?,
        },
        FileState::Absent => match files.stat(path).map(|s| s.node) {
            Ok(Node::Directory) => files.remove_directory(path)?,
            Ok(_) => files.remove(path)?,
            Err(_) => {}
        },
    }
    files.sync(parent(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Directory;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn state(directory: &std::path::Path, text: &str, mode: u32) -> FileState {
        let about = fs::metadata(directory).unwrap();
        let content = Content(text.as_bytes().to_vec());
        FileState::File { content, mode, uid: about.uid(), gid: about.gid(), attributes: None }
    }

    #[test]
    fn only_temporary_files_as_fullpipe_makes_them_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let files = Directory::new(dir.path());
        let new = dir.path().join("file.fullpipe-new");
        let wanted = state(dir.path(), "a text", 0o640);
        let stays = |text: &str, mode: u32| {
            fs::write(&new, text).unwrap();
            fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
            tidy(&files, "/file", &[&wanted]).unwrap();
            fs::remove_file(&new).is_ok()
        };
        for (text, mode) in [("a text", 0o640), ("a te", 0o600), ("", 0o600), ("\0\0", 0o640)] {
            assert!(!stays(text, mode), "{text:?}, {mode:o}");
        }
        for (text, mode) in [("a te", 0o644), ("", 0o666), ("another", 0o600)] {
            assert!(stays(text, mode), "{text:?}, {mode:o}");
        }
        fs::write(dir.path().join("other"), "a te").unwrap();
        fs::set_permissions(dir.path().join("other"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(dir.path().join("other"), &new).unwrap();
        tidy(&files, "/file", &[&wanted]).unwrap();
        assert!(new.exists(), "a second name of another file");
    }

    #[test]
    fn a_failed_replacement_removes_only_the_file_that_it_made() {
        let dir = tempfile::tempdir().unwrap();
        let files = Directory::new(dir.path());
        let (path, new) = (dir.path().join("file"), dir.path().join("file.fullpipe-new"));
        fs::write(&path, "edited").unwrap();
        let foreign = |_: &FileState| {
            // The name is used for none of these states, and another program takes it.
            let _ = fs::File::create_new(&new);
            false
        };
        for wanted in [FileState::Absent, FileState::Directory { mode: 0o755 }] {
            install_over(&files, "/file", &wanted, &foreign).unwrap_err();
            assert!(new.exists(), "{wanted:?}");
            fs::remove_file(&new).unwrap();
        }
        install_over(&files, "/file", &state(dir.path(), "new", 0o600), &foreign).unwrap_err();
        assert!(!new.exists());
        assert_eq!(fs::read_to_string(&path).unwrap(), "edited");
    }
}
