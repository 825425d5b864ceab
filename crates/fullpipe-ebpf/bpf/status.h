/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What `fullpipe cc status`, `fullpipe watch` and the lab read of a socket. */
#ifndef FP_STATUS_H
#define FP_STATUS_H

#include "types.h"

/*
 * fp_bbr3 keeps its state in socket storage and leaves a summary in icsk_ca_priv: this word with the mode in
 * its low byte, then bandwidth (bytes/s), min_rtt (ns), gains (pacing low, cwnd high half), the long-term and
 * the short-term bound of inflight (bytes), rounds, max_bw and the short-term bound of bandwidth (bytes/s).
 */
#define FP_STATUS_MAGIC 0x6670626272330000ULL

struct fp_socket {
	char controller[16];
	u64 priv[13];
	u64 pacing_rate;
	u64 bytes_acked;
	u64 cookie; /* 0 until one is assigned */
	u32 snd_cwnd;
	u32 mss;
	u32 srtt_us;
	u32 tcp_state;
	u32 pacing_status; /* enum sk_pacing */
	u32 spare;
};

/* The same of a socket that is watched by number. */
struct fp_watched_socket {
	u64 number;
	struct fp_socket socket;
};

#endif
