//! Metadata of replaced files on a real file system: owners, modes, access lists, extended
//! attributes and hard links are the same after a revert, and while fullpipe's version is there.

use fullpipe_files::attributes::{self, ACCESS_LIST};
use fullpipe_host::host::{Directory, Files, Model, View};
use fullpipe_host::journal::Store;
use fullpipe_host::plan::{self, FileState, Request};
use fullpipe_host::{Error, apply, revert};
use fullpipe_testing::{access_list, own_test};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

const DEFAULT_LIST: &str = "system.posix_acl_default";

/// Sets an attribute; `false` if this file system or this user cannot.
fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    let file = File::open(path).unwrap();
    let mut all = attributes::read(&file).unwrap();
    all.insert(name.to_owned(), value.to_vec());
    let outcome = attributes::set(&file, &all);
    let is_set = attributes::get(&file, name).is_ok_and(|now| now.as_deref() == Some(value));
    if !is_set {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to set {name}: {outcome:?}");
        println!("SKIPPED {name}: {outcome:?}");
    }
    is_set
}

/// Everything of a file that a revert restores.
#[derive(PartialEq, Debug)]
struct Metadata {
    content: String,
    mode: u32,
    owner: (u32, u32),
    links: u64,
    attributes: BTreeMap<String, Vec<u8>>,
}

fn metadata(path: &Path) -> Metadata {
    let about = fs::metadata(path).unwrap();
    let attributes = attributes::read(File::open(path).unwrap()).unwrap();
    Metadata {
        content: fs::read_to_string(path).unwrap(),
        mode: about.permissions().mode() & 0o7777,
        owner: (about.uid(), about.gid()),
        links: about.nlink(),
        attributes,
    }
}

/// An image of a host whose sysctl.conf sets another controller, after fullpipe's file is read.
fn image() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    };
    put("lib/modules/6.1.0/modules.dep", "kernel/net/ipv4/tcp_bbr.ko:\nkernel/net/sched/sch_fq.ko:\n");
    put("usr/lib/systemd/systemd-sysctl", "");
    put("run/keep", "");
    put("var/lib/keep", "");
    put("etc/sysctl.d/keep", "");
    let file = put(
        "etc/sysctl.d/zzz-old.conf",
        "net.ipv4.ip_forward = 1\nnet.ipv4.tcp_congestion_control = cubic\n",
    );
    (root, file)
}

fn host(root: &Path) -> Model<Directory> {
    Model::new(Directory::new(root))
}

fn store() -> Store {
    Store::at("/var/lib/fullpipe")
}

fn apply_bbr(root: &Path) -> Result<apply::Applied, Error> {
    apply::apply(&host(root), &store(), &Request::new("bbr"), &apply::Options::default())
}

fn roll_back(root: &Path) -> Result<Option<revert::Reverted>, Error> {
    revert::revert(&host(root), &store(), &revert::Options::default())
}

#[test]
fn access_lists_attributes_owners_and_modes_stay_through_apply_and_revert() {
    let (root, file) = image();
    // Not root: the owner stays the caller.
    let _ = chown(&file, Some(4711), Some(4712));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o660)).unwrap();
    set(&file, ACCESS_LIST, &access_list());
    set(&file, "user.ticket", b"2019-114\0binary\xff");
    set(&file, "trusted.note", b"of root");
    set(&file, "security.selinux", b"system_u:object_r:system_conf_t:s0\0");
    let before = metadata(&file);

    apply_bbr(root.path()).unwrap();
    let applied = metadata(&file);
    assert!(applied.content.contains("# disabled by fullpipe: net.ipv4.tcp_congestion_control"));
    assert_eq!(Metadata { content: before.content.clone(), ..applied }, before, "while it is applied");

    roll_back(root.path()).unwrap();
    assert_eq!(metadata(&file), before);
}

#[test]
fn a_file_gets_no_inherited_access_list_that_it_did_not_have() {
    let (root, file) = image();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let before = metadata(&file);
    // New files in the directory would give user 12345 access.
    if !set(file.parent().unwrap(), DEFAULT_LIST, &access_list()) {
        return;
    }
    apply_bbr(root.path()).unwrap();
    let applied = metadata(&file);
    assert_eq!((applied.mode, &applied.attributes), (0o640, &before.attributes));
    let own = metadata(&root.path().join("etc/sysctl.d/99-zz-fullpipe.conf"));
    assert_eq!((own.mode, own.attributes), (0o644, BTreeMap::new()));
    roll_back(root.path()).unwrap();
    assert_eq!(metadata(&file), before);
}

#[test]
fn an_access_list_changed_since_is_reported_and_not_overwritten() {
    let (root, file) = image();
    apply_bbr(root.path()).unwrap();
    if !set(&file, ACCESS_LIST, &access_list()) {
        return;
    }
    let error = roll_back(root.path()).unwrap_err();
    assert!(
        error.text().contains("changed since fullpipe applied") && error.text().contains(ACCESS_LIST),
        "{error}"
    );
    let options = revert::Options { keep_changed: true, ..Default::default() };
    revert::revert(&host(root.path()), &store(), &options).unwrap();
    assert!(metadata(&file).attributes.contains_key(ACCESS_LIST));
}

/// The system's policy may relabel files at any time, so the label of the moment stays.
#[test]
fn a_label_changed_since_stays_and_does_not_prevent_a_revert() {
    let (root, file) = image();
    if !set(&file, "security.selinux", b"old_t\0") {
        return;
    }
    apply_bbr(root.path()).unwrap();
    assert_eq!(metadata(&file).attributes["security.selinux"], b"old_t\0");
    set(&file, "security.selinux", b"new_t\0");
    roll_back(root.path()).unwrap();
    assert_eq!(metadata(&file).attributes["security.selinux"], b"new_t\0");
    assert!(!metadata(&file).content.contains("disabled by fullpipe"));
}

/// NFS gives every file a list of its own, which cannot be removed.
#[test]
fn attributes_that_the_file_system_gives_new_files_are_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "new").unwrap();
    if !set(&path, "user.given", b"by the file system") {
        return;
    }
    let host = Directory::new(dir.path());
    host.set_attributes("/file", &[("user.ticket".to_owned(), b"2019".to_vec())].into()).unwrap();
    let names: Vec<String> = metadata(&path).attributes.into_keys().collect();
    assert_eq!(names, ["user.given", "user.ticket"]);
}

/// XFS lists its own form of an access list, which journals of earlier versions have.
#[test]
fn the_own_form_of_an_access_list_on_xfs_is_neither_compared_nor_restored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "text").unwrap();
    let host = Directory::new(dir.path());
    let now = FileState::read(&host, "/file").unwrap();
    let FileState::File { content, mode, uid, gid, .. } = now.clone() else { panic!("{now:?}") };
    let list = [("trusted.SGI_ACL_FILE".to_owned(), plan::Content(b"\0\0\0\0".to_vec()))];
    let old = FileState::File { content, mode, uid, gid, attributes: Some(list.into()) };
    assert!(now.matches(&old) && old.matches(&now));
    plan::install(&host, "/file", &old).unwrap();
    assert_eq!(metadata(&path).attributes, BTreeMap::new());
}

/// The image of a test that runs again in a process of another user.
const IMAGE: &str = "FULLPIPE_TEST_IMAGE";

/// A file without permission to write, with a label that only root may set.
#[test]
fn a_user_can_change_read_only_and_labelled_files_of_an_own_image() {
    const USER: u32 = 65534;
    if let Some(root) = std::env::var_os(IMAGE).map(PathBuf::from) {
        let file = root.join("etc/sysctl.d/zzz-old.conf");
        let unlabelled = || {
            let mut metadata = metadata(&file);
            metadata.attributes.retain(|name, _| !name.starts_with("security."));
            metadata
        };
        let before = unlabelled();
        apply_bbr(&root).unwrap();
        let applied = unlabelled();
        assert!(applied.content.contains("# disabled by fullpipe"));
        assert_eq!(Metadata { content: before.content.clone(), ..applied }, before, "while it is applied");
        roll_back(&root).unwrap();
        assert_eq!(unlabelled(), before);
        return;
    }
    let (root, file) = image();
    set(&file, "user.ticket", b"2019-114");
    // Without the module of a label only root may set it.
    for label in ["security.selinux", "security.SMACK64"] {
        set(&file, label, b"label");
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    // A copy of this program that every user can execute.
    let public = tempfile::tempdir().unwrap();
    let program = public.path().join("test");
    fs::set_permissions(public.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fullpipe_testing::copy_program(&std::env::current_exe().unwrap(), &program);
    let mut command = std::process::Command::new(program);
    command
        .args([
            own_test!(a_user_can_change_read_only_and_labelled_files_of_an_own_image),
            "--exact",
            "--nocapture",
        ])
        .env(IMAGE, root.path());
    if chown_all(root.path(), USER).is_ok() {
        command.uid(USER).gid(USER);
    }
    assert!(command.status().unwrap().success());
}

fn chown_all(path: &Path, user: u32) -> std::io::Result<()> {
    chown(path, Some(user), Some(user))?;
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            chown_all(&entry?.path(), user)?;
        }
    }
    Ok(())
}

#[test]
fn a_file_with_several_names_is_refused_and_stays() {
    let (root, file) = image();
    let backup = root.path().join("etc/backup.conf");
    fs::hard_link(&file, &backup).unwrap();
    let before = metadata(&file);
    for error in [
        plan::make(&host(root.path()), &Request::new("bbr"), "/usr/bin/fullpipe").map(drop).unwrap_err(),
        apply_bbr(root.path()).map(drop).unwrap_err(),
    ] {
        assert!(matches!(&error, Error::Check(text) if text.contains("2 names (hard links)")), "{error}");
    }
    assert_eq!(metadata(&file), before);
    assert_eq!(fs::metadata(&file).unwrap().ino(), fs::metadata(&backup).unwrap().ino());
    assert!(!root.path().join("var/lib/fullpipe").exists(), "nothing was begun");
}

/// At no moment may the mask of an access list count as permissions of the file's group.
#[test]
fn a_new_file_is_never_more_open_than_its_access_list() {
    let dir = tempfile::tempdir().unwrap();
    let host = Recording { files: Directory::new(dir.path()), modes: Default::default() };
    let me = fs::metadata(dir.path()).unwrap();
    let (uid, gid) = (me.uid(), me.gid());
    fs::write(dir.path().join("file"), "old").unwrap();
    if !set(&dir.path().join("file"), ACCESS_LIST, &access_list()) {
        return;
    }
    let state = FileState::read(&host, "/file").unwrap();
    assert!(matches!(state, FileState::File { mode: 0o660, uid: u, gid: g, .. } if (u, g) == (uid, gid)));
    plan::install(&host, "/file", &state.with_content(b"new".to_vec()).unwrap()).unwrap();
    assert_eq!(*host.modes.borrow(), [0o600], "modes of new files before they get their access list");
    assert_eq!(FileState::read(&host, "/file").unwrap(), state.with_content(b"new".to_vec()).unwrap());
}

/// Files that note with which modes others are created.
struct Recording {
    files: Directory,
    modes: std::cell::RefCell<Vec<u32>>,
}

impl View for Recording {
    fn stat(&self, path: &str) -> std::io::Result<fullpipe_host::host::Stat> {
        self.files.stat(path)
    }
    fn read(&self, path: &str) -> std::io::Result<Vec<u8>> {
        self.files.read(path)
    }
    fn list(&self, directory: &str) -> std::io::Result<Vec<String>> {
        self.files.list(directory)
    }
    fn attributes(&self, path: &str) -> std::io::Result<fullpipe_host::host::Attributes> {
        self.files.attributes(path)
    }
}

impl Files for Recording {
    fn create(&self, path: &str, content: &[u8], mode: u32, uid: u32, gid: u32) -> std::io::Result<()> {
        self.modes.borrow_mut().push(mode);
        self.files.create(path, content, mode, uid, gid)
    }
    fn append(&self, path: &str, content: &[u8]) -> std::io::Result<()> {
        self.files.append(path, content)
    }
    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.files.rename(from, to)
    }
    fn remove(&self, path: &str) -> std::io::Result<()> {
        self.files.remove(path)
    }
    fn link(&self, path: &str, target: &str, uid: u32, gid: u32) -> std::io::Result<()> {
        self.files.link(path, target, uid, gid)
    }
    fn make_directory(&self, path: &str, mode: u32) -> std::io::Result<()> {
        self.files.make_directory(path, mode)
    }
    fn remove_directory(&self, path: &str) -> std::io::Result<()> {
        self.files.remove_directory(path)
    }
    fn sync(&self, path: &str) -> std::io::Result<()> {
        self.files.sync(path)
    }
    fn lock(&self, path: &str) -> std::io::Result<Box<dyn std::any::Any>> {
        self.files.lock(path)
    }
    fn set_attributes(
        &self,
        path: &str,
        attributes: &fullpipe_host::host::Attributes,
    ) -> std::io::Result<()> {
        self.files.set_attributes(path, attributes)
    }
}
