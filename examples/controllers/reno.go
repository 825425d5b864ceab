// NewReno (RFC 5681, RFC 6582) as a program that fullpipe races and judges, by the protocol of
// docs/reference/controller-protocol.md:
//
//	go build -o reno examples/controllers/reno.go && fullpipe race exec:./reno reno
package main

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
)

type message struct {
	Event, Change, Recovery string
	Bytes                   uint64
	PacketBytes             uint64 `json:"packet_bytes"`
	InitialWindow           uint64 `json:"initial_window"`
	InflightBefore          uint64 `json:"inflight_before"`
	CwndLimited             bool   `json:"cwnd_limited"`
}

type answer struct {
	Schema   string `json:"schema,omitempty"` // in the first answer, as the next two
	Sent     *bool  `json:"sent,omitempty"`
	PRR      bool   `json:"prr,omitempty"`
	Window   uint64 `json:"window"`
	Ssthresh uint64 `json:"ssthresh"`
}

type reno struct {
	packet, acked, window, ssthresh uint64
	windowBefore, ssthreshBefore    uint64 // to undo a reduction that was spurious
	progress                        bool   // something was delivered since the last timeout
}

func (r *reno) onAcked(m *message) {
	r.progress = r.progress || m.Bytes > 0
	switch {
	case m.Recovery == "recovery":
	case r.window < r.ssthresh: // slow start, while half of the window is in use (RFC 7661)
		if m.CwndLimited || 2*m.InflightBefore > r.window {
			r.window += m.Bytes
		}
		if r.window > r.ssthresh {
			r.window = r.ssthresh
		}
	case m.CwndLimited:
		if r.acked += m.Bytes; r.acked >= r.window {
			r.acked -= r.window
			r.window += r.packet
		}
	}
}

func (r *reno) onRecovery(change string) {
	if change == "enter" || change == "timeout" && r.progress { // not each time the timer backs off
		r.windowBefore, r.ssthreshBefore = r.window, r.ssthresh
		if r.window /= 2; r.window < 2*r.packet {
			r.window = 2 * r.packet
		}
		r.ssthresh, r.acked = r.window, 0
	}
	if change == "timeout" {
		r.window, r.progress = r.packet, false
	}
	if change == "spurious" && r.windowBefore > 0 {
		if r.window < r.windowBefore {
			r.window = r.windowBefore
		}
		r.ssthresh, r.windowBefore = r.ssthreshBefore, 0
	}
}

func main() {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	r := reno{ssthresh: math.MaxInt64, progress: true}
	for in.Scan() {
		m, a := message{}, answer{}
		if json.Unmarshal(in.Bytes(), &m) != nil {
			os.Exit(1)
		}
		switch m.Event {
		case "sent", "lost":
			continue // the only lines without an answer
		case "init":
			r.packet, r.window = m.PacketBytes, m.InitialWindow
			a = answer{Schema: "fullpipe/controller/1", Sent: new(bool), PRR: true}
		case "acked":
			r.onAcked(&m)
		case "recovery":
			r.onRecovery(m.Change)
		}
		a.Window, a.Ssthresh = r.window, r.ssthresh
		if out.Encode(a) != nil {
			os.Exit(1)
		}
	}
}
