/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What bbr3_measured.bpf.c writes: of each TCP segment as it is sent, and of each ACK as the core sees it. */
#ifndef FP_MEASURED_H
#define FP_MEASURED_H

#include "types.h"

#define FP_MEASURED_SENT 1U
#define FP_MEASURED_ACK 2U

struct fp_measured {
	u64 socket;
	u32 kind;
	u32 mss;
	u32 seq;     /* sent: its first byte; ACK: snd_una */
	u32 end_seq; /* sent: behind its last byte; ACK: of the newest packet that it acknowledges */
	u32 in_flight; /* sent: packets in flight before it */
	u32 lost;      /* packets lost on the connection so far */
	u32 newly_lost; /* ACK: packets that it marked lost */
	u32 has_data;   /* ACK: it acknowledged something new */
	u64 sample_tx_in_flight; /* ACK: what the core was given, in bytes */
	u64 sample_lost;
	u64 packet_bytes; /* the same of the packet marked lost */
	u64 packet_tx_in_flight;
	u64 packet_lost;
};

#endif
