"""Shared by scripts/kernels and scripts/machines: packages of any Debian release, and QEMU without KVM."""
import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parent / "target"
# The metapackage of a release's newest kernel.
KERNEL = "linux-image-cloud-{}"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Impossible(Exception):
    """Something that this machine lacks, or a command that failed."""


# A prefix for commands that must not outlive their parent process.
BOUND_TO_PARENT = ["setpriv", "--pdeathsig", "KILL"]
# The same for a command and all its children, with mounts that no other process sees.
ISOLATED = [*BOUND_TO_PARENT, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise Impossible(f"{' '.join(str(word) for word in command[:4])} … exited with {done.returncode}:\n{tail}")
    return done.stdout


def end_by_signals():
    """Exits on SIGTERM and SIGHUP as on any error, so that contexts are closed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


@contextlib.contextmanager
def scratch_directory(prefix, parent=None):
    """A directory that exists as long as this process. Directories left by killed processes are removed first."""
    parent = pathlib.Path(parent or tempfile.gettempdir())
    for left in parent.glob(f"{prefix}*/owner"):
        with contextlib.suppress(OSError), open(left, "rb") as owner:
            # A live owner keeps the lock.
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.parent)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as name:
        begun = pathlib.Path(name) / "begun"
        with open(begun, "wb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            # It gets its name only once it is locked.
            begun.rename(begun.with_name("owner"))
            yield pathlib.Path(name)


# Packages.


def mirrors():
    """The mirrors from which this machine installs Debian and its security updates."""
    form = "$(REPO_URI)\t$(ORIGIN)\t$(LABEL)\t$(CODENAME)"
    found = {}
    for line in run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"]).splitlines():
        uri, origin, label, codename = line.split("\t")
        if origin == "Debian" and label in ("Debian", "Debian-Security") and "-" not in codename.removesuffix("-security"):
            found.setdefault(label, uri)
    if "Debian" not in found:
        raise Impossible("apt has no Debian mirror configured: add one to its sources and run apt-get update")
    return found


def sources(release, architecture="amd64"):
    """The lines of sources.list for a release and its updates."""
    if not os.path.exists(KEYS):
        raise Impossible("Debian's signing keys are not installed: apt-get install debian-archive-keyring")
    where = mirrors()
    suites, security = ([release], []) if release == "sid" else ([release, f"{release}-updates"], [f"{release}-security"])
    lines = [f"deb [signed-by={KEYS} arch={architecture}] {where['Debian']} {suite} main" for suite in suites]
    if "Debian-Security" in where:
        lines += [f"deb [signed-by={KEYS} arch={architecture}] {where['Debian-Security']} {suite} main" for suite in security]
    return lines


def validity():
    """Options of mmdebstrap: a mirror that is a snapshot has expired lists, and this machine's apt is configured for it."""
    return [f"--aptopt={line}" for line in run(["apt-config", "dump", "Acquire::Check-Valid-Until"]).splitlines()]


class Apt:
    """A private apt root for one release and architecture, independent of the packages installed here."""

    def __init__(self, release, folder, architecture="amd64"):
        self.release, self.architecture = release, architecture
        root = folder / (release if architecture == "amd64" else f"{release}-{architecture}")
        for part in ["etc/apt.conf.d", "etc/preferences.d", "etc/sources.list.d", "state/lists/partial", "cache/archives/partial"]:
            (root / part).mkdir(parents=True, exist_ok=True)
        (root / "status").touch()
        (root / "etc/sources.list").write_text("\n".join(sources(release, architecture)) + "\n")
        options = {
            "Dir::Etc": root / "etc", "Dir::Etc::SourceList": root / "etc/sources.list", "Dir::State": root / "state",
            "Dir::State::Status": root / "status", "Dir::Cache": root / "cache", "APT::Architecture": architecture, "APT::Architectures": architecture,
            "Acquire::Languages": "none", "APT::Sandbox::User": "root", "Acquire::Retries": "3",
        }
        self.options = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        self.updated = root / "state" / "updated"

    def update(self):
        """Updates the package lists, at most once a day."""
        if not self.updated.exists() or time.time() - self.updated.stat().st_mtime > 86400:
            run(["apt-get", *self.options, "update", "-qq", "--error-on=any"])
            self.updated.touch()

    def kernel(self):
        """The packages of the release's newest kernel: the kernel itself, and in newer releases its modules."""
        kernel = KERNEL.format(self.architecture)
        depends = self.cache("depends", "--recurse", "--important", "--no-pre-depends", kernel)
        names = sorted({word for word in re.findall(r"^\S+", depends, re.M) if re.match(r"linux-(image|modules|binary|base)-?\d", word)})
        if not names:
            raise Impossible(f"{self.release} has no package that {kernel} depends on")
        return names

    def cache(self, *words):
        return run(["apt-cache", *self.options, *words])

    def unpack(self, names, archives, tree):
        """Downloads packages and unpacks them into a directory."""
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        archives.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archives) as folder:
            run(["apt-get", *self.options, "download", "-qq", *names], cwd=folder)
            for package in pathlib.Path(folder).glob("*.deb"):
                run(["dpkg-deb", "-x", package, tree])


# Machines.


def emulator(words, program="qemu-system-x86_64", **options):
    """Starts QEMU without KVM, with only the devices given; it exits with its parent process."""
    command = [*BOUND_TO_PARENT, program, "-nodefaults", "-display", "none", *words]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)
