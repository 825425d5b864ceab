// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * fp_oracle: the kernel's own BBR, called through its kfuncs, with every callback's inputs and outputs
 * written to a ring buffer. What is recorded is therefore the reference implementation itself.
 */
#include "kernel.h"
#include "record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

extern const u32 CONFIG_HZ __attribute__((section(".kconfig"), weak));

struct {
	__uint(type, FP_MAP_RINGBUF);
	__uint(max_entries, 32 << 20);
} records SEC(".maps");

struct fp_oracle_counts {
	u64 lost; /* callbacks that found the ring full */
	u64 hz;
} fp_oracle_counts SEC(".data.counts");

/*
 * Some branches need hours, a terabit or a coincidence. So, when asked for, one callback in 16 (and one in 4 of
 * those with losses or after idle) finds some part of the state changed; what is recorded as the state before is the changed one, and what the kernel makes of
 * it is as authoritative as ever. Word by word of struct bbr (two 32-bit words in each of icsk_ca_priv).
 */
FP_INLINE int perturb(struct tcp_sock *tp, u32 ticks, u32 which, u32 random)
{
	u64 *priv = tp->inet_conn.icsk_ca_priv;
	u32 value = random >> 12;
	const u64 high = 0xffffffff00000000ULL, low = 0xffffffffULL;

	switch (which) {
	case 0: /* an aggregation epoch about to overflow its counter */
		priv[12] = (priv[12] & ~(0xfffffULL << 32)) | 0xffffeULL << 32;
		priv[11] = tp->tcp_mstamp;
		break;
	case 1: /* no RTT sample yet */
		priv[0] |= low;
		break;
	case 2: /* min_rtt expired */
		priv[0] = (priv[0] & low) | (u64)(ticks - 11 * CONFIG_HZ) << 32;
		break;
	case 3: /* a policer was found long ago */
		priv[7] = (priv[7] & 0x00ffffffULL) | 0x80000000ULL | 47ULL << 24 | (u64)(value | 1) << 32;
		break;
	case 4: /* a policer's first interval is about to end */
		priv[7] = (priv[7] & 0x00ffffffULL) | 1ULL << 23 | (u64)(value & 31) << 24 |
			  (value & 32 ? priv[2] << 32 : 0);
		priv[8] = (u32)(tp->delivered - (value >> 6 & 63)) | (tp->delivered_mstamp / 1000 - (value >> 12)) << 32;
		priv[9] = (priv[9] & high) | (u32)(tp->lost - (value >> 4 & 63));
		break;
	case 5: /* no RTT seen */
		priv[9] &= ~(1ULL << 58);
		break;
	case 6: /* an interval of more than an hour */
		priv[7] = (priv[7] & ~(0xff000000ULL)) | 1ULL << 23 | 5ULL << 24;
		priv[8] = (u32)(tp->delivered - 4) | (tp->delivered_mstamp / 1000 - 5000000) << 32;
		priv[9] = (priv[9] & high) | (u32)(tp->lost - 4);
		break;
	case 7: /* another recovery state before */
		priv[7] = (priv[7] & ~(0x78ULL)) | (u64)(value % 5) << 3 | (u64)(value >> 4 & 1) << 6;
		break;
	case 8: /* the pipe is not full, or looks so */
		priv[9] = (priv[9] & ~(7ULL << 52)) | (u64)(value & 3) << 53;
		priv[10] = (priv[10] & low) | (u64)value << 36;
		break;
	case 9: /* ProbeRTT over, or not yet */
		priv[7] = (priv[7] & ~7ULL) | 3;
		priv[1] = (priv[1] & high) | (value & 3 ? (u32)(ticks - 1 + (value & 1)) : 0);
		break;
	case 10: /* any phase of ProbeBW */
		priv[7] = (priv[7] & ~7ULL) | 2;
		priv[9] = (priv[9] & ~(7ULL << 55)) | (u64)(value & 7) << 55 | 1ULL << 52;
		break;
	case 11:
		priv[7] |= 1ULL << 8; /* idle_restart */
		break;
	case 12: /* an old bandwidth filter */
		priv[1] = (priv[1] & low) | (priv[4] & high) - ((u64)(value & 15) << 32);
		priv[2] = (priv[2] & low) | (priv[4] & high) - ((u64)(value >> 4 & 15) << 32);
		priv[3] = (priv[3] & low) | (priv[4] & high) - ((u64)(value >> 8 & 15) << 32);
		break;
	case 13: /* an aggregation window of any age */
		priv[12] = (priv[12] & ~(31ULL << 52)) | (u64)(value & 31) << 52;
		break;
	case 14: /* nothing delivered in a policer's interval */
		priv[7] = (priv[7] & ~(0xff000000ULL)) | 1ULL << 23 | 5ULL << 24;
		priv[8] = (priv[8] & high) | tp->delivered;
		break;
	case 15:
		priv[7] = (priv[7] & ~7ULL) | 1; /* Drain */
		break;
	case 16: /* a policer of some 150 kbit/s, seen over ten seconds, or of a tenth of that */
		priv[7] = 2 | 1ULL << 23 | 5ULL << 24 | (u64)(value & 256 ? 8 + (value & 31) : 100 + (value & 127)) << 32;
		priv[8] = (u32)(tp->delivered - 100 - (value >> 9 & 31)) |
			  (tp->delivered_mstamp / 1000 - (value & 256 ? 100000 : 10000)) << 32;
		priv[9] = (priv[9] & high) | (u32)(tp->lost - 60);
		break;
	case 17: /* an interval that began this millisecond */
		priv[7] = 2 | 1ULL << 23 | 5ULL << 24;
		priv[8] = (u32)(tp->delivered - 4) | (tp->delivered_mstamp / 1000) << 32;
		priv[9] = (priv[9] & high) | (u32)(tp->lost - 4);
		break;
	case 18: /* just as lossy as a policer's interval must be, or a little less */
		priv[7] = 2 | 1ULL << 23 | 5ULL << 24;
		priv[8] = (u32)(tp->delivered - (value & 1 ? 256 : 255)) | (tp->delivered_mstamp / 1000 - 5000) << 32;
		priv[9] = (priv[9] & high) | (u32)(tp->lost - (value & 1 ? 50 : 49));
		break;
	case 19: /* an interval about as long as its microseconds can be counted in 32 bits */
		priv[7] = 2 | 1ULL << 23 | 5ULL << 24;
		priv[8] = (u32)(tp->delivered - 4) |
			  (tp->delivered_mstamp / 1000 - 4294967 + (value & 1 ? 0 : value & 2 ? 2000 : -2000)) << 32;
		priv[9] = (priv[9] & high) | (u32)(tp->lost - 4);
		break;
	case 20: /* a round ends in which the bandwidth has grown by just enough, or not quite, for the pipe not to be full */
		priv[5] = (priv[5] & high) | (u32)(tp->delivered - 100000);
		priv[9] &= ~(7ULL << 52);
		priv[10] = (priv[10] & low) | (((priv[2] & low) * 4 + 4) / 5 + (value & 1)) << 32;
		break;
	case 21: /* a full pipe of many packets, out of Startup */
		priv[7] &= ~7ULL;
		priv[9] |= 1ULL << 52;
		priv[0] = (priv[0] & high) | (5000000 + (value & 0xfffff));
		break;
	case 22: /* more aggregation than the window allows for, at a bandwidth where that is a hair from another packet */
		priv[9] |= 1ULL << 52;
		priv[1] = (priv[1] & low) | (priv[4] & high);
		priv[2] = (value & 1 ? 19126 : 19965) | (priv[4] & high);
		priv[3] = priv[2];
		priv[4] = priv[2];
		priv[12] = (priv[12] & high) | 1500 | 1500 << 16;
		priv[7] &= ~(1ULL << 31);
		tp->snd_cwnd = 1000;
		break;
	case 23: /* an interval whose bandwidth is a hair further from the last one's than an eighth */
		priv[7] = 2 | 1ULL << 23 | 5ULL << 24 | 7455ULL << 32;
		priv[8] = (u32)(tp->delivered - 500) | (tp->delivered_mstamp / 1000 - 1000) << 32;
		priv[9] = (priv[9] & high) | (u32)(tp->lost - 200);
		break;
	}
	return 0;
}

/* Fills in everything that is known before the callback; NULL when the ring is full. */
FP_INLINE struct fp_record *begin(struct tcp_sock *tp, u32 op, u32 argument, u32 losses)
{
	struct fp_record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);

	fp_oracle_counts.hz = CONFIG_HZ;
	if (!r) {
		__sync_fetch_and_add(&fp_oracle_counts.lost, 1);
		return 0;
	}
	if (fp_config.options & FP_OPTION_PERTURB && op != FP_OP_INIT) {
		u32 random = bpf_get_prandom_u32(), ticks = (u32)bpf_jiffies64();

		if (op == FP_OP_MIN_TSO && !(random & 3)) {
			/* About the rate below which a burst is one segment. */
			tp->inet_conn.icsk_inet.sk.sk_pacing_rate = 149998 + (random >> 4) % 4;
		} else if (op == FP_OP_STATE && argument == FP_CA_LOSS) {
			perturb(tp, ticks, 16, random);
		} else if (losses && !(random & 3))
			perturb(tp, ticks, random >> 4 & 1 ? (random >> 7 & 3 ? 16 + (random >> 5 & 3) : 23) :
					   random >> 5 & 1 ? 4 : 6 + (random >> 6 & 8), random);
		else if (op == FP_OP_EVENT && !(random & 3))
			perturb(tp, ticks, 9, random);
		else if (!(random & 15))
			perturb(tp, ticks, random >> 4 & 1 ? 20 + (random >> 6) % 3 : random >> 6 & 15, random);
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
	struct fp_record *r = begin(tp, FP_OP_INIT, 0, 0);

	bbr_init((struct sock *)tp);
	if (r)
		end(r, tp);
}

SEC("struct_ops/fp_oracle_cong_control")
void fp_oracle_cong_control(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	const struct rate_sample *rs = (const struct rate_sample *)ctx[3];
	struct fp_record *r = begin(tp, FP_OP_MAIN, 0, rs->losses);

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
	struct fp_record *r = begin(tp, FP_OP_EVENT, (u32)ctx[1], 0);

	bbr_cwnd_event((struct sock *)tp, (enum tcp_ca_event)ctx[1]);
	if (r)
		end(r, tp);
}

SEC("struct_ops/fp_oracle_cwnd_event_tx_start")
void fp_oracle_cwnd_event_tx_start(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct fp_record *r = begin(tp, FP_OP_EVENT, FP_CA_EVENT_TX_START, 0);

	bbr_cwnd_event_tx_start((struct sock *)tp);
	if (r)
		end(r, tp);
}

SEC("struct_ops/fp_oracle_set_state")
void fp_oracle_set_state(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct fp_record *r = begin(tp, FP_OP_STATE, (u8)ctx[1], 0);

	bbr_set_state((struct sock *)tp, (u8)ctx[1]);
	if (r)
		end(r, tp);
}

SEC("struct_ops/fp_oracle_undo_cwnd")
u32 fp_oracle_undo_cwnd(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct fp_record *r = begin(tp, FP_OP_UNDO, 0, 0);
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
	struct fp_record *r = begin(tp, FP_OP_SSTHRESH, 0, 0);
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
	r = begin(tp, FP_OP_MIN_TSO, 0, 0);
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
	.cwnd_event_tx_start = (void *)fp_oracle_cwnd_event_tx_start,
	.set_state = (void *)fp_oracle_set_state,
	.undo_cwnd = (void *)fp_oracle_undo_cwnd,
	.ssthresh = (void *)fp_oracle_ssthresh,
	.min_tso_segs = (void *)fp_oracle_min_tso_segs,
	.sndbuf_expand = (void *)fp_oracle_sndbuf_expand,
	.flags = FP_CONG_NON_RESTRICTED,
	.name = "fp_oracle",
};
