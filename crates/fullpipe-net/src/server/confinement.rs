//! Confinement of a server after it has bound its sockets.

use super::Server;
use fullpipe_kernel::confine::{Capability, Confinement, FileAccess, become_user, confine};
use nix::unistd::{Uid, User};
use std::io;
use std::path::Path;

/// The user that a server started by root runs as by default.
const DEFAULT_USER: &str = "nobody";

impl Server {
    /// Drops what serving does not need: root privileges (for those of `user`, or of the default
    /// user if started by root), file access, program execution and system calls. What the kernel
    /// does not support is reported in the event `listening`. This applies to the calling
    /// thread and the threads it creates, so call it before starting any other; it cannot be
    /// undone.
    ///
    /// # Errors
    /// If the user does not exist or cannot be assumed.
    pub fn confine(&mut self, user: Option<&str>) -> io::Result<()> {
        let root = Uid::effective().is_root();
        if root || user.is_some() {
            let name = user.unwrap_or(DEFAULT_USER);
            let became = User::from_name(name)
                .map_err(io::Error::from)
                .and_then(|found| {
                    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such user"))
                })
                .and_then(|found| become_user(found.uid, found.gid));
            match (became, user) {
                (Ok(()), _) => self.remark("user", name),
                (Err(e), Some(_)) => {
                    return Err(io::Error::new(e.kind(), format!("cannot switch to user {name}: {e}")));
                }
                // In a user namespace without other users, root is an unprivileged user outside.
                (Err(e), None) => self.remark("user", format!("root (cannot switch to user {name}: {e})")),
            }
        }
        let kept = [Capability::NetAdmin, Capability::NetBindService];
        // Each UDP test binds its own socket to the server's port.
        let kept = if self.address().port() < 1024 { &kept[..] } else { &kept[..1] };
        let confined = confine(&Confinement {
            capabilities: kept,
            // To list the available controllers when a client requests an unknown one.
            access: FileAccess::Files(&[Path::new("/proc/sys/net/ipv4")]),
            connect: &self.shared.connect_back_ports(),
        })?;
        self.remark("files_closed", confined.landlock.to_string());
        self.remark("system_calls_filtered", confined.system_calls.to_string());
        Ok(())
    }

    /// Adds a field to the event `listening`.
    fn remark(&mut self, name: &'static str, value: impl Into<String>) {
        self.remarks.push((name, value.into()));
    }
}
