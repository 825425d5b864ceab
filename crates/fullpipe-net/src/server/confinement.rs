//! What a server gives up once it listens.

use super::Server;
use fullpipe_kernel::confine::{Capability, Confinement, FileAccess, become_user, confine};
use nix::unistd::{Uid, User};
use std::io;
use std::path::Path;

/// Whom a server becomes that root started, unless told otherwise.
const NOBODY: &str = "nobody";

impl Server {
    /// Gives up what serving does not need: root's rights for those of `user` (where root started it: of `nobody`), files,
    /// programs, and system calls. What the kernel has no means for is told in the event `listening`. It holds for the
    /// calling thread and those that it starts, so this is to be called before any other is started, and for good.
    ///
    /// # Errors
    /// There is no such user, or it cannot be become.
    pub fn confine(&mut self, user: Option<&str>) -> io::Result<()> {
        let root = Uid::effective().is_root();
        if root || user.is_some() {
            let name = user.unwrap_or(NOBODY);
            let became = User::from_name(name)
                .map_err(io::Error::from)
                .and_then(|found| {
                    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no such user"))
                })
                .and_then(|found| become_user(found.uid, found.gid));
            match (became, user) {
                (Ok(()), _) => self.remark("user", name),
                (Err(e), Some(_)) => {
                    return Err(io::Error::new(e.kind(), format!("cannot become {name}: {e}")));
                }
                // In a user namespace with no other user, root is nobody outside.
                (Err(e), None) => self.remark("user", format!("root: cannot become {name} ({e})")),
            }
        }
        let kept = [Capability::NetAdmin, Capability::NetBindService];
        // Each UDP test has a socket of its own at the server's port.
        let kept = if self.address().port() < 1024 { &kept[..] } else { &kept[..1] };
        let confined = confine(&Confinement {
            capabilities: kept,
            // To say which controllers there are, when a client asks for one that is not.
            access: FileAccess::Files(&[Path::new("/proc/sys/net/ipv4")]),
        })?;
        self.remark("files_closed", confined.landlock.to_string());
        self.remark("system_calls_filtered", confined.system_calls.to_string());
        Ok(())
    }

    /// Something to be said in the event `listening`.
    fn remark(&mut self, name: &'static str, value: impl Into<String>) {
        self.remarks.push((name, value.into()));
    }
}
