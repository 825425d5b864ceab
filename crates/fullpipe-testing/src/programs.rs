use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Copies a program to `to`, so that every user can execute it.
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    install(&[from.as_os_str(), to.as_os_str()], b"");
}

/// Writes a script to `to`, so that every user can execute it.
///
/// # Panics
/// If it cannot be written.
pub fn write_script(to: &Path, text: &str) {
    install(&["/dev/stdin".as_ref(), to.as_os_str()], text.as_bytes());
}

/// Another process has to write the file: if this one did, a thread that starts a process at the
/// same time would hand it the file open for writing, and execve(2) would fail with ETXTBSY.
fn install(arguments: &[&std::ffi::OsStr], input: &[u8]) {
    let mut child = Command::new("install")
        .args(["-m", "755"])
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .expect("install (coreutils)");
    // The pipe is closed at the end of this statement.
    child.stdin.take().expect("a pipe").write_all(input).expect("install reads all");
    assert!(child.wait().expect("a child").success(), "install {arguments:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_run_while_other_threads_start_processes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        std::thread::scope(|scope| {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    assert!(Command::new("true").status().unwrap().success());
                }
            });
            for _ in 0..50 {
                copy_program("/bin/true".as_ref(), &path);
                assert!(Command::new(&path).status().unwrap().success());
                write_script(&path, "#!/bin/sh\nexit 7\n");
                assert_eq!(Command::new(&path).status().unwrap().code(), Some(7));
            }
            drop(end);
        });
    }
}
