// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * fp_calls: does this kernel make every call that it should? A controller that only counts. tcp_ack() calls
 * cong_control() for each ACK with the packets that this ACK delivered (rate_sample.acked_sacked), and tcp_sock counts
 * them as well: when more has been delivered since the last call than this ACK says, a call was not made. (An ACK older
 * than the last one that still brings a selective acknowledgement is counted without a call, too: use a path that
 * does not reorder.) Its window is four packets and its rate fixed, so that most of its packets are sent, and their
 * ACKs taken, in the softirq of a pacing timer, on top of whatever process that interrupts.
 */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define WINDOW 4
#define RATE 20000000 /* bytes a second */

struct fp_calls_counts {
	u64 made;
	u64 missed; /* calls before which there was at least one that was not made */
	u64 packets; /* that those would have reported */
} fp_calls_counts SEC(".data.counts");

SEC("struct_ops/fp_calls_init")
void fp_calls_init(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);

	tp->inet_conn.icsk_ca_priv[0] = tp->delivered;
	tp->snd_cwnd = WINDOW;
	tp->inet_conn.icsk_inet.sk.sk_pacing_rate = RATE;
	fp_need_pacing(tp);
}

SEC("struct_ops/fp_calls_cong_control")
void fp_calls_cong_control(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	u32 unseen = tp->delivered - (u32)tp->inet_conn.icsk_ca_priv[0] - fp_sample_argument(ctx)->acked_sacked;

	tp->inet_conn.icsk_ca_priv[0] = tp->delivered;
	__sync_fetch_and_add(&fp_calls_counts.made, 1);
	if (unseen) {
		__sync_fetch_and_add(&fp_calls_counts.missed, 1);
		__sync_fetch_and_add(&fp_calls_counts.packets, unseen);
	}
	if (tp->snd_cwnd != WINDOW)
		tp->snd_cwnd = WINDOW;
}

SEC("struct_ops/fp_calls_ssthresh")
u32 fp_calls_ssthresh(u64 *ctx)
{
	return FP_TCP(ctx)->snd_ssthresh;
}

SEC("struct_ops/fp_calls_undo_cwnd")
u32 fp_calls_undo_cwnd(u64 *ctx)
{
	return WINDOW;
}

SEC("struct_ops/fp_calls_release")
void fp_calls_release(u64 *ctx)
{
	fp_end_pacing(FP_TCP(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops fp_calls = {
	.init = (void *)fp_calls_init,
	.release = (void *)fp_calls_release,
	.cong_control = (void *)fp_calls_cong_control,
	.ssthresh = (void *)fp_calls_ssthresh,
	.undo_cwnd = (void *)fp_calls_undo_cwnd,
	.flags = FP_CONG_NON_RESTRICTED,
	.name = "fp_calls",
};
