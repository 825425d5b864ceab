// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The kernel's own BBR called through its kfuncs and nothing else, so that the time of a callback
 * can be measured as that of our programs is. For the benchmark.
 */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("struct_ops/w_bbr_init")
void w_bbr_init(u64 *ctx)
{
	bbr_init((struct sock *)FP_TCP(ctx));
}

SEC("struct_ops/w_bbr_main")
void w_bbr_main(u64 *ctx)
{
	bbr_main((struct sock *)FP_TCP(ctx), (u32)ctx[1], (int)ctx[2], (const struct rate_sample *)ctx[3]);
}

SEC("struct_ops/w_bbr_event")
void w_bbr_event(u64 *ctx)
{
	bbr_cwnd_event((struct sock *)FP_TCP(ctx), (enum tcp_ca_event)ctx[1]);
}

SEC("struct_ops/w_bbr_state")
void w_bbr_state(u64 *ctx)
{
	bbr_set_state((struct sock *)FP_TCP(ctx), (u8)ctx[1]);
}

SEC("struct_ops/w_bbr_undo")
u32 w_bbr_undo(u64 *ctx)
{
	return bbr_undo_cwnd((struct sock *)FP_TCP(ctx));
}

SEC("struct_ops/w_bbr_ssthresh")
u32 w_bbr_ssthresh(u64 *ctx)
{
	return bbr_ssthresh((struct sock *)FP_TCP(ctx));
}

SEC("struct_ops/w_bbr_segs")
u32 w_bbr_segs(u64 *ctx)
{
	return bbr_min_tso_segs((struct sock *)FP_TCP(ctx));
}

SEC("struct_ops/w_bbr_sndbuf")
u32 w_bbr_sndbuf(u64 *ctx)
{
	return bbr_sndbuf_expand((struct sock *)FP_TCP(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops w_bbr = {
	.init = (void *)w_bbr_init,
	.cong_control = (void *)w_bbr_main,
	.cwnd_event = (void *)w_bbr_event,
	.set_state = (void *)w_bbr_state,
	.undo_cwnd = (void *)w_bbr_undo,
	.ssthresh = (void *)w_bbr_ssthresh,
	.min_tso_segs = (void *)w_bbr_segs,
	.sndbuf_expand = (void *)w_bbr_sndbuf,
	.flags = FP_CONG_NON_RESTRICTED,
	.name = "w_bbr",
};
