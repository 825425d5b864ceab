"""Machines in the manner of RPM distributions, made of Debian's programs: an RPM database, dnf or yum, grub2-* commands, no dpkg and no apt.

Two manners. Fedora's and RHEL 8's: dnf 5, kernel-install, entries of the Boot Loader Specification that GRUB reads itself. CentOS 7's: yum, and
a grub.cfg that a grubby edits. Kernels are Debian's, repackaged with the scriptlets of the distributions; what those call is written here.
Not imitated: the releases of the kernels (Debian's do not end in the RPM's version), SELinux, yum 3, UEFI.
"""
import dataclasses
import hashlib
import pathlib
import re
import shutil
import tempfile

from booting import ISOLATED, Apt, Impossible, run


@dataclasses.dataclass
class Manner:
    """What differs between the two."""

    title: str
    # Debian's release that has the programs.
    suite: str
    # How kernels are released there, and whether GRUB reads entries of the Boot Loader Specification.
    dist: str
    bls: bool
    release: str
    os_release: str
    # The package with the package manager, its program, and the name by which it is called.
    package: str
    manager: tuple[str, str]
    # The package that is made the default when it is installed.
    default: str
    repository: str


RPM = {
    "rpm-bls": Manner(
        title="RPM, BLS", suite="forky", dist="fc43", bls=True, release="Fedora release 43 (imitated)",
        os_release='NAME="Fedora Linux"\nID=fedora\nVERSION_ID=43\nPRETTY_NAME="Fedora Linux 43 (imitated)"\n',
        package="dnf5", manager=("dnf5", "dnf"), default="kernel-core",
        repository="[updates]\nname=updates\nbaseurl=file:///srv/kernels\ngpgcheck=0\n"),
    "rpm-classic": Manner(
        title="RPM, grubby", suite="bookworm", dist="el7", bls=False, release="CentOS Linux release 7.9 (imitated)",
        os_release='NAME="CentOS Linux"\nID="centos"\nID_LIKE="rhel fedora"\nVERSION_ID="7"\nPRETTY_NAME="CentOS Linux 7 (imitated)"\n',
        package="dnf", manager=("dnf-3", "yum"), default="kernel-ml",
        repository="[elrepo-kernel]\nname=ELRepo\nbaseurl=file:///srv/kernels\ngpgcheck=0\nenabled=0\n"),
}
PACKAGES = ["dbus", "dracut-core", "grub-pc-bin", "grub2-common", "iproute2", "kmod", "libpam-systemd", "procps", "python3", "qemu-guest-agent", "rpm",
            "systemd-sysv", "udev", "util-linux-extra"]
# Debian's release of the kernel that a machine begins with, and of the one that it can install.
OLD, NEW = "bookworm", "trixie"
# What belongs to dpkg, apt and Debian's way to boot; and a plugin of dnf that needs createrepo_c, which fails a transaction without it.
GONE = ["etc/apt", "etc/default/grub.d", "etc/dnf/libdnf5-plugins/local.conf", "etc/debian_version", "etc/dpkg", "etc/init.d",
        "usr/bin/debconf-apt-progress", "usr/bin/dnf", "usr/lib/apt", "usr/lib/dpkg", "usr/lib/init", "usr/sbin/update-grub", "usr/share/dpkg",
        "var/cache/apt", "var/lib/apt", "var/lib/dpkg"]
ARGUMENTS = "root=/dev/vda1 ro console=ttyS0 net.ifnames=0 quiet"
SETTINGS = """\
GRUB_TIMEOUT=0
GRUB_DISTRIBUTOR="$(sed 's, release .*$,,g' /etc/system-release)"
GRUB_DEFAULT=saved
GRUB_DISABLE_SUBMENU=true
GRUB_TERMINAL=serial
GRUB_CMDLINE_LINUX="console=ttyS0 net.ifnames=0 quiet"
GRUB_DISABLE_RECOVERY="true"
"""
DRACUT = """\
hostonly=no
compress=gzip
dracutmodules="base fs-lib kernel-modules rootfs-block udev-rules"
drivers="virtio_blk virtio_pci"
filesystems="ext4"
do_hardlink=no
do_strip=no
early_microcode=no
"""

# kernel-install's plugin of Fedora's GRUB: the kernel goes to /boot with an entry, which becomes the default if the settings say so.
BLS_INSTALL = """\
#!/bin/sh
set -e
[ "$1" = add ] || [ "$1" = remove ] || exit 0
release=$2
id=$(cat /etc/machine-id)-$release
entry=/boot/loader/entries/$id.conf
if [ "$1" = remove ]; then
    rm -f "$entry" "/boot/vmlinuz-$release" "/boot/config-$release" "/boot/System.map-$release" "/boot/initramfs-$release.img"
    exit 77
fi
cp "$4" "/boot/vmlinuz-$release"
for file in config System.map; do cp "/lib/modules/$release/$file" "/boot/$file-$release"; done
dracut --force --kver "$release" "/boot/initramfs-$release.img" >&2
. /etc/os-release
mkdir -p /boot/loader/entries
cat >"$entry" <<END
title $NAME ($release) $VERSION_ID
version $release
linux /boot/vmlinuz-$release
initrd /boot/initramfs-$release.img
options $(cat /etc/kernel/cmdline)
grub_users \\$grub_users
grub_arg --unrestricted
grub_class $ID
END
. /etc/sysconfig/kernel
[ "$UPDATEDEFAULT" != yes ] || grub2-editenv /boot/grub2/grubenv set "saved_entry=$id"
exit 77
"""
# The entries of Fedora's menu.
BLS_MENU = """\
#!/bin/sh
. /usr/share/grub/grub-mkconfig_lib
prepare_grub_to_access_device "$(grub-probe --target=device /boot)"
echo "insmod blsuki"
echo "blscfg --path /boot/loader/entries"
"""

# CentOS 7's new-kernel-pkg, which calls grubby: the new entry is a copy of the one that is the default, with its identifier.
NEW_KERNEL_PKG = r"""#!/usr/bin/python3
import os, re, subprocess, sys
verb, package, release = sys.argv[1:]
menu, env = "/boot/grub2/grub.cfg", "/boot/grub2/grubenv"
text = open(menu).read()
entries = re.findall(r"^menuentry .*?^}\n", text, re.M | re.S)
title = lambda entry: re.match(r"menuentry '([^']*)'", entry)[1]
saved = subprocess.run(["grub2-editenv", env, "list"], capture_output=True, text=True).stdout
saved = dict(line.split("=", 1) for line in saved.splitlines()).get("saved_entry", "0")
def write(text):
    open(menu + "-new", "w").write(text)
    os.rename(menu + "-new", menu)
def default(entry):
    subprocess.run(["grub2-editenv", env, "set", "saved_entry=" + title(entry)], check=True)
if verb == "install":
    subprocess.run(["dracut", "--force", f"/boot/initramfs-{release}.img", release], check=True)
    template = next((one for at, one in enumerate(entries) if saved in (title(one), str(at))), entries[0])
    old = re.search(r"/vmlinuz-(\S+)", template)[1]
    head, _, rest = template.partition("\n")
    new = re.sub(r"'[^']*'", f"'CentOS Linux ({release}) 7 (Core)'", head, count=1) + "\n" + rest.replace(old, release)
    write(text.replace(entries[0], new + entries[0], 1))
    settings = dict(re.findall(r"^(\w+)=(\S+)", open("/etc/sysconfig/kernel").read(), re.M))
    if settings.get("UPDATEDEFAULT") == "yes" and settings.get("DEFAULTKERNEL") == package:
        default(new)
else:
    mine = [one for one in entries if f"/vmlinuz-{release} " in one]
    left = [one for one in entries if one not in mine]
    for one in mine:
        text = text.replace(one, "", 1)
    write(text)
    if left and saved in [title(one) for one in mine]:
        default(left[0])
    if os.path.exists(f"/boot/initramfs-{release}.img"):
        os.remove(f"/boot/initramfs-{release}.img")
"""

# The RPMs of a kernel: what each requires, holds and runs, as those of Fedora and of ELRepo.
ALL = ["/lib/modules/{release}", "/boot/*-{release}"]
CORE = ["/lib/modules/{release}/" + name for name in ("vmlinuz", "config", "System.map")]
DEPMOD = "depmod -a {release}\n"
TIDY = "%postun\nrm -rf /lib/modules/{release}\n"
GRUBBY = (f"%posttrans\n{DEPMOD}[ ! -e /boot/grub2/grub.cfg ] || new-kernel-pkg install {{name}} {{release}} || exit $?\n"
          f"%preun\nnew-kernel-pkg remove {{name}} {{release}} || exit $?\n{TIDY}")
SPLIT = {
    "kernel": ("kernel-core", [], ""),
    "kernel-core": ("kernel-modules-core", CORE, "%posttrans\nkernel-install add {release} /lib/modules/{release}/vmlinuz || exit $?\n"
                                                 "%preun\nkernel-install remove {release} || exit $?\n"),
    "kernel-modules-core": ("", ["/lib/modules/{release}", *["%exclude " + file for file in CORE]], f"%post\n{DEPMOD}{TIDY}"),
}
SPEC = """\
Name: {name}
Version: {version}
Release: {number}
Summary: Made for a machine of scripts/machines
License: GPLv2
BuildArch: {architecture}
AutoReqProv: no
{relations}
%global __os_install_post %{{nil}}
%global debug_package %{{nil}}
%define _binary_payload w1.gzdio
%define _unpackaged_files_terminate_build 0
%description
Made for a machine of scripts/machines.
%install
mkdir -p %{{buildroot}}
{copy}
{scriptlets}%files
{files}
"""


def build(folder, **fields):
    """Builds an RPM in a directory."""
    spec = folder / "spec"
    spec.write_text(SPEC.format(**fields))
    with tempfile.TemporaryDirectory() as top:
        run(["rpmbuild", "-bb", "--quiet", "--define", f"_topdir {top}", "--define", f"_rpmdir {folder}", "--define", "_rpmfilename %{NAME}.rpm",
             "--define", "_build_id_links none", spec])
    spec.unlink()


def kernel(suite, manner, folder, cache):
    """Repackages the kernel of Debian's release as RPMs in `folder`; returns its release."""
    if not (shutil.which("rpmbuild") and shutil.which("createrepo_c")):
        raise Impossible("the programs that make RPMs are not installed: apt-get install rpm createrepo-c")
    apt = Apt(suite, cache)
    apt.update()
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        tree = pathlib.Path(work) / "tree"
        apt.unpack(apt.kernel(), pathlib.Path(work) / "archives", tree)
        if (tree / "usr/lib/modules").exists():
            (tree / "usr/lib").rename(tree / "lib")
        modules = next((tree / "lib/modules").iterdir())
        release = modules.name
        if suite == OLD:
            # As the kernel of CentOS 7: without BBR, and its configuration says so.
            config = tree / f"boot/config-{release}"
            config.write_text(re.sub(r"^CONFIG_TCP_CONG_BBR=.*", "# CONFIG_TCP_CONG_BBR is not set", config.read_text(), flags=re.M))
            for module in modules.rglob("tcp_bbr.ko*"):
                module.unlink()
        if manner.bls:
            for name in ["vmlinuz", "config", "System.map"]:
                (tree / f"boot/{name}-{release}").rename(modules / name)
        packages = SPLIT if manner.bls else {"kernel" if suite == OLD else "kernel-ml": ("", ALL, GRUBBY)}
        version, number = re.match(r"([\d.]+)-?(\d*)", release).groups()
        number = f"{number or 1}.1.{manner.dist}"
        for name, (requires, files, scriptlets) in packages.items():
            about = {"name": name, "release": release}
            relations = f"Requires: {requires} = {version}-{number}\n" if requires else ""
            build(folder, version=version, number=number, architecture="x86_64", relations=relations + "Provides: installonlypkg(kernel)",
                  copy=f"cp -a {tree}/lib {tree}/boot %{{buildroot}}/" if files else "", scriptlets=scriptlets.format(**about),
                  files="\n".join(files).format(**about), name=name)
    return release


def repository(name, cache, folder):
    """The newer kernel as a repository of RPMs, made again when this code changes; returns its release."""
    mark = folder / "made"
    made_of = hashlib.sha256(repr([SPEC, SPLIT, GRUBBY, RPM[name]]).encode()).hexdigest()
    if not mark.exists() or made_of not in mark.read_text():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        release = kernel(NEW, RPM[name], folder, cache)
        run(["createrepo_c", "--quiet", folder])
        mark.write_text(f"{release} {made_of}")
    return mark.read_text().split()[0]


def inside(root, script):
    """Runs a script in a root, with what programs expect to be mounted."""
    # rpm changes how mounts below the root propagate, so the root must be one.
    mounts = 'mount --bind "$1" "$1" && cd "$1" && mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev && exec chroot . sh -ec "$2"'
    return run([*ISOLATED, "sh", "-ec", mounts, "sh", root, script], env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"})


def imitate(name, root, write, cache):
    """Makes Debian's root that of an RPM distribution with a kernel; returns GRUB's menu for its first boot."""
    manner = RPM[name]
    for path in [root / part for part in GONE] + [path for part in ("bin", "sbin") for kind in ("apt*", "dpkg*") for path in (root / "usr" / part).glob(kind)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for file in ["usr/lib/os-release", "etc/os-release"]:
        write(file, manner.os_release)
    write("etc/system-release", manner.release + "\n")
    write("etc/systemd/network/eth0.network", "[Match]\nName=eth0\n\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n")
    # A busy host makes everything slow.
    write("etc/systemd/system.conf.d/patience.conf", "[Manager]\nDefaultTimeoutStartSec=900\nDefaultDeviceTimeoutSec=900\n")
    write("etc/default/grub", SETTINGS + ("GRUB_ENABLE_BLSCFG=true\n" if manner.bls else ""))
    write("etc/sysconfig/kernel", f"UPDATEDEFAULT=yes\nDEFAULTKERNEL={manner.default}\n")
    write("etc/dracut.conf.d/machine.conf", DRACUT)
    write("etc/yum.repos.d/elrepo.repo" if manner.dist == "el7" else "etc/yum.repos.d/updates.repo", manner.repository)
    # GRUB's programs by their names there, and with its directory.
    for program in [*(root / "usr/bin").glob("grub-*"), *(root / "usr/sbin").glob("grub-*")]:
        program.with_name(program.name.replace("grub-", "grub2-", 1)).symlink_to(program.name)
    for file in ["usr/sbin/grub-set-default", "usr/sbin/grub-reboot", "etc/grub.d/00_header"]:
        (root / file).write_text(re.sub(r"(/boot|[$][{]bootdir[}])/grub\b", r"\1/grub2", (root / file).read_text()))
    (root / "etc/grub.d/05_debian_theme").unlink()
    if manner.bls:
        write("etc/grub.d/10_linux", BLS_MENU, 0o755)
        write("etc/kernel/cmdline", ARGUMENTS + "\n")
        write("usr/lib/kernel/install.conf", "layout=other\n")
        write("usr/lib/kernel/install.d/20-grub.install", BLS_INSTALL, 0o755)
    else:
        write("usr/sbin/new-kernel-pkg", NEW_KERNEL_PKG, 0o755)
    write("etc/rpm/macros", "%_dbpath /var/lib/rpm\n")
    here, there = manner.manager
    (root / "usr/bin" / there).unlink(missing_ok=True)
    (root / "usr/bin" / there).symlink_to(here)
    (root / "boot/grub2").mkdir(parents=True)
    rpms = root / "tmp/rpms"
    rpms.mkdir()
    build(rpms, name="basesystem", version="1", number="1", architecture="noarch", copy="", scriptlets="", files="",
          relations="Provides: /bin/sh /usr/bin/python3 system-release = 1")
    release = kernel(OLD, manner, rpms, cache)
    inside(root, "systemctl enable -q systemd-networkd; grub2-editenv /boot/grub2/grubenv create; rpm --initdb; rpm -i /tmp/rpms/*.rpm;"
           f"[ -e /boot/initramfs-{release}.img ] || dracut --kver {release} /boot/initramfs-{release}.img")
    shutil.rmtree(rpms)
    return f"linux /boot/vmlinuz-{release} {ARGUMENTS}\ninitrd /boot/initramfs-{release}.img\nboot\n"
