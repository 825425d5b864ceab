//! A disk that becomes full at any moment of any write: existing files stay unchanged, nothing
//! partial is left, and the reason is reported.
//!
//! Each disk is a small tmpfs in its own mount namespace, which ends with the last process.

use crate::image;
use crate::program::{output_within, tied};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The outcome of a script on a small disk.
struct ScriptOutcome {
    code: i32,
    out: String,
    err: String,
}

/// Runs a shell script in a directory that is a small disk; `None` without user namespaces. `fill
/// PAGES` fills the disk except for this many pages, `free` frees it.
fn on_a_small_disk(script: &str, environment: &[(&str, &Path)]) -> Option<ScriptOutcome> {
    let disk = tempfile::tempdir().unwrap();
    let make = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child"]);
        command.args(["sh", "-ec", script]).stdin(Stdio::null());
        command.env("NO_COLOR", "1").env("FULLPIPE", env!("CARGO_BIN_EXE_fullpipe")).env("DISK", disk.path());
        command.envs(environment.iter().copied());
        output_within(tied(&mut command), Duration::from_secs(120)).expect("it did not end in time")
    };
    if !make("true").status.success() {
        assert!(std::env::var_os("CI").is_none(), "no user namespaces");
        println!("SKIPPED: this machine lets no one make user namespaces (unshare -Urmnpf)");
        return None;
    }
    let output = make(&format!(
        "mount -t tmpfs -o size=1m none \"$DISK\"; mount -t proc proc /proc; cd \"$DISK\"
         fill() {{ head -c $(($1 * 4096)) /dev/zero >hole; \
                   cat /dev/zero >filler 2>/dev/null || true; rm hole; }}
         free() {{ rm filler; }}
         {script}"
    ));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Some(ScriptOutcome {
        code: output.status.code().unwrap(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    })
}

const SCENARIO: &str =
    "duration = \"2s\"\n[path]\nrate = \"2mbit\"\nrtt = \"20ms\"\n[[flow]]\ncc = \"bbr\"\n";

/// Replaced files stay unchanged, without leftovers, whether none or a part of the new file fits.
#[test]
fn a_report_is_replaced_atomically_on_a_full_disk() {
    let inputs = tempfile::tempdir().unwrap();
    let scenario = inputs.path().join("s.toml");
    fs::write(&scenario, SCENARIO).unwrap();
    let mut tried = 0;
    for name in ["r.json", "r.csv", "r.html", "r.svg", "r.qlog"] {
        for pages in [0, 1] {
            let script = format!(
                "echo precious >{name}; fill {pages}; code=0
                 \"$FULLPIPE\" run \"$SCENARIO\" --out {name} >/dev/null || code=$?
                 free; ls -A; cat {name} | head -c 100; exit $code"
            );
            let Some(printed) = on_a_small_disk(&script, &[("SCENARIO", &scenario)]) else { return };
            assert_eq!(
                printed.out,
                format!("{name}\nprecious\n"),
                "{name} with {pages} pages free: {}",
                printed.err
            );
            assert_eq!(printed.code, 2, "{}", printed.err);
            assert!(printed.err.contains("No space left") && printed.err.contains(name), "{}", printed.err);
            tried += 1;
        }
    }
    println!("disk full: {tried} reports");
}

#[test]
fn a_figure_on_a_full_disk_stays_unchanged() {
    let script = "mkdir f; echo precious >f/fig1.svg; fill 0; code=0
        \"$FULLPIPE\" figure fig1 --short --out f >/dev/null || code=$?
        free; ls -A f; cat f/fig1.svg; exit $code";
    let Some(printed) = on_a_small_disk(script, &[]) else { return };
    assert_eq!(printed.out, "fig1.svg\nprecious\n", "{}", printed.err);
    assert_eq!(printed.code, 2, "{}", printed.err);
    assert!(printed.err.contains("No space left"), "{}", printed.err);
}

/// Streamed and new files: an error that names the cause.
#[test]
fn a_full_disk_is_reported() {
    for command in [
        "\"$FULLPIPE\" man pages",
        "\"$FULLPIPE\" lab shell --rtt 2ms --pcap capture -- true",
        "\"$FULLPIPE\" run \"$SCENARIO\" --json >out.json",
    ] {
        let inputs = tempfile::tempdir().unwrap();
        let scenario = inputs.path().join("s.toml");
        fs::write(&scenario, SCENARIO).unwrap();
        let script = format!("mkdir pages; fill 0; {command}");
        let Some(printed) = on_a_small_disk(&script, &[("SCENARIO", &scenario)]) else { return };
        assert!((1..=3).contains(&printed.code), "{command}: {} {}", printed.code, printed.err);
        assert!(printed.err.contains("No space left"), "{command}: {}", printed.err);
    }
}

#[test]
fn the_prometheus_file_stays_unchanged_on_a_full_disk() {
    let root = image::host();
    let script = "echo precious >f.prom; fill 0; code=0
        \"$FULLPIPE\" status --root \"$IMAGE\" --prometheus f.prom || code=$?
        free; ls -A; cat f.prom; exit $code";
    let Some(printed) = on_a_small_disk(script, &[("IMAGE", root.path())]) else { return };
    assert!(printed.out.ends_with("f.prom\nprecious\n"), "{}{}", printed.out, printed.err);
    assert!(printed.code != 0 && printed.err.contains("No space left"), "{}", printed.err);
}

/// An apply with room for this many pages is made completely or rolled back. If its journal still
/// has entries, a revert with room completes it.
#[test]
fn apply_on_a_full_disk_leaves_the_host_unchanged() {
    let root = image::host();
    let (mut failed, mut made) = (0, 0);
    for pages in 0..12 {
        let script = format!(
            "cp -a \"$IMAGE\" host
             # The files' contents and modes, and where links lead; not the state directory.
             look() {{ (cd host; \
                        find . \\( -path ./var/lib/fullpipe -o -name fullpipe.lock \\) \
                            -prune -o -printf '%p %y %m %l\\n' | LC_ALL=C sort
                        find . \\( -path ./var/lib/fullpipe -o -name fullpipe.lock \\) \
                            -prune -o -type f -print | LC_ALL=C sort | xargs sha256sum); }}
             before=$(look); fill {pages}; code=0
             \"$FULLPIPE\" apply bbr --qdisc keep --root host >/dev/null || code=$?
             after=$(look); free
             [ $code = 0 ] || [ \"$before\" = \"$after\" ] || {{ echo 'a failed apply left:'; echo \
                 \"$after\"; exit 100; }}
             \"$FULLPIPE\" revert --root host >/dev/null 2>&1 || true
             [ \"$before\" = \"$(look)\" ] || {{ echo 'a revert left:'; look; exit 101; }}
             exit $code"
        );
        let Some(printed) = on_a_small_disk(&script, &[("IMAGE", root.path())]) else { return };
        match printed.code {
            0 => made += 1,
            1..=3 => {
                failed += 1;
                assert!(printed.err.contains("No space left"), "{pages} pages: {}", printed.err);
            }
            _ => panic!("{pages} pages: {} {}{}", printed.code, printed.out, printed.err),
        }
    }
    assert!(
        failed > 0 && made > 0,
        "{failed} failed, {made} were made: the pages are to be chosen so that both happen"
    );
    println!("disk full: {failed} of {} applies failed and left nothing", failed + made);
}

#[cfg(feature = "net")]
#[test]
fn a_server_with_a_full_log_disk_keeps_serving() {
    // The server writes a record after its client has the result, so the log's size is read while
    // the disk is still full.
    let script = "fill 0; ip link set lo up
        \"$FULLPIPE\" serve --log log & tries=0
        transfer() { \"$FULLPIPE\" test 127.0.0.1 -n 100k >/dev/null 2>err; }
        until transfer; do
            tries=$((tries + 1)); [ $tries -lt 40 ] || { cat err >&2; exit 1; }; sleep 0.5
        done
        wc -c <log; free; tries=0
        until transfer && [ -s log ]; do
            tries=$((tries + 1)); [ $tries -lt 40 ] || { cat err >&2; exit 1; }; sleep 0.5
        done
        echo logged";
    let Some(printed) = on_a_small_disk(script, &[]) else { return };
    assert_eq!((printed.code, printed.out.as_str()), (0, "0\nlogged\n"), "{}", printed.err);
}

#[cfg(feature = "trace")]
#[test]
fn capture_reports_are_replaced_atomically() {
    let inputs = tempfile::tempdir().unwrap();
    let capture = inputs.path().join("c.pcap");
    fs::write(&capture, two_segments()).unwrap();
    for name in ["r.xpl", "r.json", "r.html"] {
        let script = format!(
            "echo precious >{name}; fill 0; code=0
             \"$FULLPIPE\" trace \"$CAPTURE\" --out {name} >/dev/null || code=$?
             free; ls -A; cat {name}; exit $code"
        );
        let Some(printed) = on_a_small_disk(&script, &[("CAPTURE", &capture)]) else { return };
        assert_eq!(printed.out, format!("{name}\nprecious\n"), "{}", printed.err);
        assert!(
            printed.code == 2 && printed.err.contains("No space left"),
            "{} {}",
            printed.code,
            printed.err
        );
    }
}

/// A capture of a segment and its ACK (pcap, Ethernet, IPv4, TCP).
#[cfg(feature = "trace")]
fn two_segments() -> Vec<u8> {
    let frame = |forward: bool, seq: u32, ack: u32, payload: usize| {
        let (ends, ports) = if forward { ([1, 2], [4000u16, 80]) } else { ([2, 1], [80, 4000]) };
        let mut bytes = [&[0; 12][..], &[8, 0, 0x45, 0]].concat();
        bytes.extend((40 + payload as u16).to_be_bytes());
        bytes.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, ends[0], 10, 0, 0, ends[1]]);
        ports.iter().for_each(|port| bytes.extend(port.to_be_bytes()));
        bytes.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
        bytes.extend([0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.resize(bytes.len() + payload, b'x');
        bytes
    };
    let mut file: Vec<u8> =
        [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65535, 1].iter().flat_map(|w| w.to_le_bytes()).collect();
    for (at, frame) in [(0u32, frame(true, 1, 1, 500)), (20_000, frame(false, 1, 501, 0))] {
        let length = frame.len() as u32;
        file.extend([1, at, length, length].iter().flat_map(|w| w.to_le_bytes()));
        file.extend(frame);
    }
    file
}
