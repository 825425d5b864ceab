//! A network namespace that threads and commands can enter: one end of the path.

use crate::LabError;
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::thread;

/// One end of the path. The namespace lives as long as this, or anything in it.
pub(crate) struct End {
    namespace: File,
}

impl End {
    /// A new, empty network namespace. The calling thread stays where it is.
    pub(super) fn new() -> io::Result<Self> {
        let namespace = thread::Builder::new()
            .spawn(|| {
                unshare(CloneFlags::CLONE_NEWNET)?;
                File::open("/proc/thread-self/ns/net")
            })?
            .join()
            .map_err(|_| io::Error::other("a thread panicked"))??;
        Ok(End { namespace })
    }

    /// The namespace's descriptor, for netlink.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    /// The namespace's inode, which identifies it on the machine.
    pub(crate) fn inode(&self) -> io::Result<u64> {
        Ok(self.namespace.metadata()?.ino())
    }

    /// Moves the calling thread into this end permanently.
    pub(crate) fn enter(&self) -> io::Result<()> {
        Ok(setns(&self.namespace, CloneFlags::CLONE_NEWNET)?)
    }

    /// Runs `work` in this end on a separate thread, and waits for it.
    pub(crate) fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, LabError> + Send,
    ) -> Result<T, LabError> {
        thread::scope(|scope| {
            thread::Builder::new()
                .spawn_scoped(scope, || {
                    self.enter().map_err(|e| LabError::failed("cannot enter a network namespace", e))?;
                    work()
                })
                .map_err(|e| LabError::failed("cannot start a thread", e))?
                .join()
                .unwrap_or_else(|_| Err(LabError::Failed("a thread panicked".to_owned())))
        })
    }
}
