//! `fullpipe kernel build` with fake make, compiler and apt: how they are called, how their
//! failures are reported, and that nothing keeps running when the build is killed.

use crate::image;
use crate::image::{content, write};
use fullpipe_testing::write_script;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const RELEASE: &str = "6.1.9-fullpipe";
const CONFIG: &str = "CONFIG_MODULES=y\nCONFIG_HZ=250\nCONFIG_LOCALVERSION=\"\"\n";

/// A fake of the kernel's Makefile; `$FAKE` selects the failure.
const MAKE: &str = r#"#!/bin/sh
echo "make: $*" >>"$ASKED"
for word; do case "$word" in O=*) out=${word#O=} ;; esac; done
case "$*" in
*olddefconfig*)
    if [ "$FAKE" = drop ]; then echo "CONFIG_NET=y" >"$out/.config"; fi
    ;;
*kernelrelease*) if [ "$FAKE" = unnamed ]; then echo 6.1.9; else echo 6.1.9-fullpipe; fi ;;
*-pkg*)
    echo "  HOSTCC  scripts/basic/fixdep"
    echo "  CC [M]  net/ipv4/tcp_bbr.o"
    case "$FAKE" in
    fail)
        echo "net/ipv4/tcp_bbr.c:12:3: error: unknown type name 'u46'" >&2
        echo "make[4]: *** [scripts/Makefile.build:250: net/ipv4/tcp_bbr.o] Error 1" >&2
        echo "make: *** [Makefile:2012: .] Error 2" >&2
        exit 2
        ;;
    slow)
        echo $$ >"$PID.new" && /bin/mv "$PID.new" "$PID"
        # What a shell began does not end with what began the shell.
        /bin/sh -c 'while :; do echo "  CC      kernel/fork.o" || exit; /bin/sleep 0.1; done' &
        echo $! >"$PID.below"
        wait
        ;;
    empty) ;;
    *)
        : >"$out/../linux-image-6.1.9-fullpipe_6.1.9-1_amd64.deb"
        : >"$out/../linux-headers-6.1.9-fullpipe_6.1.9-1_amd64.deb"
        ;;
    esac
    ;;
esac
"#;

/// Debian's archive.
const APT_CACHE: &str =
    "#!/bin/sh\necho linux-source-6.1\necho linux-source-5.10\necho linux-source-6.12\necho linux-source\n";
const APT_GET: &str = "#!/bin/sh\necho \"apt-get: $*\" >>\"$ASKED\"\n: >linux-source-6.12_6.12.9-1_all.deb\n";
const DPKG_DEB: &str =
    "#!/bin/sh\n/bin/mkdir -p \"$3/usr/src\" && : >\"$3/usr/src/linux-source-6.12.tar.xz\"\n";
const TAR: &str = "#!/bin/sh\n/bin/mkdir -p linux-source-6.12 && cd linux-source-6.12 && : >Kconfig\n\
    printf 'VERSION = 6\\nPATCHLEVEL = 12\\nSUBLEVEL =\\nEXTRAVERSION =\\n' >Makefile\n";

/// A host, a source tree, and fake programs.
struct Bench {
    root: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench { root: image::host() };
        let r = bench.root.path();
        write(r, "usr/bin/apt-get", "");
        write(r, "tree/Makefile", "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 9\nEXTRAVERSION =\n");
        write(r, "tree/Kconfig", "");
        write(r, "config", CONFIG);
        let bin = bench.at("bin");
        fs::create_dir(&bin).unwrap();
        for name in ["ld", "flex", "bison", "bc", "perl", "rsync", "kmod", "dpkg-buildpackage", "gcc"] {
            write_script(&bin.join(name), "#!/bin/sh\nexit 0\n");
        }
        let others = [
            ("make", MAKE),
            ("apt-cache", APT_CACHE),
            ("apt-get", APT_GET),
            ("dpkg-deb", DPKG_DEB),
            ("tar", TAR),
        ];
        for (name, text) in others {
            write_script(&bin.join(name), text);
        }
        let setpriv = ["/usr/bin/setpriv", "/bin/setpriv"].into_iter().find(|path| Path::new(path).exists());
        symlink(setpriv.expect("setpriv is part of util-linux"), bin.join("setpriv")).unwrap();
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn command(&self, fake: &str, arguments: &str) -> Command {
        let at = |name| self.at(name).display().to_string();
        let arguments = arguments
            .replace("TREE", &at("tree"))
            .replace("CONFIG", &at("config"))
            .replace("OUT", &at("out"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        command.args(["kernel", "build"]).args(arguments.split(' ')).arg("--root").arg(self.root.path());
        command.env("PATH", self.at("bin")).env("ASKED", self.at("asked")).env("PID", self.at("pid"));
        command.env("FAKE", fake).env("NO_COLOR", "1").stdin(Stdio::null());
        command
    }

    fn run(&self, fake: &str, arguments: &str) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.command(fake, arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }
}

#[test]
fn a_tree_becomes_a_package() {
    let bench = Bench::new();
    let (code, out, err) = bench.run("", "TREE --config CONFIG --folder OUT --jobs 3 --json");
    assert_eq!(code, 0, "{out}{err}");
    let built: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&built["schema"], &built["release"]), (&"fullpipe/kernel-build/1".into(), &RELEASE.into()));
    let package = built["package"].as_str().unwrap();
    assert!(package.ends_with("out/linux-image-6.1.9-fullpipe_6.1.9-1_amd64.deb"), "{package}");
    assert_eq!(built["others"].as_array().unwrap().len(), 1, "{built}");
    assert_eq!(built["options"]["CONFIG_TCP_CONG_BBR"], "m");
    let config = content(bench.root.path(), "out/build/.config");
    for line in
        ["CONFIG_TCP_CONG_BBR=m", "CONFIG_NET_SCH_FQ=m", "CONFIG_HZ=250", "CONFIG_LOCALVERSION=\"-fullpipe\""]
    {
        assert!(config.lines().any(|other| other == line), "{line}: {config}");
    }
    let asked = content(bench.root.path(), "asked");
    let goals: Vec<&str> = asked.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(goals, ["olddefconfig", "kernelrelease", "bindeb-pkg"]);
    assert!(asked.contains("-j3"), "{asked}");
    for part in ["configuring", "building (bindeb-pkg)"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    let log = content(bench.root.path(), "out/log");
    assert!(log.contains("$ make -C") && log.contains("CC [M]  net/ipv4/tcp_bbr.o"), "{log}");
    // Again with text output: the package is built anew.
    std::thread::sleep(Duration::from_millis(20));
    let (code, out, err) = bench.run("", "TREE --config CONFIG --folder OUT");
    assert!(
        code == 0 && out.contains("Linux 6.1.9-fullpipe was built") && out.contains("kernel install"),
        "{out}{err}"
    );
}

#[test]
fn the_distribution_source_is_downloaded_and_kept() {
    let bench = Bench::new();
    let (code, out, err) = bench.run("", "--source --config CONFIG --folder OUT");
    assert_eq!(code, 0, "{out}{err}");
    let asked = content(bench.root.path(), "asked");
    assert!(asked.starts_with("apt-get: -q download linux-source-6.12\n"), "the newest: {asked}");
    assert!(asked.contains("out/source/linux-source-6.12 "), "{asked}");
    assert_eq!(bench.run("", "--source 6.12 --config CONFIG --folder OUT").0, 0);
    assert_eq!(content(bench.root.path(), "asked").matches("download").count(), 1, "it is not got again");
    let (code, _, err) = bench.run("", "--source 6 --config CONFIG --folder OUT");
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = bench.run("", "--source 9.9 --config CONFIG --folder OUT");
    assert!(code == 2 && err.contains("no source of Linux 9.9; available: 6.12, 6.1, 5.10"), "{err}");
}

#[test]
fn build_errors_name_the_step_and_place() {
    let bench = Bench::new();
    for (fake, code, parts) in [
        (
            "fail",
            1,
            &[
                "building (bindeb-pkg) failed at net/ipv4/tcp_bbr.o",
                "tcp_bbr.c:12:3: error: unknown type name",
                "out/log",
            ][..],
        ),
        ("drop", 1, &["olddefconfig rejects", "CONFIG_TCP_CONG_BBR=m"]),
        ("unnamed", 1, &["release would be \"6.1.9\""]),
        ("empty", 1, &["no package of Linux 6.1.9-fullpipe"]),
    ] {
        let (got, out, err) = bench.run(fake, "TREE --config CONFIG --folder OUT");
        assert_eq!(got, code, "{fake}: {out}{err}");
        for part in parts {
            assert!(err.contains(part), "{fake}: {part}: {err}");
        }
    }
}

#[test]
fn impossible_builds_are_rejected_before_they_start() {
    let bench = Bench::new();
    let r = bench.root.path();
    let refused = |arguments: &str, code: i32, part: &str| {
        let (got, out, err) = bench.run("", arguments);
        assert_eq!(got, code, "{arguments}: {out}{err}");
        assert!(err.contains(part), "{arguments}: {part}: {err}");
        assert!(!bench.at("out").exists() && !bench.at("asked").exists(), "{arguments}: something was made");
    };
    let usual = "TREE --config CONFIG --folder OUT";
    refused("/nonexistent --config CONFIG --folder OUT", 2, "not a Linux source tree");
    refused("TREE --config /nonexistent --folder OUT", 2, "--config /nonexistent");
    refused("TREE --config TREE/Makefile --folder OUT", 2, "not a kernel configuration");
    refused("TREE --folder OUT", 3, "the configuration of the running Linux 6.1.0-18-amd64");
    refused("TREE --config CONFIG --folder OUT:x", 2, "spaces or colons");
    refused("--folder OUT", 2, "--source");
    for (name, package) in
        [("flex", "apt-get install flex"), ("dpkg-buildpackage", "apt-get install dpkg-dev")]
    {
        fs::rename(bench.at("bin").join(name), bench.at("away")).unwrap();
        refused(usual, 3, package);
        fs::rename(bench.at("away"), bench.at("bin").join(name)).unwrap();
    }
    write(r, "config", "CONFIG_DEBUG_INFO_BTF=y\n");
    refused(usual, 3, "apt-get install dwarves");
    let many: String = (0..20_000_000 / 20).map(|number| format!("CONFIG_X{number}=y\n")).collect();
    write(r, "config", &many);
    refused(usual, 3, "use --folder with more free space");
    write(r, "config", CONFIG);
    write(r, "tree/.config", "");
    refused(usual, 1, "mrproper");
    fs::remove_file(bench.at("tree/.config")).unwrap();
    fs::remove_file(bench.at("usr/bin/apt-get")).unwrap();
    refused(usual, 3, "none of them is installed");
    write(r, "usr/bin/dnf", "");
    refused(usual, 3, "dnf install rpm-build");
}

#[test]
fn killing_a_build_stops_its_processes() {
    let bench = Bench::new();
    let mut running =
        bench.command("slow", "TREE --config CONFIG --folder OUT").stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while !bench.at("pid.below").exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    running.kill().unwrap();
    running.wait().unwrap();
    for name in ["pid", "pid.below"] {
        let pid = fs::read_to_string(bench.at(name)).unwrap();
        let lives = || {
            let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            state.rsplit(')').next().is_some_and(|rest| rest.len() > 1 && !rest.starts_with(" Z"))
        };
        let until = Instant::now() + Duration::from_secs(20);
        while lives() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(!lives(), "{name} {pid} lives on");
    }
}
