// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * fp_bbr1: BBR v1 as a struct_ops program. Its state is in icsk_ca_priv, laid out as the kernel's own.
 *
 * It leaves min_tso_segs to the kernel's default of two segments, which is bbr_min_tso_segs() from 1.2 Mbit/s on. On a
 * kernel that now and then does not make a call (docs/explanation/bbr3-on-stock-kernels.md, "Skipped BPF calls") the answer to it
 * is undefined, and a whole window leaves as one segment. For the same reason it leaves sndbuf_expand to the kernel's
 * default, twice the window, where bbr_sndbuf_expand() says three times: an undefined answer opens the send buffer as far
 * as tcp_wmem lets it. No other callback's absence shows in what is sent.
 */
/* Of what is kept in icsk_ca_priv: one more with every change, for an update to know whose state it finds. */
#define FP_STATE_LAYOUT 1
#include "kernel.h"
#include "bbr1.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The state where the kernel keeps it, so that only what a core works on passes over the stack. */
FP_INLINE struct bbr1_packed *packed(struct tcp_sock *tp)
{
	return (struct bbr1_packed *)tp->inet_conn.icsk_ca_priv;
}

/*
 * Where tcp_sock's app_limited cannot be written, what ProbeRTT would write there is kept in the hole of the state, and
 * samples of packets that were sent under it are taken as application-limited here. The kernel's mark also says from when
 * it holds; this one counts what was sent in the round trip before it, too.
 */
FP_INLINE void load(struct bbr1 *c, struct tcp_sock *tp)
{
	bbr1_unpack(&c->s, packed(tp));
	fp_read_tcp(&c->tcp, tp);
	if (fp_config.options & FP_OPTION_OWN_MARK && !c->tcp.app_limited && !fp_after(c->tcp.delivered, c->s.hole))
		c->tcp.app_limited = c->s.hole;
}

FP_INLINE void read_sample(struct bbr1 *c, const struct rate_sample *rs)
{
	fp_read_sample(&c->tcp, rs);
	if (!(fp_config.options & FP_OPTION_OWN_MARK) || !c->s.hole)
		return;
	if (fp_after(c->tcp.rs_prior_delivered, c->s.hole))
		c->s.hole = 0;
	else
		c->tcp.rs_flags |= FP_RS_APP_LIMITED;
}

FP_INLINE void store(struct tcp_sock *tp, struct bbr1 *c)
{
	if (fp_config.options & FP_OPTION_OWN_MARK && c->tcp.app_limited != tp->app_limited)
		c->s.hole = c->tcp.app_limited;
	bbr1_pack(packed(tp), &c->s);
	fp_write_tcp(tp, &c->tcp);
}

SEC("struct_ops/fp_bbr1_init")
void fp_bbr1_init(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct bbr1 c;

	load(&c, tp);
	fp_no_sample(&c.tcp);
	/* A socket that was idle when it was given to us has an old stamp. */
	c.tcp.ticks = (u32)(bpf_ktime_get_ns() / (FP_NSEC_PER_USEC * FP_USEC_PER_MSEC));
	bbr1_init(&c);
	store(tp, &c);
	fp_need_pacing(tp);
}

SEC("struct_ops/fp_bbr1_cong_control")
void fp_bbr1_cong_control(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct bbr1 c;

	load(&c, tp);
	read_sample(&c, fp_sample_argument(ctx));
	bbr1_main(&c);
	store(tp, &c);
}

FP_INLINE void begin_to_send(struct tcp_sock *tp)
{
	struct bbr1 c;

	if (!tp->app_limited)
		return;
	load(&c, tp);
	fp_no_sample(&c.tcp);
	bbr1_event(&c, FP_CA_EVENT_TX_START);
	store(tp, &c);
}

FP_ON_TX_START(fp_bbr1, begin_to_send)

SEC("struct_ops/fp_bbr1_set_state")
void fp_bbr1_set_state(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct bbr1 c;

	if ((u8)ctx[1] != FP_CA_LOSS)
		return;
	load(&c, tp);
	fp_no_sample(&c.tcp);
	bbr1_state_change(&c, FP_CA_LOSS);
	store(tp, &c);
}

SEC("struct_ops/fp_bbr1_undo_cwnd")
u32 fp_bbr1_undo_cwnd(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct bbr1 c;
	u32 cwnd;

	load(&c, tp);
	fp_no_sample(&c.tcp);
	cwnd = bbr1_undo(&c);
	store(tp, &c);
	return cwnd;
}

SEC("struct_ops/fp_bbr1_ssthresh")
u32 fp_bbr1_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct bbr1 c;
	u32 ssthresh;

	load(&c, tp);
	fp_no_sample(&c.tcp);
	ssthresh = bbr1_ssthresh(&c);
	store(tp, &c);
	return ssthresh;
}

SEC("struct_ops/fp_bbr1_release")
void fp_bbr1_release(u64 *ctx)
{
	fp_end_pacing(FP_TCP(ctx));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops fp_bbr1 = {
	.init = (void *)fp_bbr1_init,
	.release = (void *)fp_bbr1_release,
	.cong_control = (void *)fp_bbr1_cong_control,
	.cwnd_event = (void *)fp_bbr1_cwnd_event,
	.cwnd_event_tx_start = (void *)fp_bbr1_cwnd_event_tx_start,
	.set_state = (void *)fp_bbr1_set_state,
	.undo_cwnd = (void *)fp_bbr1_undo_cwnd,
	.ssthresh = (void *)fp_bbr1_ssthresh,
	.flags = FP_CONG_NON_RESTRICTED,
	.name = "fp_bbr1",
};
