"""The stages of a pScheduler tool: each reads a JSON document and prints one.

Only the standard library is used, so that the stages can be run and tested without pScheduler.
"""

import datetime
import json
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time

PORT = 5201
DEFAULT_SECONDS = 10
# The server starts at the scheduled time, the client later; a busy server may need longer.
CLIENT_DELAY = 2
MAX_REFUSAL = 5
# To connect, to exchange results and to end.
OVERHEAD = 5 + MAX_REFUSAL

# How an option of the test is written as one of `fullpipe test`.
VALUES = {
    "parallel": "--parallel",
    "window-size": "--window",
    "mss": "--set-mss",
    "buffer-length": "--length",
    "ip-tos": "--tos",
    "congestion": "--congestion",
    "bandwidth": "--bitrate",
}
TIMES = {"duration": "--time", "interval": "--interval", "omit": "--omit"}
FLAGS = {"udp": "--udp", "no-delay": "--no-delay", "reverse": "--reverse"}
OTHERS = {
    "schema", "source", "source-node", "dest", "dest-node", "ip-version", "local-address",
    "link-rtt", "single-ended", "single-ended-port", "loopback",
}
NEWEST_SCHEMA = 7

# Fields of a result, by their names in iperf3's format.
FIELDS = {
    "socket": "stream-id",
    "start": "start",
    "end": "end",
    "bytes": "throughput-bytes",
    "bits_per_second": "throughput-bits",
    "omitted": "omitted",
    "jitter_ms": "jitter",
    "packets": "sent",
    "lost_packets": "lost",
    "retransmits": "retransmits",
    "snd_cwnd": "tcp-window-size",
    "rtt": "rtt",
    "mean_rtt": "rtt",
}


class Refused(Exception):
    """What is reported to the caller."""


def seconds(text):
    """An ISO 8601 duration without months and years, whose length varies."""
    number = r"(\d+(?:\.\d+)?)"
    form = f"P(?:{number}W)?(?:{number}D)?(?:T(?:{number}H)?(?:{number}M)?(?:{number}S)?)?"
    match = re.fullmatch(form, str(text))
    if not match or not any(match.groups()):
        raise Refused(f"not a duration in ISO 8601: {text}")
    units = (604800, 86400, 3600, 60, 1)
    return sum(float(value) * unit for value, unit in zip(match.groups(), units) if value)


def length(spec):
    """Seconds from the start to the end of a test's data."""
    measured = seconds(spec["duration"]) if "duration" in spec else DEFAULT_SECONDS
    return measured + (seconds(spec["omit"]) if "omit" in spec else 0)


def total(spec):
    """Seconds that a test may take."""
    # Connecting, the exchange of parameters and results take some round trips.
    trips = 20 * seconds(spec["link-rtt"]) if "link-rtt" in spec else 0
    return length(spec) + CLIENT_DELAY + OVERHEAD + trips


def can_run(task):
    if task.get("type") != "throughput":
        return {"can-run": False, "reasons": ["fullpipe runs throughput tests only"]}
    spec = task.get("spec")
    if not isinstance(spec, dict):
        return {"can-run": False, "reasons": ["the test has no specification"]}
    reasons = []
    if spec.get("schema", 1) > NEWEST_SCHEMA:
        reasons.append(f"schema {spec['schema']} is newer than {NEWEST_SCHEMA}")
    known = {*VALUES, *TIMES, *FLAGS, *OTHERS}
    reasons += [f"fullpipe has no option for {option}" for option in spec if option not in known]
    if spec.get("udp") and spec.get("congestion"):
        reasons.append("UDP has no congestion controller")
    try:
        for option in [*TIMES, "link-rtt"]:
            if option in spec:
                seconds(spec[option])
    except Refused as error:
        reasons.append(str(error))
    return {"can-run": False, "reasons": reasons} if reasons else {"can-run": True}


def duration(task):
    return {"duration": f"PT{-int(-total(task['spec']) // 1)}S"}


def participant_data(task):
    if task.get("participant") == 0:
        return {}
    if task.get("participant") == 1:
        # pScheduler shows names with an underscore to participants only.
        return {"port": PORT, "_secret": secrets.token_hex(32)}
    raise Refused(f"a throughput test has participants 0 and 1, not {task.get('participant')}")


def test_command(spec, port, secret_file):
    """The client's command."""
    command = ["fullpipe", "test", spec["dest"], "--json", "--port", str(port)]
    for option, name in VALUES.items():
        if spec.get(option) is not None:
            # A number with a fraction is printed without an exponent.
            value = spec[option]
            command += [name, str(int(value)) if isinstance(value, (int, float)) else str(value)]
    for option, name in TIMES.items():
        if spec.get(option) is not None:
            command += [name, f"{seconds(spec[option])}s"]
    command += [name for option, name in FLAGS.items() if spec.get(option)]
    if spec.get("ip-version") in (4, 6):
        command.append(f"-{spec['ip-version']}")
    source = spec.get("local-address", spec.get("source"))
    if source is not None and re.fullmatch(r"[0-9.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*", source):
        command += ["--bind", source]
    return command + (["--secret-file", secret_file] if secret_file else [])


def serve_command(spec, port, secret_file):
    """The server's command: for one test, and for no longer than it takes."""
    command = ["fullpipe", "serve", "--one-off", "--port", str(port), "--iperf2-port", "0"]
    command += ["--max-time", f"{int(length(spec)) + 1}s"]
    return command + (["--secret-file", secret_file] if secret_file else [])


def result(document):
    """A document in iperf3's format as a result of a throughput test."""

    def renamed(values):
        return {FIELDS[name]: value for name, value in values.items() if name in FIELDS}

    intervals = [
        {
            "streams": [renamed(stream) for stream in interval.get("streams", [])],
            "summary": renamed(interval.get("sum", {})),
        }
        for interval in document["intervals"]
    ]
    end = document["end"]
    summary = renamed(end.get("sum_sent") or end["sum"])
    if "sum_received" in end:
        summary["receiver-throughput-bits"] = end["sum_received"]["bits_per_second"]
    streams = [renamed(stream.get("udp") or stream["sender"]) for stream in end.get("streams", [])]
    return {
        "succeeded": True,
        "intervals": intervals,
        "summary": {"streams": streams, "summary": summary},
    }


def failed(error, diags):
    empty = {"streams": [], "summary": {}}
    return {"succeeded": False, "error": error, "diags": diags, "intervals": [], "summary": empty}


def wait_until(start):
    """Waits for the scheduled time; Python before 3.11 does not read a `Z`."""
    at = datetime.datetime.fromisoformat(start.replace("Z", "+00:00"))
    now = datetime.datetime.now(datetime.timezone.utc)
    time.sleep(max((at - now).total_seconds(), 0))


class Child:
    """A program that does not outlive this one."""

    def __init__(self, command):
        self.command = command
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise Refused(f"cannot run {command[0]}: {error.strerror}") from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def finish(self, patience):
        """Its exit code and output."""
        try:
            out, err = self.process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            out, err = self.process.communicate()
            err += f"\nended after {patience:.0f} s"
        return self.process.returncode, out, err


def run_client(spec, port, secret_file):
    began = time.monotonic()
    while True:
        with Child(test_command(spec, port, secret_file)) as child:
            code, out, err = child.finish(total(spec))
        waited = time.monotonic() - began
        if "Connection refused" not in err or spec.get("single-ended") or waited > MAX_REFUSAL:
            break
        time.sleep(0.5)
    diags = f"{' '.join(child.command)}\n\n{out}{err}"
    if code != 0:
        return failed(err.strip() or f"fullpipe ended with {code}", diags)
    try:
        return {**result(json.loads(out)), "diags": diags}
    except (ValueError, KeyError) as error:
        return failed(f"cannot read the results of fullpipe: {error!r}", diags)


def run_server(spec, port, secret_file):
    with Child(serve_command(spec, port, secret_file)) as child:
        code, out, err = child.finish(total(spec))
    diags = f"{' '.join(child.command)}\n\n{out}{err}"
    if code != 0:
        return failed(err.strip() or f"fullpipe ended with {code}", diags)
    # The client has the results of both ends.
    return {**failed("", diags), "succeeded": True}


def run(task):
    spec = task["test"]["spec"]
    data = task["participant-data"]
    alone = bool(spec.get("single-ended") or spec.get("loopback"))
    if len(data) != (1 if alone else 2):
        raise Refused(f"{1 if alone else 2} participants expected, not {len(data)}")
    port = PORT if alone else data[1]["port"]
    if spec.get("single-ended"):
        port = spec.get("single-ended-port", PORT)
    secret = None if alone else data[1].get("_secret")
    with tempfile.NamedTemporaryFile("w", prefix="fullpipe-") as file:
        # Only this user can read it.
        file.write(f"{secret}\n")
        file.flush()
        secret_file = file.name if secret else None
        wait_until(task["schedule"]["start"])
        if task["participant"] == 1:
            return run_server(spec, port, secret_file)
        if spec.get("loopback"):
            with Child(serve_command(spec, port, None)):
                time.sleep(CLIENT_DELAY)
                return run_client(spec, port, None)
        time.sleep(CLIENT_DELAY)
        return run_client(spec, port, secret_file)


def merged_results(task):
    results = task["results"]
    if not results or len(results) > 2:
        raise Refused(f"1 or 2 results expected, not {len(results)}")
    merged = results[0] or failed("participant 0 has no result", "")
    diags = (f"Participant {n}:\n{r.get('diags', '')}" for n, r in enumerate(results) if r)
    return {**merged, "diags": "\n".join(diags)}


STAGES = {
    "can-run": can_run,
    "duration": duration,
    "participant-data": participant_data,
    "run": run,
    "merged-results": merged_results,
}


def main(stage):
    # pScheduler ends a run with a signal; its child must end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        task = json.load(sys.stdin)
        answer = STAGES[stage](task)
    except ValueError as error:
        sys.exit(f"{stage}: the input is not JSON: {error}")
    except Refused as error:
        sys.exit(f"{stage}: {error}")
    except (KeyError, TypeError) as error:
        sys.exit(f"{stage}: the input lacks a field: {error}")
    json.dump(answer, sys.stdout)
    print()
