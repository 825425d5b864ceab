// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * fp_oracle: the kernel's own BBR, called through its kfuncs, with every callback's inputs and outputs
 * written to a ring buffer. What is recorded is therefore the reference implementation itself.
 */
#include "kernel.h"
#include "record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

extern void bbr_init(struct sock *sk) FP_KFUNC;
extern void bbr_main(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs) FP_KFUNC;
extern void bbr_cwnd_event(struct sock *sk, enum tcp_ca_event event) FP_KFUNC;
extern void bbr_set_state(struct sock *sk, u8 new_state) FP_KFUNC;
extern u32 bbr_undo_cwnd(struct sock *sk) FP_KFUNC;
extern u32 bbr_ssthresh(struct sock *sk) FP_KFUNC;
extern u32 bbr_min_tso_segs(struct sock *sk) FP_KFUNC;
extern u32 bbr_sndbuf_expand(struct sock *sk) FP_KFUNC;

extern const u32 CONFIG_HZ __attribute__((section(".kconfig"), weak));

struct {
	__uint(type, FP_MAP_RINGBUF);
	__uint(max_entries, 32 << 20);
} records SEC(".maps");

struct fp_oracle_counts {
	u64 lost; /* callbacks that found the ring full */
	u64 hz;
} fp_oracle_counts SEC(".data.counts");

/* Fills in everything that is known before the callback; NULL when the ring is full. */
FP_INLINE struct fp_record *begin(const struct tcp_sock *tp, u32 op, u32 argument)
{
	struct fp_record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);

	fp_oracle_counts.hz = CONFIG_HZ;
	if (!r) {
		__sync_fetch_and_add(&fp_oracle_counts.lost, 1);
		return 0;
	}
	r->socket = (u64)tp;
	r->op = op;
	r->argument = argument;
	r->result = 0;
	r->reserved = 0;
	fp_read_tcp(&r->tcp, tp);
	fp_no_sample(&r->tcp);
	r->tcp.hz = CONFIG_HZ;
	r->tcp.random = 0;
#pragma unroll
	for (int i = 0; i < 13; i++)
		r->state_before[i] = tp->inet_conn.icsk_ca_priv[i];
	r->tcp.ticks = (u32)bpf_jiffies64();
	return r;
}

FP_INLINE void end(struct fp_record *r, const struct tcp_sock *tp)
{
	r->ticks = (u32)bpf_jiffies64();
#pragma unroll
	for (int i = 0; i < 13; i++)
		r->state_after[i] = tp->inet_conn.icsk_ca_priv[i];
	r->pacing_rate = tp->inet_conn.icsk_inet.sk.sk_pacing_rate;
	r->snd_cwnd = tp->snd_cwnd;
	r->snd_ssthresh = tp->snd_ssthresh;
	r->app_limited = tp->app_limited;
	bpf_ringbuf_submit(r, 0);
}

SEC("struct_ops/fp_oracle_init")
void fp_oracle_init(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct fp_record *r = begin(tp, FP_OP_INIT, 0);

	bbr_init((struct sock *)tp);
	if (r)
		end(r, tp);
}

SEC("struct_ops/fp_oracle_cong_control")
void fp_oracle_cong_control(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	const struct rate_sample *rs = (const struct rate_sample *)ctx[3];
	struct fp_record *r = begin(tp, FP_OP_MAIN, 0);

	if (r)
		fp_read_sample(&r->tcp, rs);
	bbr_main((struct sock *)tp, (u32)ctx[1], (int)ctx[2], rs);
	if (r)
		end(r, tp);
}

SEC("struct_ops/fp_oracle_cwnd_event")
void fp_oracle_cwnd_event(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct fp_record *r = begin(tp, FP_OP_EVENT, (u32)ctx[1]);

	bbr_cwnd_event((struct sock *)tp, (enum tcp_ca_event)ctx[1]);
	if (r)
		end(r, tp);
}

SEC("struct_ops/fp_oracle_set_state")
void fp_oracle_set_state(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct fp_record *r = begin(tp, FP_OP_STATE, (u8)ctx[1]);

	bbr_set_state((struct sock *)tp, (u8)ctx[1]);
	if (r)
		end(r, tp);
}

SEC("struct_ops/fp_oracle_undo_cwnd")
u32 fp_oracle_undo_cwnd(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct fp_record *r = begin(tp, FP_OP_UNDO, 0);
	u32 cwnd = bbr_undo_cwnd((struct sock *)tp);

	if (r) {
		r->result = cwnd;
		end(r, tp);
	}
	return cwnd;
}

SEC("struct_ops/fp_oracle_ssthresh")
u32 fp_oracle_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct fp_record *r = begin(tp, FP_OP_SSTHRESH, 0);
	u32 ssthresh = bbr_ssthresh((struct sock *)tp);

	if (r) {
		r->result = ssthresh;
		end(r, tp);
	}
	return ssthresh;
}

/* Called for every packet and pure: one call in 32 is enough of a record. */
SEC("struct_ops/fp_oracle_min_tso_segs")
u32 fp_oracle_min_tso_segs(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct fp_record *r;
	u32 segs;

	if (bpf_get_prandom_u32() & 31)
		return bbr_min_tso_segs((struct sock *)tp);
	r = begin(tp, FP_OP_MIN_TSO, 0);
	segs = bbr_min_tso_segs((struct sock *)tp);
	if (r) {
		r->result = segs;
		end(r, tp);
	}
	return segs;
}

SEC("struct_ops/fp_oracle_sndbuf_expand")
u32 fp_oracle_sndbuf_expand(u64 *ctx)
{
	return bbr_sndbuf_expand((struct sock *)FP_TCP(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops fp_oracle = {
	.init = (void *)fp_oracle_init,
	.cong_control = (void *)fp_oracle_cong_control,
	.cwnd_event = (void *)fp_oracle_cwnd_event,
	.set_state = (void *)fp_oracle_set_state,
	.undo_cwnd = (void *)fp_oracle_undo_cwnd,
	.ssthresh = (void *)fp_oracle_ssthresh,
	.min_tso_segs = (void *)fp_oracle_min_tso_segs,
	.sndbuf_expand = (void *)fp_oracle_sndbuf_expand,
	.flags = FP_CONG_NON_RESTRICTED,
	.name = "fp_oracle",
};
