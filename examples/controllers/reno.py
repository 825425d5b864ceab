#!/usr/bin/env python3
"""NewReno (RFC 5681, RFC 6582) as a program that fullpipe races and judges:
fullpipe race 'exec:python3 examples/controllers/reno.py' reno
It follows docs/reference/controller-protocol.md."""

import json
import sys


class Reno:
    def __init__(self, packet, window):
        self.packet = packet
        self.window = window
        self.ssthresh = 2**63 - 1
        self.before = None  # window and threshold, to undo a reduction that was spurious
        self.acked = 0  # bytes since the window last grew in congestion avoidance
        self.progress = True  # something was delivered since the last timeout

    def on_acked(self, ack):
        limited = ack.get("cwnd_limited", False)
        self.progress |= ack["bytes"] > 0
        if ack["recovery"] == "recovery":
            return
        if self.window < self.ssthresh:
            # Slow start, while half of the window is in use (RFC 7661).
            if limited or 2 * ack["inflight_before"] > self.window:
                self.window = min(self.window + ack["bytes"], self.ssthresh)
        elif limited:
            self.acked += ack["bytes"]
            if self.acked >= self.window:
                self.acked -= self.window
                self.window += self.packet

    def on_recovery(self, change):
        if change == "enter" or change == "timeout" and self.progress:
            self.before = (self.window, self.ssthresh)
            self.window = self.ssthresh = max(self.window // 2, 2 * self.packet)
            self.acked = 0
        if change == "timeout":
            # The threshold is not reduced again each time the timer backs off.
            self.window = self.packet
            self.progress = False
        if change == "spurious" and self.before:
            self.window = max(self.window, self.before[0])
            self.ssthresh = self.before[1]
            self.before = None


for line in sys.stdin.buffer:
    message = json.loads(line)
    event = message["event"]
    answer = {}
    if event in ("sent", "lost"):
        continue  # the only lines without an answer
    if event == "init":
        reno = Reno(message["packet_bytes"], message["initial_window"])
        answer = {"schema": "fullpipe/controller/1", "sent": False, "prr": True}
    elif event == "acked":
        reno.on_acked(message)
    elif event == "recovery":
        reno.on_recovery(message["change"])
    answer |= {"window": reno.window, "ssthresh": reno.ssthresh}
    print(json.dumps(answer), flush=True)
