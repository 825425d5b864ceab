/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What `fullpipe records` reads of a socket that closed. */
#ifndef FP_CLOSED_H
#define FP_CLOSED_H

#include "types.h"

/* Who opened a connection, as far as it was seen. */
#define FP_OPENED_UNSEEN 0U /* it was open before */
#define FP_OPENED_HERE 1U
#define FP_OPENED_THERE 2U

/* fp_closed.flags */
#define FP_CLOSED_FIN_CAME 1U
#define FP_CLOSED_ALL_ACKED 2U /* everything sent was acknowledged, a FIN included */
#define FP_CLOSED_RATE_APP_LIMITED 4U
#define FP_CLOSED_ECN 8U
#define FP_CLOSED_SACK 16U
#define FP_CLOSED_TIMESTAMPS 32U
#define FP_CLOSED_WINDOW_SCALE 64U

struct fp_closed {
	u64 opened_ns; /* CLOCK_MONOTONIC; 0 where it was open before */
	u64 closed_ns;
	u64 cookie; /* 0 if none was assigned */
	u64 netns_cookie;
	u64 cgroup; /* its inode; 0 where the kernel does not tell */
	u64 bytes_sent;
	u64 bytes_acked;
	u64 bytes_received;
	u64 bytes_retrans;
	char controller[16];
	char process[16];
	u32 local[4]; /* the first word alone for IPv4 */
	u32 remote[4];
	u32 netns; /* its inode */
	u32 pid; /* 0 where no process was seen at it */
	u32 uid;
	u32 error; /* sk_err */
	u32 segs_out;
	u32 segs_in;
	u32 data_segs_out;
	u32 data_segs_in;
	u32 total_retrans;
	u32 dsack_dups;
	u32 reord_seen;
	u32 rcv_ooopack;
	u32 delivered;
	u32 delivered_ce;
	u32 srtt_us; /* eightfold, as the kernel keeps it */
	u32 min_rtt_us; /* ~0 without a sample */
	u32 snd_cwnd;
	u32 snd_ssthresh;
	u32 mss;
	u32 peer_mss;
	u32 rate_delivered;
	u32 rate_interval_us;
	u32 busy_ticks; /* with data to send or outstanding, but for the next two */
	u32 rwnd_ticks;
	u32 sndbuf_ticks;
	u32 idle_ticks; /* since data was last sent */
	u16 local_port;
	u16 remote_port;
	u16 family;
	u16 total_rto;
	u8 state; /* from which it closed */
	u8 opened_by; /* FP_OPENED_… */
	u8 window_scale; /* to apply to the peer's window */
	u8 own_window_scale;
	u32 flags; /* FP_CLOSED_… */
};

#endif
