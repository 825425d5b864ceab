// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* fp_hybla: Hybla as a struct_ops program. Its state is in icsk_ca_priv. */
/* Of what is kept in icsk_ca_priv: one more with every change, for an update to know whose state it finds. */
#define FP_STATE_LAYOUT 1
#include "kernel.h"
#include "hybla.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* What can be varied: one for all sockets of a loaded controller. */
struct hybla_params {
	u32 rtt0; /* ms */
} fp_settings SEC(".data.settings") = { HYBLA_RTT0_MS };

/* tcp_is_cwnd_limited(): in slow start it is enough that half of the window was used. */
FP_INLINE u32 is_limiting(const struct tcp_sock *tp)
{
	if (FP_BITFIELD(tp, is_cwnd_limited))
		return 1;
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

FP_INLINE void load(struct hybla *h, const struct tcp_sock *tp)
{
	u64 first = tp->inet_conn.icsk_ca_priv[0];
	u64 second = tp->inet_conn.icsk_ca_priv[1];

	h->snd_cwnd = tp->snd_cwnd;
	h->snd_cwnd_cnt = tp->snd_cwnd_cnt;
	h->snd_ssthresh = tp->snd_ssthresh;
	h->snd_cwnd_clamp = tp->snd_cwnd_clamp;
	h->srtt_us = tp->srtt_us;
	h->is_limiting = is_limiting(tp);
	h->enabled = (u32)first & 1;
	h->cents = (u32)first >> 1;
	h->rho_8 = first >> 32;
	h->rho2_128 = (u32)second;
	h->min_srtt = second >> 32;
	h->rtt0_ms = fp_settings.rtt0;
	/* A setting that has changed since: rho is computed again, from the present RTT. */
	if (tp->inet_conn.icsk_ca_priv[2] != h->rtt0_ms)
		h->rho_8 = 0;
}

FP_INLINE void store(struct tcp_sock *tp, const struct hybla *h)
{
	tp->inet_conn.icsk_ca_priv[0] = h->enabled | (u64)h->cents << 1 | (u64)h->rho_8 << 32;
	tp->inet_conn.icsk_ca_priv[1] = h->rho2_128 | (u64)h->min_srtt << 32;
	tp->inet_conn.icsk_ca_priv[2] = h->rtt0_ms;
	if (tp->snd_cwnd != h->snd_cwnd)
		tp->snd_cwnd = h->snd_cwnd;
	if (tp->snd_cwnd_cnt != h->snd_cwnd_cnt)
		tp->snd_cwnd_cnt = h->snd_cwnd_cnt;
}

SEC("struct_ops/fp_hybla_init")
void fp_hybla_init(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct hybla h;

	load(&h, tp);
	hybla_init(&h);
	store(tp, &h);
	fp_end_pacing(tp);
}

SEC("struct_ops/fp_hybla_cong_avoid")
void fp_hybla_cong_avoid(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct hybla h;

	load(&h, tp);
	hybla_cong_avoid(&h, (u32)ctx[2]);
	store(tp, &h);
}

SEC("struct_ops/fp_hybla_set_state")
void fp_hybla_set_state(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	u64 first = tp->inet_conn.icsk_ca_priv[0];

	tp->inet_conn.icsk_ca_priv[0] = (first & ~1ULL) | ((u8)ctx[1] == FP_CA_OPEN);
}

SEC("struct_ops/fp_hybla_ssthresh")
u32 fp_hybla_ssthresh(u64 *ctx)
{
	return hybla_ssthresh(FP_TCP(ctx)->snd_cwnd);
}

/* tcp_reno_undo_cwnd() */
SEC("struct_ops/fp_hybla_undo_cwnd")
u32 fp_hybla_undo_cwnd(u64 *ctx)
{
	return fp_max32(FP_TCP(ctx)->snd_cwnd, FP_TCP(ctx)->prior_cwnd);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops fp_hybla = {
	.init = (void *)fp_hybla_init,
	.cong_avoid = (void *)fp_hybla_cong_avoid,
	.set_state = (void *)fp_hybla_set_state,
	.ssthresh = (void *)fp_hybla_ssthresh,
	.undo_cwnd = (void *)fp_hybla_undo_cwnd,
	.flags = FP_CONG_NON_RESTRICTED,
	.name = "fp_hybla",
};
