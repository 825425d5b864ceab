/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What bbr3_measured.bpf.c writes: of each TCP segment as it is sent, of each ACK and of what is lost as the core sees it. */
#ifndef FP_MEASURED_H
#define FP_MEASURED_H

#include "types.h"

#define FP_MEASURED_SENT 1U
#define FP_MEASURED_ACK 2U
#define FP_MEASURED_LOST 3U

struct fp_measured {
	u64 socket;
	u32 kind;
	u32 mss;
	u32 seq;     /* sent: its first byte; ACK: snd_una */
	u32 end_seq; /* sent: behind its last byte; ACK: of the newest packet that it acknowledges */
	u32 in_flight; /* sent: packets in flight before it */
	u32 lost;      /* packets lost on the connection so far; lost: with these */
	u32 packets;   /* lost: number reported at once */
	u32 has_data;  /* ACK: it acknowledged something new */
	u64 used_tx_in_flight; /* what the core was given, of the newest acknowledged packet or of what is lost, in bytes */
	u64 used_lost;
};

#endif
