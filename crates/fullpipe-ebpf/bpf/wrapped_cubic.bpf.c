// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* As wrapped_bbr.bpf.c, for the kernel's CUBIC. */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

extern void cubictcp_init(struct sock *sk) FP_KFUNC;
extern void cubictcp_cong_avoid(struct sock *sk, u32 ack, u32 acked) FP_KFUNC;
extern void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) FP_KFUNC;
extern void cubictcp_state(struct sock *sk, u8 new_state) FP_KFUNC;
extern u32 cubictcp_recalc_ssthresh(struct sock *sk) FP_KFUNC;
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) FP_KFUNC;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) FP_KFUNC;

SEC("struct_ops/w_cubic_init")
void w_cubic_init(u64 *ctx)
{
	cubictcp_init((struct sock *)FP_TCP(ctx));
}

SEC("struct_ops/w_cubic_avoid")
void w_cubic_avoid(u64 *ctx)
{
	cubictcp_cong_avoid((struct sock *)FP_TCP(ctx), (u32)ctx[1], (u32)ctx[2]);
}

SEC("struct_ops/w_cubic_event")
void w_cubic_event(u64 *ctx)
{
	cubictcp_cwnd_event((struct sock *)FP_TCP(ctx), (enum tcp_ca_event)ctx[1]);
}

SEC("struct_ops/w_cubic_state")
void w_cubic_state(u64 *ctx)
{
	cubictcp_state((struct sock *)FP_TCP(ctx), (u8)ctx[1]);
}

SEC("struct_ops/w_cubic_cut")
u32 w_cubic_cut(u64 *ctx)
{
	return cubictcp_recalc_ssthresh((struct sock *)FP_TCP(ctx));
}

SEC("struct_ops/w_cubic_acked")
void w_cubic_acked(u64 *ctx)
{
	cubictcp_acked((struct sock *)FP_TCP(ctx), (const struct ack_sample *)ctx[1]);
}

SEC("struct_ops/w_cubic_undo")
u32 w_cubic_undo(u64 *ctx)
{
	return tcp_reno_undo_cwnd((struct sock *)FP_TCP(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops w_cubic = {
	.init = (void *)w_cubic_init,
	.cong_avoid = (void *)w_cubic_avoid,
	.cwnd_event = (void *)w_cubic_event,
	.set_state = (void *)w_cubic_state,
	.ssthresh = (void *)w_cubic_cut,
	.pkts_acked = (void *)w_cubic_acked,
	.undo_cwnd = (void *)w_cubic_undo,
	.flags = FP_CONG_NON_RESTRICTED,
	.name = "w_cubic",
};
