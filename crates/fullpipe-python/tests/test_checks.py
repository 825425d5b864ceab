"""Conformance cases and captures give the same results as the command line."""

import gzip
import json
import os
import shutil
import struct
import subprocess

import fullpipe
import pytest

PROGRAM = os.environ.get("FULLPIPE") or shutil.which("fullpipe")
CASE = "exiting-drain-based-on-inflight"


def program(*words):
    if PROGRAM is None:
        pytest.skip("the program fullpipe is not installed: set FULLPIPE")
    done = subprocess.run([PROGRAM, *words], check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)


def test_conformance_equals_the_command_line():
    rows = fullpipe.conformance("bbr3", CASE)
    assert rows == program("conformance", CASE, "--json")["runs"]
    assert rows and all(row["verdict"] == "passed" and row["failures"] == [] for row in rows)
    # A constant that differs from the draft fails.
    broken = fullpipe.conformance(cases=["decreasing-bandwidth-10x-and-ensuring-max-bandwidth-adapts-down"], settings={"beta_percent": 50})
    assert any("below 0.7 (Beta)" in failure for row in broken for failure in row["failures"])


def test_unknown_case_or_controller_is_an_error():
    with pytest.raises(fullpipe.ScenarioError, match="no case `drain`") as error:
        fullpipe.conformance(cases=["drain"])
    assert CASE in error.value.help
    with pytest.raises(fullpipe.ScenarioError, match="bbr9"):
        fullpipe.conformance("bbr9")
    with pytest.raises(fullpipe.ScenarioError, match="beta"):
        fullpipe.conformance(settings={"beta": 1})


def capture():
    """A connection of 20 kB, of raw IPv4 packets (LINKTYPE_RAW), 40 ms away."""
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)]

    def packet(at, to_server, seq, ack, flags, data=0):
        ends = (b"\x0a\0\0\1", b"\x0a\0\0\2")
        ports = (50000, 443)
        if not to_server:
            ends, ports = ends[::-1], ports[::-1]
        tcp = struct.pack(">HHIIBBHHH", *ports, seq, ack, 5 << 4, flags, 65535, 0, 0) + bytes(data)
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + ends[0] + ends[1]
        whole = ip + tcp
        out.append(struct.pack("<IIII", int(at), round(at % 1 * 1e6), len(whole), len(whole)) + whole)

    packet(1.0, True, 99, 0, 0x02)
    packet(1.04, False, 499, 100, 0x12)
    packet(1.04, True, 100, 500, 0x10)
    for n in range(20):
        packet(1.05 + n / 1000, True, 100 + n * 1000, 500, 0x18, 1000)
    for n in range(20):
        packet(1.09 + n / 1000, False, 500, 1100 + n * 1000, 0x10)
    packet(1.2, True, 20100, 500, 0x11)
    packet(1.24, False, 500, 20101, 0x11)
    packet(1.24, True, 20101, 501, 0x10)
    return b"".join(out)


def test_trace_equals_the_command_line(tmp_path):
    path = tmp_path / "x.pcap.gz"
    path.write_bytes(gzip.compress(capture()))
    connections = fullpipe.trace(path)
    assert len(connections) == 1 and connections[0]["to_server"]["bytes"] == 20_000
    # The command line identifies the controller of a single connection.
    assert fullpipe.trace(path, controllers=True) == program("trace", path, "--json")["connections"]
    assert fullpipe.trace(path, at="server")[0] != connections[0]


def test_damaged_capture_is_read_up_to_the_damage(tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(capture()[:-30])
    with pytest.warns(UserWarning, match="x.pcap is damaged at byte"):
        assert fullpipe.trace(path)[0]["to_server"]["bytes"] == 20_000
    path.write_text("not a capture, but as long as one would be")
    with pytest.raises(ValueError, match="x.pcap"):
        fullpipe.trace(path)
    with pytest.raises(FileNotFoundError):
        fullpipe.trace(tmp_path / "there-is-none.pcap")
    with pytest.raises(ValueError, match="between"):
        fullpipe.trace(path, at="home")
