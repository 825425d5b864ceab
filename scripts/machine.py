"""A whole machine: a disk image with systemd, booted by GRUB in QEMU without KVM, and what is done in it by its guest agent.

Images are of Debian, or of Debian's programs in the manner of an RPM distribution (scripts/machine_rpm.py).
Images are kept in target/machines. Each machine writes into an overlay of its own, so that it begins as the image was.
"""
import base64
import dataclasses
import hashlib
import inspect
import json
import pathlib
import re
import shutil
import socket
import time

import machine_rpm
from booting import ISOLATED, TARGET, Apt, Impossible, emulator, run, sources, validity
from machine_rpm import RPM

CACHE = TARGET / "machines"
SUITES = {"bookworm": "Debian 12", "bullseye": "Debian 11", "trixie": "Debian 13"} | {name: manner.title for name, manner in RPM.items()}
# The release whose kernel an older release is given.
NEWER = {"bullseye": "bookworm"}
# Packages beside the smallest Debian. The guest agent works without the network, which some walks cut.
PACKAGES = [
    "dbus", "grub2-common", "ifupdown", "iproute2", "kmod", "libpam-systemd", "openssh-server", "procps", "python3",
    "qemu-guest-agent", "systemd-sysv", "udev",
]
MEGABYTES = 512
DISK = 3 << 30
# Start of the only partition; GRUB is stored before it.
GAP = 1 << 20
# Timeout of a boot in seconds, on a busy host.
START = 900

# GRUB's own configuration, and its menu, which boots the only kernel until the machine makes a menu itself.
GRUB = """\
set root=(hd0,msdos1)
set prefix=(hd0,msdos1){}
"""
MENU = """\
linux /vmlinuz root=/dev/vda1 ro console=ttyS0 net.ifnames=0 quiet
initrd /initrd.img
boot
"""
GRUB_FILES = pathlib.Path("/usr/lib/grub/i386-pc")
# Timers that would run beside a walk, and login prompts that are not used.
MASKED = ["apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer",
          "getty@tty1.service", "logrotate.timer", "man-db.timer", "serial-getty@ttyS0.service", "systemd-tmpfiles-clean.timer"]


# The image.


def key():
    """The SSH key for the machines, made once; returns the file of the private key."""
    file = CACHE / "key"
    if not file.exists():
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "machines", "-f", file])
    return file


def configure(root, name):
    """Configures what an installer would ask for; returns GRUB's menu for the first boot."""
    def write(name, text, mode=0o644):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink() or file.exists():
            file.unlink()
        file.write_text(text)
        file.chmod(mode)

    write("etc/hostname", "machine\n")
    write("etc/hosts", "127.0.0.1 localhost\n127.0.1.1 machine\n")
    write("etc/resolv.conf", "nameserver 10.0.2.3\n")
    write("etc/fstab", "/dev/vda1 / ext4 errors=remount-ro 0 1\n")
    write("etc/machine-id", hashlib.md5(root.name.encode()).hexdigest() + "\n", 0o444)
    for unit in MASKED:
        link = root / "etc/systemd/system" / unit
        if not link.is_symlink():
            link.symlink_to("/dev/null")
    if name in RPM:
        return machine_rpm.imitate(name, root, write, CACHE / "apt")
    write("etc/network/interfaces", "auto lo\niface lo inet loopback\n\nauto eth0\niface eth0 inet static\n"
          "    address 10.0.2.15/24\n    gateway 10.0.2.2\n")
    (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    write("root/.ssh/authorized_keys", key().with_suffix(".pub").read_text(), 0o600)
    # No package source is reachable from the machine.
    write("etc/apt/sources.list", "")
    for file in (root / "etc/apt/sources.list.d").glob("*"):
        file.unlink()
    for folder in ["var/cache/apt", "var/lib/apt/lists"]:
        for file in (root / folder).rglob("*"):
            if file.is_file():
                file.unlink()
    return MENU


def image(name, say):
    """The disk image of a machine, rebuilt after a week or when this code changes."""
    manner = RPM.get(name)
    suite = manner.suite if manner else name
    disk = CACHE / f"{name}.img"
    mark = CACHE / f"{name}.made-of"
    ways = [inspect.getsource(way) for way in (configure, image, boot_loader, core_image, *([machine_rpm] if manner else []))]
    made_of = hashlib.sha256(repr([PACKAGES, MASKED, GRUB, MENU, DISK, GAP, ways]).encode()).hexdigest()
    if disk.exists() and mark.exists() and mark.read_text() == made_of and time.time() - disk.stat().st_mtime < 7 * 86400:
        return disk
    if not manner and not (GRUB_FILES / "boot.img").exists():
        raise Impossible("GRUB's files for PCs are not installed: apt-get install grub-pc-bin")
    began = time.monotonic()
    say(f"{name}: making the image")
    CACHE.mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)
    # The kernel package itself: the newest version of the metapackage is not always available.
    apt = Apt(suite, CACHE / "apt")
    apt.update()
    packages = [*machine_rpm.PACKAGES, manner.package] if manner else PACKAGES + apt.kernel()
    root = CACHE / f"{name}.root"
    shutil.rmtree(root, ignore_errors=True)
    # The initramfs needs the drivers of the root disk, which cannot be detected where it is made.
    early = ('mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"'
             ' && printf "MODULES=list\\nFSTYPE=ext4\\n" >"$1/etc/initramfs-tools/conf.d/machine"'
             ' && printf "virtio_pci\\nvirtio_blk\\next4\\n" >"$1/usr/share/initramfs-tools/modules.d/machine"')
    hook = [] if manner else [f"--essential-hook={early}"]
    try:
        run([*ISOLATED, "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=directory", *validity(), *hook,
             f"--include={','.join(packages)}", suite, root, *sources(suite)])
        menu = configure(root, name)
        directory = "/boot/grub2" if manner else "/boot/grub"
        files = root / GRUB_FILES.relative_to("/") if manner else GRUB_FILES
        boot, core = (files / "boot.img").read_bytes(), core_image(directory, root if manner else None)
        shutil.copytree(files, root / directory[1:] / "i386-pc", ignore=shutil.ignore_patterns("*.img", "*.module"))
        (root / directory[1:] / "grub.cfg").write_text(menu)
        part = CACHE / f"{name}.part"
        part.unlink(missing_ok=True)
        # Only features that GRUB and the oldest kernel support.
        run(["mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum_seed,^orphan_file", "-E", f"offset={GAP}", "-d", root, part, str((DISK - GAP) >> 10) + "k"])
    finally:
        shutil.rmtree(root, ignore_errors=True)
    run(["truncate", "-s", str(DISK), part])
    run(["sfdisk", "--quiet", "--no-tell-kernel", part], input=f"start={GAP >> 9}, type=83, bootable\n")
    boot_loader(part, boot, core)
    part.rename(disk)
    mark.write_text(made_of)
    say(f"{name}: the image is made, in {time.monotonic() - began:.0f} s")
    return disk


def newer_kernel(suite):
    """The kernel of the next release as a local apt source: its directory and the kernel's release."""
    apt = Apt(NEWER[suite], CACHE / "apt")
    apt.update()
    names = apt.kernel()
    folder = CACHE / f"kernels-for-{suite}"
    mark = folder / "Packages"
    if not mark.exists() or not all(list(folder.glob(f"{name}_*.deb")) for name in names):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        run(["apt-get", *apt.options, "download", "-qq", *names], cwd=folder)
        stanzas = []
        for package in sorted(folder.glob("*.deb")):
            bytes_of = package.read_bytes()
            about = run(["dpkg-deb", "-f", package]).strip()
            stanzas.append(f"{about}\nFilename: ./{package.name}\nSize: {len(bytes_of)}\nSHA256: {hashlib.sha256(bytes_of).hexdigest()}\n")
        mark.write_text("\n".join(stanzas))
    return folder, next(name.removeprefix("linux-image-") for name in names if name.startswith("linux-image-"))


def core_image(directory, root=None):
    """GRUB's core with its directory: made by the programs of `root`, if given, whose modules it loads."""
    outside, inside = (root / "tmp", pathlib.Path("/tmp")) if root else (CACHE, CACHE)
    config, core = outside / "grub.cfg", outside / "core.img"
    config.write_text(GRUB.format(directory))
    run([*(["chroot", root] if root else []), "grub-mkimage", "-O", "i386-pc", "-p", directory, "-c", inside / config.name, "-o", inside / core.name,
         "biosdisk", "part_msdos", "ext2", "normal", "linux"])
    made = core.read_bytes()
    config.unlink()
    core.unlink()
    if len(made) > GAP - 512:
        raise Impossible(f"GRUB has {len(made)} bytes, more than are free before the partition")
    return made


def boot_loader(disk, boot, core):
    """Puts GRUB into the first sector and those before the partition, as grub-install would if it were given a device."""
    with open(disk, "r+b") as file:
        # The partition table is in the rest of the sector.
        file.write(boot[:440])
        file.seek(512)
        file.write(core)


# Talking to it.


class Unreached(Exception):
    """The machine did not answer in time, or ended."""


class Talk:
    """QEMU's monitor or the guest agent: a JSON object a line, each way."""

    def __init__(self, path, patience=30):
        self.rest = b""
        until = time.monotonic() + patience
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(str(path))
                return
            except OSError:
                self.socket.close()
                if time.monotonic() > until:
                    raise Unreached(f"{path.name}: no process listens") from None
                time.sleep(0.05)

    def lines(self, until):
        while (left := until - time.monotonic()) > 0:
            if b"\n" in self.rest:
                line, _, self.rest = self.rest.partition(b"\n")
                try:
                    yield json.loads(line.rpartition(b"\xff")[2])
                except ValueError:
                    # Half a line from before the other end began anew.
                    continue
                continue
            self.socket.settimeout(left)
            try:
                part = self.socket.recv(65536)
            except TimeoutError:
                return
            except OSError as error:
                raise Unreached(f"its end of the line is gone: {error.strerror}") from None
            if not part:
                raise Unreached("it has ended")
            self.rest += part

    def send(self, command, arguments, before=b""):
        # The last read may have left a timeout of microseconds.
        self.socket.settimeout(30)
        try:
            self.socket.sendall(before + json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        except OSError as error:
            raise Unreached(f"its end of the line is gone: {error.strerror}") from None

    def ask(self, command, patience=30, **arguments):
        self.send(command, arguments)
        for line in self.lines(time.monotonic() + patience):
            if "error" in line:
                raise Unreached(f"{command}: {line['error']['desc']}")
            if "return" in line:
                return line["return"]
        raise Unreached(f"{command}: no answer within {patience} s")

    def meet(self, patience):
        """Waits until the agent answers what was asked last, whatever it was asked before it began."""
        # What is not read yet fills the socket's buffer after 70 questions, so they become rarer.
        until, pause = time.monotonic() + patience, 2
        while time.monotonic() < until:
            number = time.monotonic_ns() & 0x7FFFFFFF
            self.send("guest-sync-delimited", {"id": number}, b"\xff")
            for line in self.lines(min(until, time.monotonic() + pause)):
                if line.get("return") == number:
                    return
            pause = min(20, pause * 1.2)
        raise Unreached(f"its agent did not answer within {patience} s")

    def close(self):
        self.socket.close()


@dataclasses.dataclass
class Done:
    """What a command in the machine came to."""

    status: int
    out: str
    error: str
    seconds: float

    def json(self):
        try:
            return json.loads(self.out)
        except ValueError:
            return {}

    def words(self):
        """What it said, in a line."""
        text = (self.error.strip() or self.out.strip()).splitlines()
        return f"ended with {self.status}: {' / '.join(text[-6:])}" if text else f"ended with {self.status}"


# How many bytes the address that answers takes.
COUNTED = 4 << 20


class Machine:
    """One machine and its disk. It is gone at the end of its block, and its files with it."""

    # Those that are open, of all threads, until none may begin any more.
    open_ones, over = set(), False

    def __init__(self, folder, disk, payload):
        self.folder = folder
        folder.mkdir(parents=True)
        self.disk = folder / "disk"
        self.payload = payload
        self.process = self.monitor = self.agent = None
        if disk.suffix == ".img":
            run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", disk.resolve(), self.disk])
        else:
            # Another machine's, with its snapshots.
            shutil.copy(disk, self.disk)
        counter = folder / "counter"
        counter.write_text(f"#!/bin/sh\nhead -c {COUNTED} | wc -c\n")
        counter.chmod(0o700)

    def __enter__(self):
        Machine.open_ones.add(self)
        return self

    def __exit__(self, *_):
        Machine.open_ones.discard(self)
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=Machine.over)

    @classmethod
    def end_all(cls):
        """Ends every machine, whichever thread has it, and lets none begin."""
        cls.over = True
        for machine in list(cls.open_ones):
            if machine.process:
                machine.process.kill()

    def start(self, snapshot=None, patience=START):
        """Boots, or goes on from a snapshot, and waits until all units are there."""
        if Machine.over:
            raise Unreached("all machines are ended")
        for name in ["agent", "monitor"]:
            (self.folder / name).unlink(missing_ok=True)
        words = [
            "-accel", "tcg,thread=multi,tb-size=128", "-cpu", "max,la57=off,svm=off", "-smp", "1", "-m", str(MEGABYTES),
            # What the guest has not flushed is not written: neither is what QEMU holds of the overlay's own tables.
            "-drive", f"file={self.disk},format=qcow2,if=none,id=disk,cache=writeback", "-device", "virtio-blk-pci,drive=disk",
            "-drive", f"file={self.payload},format=raw,if=none,id=payload,readonly=on", "-device", "virtio-blk-pci,drive=payload",
            # Nothing leaves this machine: one port comes in, and the one address that answers is a command that counts what it gets.
            "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-:22,guestfwd=tcp:10.0.2.100:9-cmd:{self.folder / 'counter'}",
            "-device", "virtio-net-pci,netdev=net,id=nic,romfile=",
            "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=agent,path={self.folder / 'agent'},server=on,wait=off",
            "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
            "-qmp", f"unix:{self.folder / 'monitor'},server=on,wait=off", "-serial", f"file:{self.folder / 'console'}",
            *(["-loadvm", snapshot] if snapshot else []),
        ]
        with open(self.folder / "errors", "wb") as errors:
            self.process = emulator(words, stdout=errors, stderr=errors)
        try:
            self.monitor = Talk(self.folder / "monitor")
            self.monitor.ask("qmp_capabilities")
            self.agent = Talk(self.folder / "agent")
            self.agent.meet(patience)
            if not snapshot:
                self.wait_for_units(patience)
        except Unreached as reason:
            raise Unreached(f"{reason} ({self.last_words()})") from None

    def wait_for_units(self, patience):
        self.sh("systemctl is-system-running --wait", patience)

    def last_words(self):
        """The last that QEMU or the kernel said."""
        said = [self.folder / "errors", self.folder / "console"]
        lines = [line.strip() for file in said if file.exists() for line in file.read_text(errors="replace").splitlines()]
        return " / ".join([line for line in lines if line][-4:]) or "it said nothing"

    def kill(self):
        """As a power cut: at once, and nothing is written any more."""
        for talk in [self.monitor, self.agent]:
            if talk:
                talk.close()
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = self.monitor = self.agent = None

    def human(self, command, patience=120):
        """A command of QEMU's that only people were meant to give."""
        said = self.monitor.ask("human-monitor-command", patience, **{"command-line": command})
        return said.strip()

    def save(self, name):
        said = self.human(f"savevm {name}")
        if said:
            raise Unreached(f"savevm: {said}")

    def load(self, name):
        """Memory and disk as they were saved. What was under way then is over."""
        if self.process is None:
            self.start(name)
            return
        said = self.human(f"loadvm {name}")
        if said:
            raise Unreached(f"loadvm: {said}")
        self.agent.meet(60)

    def network(self, is_up):
        self.monitor.ask("set_link", name="nic", up=is_up)

    def port(self):
        """The local port of this machine's SSH."""
        found = re.search(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)", self.human("info usernet"))
        return int(found[1])

    def begin(self, script, given=""):
        """Starts a script in the machine; returns its process number there."""
        return self.agent.ask("guest-exec", path="/bin/sh", arg=["-c", script], **{
            "capture-output": True, "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "NO_COLOR=1"],
            "input-data": base64.b64encode(given.encode()).decode(),
        })["pid"]

    def sh(self, script, patience=120, given=""):
        """Runs a script as root, without the network."""
        began = time.monotonic()
        number = self.begin(script, given)
        pause = 0.03
        while time.monotonic() < began + patience:
            state = self.agent.ask("guest-exec-status", pid=number)
            if state["exited"]:
                out, error = (base64.b64decode(state.get(part, "")).decode(errors="replace") for part in ("out-data", "err-data"))
                return Done(state.get("exitcode", 128 + state.get("signal", 0)), out, error, time.monotonic() - began)
            time.sleep(pause)
            pause = min(0.3, pause * 1.3)
        raise Unreached(f"not done after {patience} s: {script.strip().splitlines()[0]} ({self.busy_with()})")

    def busy_with(self):
        """The processes in the machine, and what each waits for."""
        number = self.begin("ps -eo pid,stat,wchan:24,time,args --no-headers | grep -v '\\[' | tail -n 12")
        time.sleep(5)
        output = base64.b64decode(self.agent.ask("guest-exec-status", pid=number).get("out-data", "")).decode(errors="replace")
        return " / ".join(" ".join(line.split()) for line in output.splitlines()) or "its processes could not be listed"

    def boot_id(self):
        return self.sh("cat /proc/sys/kernel/random/boot_id").out

    def restart(self, patience=START):
        """Restarts the machine as an operator would."""
        before = self.boot_id()
        self.begin("systemctl reboot")
        self.until(lambda: self.boot_id() != before, patience)
        self.wait_for_units(patience)

    def until(self, is_so, patience):
        """Waits for a condition on a machine that restarts meanwhile."""
        until = time.monotonic() + patience
        while True:
            try:
                self.agent.meet(max(1, until - time.monotonic()))
                if is_so():
                    return
                if time.monotonic() > until:
                    raise Unreached("the machine runs, but the condition does not hold")
            except Unreached as reason:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise Unreached(f"it did not come back: {reason} ({self.last_words()})") from None
            time.sleep(0.5)
