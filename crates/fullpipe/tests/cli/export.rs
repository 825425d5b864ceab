//! `fullpipe export`, and Prometheus with the dashboard and the alerts of the packaging directory.

use crate::busy::Busy;
use crate::program;
#[cfg(feature = "ebpf")]
use crate::space;
use fullpipe_testing::own_test;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running exporter.
struct Exporter {
    child: Child,
    address: SocketAddr,
}

impl Exporter {
    fn start(args: &[&str]) -> Exporter {
        let mut command = program::fullpipe();
        command.args(["export", "--listen", "127.0.0.1:0", "--interval", "200ms"]).args(args);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut printed = BufReader::new(child.stderr.take().unwrap());
        let mut all = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(printed.read_line(&mut line).unwrap() > 0, "it ended: {all}");
            if let Some(rest) = line.strip_prefix("metrics at ") {
                let at = rest.split_once("://").unwrap().1.split('/').next().unwrap();
                break at.parse().unwrap();
            }
            all += &line;
        };
        // Later output must not block it.
        std::thread::spawn(move || std::io::copy(&mut printed, &mut std::io::sink()));
        Exporter { child, address }
    }

    fn metrics(&self) -> String {
        let answer = get(self.address, "/metrics");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Waits until the series whose line starts like this has the wanted value, and returns it.
    fn until(&self, series: &str, wanted: impl Fn(f64) -> bool) -> f64 {
        let began = Instant::now();
        loop {
            let page = self.metrics();
            let line = page.lines().find(|l| l.starts_with(series));
            let value = line.and_then(|l| l.rsplit(' ').next()?.parse().ok());
            match value {
                Some(value) if wanted(value) => return value,
                _ => assert!(began.elapsed() < Duration::from_secs(60), "{series}: {value:?} in\n{page}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A response over HTTP/1.0, which ends with the connection.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").canonicalize().unwrap()
}

/// A program of Prometheus: installed, or unpacked by `./x test`.
fn tool(name: &str) -> Option<PathBuf> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/usr/bin").join(name);
    let installed =
        std::env::var_os("PATH").into_iter().flat_map(|p| std::env::split_paths(&p).collect::<Vec<_>>());
    let found = installed.map(|dir| dir.join(name)).chain([unpacked]).find(|path| path.is_file());
    if found.is_none() {
        println!("SKIPPED: {name} of prometheus is neither installed nor in target/tools");
    }
    found
}

#[test]
fn traffic_is_counted_and_promtool_accepts_the_metrics() {
    let busy = Busy::start();
    let ports = busy.port.to_string();
    let exporter = Exporter::start(&["--ports", &ports, "--class", "unused=dst 192.0.2.0/24"]);
    let class = format!("class=\"port {ports}\"");
    let page = exporter.metrics();
    let line = page.lines().find(|l| l.starts_with("fullpipe_tcp_acked_bytes_total") && l.contains(&class));
    let series = line.unwrap().rsplit_once(' ').unwrap().0.to_owned();
    exporter.until(&series, |bytes| bytes >= 40_960.0);
    exporter.until(&series.replace("acked_bytes_total", "rtt_seconds_count"), |n| n >= 2.0);
    exporter.until("fullpipe_samples_total", |n| n >= 3.0);
    let Some(promtool) = tool("promtool") else { return };
    let mut check = program::tied(Command::new(promtool).args(["check", "metrics"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(exporter.metrics().as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.trim().is_empty(), "{printed}");
}

#[test]
fn an_exporter_drops_privileges_and_keeps_sampling() {
    let is_root = nix::unistd::Uid::effective().is_root();
    for (args, kept) in [(&[][..], 0), (&["--by", "unit"], 1 << 2 | 1 << 19)] {
        let busy = Busy::start();
        let exporter = Exporter::start(args);
        exporter.until("fullpipe_samples_total", |n| n >= 3.0);
        let page = exporter.metrics();
        // The changes made by fullpipe are still readable: from files, and by netlink.
        assert!(page.contains("fullpipe_host_available_controller{controller=\"reno\"} 1"), "{page}");
        assert_eq!(page.contains("\nfullpipe_host_readable 1"), page.contains("\nfullpipe_host_applied "));
        assert!(!is_root || page.contains("\nfullpipe_host_readable 1"), "{page}");
        let status = fs::read_to_string(format!("/proc/{}/status", exporter.child.id())).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
            line.unwrap_or_else(|| panic!("{name}: {status}")).to_owned()
        };
        let capabilities = u64::from_str_radix(&field("CapEff"), 16).unwrap();
        assert_eq!(capabilities & !kept, 0, "{args:?}: {capabilities:x}");
        // SECCOMP_MODE_FILTER.
        assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("1".to_owned(), "2".to_owned()), "{args:?}");
        drop(busy);
    }
}

#[test]
fn alert_rules_are_valid_and_fire_as_expected() {
    let Some(promtool) = tool("promtool") else { return };
    for args in [["check", "rules", "fullpipe.rules.yml"], ["test", "rules", "fullpipe.rules.test.yml"]] {
        let output =
            Command::new(&promtool).args(args).current_dir(packaging().join("prometheus")).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}");
    }
}

#[test]
fn every_query_of_the_dashboard_finds_data_in_prometheus() {
    let Some(prometheus) = tool("prometheus") else { return };
    if !fullpipe_kernel::facts::available_controllers().unwrap().iter().any(|c| c == "bbr") {
        println!("SKIPPED: this kernel offers no bbr");
        return;
    }
    let bbr = Busy::never_out_of_data("bbr");
    let exporter = Exporter::start(&["--only", &format!("sport = :{}", bbr.port)]);
    let server = Prometheus::start(&prometheus, exporter.address, &[]);
    let board: Value =
        serde_json::from_slice(&fs::read(packaging().join("grafana/fullpipe.json")).unwrap()).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let queries: Vec<String> = panels
        .iter()
        .flat_map(|p| p["targets"].as_array().unwrap())
        .map(|t| {
            let text = t["expr"].as_str().unwrap();
            text.replace("$__rate_interval", "30s").replace("$instance", ".*").replace("$class", ".*")
        })
        .collect();
    assert!(queries.len() > panels.len());
    for query in &queries {
        server.finds(query, &exporter);
    }
    let up = get(server.address, "/api/v1/query?query=up");
    assert!(up.contains(&exporter.address.to_string()) && up.contains("\"1\"]"), "{up}");
}

/// Native histograms have no bucket series: quantiles are queried from the metric itself, at the
/// resolution of its buckets.
#[test]
fn prometheus_scrapes_native_histograms() {
    let Some(prometheus) = tool("prometheus") else { return };
    let busy = Busy::start();
    let exporter = Exporter::start(&["--only", &format!("sport = :{}", busy.port)]);
    let server = Prometheus::start(&prometheus, exporter.address, &["--enable-feature=native-histograms"]);
    let median = server.finds("histogram_quantile(0.5, sum(fullpipe_tcp_rtt_seconds))", &exporter);
    server.finds("histogram_count(sum(fullpipe_tcp_cwnd_bytes)) > 1", &exporter);
    server.finds("histogram_quantile(0.9, sum(rate(fullpipe_tcp_queueing_seconds[30s])))", &exporter);
    assert!(median > 0.0 && median < 60.0, "{median}");
    let buckets = get(server.address, "/api/v1/query?query=fullpipe_tcp_rtt_seconds_bucket");
    assert!(buckets.contains("\"result\":[]"), "they are classic ones: {buckets}");
}

/// A Prometheus that scrapes one exporter each second, with the rules of the packaging directory.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    began: Instant,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    fn start(program: &Path, target: SocketAddr, options: &[&str]) -> Prometheus {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("prometheus.yml");
        let rules = packaging().join("prometheus/fullpipe.rules.yml");
        let text = format!(
            "global: {{scrape_interval: 1s}}\nrule_files: ['{}']\nscrape_configs:\n- job_name: \
             fullpipe\n  static_configs: [{{targets: ['{target}']}}]\n",
            rules.display()
        );
        fs::write(&config, text).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = program::tied(&mut command).spawn().unwrap();
        let mut server = Prometheus { child, address, began: Instant::now(), _directory: directory };
        while TcpStream::connect(address).is_err() || !get(address, "/-/ready").contains(" 200 ") {
            assert!(server.child.try_wait().unwrap().is_none(), "prometheus ended");
            assert!(server.began.elapsed() < Duration::from_secs(60), "prometheus is not ready");
            std::thread::sleep(Duration::from_millis(200));
        }
        server
    }

    /// The first value of `query`, once there is one.
    fn finds(&self, query: &str, exporter: &Exporter) -> f64 {
        loop {
            let answer = get(self.address, &format!("/api/v1/query?query={}", percent(query)));
            let json: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
            assert_eq!(json["status"], "success", "{query}: {json}");
            let results = json["data"]["result"].as_array().unwrap();
            let numbers = results.iter().filter_map(|r| r["value"][1].as_str()?.parse::<f64>().ok());
            if let Some(number) = numbers.into_iter().find(|number| !number.is_nan()) {
                return number;
            }
            assert!(
                self.began.elapsed() < Duration::from_secs(120),
                "no data: {query}: {json}\n{}",
                exporter.metrics()
            );
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn percent(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

#[test]
fn sigterm_shuts_the_exporter_down_and_frees_its_port() {
    let mut exporter = Exporter::start(&[]);
    let _idle = TcpStream::connect(exporter.address).unwrap();
    kill(Pid::from_raw(i32::try_from(exporter.child.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert!(exporter.child.wait().unwrap().success());
    assert!(TcpStream::connect(exporter.address).is_err());
}

#[test]
fn tls_with_a_token_answers_only_requests_with_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).into_os_string().into_string().unwrap();
    fs::write(file("token"), "open sesame\n").unwrap();
    fs::set_permissions(file("token"), PermissionsExt::from_mode(0o600)).unwrap();
    let (certificate, key) = (file("cert.pem"), file("key.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            &key,
            "-out",
            &certificate,
        ])
        .output();
    if !made.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: openssl is not installed");
        return;
    }
    let token = file("token");
    let exporter = Exporter::start(&["--token-file", &token, "--tls-cert", &certificate, "--tls-key", &key]);
    let url = format!("https://{}/metrics", exporter.address);
    let curl = |more: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["-sS", "-i", "--noproxy", "*", "--cacert", &certificate, &url]).args(more);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let refused = curl(&[]);
    assert!(refused.contains(" 401 ") && !refused.contains("fullpipe_"), "{refused}");
    let answered = curl(&["-H", "Authorization: Bearer open sesame"]);
    assert!(answered.contains(" 200 ") && answered.contains("fullpipe_samples_total"), "{answered}");
    // Without TLS there is no response.
    let mut plain = TcpStream::connect(exporter.address).unwrap();
    plain.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    let _ = plain.read_to_end(&mut bytes);
    assert!(!String::from_utf8_lossy(&bytes).contains("fullpipe_"));
}

#[test]
fn export_errors_name_the_cause() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (args, printed) in [
        (&["--listen", &address][..], "cannot listen on"),
        (&["--interval", "1ms"], "at least 100ms"),
        (&["--class", "web"], "NAME=FILTER"),
        (&["--class", "web=dprt = :1"], "^^^^"),
        (&["--token-file", "/nowhere"], "/nowhere"),
        (&["--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "/nowhere"),
    ] {
        let output = program::fullpipe().arg("export").args(args).output().unwrap();
        let reported = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && reported.contains(printed), "{args:?}: {reported}");
    }
}

#[cfg(feature = "ebpf")]
#[test]
#[ignore = "a part of the next test, which starts it"]
fn a_loaded_controller() {
    const NAME: &str = "fpexp_bbr3";
    fullpipe_ebpf::lifecycle::load(fullpipe_ebpf::Controller::Bbr3, Some(NAME)).unwrap();
    {
        let _busy = Busy::driven_by(Some(NAME));
        let exporter = Exporter::start(&[]);
        exporter.until(&format!("fullpipe_bbr_connections{{controller=\"{NAME}\",state="), |n| n == 1.0);
        let of = |name: &str| format!("fullpipe_bbr_{name}_count{{controller=\"{NAME}\"");
        exporter.until(&of("bandwidth_bytes_per_second"), |n| n > 0.0);
        exporter.until(&of("min_rtt_seconds"), |n| n > 0.0);
        assert_eq!(space::status(NAME).sockets.len(), 1);
    }
    space::unload(NAME);
}

#[cfg(feature = "ebpf")]
#[test]
fn the_model_of_a_loaded_controller_is_exported() {
    space::in_a_space(own_test!(a_loaded_controller));
}
