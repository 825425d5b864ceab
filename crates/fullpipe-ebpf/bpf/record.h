/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* One callback of the kernel's BBR: what it was given, and what it made of it. */
#ifndef FP_RECORD_H
#define FP_RECORD_H

#include "types.h"

struct fp_record {
	u64 socket; /* tells sockets apart within one recording */
	u32 op;     /* enum fp_op */
	u32 argument;
	struct fp_tcp tcp;
	u64 state_before[13];
	u64 state_after[13];
	u64 pacing_rate;
	u32 snd_cwnd;
	u32 snd_ssthresh;
	u32 app_limited;
	u32 result; /* what the callback returned */
	u32 ticks;  /* the clock after the callback: it may have ticked meanwhile */
	u32 reserved;
};
_Static_assert(sizeof(struct fp_record) % 8 == 0, "no padding at the end");

#endif
