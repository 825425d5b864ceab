//! The destination of a download. A file gets its name when it is complete; until then it is
//! `NAME.part`, with its version in `NAME.part.json`.

use super::partial::{Note, unmodified_since};
use super::{GetError, PIECE, Request, Target};
use crate::http::ResponseHead;
use nix::fcntl::OFlag;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum size of a download to memory.
pub const MAX_MEMORY: usize = 1 << 30;

/// A destination with an optional hash.
pub(super) struct Sink {
    destination: Destination,
    hash: Option<Sha256>,
}

enum Destination {
    Discard,
    Memory(Vec<u8>),
    /// Stdout, a device or a pipe: written immediately.
    Stream(PathBuf, Option<Box<dyn Write>>),
    File(PartFile),
}

/// A file being written.
struct PartFile {
    path: PathBuf,
    part: PathBuf,
    note: PathBuf,
    force: bool,
    earlier: Option<Earlier>,
    file: Option<File>,
}

/// The result of an earlier download.
struct Earlier {
    bytes: u64,
    /// Modification time.
    written: SystemTime,
    /// The note of a `.part` file; `None` if another program left the file.
    note: Option<Note>,
    /// Whether the file has its final name.
    at_final_name: bool,
}

impl Sink {
    /// Inspects the target without modifying it.
    pub fn open(request: &Request) -> Result<Sink, GetError> {
        let destination = match &request.target {
            Target::Discard => Destination::Discard,
            Target::Memory => Destination::Memory(Vec::new()),
            Target::Stdout => Destination::Stream("stdout".into(), Some(Box::new(io::stdout()))),
            Target::File(path) => match fs::metadata(path) {
                Ok(meta) if meta.is_dir() => {
                    let source = io::Error::from(io::ErrorKind::IsADirectory);
                    return Err(GetError::File { path: path.clone(), source });
                }
                // A device or a pipe, opened when there is data to write.
                Ok(meta) if !meta.is_file() => Destination::Stream(path.clone(), None),
                _ => Destination::File(PartFile::inspect(path, request)?),
            },
        };
        let mut sink = Sink { destination, hash: request.sha256.as_ref().map(|_| Sha256::new()) };
        sink.hash_existing()?;
        Ok(sink)
    }

    fn hash_existing(&mut self) -> Result<(), GetError> {
        let (Destination::File(part_file), Some(hash)) = (&self.destination, &mut self.hash) else {
            return Ok(());
        };
        let Some(earlier) = &part_file.earlier else { return Ok(()) };
        let path = if earlier.at_final_name { &part_file.path } else { &part_file.part };
        let failed = |source| GetError::File { path: path.clone(), source };
        let mut file = open_regular(path, false).map_err(failed)?.take(earlier.bytes);
        let mut piece = vec![0; PIECE];
        loop {
            match file.read(&mut piece).map_err(failed)? {
                0 => return Ok(()),
                n => hash.update(&piece[..n]),
            }
        }
    }

    /// Bytes from an earlier download.
    pub fn existing_bytes(&self) -> u64 {
        self.earlier().map_or(0, |earlier| earlier.bytes)
    }

    fn earlier(&self) -> Option<&Earlier> {
        match &self.destination {
            Destination::File(part_file) => part_file.earlier.as_ref(),
            _ => None,
        }
    }

    /// The version of the existing bytes, if known.
    pub fn note(&self) -> Option<&Note> {
        self.earlier()?.note.as_ref()
    }

    /// Request fields for the missing rest; empty for a full download.
    pub fn condition(&self) -> String {
        let Some(earlier) = self.earlier() else { return String::new() };
        let range = format!("Range: bytes={}-\r\n", earlier.bytes);
        match &earlier.note {
            Some(Note { validator: Some(validator), .. }) => format!("{range}If-Range: {validator}\r\n"),
            // Without validators, the complete length has to do.
            Some(_) => range,
            None => range + &unmodified_since(earlier.written),
        }
    }

    /// Discards the existing bytes: the server has another version.
    pub fn restart(&mut self) -> Result<(), GetError> {
        if let Destination::File(part_file) = &mut self.destination {
            let earlier = part_file.earlier.take();
            if earlier.is_some_and(|e| e.at_final_name) && !part_file.force {
                return Err(GetError::Changed { path: part_file.path.clone() });
            }
        }
        if let Some(hash) = &mut self.hash {
            *hash = Sha256::new();
        }
        Ok(())
    }

    /// Prepares for a full download.
    pub fn begin(&mut self, url: &str, answer: &ResponseHead, complete: Option<u64>) -> Result<(), GetError> {
        self.restart()?;
        match &mut self.destination {
            Destination::Discard | Destination::Memory(_) => Ok(()),
            Destination::Stream(path, stream) => {
                if stream.is_none() {
                    let failed = |source| GetError::File { path: path.clone(), source };
                    *stream = Some(Box::new(File::options().write(true).open(&path).map_err(failed)?));
                }
                Ok(())
            }
            Destination::File(part_file) => part_file.create(&Note::new(url, answer, complete)),
        }
    }

    /// Prepares for resuming.
    pub fn resume(
        &mut self,
        url: &str,
        answer: &ResponseHead,
        complete: Option<u64>,
    ) -> Result<(), GetError> {
        match &mut self.destination {
            Destination::File(part_file) => part_file.append(&Note::new(url, answer, complete)),
            _ => Ok(()),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), GetError> {
        match &mut self.destination {
            Destination::Discard => {}
            Destination::Memory(memory) if memory.len() + bytes.len() > MAX_MEMORY => {
                return Err(GetError::Memory);
            }
            Destination::Memory(memory) => memory.extend_from_slice(bytes),
            Destination::Stream(path, stream) => {
                if let Some(stream) = stream {
                    let written = stream.write_all(bytes);
                    written.map_err(|source| GetError::File { path: path.clone(), source })?;
                }
            }
            Destination::File(part_file) => {
                if let Some(file) = &mut part_file.file {
                    let written = file.write_all(bytes);
                    written.map_err(|source| GetError::File { path: part_file.part.clone(), source })?;
                }
            }
        }
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        Ok(())
    }

    /// The SHA-256 of the complete data, if requested.
    pub fn sha256(&self) -> Option<String> {
        self.hash.as_ref().map(|h| crate::iperf3::extension::hex(&h.clone().finalize()))
    }

    /// Completes the download. A file gets its final name, unless the hash does not match
    /// (`expected` is false). Returns the file, or the contents of memory.
    pub fn finish(self, expected: bool) -> Result<(Option<PathBuf>, Option<Vec<u8>>), GetError> {
        match self.destination {
            Destination::Discard => Ok((None, None)),
            Destination::Memory(memory) => Ok((None, Some(memory))),
            Destination::Stream(path, stream) => {
                let flushed = stream.map_or(Ok(()), |mut stream| stream.flush());
                flushed.map_err(|source| GetError::File { path, source })?;
                Ok((None, None))
            }
            Destination::File(part_file) => part_file.finish(expected).map(|path| (Some(path), None)),
        }
    }
}

impl PartFile {
    fn inspect(path: &Path, request: &Request) -> Result<PartFile, GetError> {
        let with = |ending: &str| {
            let mut name = OsString::from(path);
            name.push(ending);
            PathBuf::from(name)
        };
        let (part, note) = (with(".part"), with(".part.json"));
        let whole = length(path)?;
        let rest = length(&part)?;
        let mut earlier = None;
        if request.resume {
            let left = |bytes: (u64, SystemTime), at_final_name| Earlier {
                bytes: bytes.0,
                written: bytes.1,
                note: if at_final_name { None } else { Note::read(&note) },
                at_final_name,
            };
            earlier = rest.map(|r| left(r, false)).or(whole.map(|w| left(w, true))).filter(|e| e.bytes > 0);
        } else if !request.force {
            if whole.is_some() {
                let hint = "continue with --resume or replace with --force";
                return Err(GetError::Exists { path: path.to_path_buf(), hint });
            }
            for path in [&part, &note] {
                if fs::symlink_metadata(path).is_ok() {
                    let hint =
                        "left by an interrupted download; continue with --resume or restart with --force";
                    return Err(GetError::Exists { path: path.clone(), hint });
                }
            }
        }
        Ok(PartFile { path: path.to_path_buf(), part, note, force: request.force, earlier, file: None })
    }

    /// Creates the part file, replacing an earlier one.
    fn create(&mut self, note: &Note) -> Result<(), GetError> {
        let part = self.part.clone();
        let failed = |source| GetError::File { path: part.clone(), source };
        match fs::remove_file(&part) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        // Never follow a link or open another process's file.
        self.file = Some(File::options().write(true).create_new(true).open(&part).map_err(failed)?);
        note.write(&self.note).map_err(|source| GetError::File { path: self.note.clone(), source })
    }

    /// Opens the existing part for appending. A file under its final name is renamed first.
    fn append(&mut self, note: &Note) -> Result<(), GetError> {
        let part = self.part.clone();
        let failed = |source| GetError::File { path: part.clone(), source };
        let Some(earlier) = &mut self.earlier else { return Ok(()) };
        if earlier.at_final_name {
            rename_noreplace(&self.path, &part).map_err(failed)?;
            earlier.at_final_name = false;
        }
        if earlier.note.is_none() {
            note.write(&self.note).map_err(|source| GetError::File { path: self.note.clone(), source })?;
        }
        let file = open_regular(&part, true).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() != earlier.bytes {
            return Err(failed(io::Error::other("another process is writing to it")));
        }
        self.file = Some(file);
        Ok(())
    }

    fn finish(mut self, expected: bool) -> Result<PathBuf, GetError> {
        let part = self.part.clone();
        if let Some(file) = self.file.take() {
            // Disk errors may surface only on sync.
            file.sync_all().map_err(|source| GetError::File { path: part.clone(), source })?;
        } else if self.earlier.as_ref().is_some_and(|e| e.at_final_name) {
            return Ok(self.path.clone());
        }
        if !expected {
            return Ok(part);
        }
        let moved =
            if self.force { fs::rename(&part, &self.path) } else { rename_noreplace(&part, &self.path) };
        moved.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => GetError::Exists {
                path: self.path.clone(),
                hint: "created by another process during the download, which is kept in the .part file",
            },
            _ => GetError::File { path: self.path.clone(), source },
        })?;
        let _ = fs::remove_file(&self.note);
        Ok(self.path.clone())
    }
}

impl Drop for PartFile {
    /// Remove empty parts.
    fn drop(&mut self) {
        let empty = self.file.as_ref().is_some_and(|f| f.metadata().is_ok_and(|m| m.len() == 0));
        if empty {
            let _ = (fs::remove_file(&self.part), fs::remove_file(&self.note));
        }
    }
}

/// Length and time of the regular file at `path`; `None` if there is none.
fn length(path: &Path) -> Result<Option<(u64, SystemTime)>, GetError> {
    let failed = |source| GetError::File { path: path.to_path_buf(), source };
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => Ok(Some((meta.len(), meta.modified().map_err(failed)?))),
        Ok(_) => Err(failed(io::Error::other("not a regular file"))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(e)),
    }
}

/// Opens an existing regular file without following links.
pub(super) fn open_regular(path: &Path, append: bool) -> io::Result<File> {
    // Opening a pipe would block.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = File::options().read(true).append(append).custom_flags(flags.bits()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

/// Renames a file without replacing another.
fn rename_noreplace(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(e),
        // A file system without hard links: a file created between the two calls would be replaced.
        Err(_) if fs::symlink_metadata(to).is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Collects the bytes of a stream.
    #[derive(Clone, Default)]
    struct Out(Rc<RefCell<Vec<u8>>>);

    impl Write for Out {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stream_destination_is_not_buffered() {
        let out = Out::default();
        let destination = Destination::Stream("stdout".into(), Some(Box::new(out.clone())));
        let mut sink = Sink { destination, hash: Some(Sha256::new()) };
        for n in 1..=3 {
            sink.write(b"piece").unwrap();
            assert_eq!(out.0.borrow().len(), 5 * n);
        }
        assert_eq!(sink.sha256().unwrap().len(), 64);
        assert_eq!(sink.finish(true).unwrap(), (None, None));
    }

    #[test]
    fn memory_downloads_are_bounded() {
        // Untouched zero pages use no memory.
        let mut sink = Sink { destination: Destination::Memory(vec![0; MAX_MEMORY]), hash: None };
        assert!(matches!(sink.write(b"x"), Err(GetError::Memory)));
        sink.write(b"").unwrap();
    }
}
