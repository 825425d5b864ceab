//! Where a download's bytes go. A file gets its name when it is whole; until then they stand beside it, in
//! `NAME.part`, with a note of which version they are of in `NAME.part.json`.

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

/// A download to memory is bounded: a server could send forever.
pub const MAX_MEMORY: usize = 1 << 30;

/// Where bytes end up, and their hash.
pub(super) struct Sink {
    place: Place,
    hash: Option<Sha256>,
}

enum Place {
    Nowhere,
    Memory(Vec<u8>),
    /// What cannot be taken back: stdout, a device, a pipe.
    Stream(PathBuf, Option<Box<dyn Write>>),
    File(Beside),
}

/// A file in the making.
struct Beside {
    path: PathBuf,
    part: PathBuf,
    note: PathBuf,
    force: bool,
    earlier: Option<Earlier>,
    file: Option<File>,
}

/// What an earlier download left.
struct Earlier {
    bytes: u64,
    /// When it was last written.
    written: SystemTime,
    /// Of our own part; `None` when another program left it.
    note: Option<Note>,
    /// Whether it stands under the name of the whole.
    under_its_name: bool,
}

impl Sink {
    /// Looks at the target without touching it.
    pub fn open(request: &Request) -> Result<Sink, GetError> {
        let place = match &request.target {
            Target::Discard => Place::Nowhere,
            Target::Memory => Place::Memory(Vec::new()),
            Target::Stdout => Place::Stream("stdout".into(), Some(Box::new(io::stdout()))),
            Target::File(path) => match fs::metadata(path) {
                Ok(meta) if meta.is_dir() => {
                    let source = io::Error::from(io::ErrorKind::IsADirectory);
                    return Err(GetError::File { path: path.clone(), source });
                }
                // A device or a pipe; it is opened when there is something to write.
                Ok(meta) if !meta.is_file() => Place::Stream(path.clone(), None),
                _ => Place::File(Beside::look(path, request)?),
            },
        };
        let mut sink = Sink { place, hash: request.sha256.as_ref().map(|_| Sha256::new()) };
        sink.hash_what_is_there()?;
        Ok(sink)
    }

    fn hash_what_is_there(&mut self) -> Result<(), GetError> {
        let (Place::File(beside), Some(hash)) = (&self.place, &mut self.hash) else { return Ok(()) };
        let Some(earlier) = &beside.earlier else { return Ok(()) };
        let path = if earlier.under_its_name { &beside.path } else { &beside.part };
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

    /// Bytes that are there already.
    pub fn there(&self) -> u64 {
        self.earlier().map_or(0, |earlier| earlier.bytes)
    }

    fn earlier(&self) -> Option<&Earlier> {
        match &self.place {
            Place::File(beside) => beside.earlier.as_ref(),
            _ => None,
        }
    }

    /// The version that the bytes that are there belong to, as far as known.
    pub fn note(&self) -> Option<&Note> {
        self.earlier()?.note.as_ref()
    }

    /// The fields of a request for what is missing; none when all is asked for.
    pub fn condition(&self) -> String {
        let Some(earlier) = self.earlier() else { return String::new() };
        let range = format!("Range: bytes={}-\r\n", earlier.bytes);
        match &earlier.note {
            Some(Note { validator: Some(validator), .. }) => format!("{range}If-Range: {validator}\r\n"),
            // The server has nothing to tell versions by; the length of the whole must do.
            Some(_) => range,
            None => range + &unmodified_since(earlier.written),
        }
    }

    /// Forgets what is there: the server has another version.
    pub fn start_anew(&mut self) -> Result<(), GetError> {
        if let Place::File(beside) = &mut self.place {
            let earlier = beside.earlier.take();
            if earlier.is_some_and(|e| e.under_its_name) && !beside.force {
                return Err(GetError::Changed { path: beside.path.clone() });
            }
        }
        if let Some(hash) = &mut self.hash {
            *hash = Sha256::new();
        }
        Ok(())
    }

    /// Makes ready for the whole.
    pub fn begin(&mut self, url: &str, answer: &ResponseHead, complete: Option<u64>) -> Result<(), GetError> {
        self.start_anew()?;
        match &mut self.place {
            Place::Nowhere | Place::Memory(_) => Ok(()),
            Place::Stream(path, stream) => {
                if stream.is_none() {
                    let failed = |source| GetError::File { path: path.clone(), source };
                    *stream = Some(Box::new(File::options().write(true).open(&path).map_err(failed)?));
                }
                Ok(())
            }
            Place::File(beside) => beside.create(&Note::of(url, answer, complete)),
        }
    }

    /// Makes ready for the rest.
    pub fn go_on(&mut self, url: &str, answer: &ResponseHead, complete: Option<u64>) -> Result<(), GetError> {
        match &mut self.place {
            Place::File(beside) => beside.append(&Note::of(url, answer, complete)),
            _ => Ok(()),
        }
    }

    pub fn take(&mut self, bytes: &[u8]) -> Result<(), GetError> {
        match &mut self.place {
            Place::Nowhere => {}
            Place::Memory(memory) if memory.len() + bytes.len() > MAX_MEMORY => {
                return Err(GetError::Memory);
            }
            Place::Memory(memory) => memory.extend_from_slice(bytes),
            Place::Stream(path, stream) => {
                if let Some(stream) = stream {
                    let written = stream.write_all(bytes);
                    written.map_err(|source| GetError::File { path: path.clone(), source })?;
                }
            }
            Place::File(beside) => {
                if let Some(file) = &mut beside.file {
                    let written = file.write_all(bytes);
                    written.map_err(|source| GetError::File { path: beside.part.clone(), source })?;
                }
            }
        }
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        Ok(())
    }

    /// The SHA-256 of the whole, if it was asked for.
    pub fn sha256(&self) -> Option<String> {
        self.hash.as_ref().map(|h| crate::iperf3::extension::hex(&h.clone().finalize()))
    }

    /// All has come. A file gets its name, unless it is not what was `expected`. Gives where it stands, or
    /// what memory holds.
    pub fn finish(self, expected: bool) -> Result<(Option<PathBuf>, Option<Vec<u8>>), GetError> {
        match self.place {
            Place::Nowhere => Ok((None, None)),
            Place::Memory(memory) => Ok((None, Some(memory))),
            Place::Stream(path, stream) => {
                let flushed = stream.map_or(Ok(()), |mut stream| stream.flush());
                flushed.map_err(|source| GetError::File { path, source })?;
                Ok((None, None))
            }
            Place::File(beside) => beside.finish(expected).map(|path| (Some(path), None)),
        }
    }
}

impl Beside {
    fn look(path: &Path, request: &Request) -> Result<Beside, GetError> {
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
            let left = |bytes: (u64, SystemTime), under_its_name| Earlier {
                bytes: bytes.0,
                written: bytes.1,
                note: if under_its_name { None } else { Note::read(&note) },
                under_its_name,
            };
            earlier = rest.map(|r| left(r, false)).or(whole.map(|w| left(w, true))).filter(|e| e.bytes > 0);
        } else if !request.force {
            if whole.is_some() {
                let hint = "--resume goes on with it, --force replaces it";
                return Err(GetError::Exists { path: path.to_path_buf(), hint });
            }
            for path in [&part, &note] {
                if fs::symlink_metadata(path).is_ok() {
                    let hint = "a download broke off here: --resume goes on, --force starts anew";
                    return Err(GetError::Exists { path: path.clone(), hint });
                }
            }
        }
        Ok(Beside { path: path.to_path_buf(), part, note, force: request.force, earlier, file: None })
    }

    /// A new part. What stands there is an earlier part that was to be gone on with or replaced.
    fn create(&mut self, note: &Note) -> Result<(), GetError> {
        let part = self.part.clone();
        let failed = |source| GetError::File { path: part.clone(), source };
        match fs::remove_file(&part) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        // Never through a link, never into what someone else has just put there.
        self.file = Some(File::options().write(true).create_new(true).open(&part).map_err(failed)?);
        note.write(&self.note).map_err(|source| GetError::File { path: self.note.clone(), source })
    }

    /// The part that is there, for going on. One that stands under the name of the whole is moved aside.
    fn append(&mut self, note: &Note) -> Result<(), GetError> {
        let part = self.part.clone();
        let failed = |source| GetError::File { path: part.clone(), source };
        let Some(earlier) = &mut self.earlier else { return Ok(()) };
        if earlier.under_its_name {
            rename_to_nothing(&self.path, &part).map_err(failed)?;
            earlier.under_its_name = false;
        }
        if earlier.note.is_none() {
            note.write(&self.note).map_err(|source| GetError::File { path: self.note.clone(), source })?;
        }
        let file = open_regular(&part, true).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() != earlier.bytes {
            return Err(failed(io::Error::other("someone else writes to it")));
        }
        self.file = Some(file);
        Ok(())
    }

    fn finish(mut self, expected: bool) -> Result<PathBuf, GetError> {
        let part = self.part.clone();
        if let Some(file) = self.file.take() {
            // A disk can also be full, or fail, when what was written reaches it.
            file.sync_all().map_err(|source| GetError::File { path: part.clone(), source })?;
        } else if self.earlier.as_ref().is_some_and(|e| e.under_its_name) {
            return Ok(self.path.clone());
        }
        if !expected {
            return Ok(part);
        }
        let moved =
            if self.force { fs::rename(&part, &self.path) } else { rename_to_nothing(&part, &self.path) };
        moved.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => GetError::Exists {
                path: self.path.clone(),
                hint: "it was not there before; what was downloaded is in the file beside it that ends in .part",
            },
            _ => GetError::File { path: self.path.clone(), source },
        })?;
        let _ = fs::remove_file(&self.note);
        Ok(self.path.clone())
    }
}

impl Drop for Beside {
    /// A part without a byte is of no use to anyone.
    fn drop(&mut self) {
        let empty = self.file.as_ref().is_some_and(|f| f.metadata().is_ok_and(|m| m.len() == 0));
        if empty {
            let _ = (fs::remove_file(&self.part), fs::remove_file(&self.note));
        }
    }
}

/// Length and time of what stands at `path`, which must be a regular file; `None` when nothing does.
fn length(path: &Path) -> Result<Option<(u64, SystemTime)>, GetError> {
    let failed = |source| GetError::File { path: path.to_path_buf(), source };
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => Ok(Some((meta.len(), meta.modified().map_err(failed)?))),
        Ok(_) => Err(failed(io::Error::other("it is not a regular file"))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(e)),
    }
}

/// Opens a regular file that is there, not through a link.
pub(super) fn open_regular(path: &Path, append: bool) -> io::Result<File> {
    // Opening a pipe would wait for its other end.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = File::options().read(true).append(append).custom_flags(flags.bits()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Renames a file unless something has the name already.
fn rename_to_nothing(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(e),
        // A file system without links: what comes to be between the two calls would be lost.
        Err(_) if fs::symlink_metadata(to).is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Where a stream's bytes have arrived.
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
    fn a_stream_is_given_each_piece_as_it_comes_and_nothing_is_kept() {
        let out = Out::default();
        let place = Place::Stream("stdout".into(), Some(Box::new(out.clone())));
        let mut sink = Sink { place, hash: Some(Sha256::new()) };
        for n in 1..=3 {
            sink.take(b"piece").unwrap();
            assert_eq!(out.0.borrow().len(), 5 * n);
        }
        assert_eq!(sink.sha256().unwrap().len(), 64);
        assert_eq!(sink.finish(true).unwrap(), (None, None));
    }

    #[test]
    fn memory_takes_no_more_than_its_bound() {
        // Zeros that nobody touches take no room.
        let mut sink = Sink { place: Place::Memory(vec![0; MAX_MEMORY]), hash: None };
        assert!(matches!(sink.take(b"x"), Err(GetError::Memory)));
        sink.take(b"").unwrap();
    }
}
