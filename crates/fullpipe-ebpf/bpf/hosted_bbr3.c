/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * fp_bbr3's program, compiled for the host: for tests that make a kernel's calls, and leave some out (tests/bbr3_program.rs). The
 * sources of the program are as they are; what only BPF has is put in its place here.
 */
#define __bpf__
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-variable"
/* Helpers of the kernel, which are addresses there. */
#define bpf_get_prandom_u32 fp_kernels_get_prandom_u32
#define bpf_ktime_get_ns fp_kernels_ktime_get_ns
#define bpf_sk_storage_get fp_kernels_sk_storage_get
#define bpf_probe_read_kernel fp_kernels_probe_read_kernel
#define __builtin_preserve_field_info(field, kind) ((kind) == 1 ? 8 : 0)
/* Attributes of a program for the loader. */
#define preserve_access_index unused
#define section(name) unused
#include "kernel.h"
#undef bpf_get_prandom_u32
#undef bpf_ktime_get_ns
#undef bpf_sk_storage_get
#undef bpf_probe_read_kernel
#undef __builtin_preserve_field_info
#undef FP_STATE_LAYOUT
#undef FP_BITFIELD
#undef FP_FIELD_EXISTS
#undef FP_READ_BITFIELD

static u64 fp_now;

static u64 bpf_ktime_get_ns(void)
{
	return fp_now;
}

static u32 bpf_get_prandom_u32(void)
{
	return 1;
}

static long bpf_probe_read_kernel(void *to, u32 size, const void *from)
{
	__builtin_memcpy(to, from, size);
	return 0;
}

static void *bpf_sk_storage_get(void *map, void *sk, void *value, u64 flags);

static const struct rate_sample *fp_third_argument(const u64 *ctx)
{
	return (const struct rate_sample *)ctx[3];
}

#define FP_BITFIELD(base, field) ((u32)(base)->field)
#define FP_FIELD_EXISTS(field) 1
#define FP_READ_BITFIELD(base, field) ((u32)(base)->field)
#define fp_sample_argument fp_third_argument

/* Calls of HandleLostPacket() of the latest ACK. */
struct fp_hosted_lost {
	u64 bytes;
	u64 tx_in_flight;
	u64 lost;
	u64 app_limited;
};

#define FP_HOSTED_MOST 256U
static struct fp_hosted_lost fp_told[FP_HOSTED_MOST];
static u32 fp_tellings;

static void fp_tell(u64 bytes, u64 tx_in_flight, u64 lost, u64 app_limited)
{
	fp_told[fp_tellings++ % FP_HOSTED_MOST] = (struct fp_hosted_lost){ bytes, tx_in_flight, lost, app_limited };
}

#define FP_ON_LOST(f, socket, all, packet) \
	((void)(all), fp_tell((packet)->bytes, (packet)->tx_in_flight, (packet)->lost, (packet)->app_limited))
#include "bbr3.bpf.c"

static struct tcp_sock fp_socket;
static struct sk_buff fp_queue[FP_HOSTED_MOST];
static struct flow fp_flow;
static u32 fp_has_flow;

static void *bpf_sk_storage_get(void *map, void *sk, void *value, u64 flags)
{
	if (!fp_has_flow && flags & FP_SK_STORAGE_CREATE) {
		__builtin_memset(&fp_flow, 0, sizeof(fp_flow));
		fp_has_flow = 1;
	}
	return fp_has_flow ? &fp_flow : 0;
}

/* What a test says of the socket, and what it then sees of it. */
struct fp_hosted {
	u64 now;
	u64 pacing_rate;
	u64 wstamp_ns;
	u32 mss;
	u32 snd_cwnd;
	u32 snd_ssthresh;
	u32 snd_una;
	u32 snd_nxt;
	u32 packets_out;
	u32 lost_out;
	u32 retrans_out;
	u32 delivered;
	u32 delivered_ce;
	u32 lost;
	u32 srtt_us;
	u32 app_limited;
	u32 ca_state;
	u32 sack_ok;
	u32 is_paced;
	/* enum bbr3_variant, of the controller. */
	u32 variant;
	/* Of an ACK; where the packet ends that its sample is of. */
	u32 end_seq;
	u32 prior_delivered;
	u32 acked_sacked;
	s32 sample_delivered;
	u32 interval_us;
	s32 rtt_us;
	u32 is_ack_delayed;
	/* What the core believes. */
	u64 core_tx_in_flight;
	u64 core_lost_since;
	u64 core_delivered;
	u64 core_lost;
	u64 core_prior_delivered;
	u64 core_newly_acked;
	u64 core_newly_lost;
	u64 core_initial_cwnd;
	u64 core_prior_cwnd;
	u64 core_next_departure;
	u64 core_inflight_shortterm;
	u32 core_ce_count;
	u32 core_rounds;
	u32 core_mode;
	u32 core_recovery;
	u32 core_has_selective_acks;
	u32 core_is_loss_in_round;
	u32 core_undo_saved;
	u32 core_lost_ranges;
	u32 core_is_ack_delayed;
	u32 has_flow;
};

/* A segment of the retransmission queue. */
struct fp_hosted_segment {
	u32 seq;
	u32 end_seq;
	u32 sacked;
	u32 delivered;
	u32 app_limited;
};

/* The root of a tree of the segments from `from` to before `to`, below `parent`. */
static struct rb_node *fp_tree(u32 from, u32 to, struct rb_node *parent)
{
	u32 middle = from + (to - from) / 2;
	struct rb_node *node = &fp_queue[middle].rbnode;

	if (from == to)
		return 0;
	/* The lowest bit is the colour, which nothing here goes by: black. */
	node->__rb_parent_color = (unsigned long)parent | 1;
	node->rb_left = fp_tree(from, middle, node);
	node->rb_right = fp_tree(middle + 1, to, node);
	return node;
}

/* The socket's retransmission queue, in order of sequence; `hint` is where TCP retransmits from, none if it is not in the queue. */
void fp_hosted_queue(const struct fp_hosted_segment *segments, u32 count, u32 hint)
{
	count = fp_min32(count, FP_HOSTED_MOST);
	for (u32 i = 0; i < count; i++) {
		struct tcp_skb_cb *cb = (struct tcp_skb_cb *)fp_queue[i].cb;

		cb->seq = segments[i].seq;
		cb->end_seq = segments[i].end_seq;
		cb->sacked = (u8)segments[i].sacked;
		cb->tx.delivered = segments[i].delivered;
		cb->tx.is_app_limited = segments[i].app_limited & 1;
	}
	fp_socket.inet_conn.icsk_inet.sk.tcp_rtx_queue.rb_node = fp_tree(0, count, 0);
	fp_socket.retransmit_skb_hint = hint < count ? &fp_queue[hint] : 0;
}

/* The `number`th call of HandleLostPacket() of the latest ACK; 0 if there were fewer. */
u32 fp_hosted_told(u32 number, struct fp_hosted_lost *lost)
{
	if (number >= fp_min32(fp_tellings, FP_HOSTED_MOST))
		return 0;
	*lost = fp_told[number];
	return 1;
}

/* The socket is closed, and another one opened. */
void fp_hosted_forget(void)
{
	fp_has_flow = 0;
	__builtin_memset(&fp_socket, 0, sizeof(fp_socket));
}

enum fp_hosted_call {
	FP_HOSTED_INIT = 0,
	FP_HOSTED_RELEASE = 1,
	FP_HOSTED_CONG_CONTROL = 2,
	FP_HOSTED_SET_STATE = 3,
	FP_HOSTED_SSTHRESH = 4,
	FP_HOSTED_UNDO_CWND = 5,
};

/* Makes one call; gives what it answers, if it does. */
u32 fp_hosted_call(struct fp_hosted *h, u32 call, u32 argument)
{
	struct tcp_sock *tp = &fp_socket;
	struct inet_connection_sock *icsk = &tp->inet_conn;
	struct sock *sk = &icsk->icsk_inet.sk;
	struct rate_sample rs = {
		.prior_delivered = h->prior_delivered,
		.delivered = h->sample_delivered,
		.interval_us = h->interval_us,
		.rtt_us = h->rtt_us,
		.acked_sacked = h->acked_sacked,
		.last_end_seq = h->end_seq,
		.is_ack_delayed = h->is_ack_delayed != 0,
	};
	u64 ctx[4] = { (u64)tp, argument, 0, (u64)&rs };
	const struct bbr3 *b = &fp_flow.b;
	u32 answer = 0;

	fp_tellings = 0;
	fp_settings.variant = h->variant;
	fp_now = tp->tcp_clock_cache = h->now;
	tp->tcp_wstamp_ns = h->wstamp_ns;
	sk->sk_pacing_rate = h->pacing_rate;
	sk->sk_max_pacing_rate = ~0UL;
	sk->sk_pacing_status = h->is_paced;
	icsk->icsk_ca_state = h->ca_state;
	tp->rx_opt.sack_ok = h->sack_ok;
	tp->mss_cache = h->mss;
	tp->snd_cwnd = h->snd_cwnd;
	tp->snd_cwnd_clamp = ~0U;
	tp->snd_ssthresh = h->snd_ssthresh;
	tp->snd_una = h->snd_una;
	tp->snd_nxt = h->snd_nxt;
	tp->packets_out = h->packets_out;
	tp->lost_out = h->lost_out;
	tp->retrans_out = h->retrans_out;
	tp->delivered = h->delivered;
	tp->delivered_ce = h->delivered_ce;
	tp->lost = h->lost;
	tp->srtt_us = h->srtt_us;
	tp->app_limited = h->app_limited;

	switch (call) {
	case FP_HOSTED_INIT:
		fp_bbr3_init(ctx);
		break;
	case FP_HOSTED_RELEASE:
		fp_bbr3_release(ctx);
		break;
	case FP_HOSTED_CONG_CONTROL:
		fp_bbr3_cong_control(ctx);
		break;
	case FP_HOSTED_SET_STATE:
		fp_bbr3_set_state(ctx);
		break;
	case FP_HOSTED_SSTHRESH:
		answer = fp_bbr3_ssthresh(ctx);
		break;
	case FP_HOSTED_UNDO_CWND:
		answer = fp_bbr3_undo_cwnd(ctx);
		break;
	}

	h->pacing_rate = sk->sk_pacing_rate;
	h->is_paced = sk->sk_pacing_status;
	h->snd_cwnd = tp->snd_cwnd;
	h->snd_ssthresh = tp->snd_ssthresh;
	h->app_limited = tp->app_limited;
	h->core_tx_in_flight = b->rs.tx_in_flight;
	h->core_lost_since = b->rs.lost;
	h->core_delivered = b->c.delivered;
	h->core_lost = b->c.lost;
	h->core_prior_delivered = b->rs.prior_delivered;
	h->core_newly_acked = b->rs.newly_acked;
	h->core_newly_lost = b->rs.newly_lost;
	h->core_initial_cwnd = b->c.initial_cwnd;
	h->core_prior_cwnd = b->prior_cwnd;
	h->core_next_departure = b->c.next_departure;
	h->core_inflight_shortterm = b->inflight_shortterm;
	h->core_ce_count = b->rs.ce_count;
	h->core_rounds = b->round_count;
	h->core_mode = b->mode;
	h->core_recovery = b->c.recovery;
	h->core_has_selective_acks = b->c.has_selective_acks;
	h->core_is_loss_in_round = b->is_loss_in_round;
	h->core_undo_saved = b->undo_saved;
	h->core_lost_ranges = b->rs.lost_ranges;
	h->core_is_ack_delayed = b->rs.is_ack_delayed;
	h->has_flow = fp_has_flow;
	return answer;
}
