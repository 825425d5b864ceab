"""What scripts/kernels and scripts/machines share: Debian's packages of any release, and QEMU without KVM."""
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
# What stands for the newest kernel of a release.
KERNEL = "linux-image-cloud-{}"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Impossible(Exception):
    """What is missing on this machine."""


# What begins with this is gone with whoever started it, however that ends.
TIED = ["setpriv", "--pdeathsig", "KILL"]
# So is this, with all that it started, and nobody else sees what it mounts.
APART = [*TIED, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise Impossible(f"{' '.join(str(word) for word in command[:4])} … ended with {done.returncode}:\n{tail}")
    return done.stdout


def end_by_signals():
    """An end by a signal is an end as any other: what is open is closed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


@contextlib.contextmanager
def room(prefix, parent=None):
    """A folder for as long as this process lives. What those that were killed left is removed before."""
    parent = pathlib.Path(parent or tempfile.gettempdir())
    for left in parent.glob(f"{prefix}*/owner"):
        with contextlib.suppress(OSError), open(left, "rb") as owner:
            # Its owner holds it as long as it lives.
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.parent)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as name:
        begun = pathlib.Path(name) / "begun"
        with open(begun, "wb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            # Nobody sees it before it is held.
            begun.rename(begun.with_name("owner"))
            yield pathlib.Path(name)


# Packages.


def mirrors():
    """Where this machine gets Debian from, and its security updates, with what they are signed by."""
    form = "$(REPO_URI)\t$(ORIGIN)\t$(LABEL)\t$(CODENAME)"
    found = {}
    for line in run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"]).splitlines():
        uri, origin, label, codename = line.split("\t")
        if origin == "Debian" and label in ("Debian", "Debian-Security") and "-" not in codename.removesuffix("-security"):
            found.setdefault(label, uri)
    if "Debian" not in found:
        raise Impossible("apt knows no mirror of Debian here: apt-get update, with Debian among its sources")
    return found


def sources(release, architecture="amd64"):
    """The lines of apt's sources for a release, with its updates."""
    if not os.path.exists(KEYS):
        raise Impossible("Debian's keys are missing: apt-get install debian-archive-keyring")
    where = mirrors()
    suites, security = ([release], []) if release == "sid" else ([release, f"{release}-updates"], [f"{release}-security"])
    lines = [f"deb [signed-by={KEYS} arch={architecture}] {where['Debian']} {suite} main" for suite in suites]
    if "Debian-Security" in where:
        lines += [f"deb [signed-by={KEYS} arch={architecture}] {where['Debian-Security']} {suite} main" for suite in security]
    return lines


class Apt:
    """A private root of apt, which knows of one release for one kind of processor and nothing of this machine's packages."""

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
        """Asks what the release has, once a day."""
        if not self.updated.exists() or time.time() - self.updated.stat().st_mtime > 86400:
            run(["apt-get", *self.options, "update", "-qq", "--error-on=any"])
            self.updated.touch()

    def kernel(self):
        """The packages of the release's newest kernel: the kernel itself, and in newer releases its modules."""
        kernel = KERNEL.format(self.architecture)
        depends = self.cache("depends", "--recurse", "--important", "--no-pre-depends", kernel)
        names = sorted({word for word in re.findall(r"^\S+", depends, re.M) if re.match(r"linux-(image|modules|binary|base)-?\d", word)})
        if not names:
            raise Impossible(f"{self.release} has no package that {kernel} stands for")
        return names

    def cache(self, *words):
        return run(["apt-cache", *self.options, *words])

    def unpack(self, names, archives, tree):
        """Downloads packages and unpacks them into a folder of their own."""
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        archives.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archives) as folder:
            run(["apt-get", *self.options, "download", "-qq", *names], cwd=folder)
            for package in pathlib.Path(folder).glob("*.deb"):
                run(["dpkg-deb", "-x", package, tree])


# Machines.


def emulator(words, program="qemu-system-x86_64", **options):
    """Starts QEMU without KVM. It has no device but those named, and is gone with whoever started it."""
    command = [*TIED, program, "-nodefaults", "-display", "none", *words]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)
