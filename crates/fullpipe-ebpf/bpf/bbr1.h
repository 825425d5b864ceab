/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * BBR v1 with exactly the arithmetic of Linux's net/ipv4/tcp_bbr.c: bandwidth in packets per
 * microsecond times 2^24, gains in 1/256, the same order of shifts and the same truncations, so that
 * states compare bit by bit. A pure core: it knows the connection only as struct fp_tcp.
 *
 * The state is kept in the kernel's own 104-byte layout between callbacks and unpacked into plain
 * fields during one, because the verifier follows plain fields well and bit-fields badly.
 */
#ifndef FP_BBR1_H
#define FP_BBR1_H

#include "types.h"

#define BBR1_BW_SCALE 24
#define BBR1_BW_UNIT (1U << BBR1_BW_SCALE)
#define BBR1_GAIN_SCALE 8
#define BBR1_GAIN_UNIT (1U << BBR1_GAIN_SCALE)

/* 2/ln 2: the least gain that doubles the delivery rate every round (2885/1000, plus one unit). */
#define BBR1_HIGH_GAIN (BBR1_GAIN_UNIT * 2885 / 1000 + 1)
#define BBR1_DRAIN_GAIN (BBR1_GAIN_UNIT * 1000 / 2885)
#define BBR1_CWND_GAIN (BBR1_GAIN_UNIT * 2)
#define BBR1_CYCLE_LEN 8U
#define BBR1_CYCLE_RAND 7U
#define BBR1_BW_WINDOW_ROUNDS (BBR1_CYCLE_LEN + 2)
#define BBR1_MIN_RTT_WINDOW_S 10U
#define BBR1_PROBE_RTT_MS 200U
#define BBR1_PROBE_RTT_CWND 4U
#define BBR1_PACING_MARGIN_PERCENT 1U
#define BBR1_MIN_TSO_RATE_BITS 1200000U
#define BBR1_FULL_BW_THRESHOLD (BBR1_GAIN_UNIT * 5 / 4)
#define BBR1_FULL_BW_ROUNDS 3U
#define BBR1_LT_MIN_ROUNDS 4U
#define BBR1_LT_LOSS_THRESHOLD 50U
#define BBR1_LT_BW_RATIO (BBR1_GAIN_UNIT / 8)
#define BBR1_LT_BW_DIFF_BYTES (4000U / 8)
#define BBR1_LT_MAX_ROUNDS 48U
#define BBR1_AGGREGATION_WINDOW_ROUNDS 5U
#define BBR1_AGGREGATION_EPOCH_MAX (1U << 20)
#define BBR1_AGGREGATION_MAX_US 100000U

enum bbr1_mode {
	BBR1_STARTUP = 0,
	BBR1_DRAIN = 1,
	BBR1_PROBE_BW = 2,
	BBR1_PROBE_RTT = 3,
};

/* The layout of the kernel's struct bbr, with each group of bit-fields as one word. */
struct bbr1_packed {
	u32 min_rtt_us;
	u32 min_rtt_stamp;
	u32 probe_rtt_done_stamp;
	u32 bw[6]; /* struct minmax: three pairs of round and bandwidth */
	u32 rtt_cnt;
	u32 next_rtt_delivered;
	u32 hole;
	u64 cycle_mstamp;
	u32 modes;
	u32 lt_bw;
	u32 lt_last_delivered;
	u32 lt_last_stamp;
	u32 lt_last_lost;
	u32 gains;
	u32 prior_cwnd;
	u32 full_bw;
	u64 ack_epoch_mstamp;
	u16 extra_acked[2];
	u32 aggregation;
};
_Static_assert(sizeof(struct bbr1_packed) == 104, "the size of icsk_ca_priv");

struct bbr1_state {
	u64 cycle_mstamp;
	u64 ack_epoch_mstamp;
	struct fp_best bw[3];
	u32 min_rtt_us;
	u32 min_rtt_stamp;
	u32 probe_rtt_done_stamp;
	u32 rtt_cnt;
	u32 next_rtt_delivered;
	u32 lt_bw;
	u32 lt_last_delivered;
	u32 lt_last_stamp;
	u32 lt_last_lost;
	u32 prior_cwnd;
	u32 full_bw;
	u32 ack_epoch_acked;
	u32 hole;
	u16 extra_acked[2];
	u16 pacing_gain;
	u16 cwnd_gain;
	u8 mode;
	u8 prev_ca_state;
	u8 packet_conservation;
	u8 round_start;
	u8 idle_restart;
	u8 probe_rtt_round_done;
	u8 lt_is_sampling;
	u8 lt_rtt_cnt;
	u8 lt_use_bw;
	u8 full_bw_reached;
	u8 full_bw_cnt;
	u8 cycle_idx;
	u8 has_seen_rtt;
	u8 extra_acked_win_rtts;
	u8 extra_acked_win_idx;
};

/* One callback: the connection and the state it changes. */
struct bbr1 {
	struct fp_tcp tcp;
	struct bbr1_state s;
};

FP_INLINE void bbr1_unpack(struct bbr1_state *s, const struct bbr1_packed *p)
{
	s->min_rtt_us = p->min_rtt_us;
	s->min_rtt_stamp = p->min_rtt_stamp;
	s->probe_rtt_done_stamp = p->probe_rtt_done_stamp;
	s->bw[0].t = p->bw[0];
	s->bw[0].v = p->bw[1];
	s->bw[1].t = p->bw[2];
	s->bw[1].v = p->bw[3];
	s->bw[2].t = p->bw[4];
	s->bw[2].v = p->bw[5];
	s->rtt_cnt = p->rtt_cnt;
	s->next_rtt_delivered = p->next_rtt_delivered;
	s->hole = p->hole;
	s->cycle_mstamp = p->cycle_mstamp;
	s->mode = p->modes & 7;
	s->prev_ca_state = p->modes >> 3 & 7;
	s->packet_conservation = p->modes >> 6 & 1;
	s->round_start = p->modes >> 7 & 1;
	s->idle_restart = p->modes >> 8 & 1;
	s->probe_rtt_round_done = p->modes >> 9 & 1;
	s->lt_is_sampling = p->modes >> 23 & 1;
	s->lt_rtt_cnt = p->modes >> 24 & 127;
	s->lt_use_bw = p->modes >> 31;
	s->lt_bw = p->lt_bw;
	s->lt_last_delivered = p->lt_last_delivered;
	s->lt_last_stamp = p->lt_last_stamp;
	s->lt_last_lost = p->lt_last_lost;
	s->pacing_gain = p->gains & 1023;
	s->cwnd_gain = p->gains >> 10 & 1023;
	s->full_bw_reached = p->gains >> 20 & 1;
	s->full_bw_cnt = p->gains >> 21 & 3;
	s->cycle_idx = p->gains >> 23 & 7;
	s->has_seen_rtt = p->gains >> 26 & 1;
	s->prior_cwnd = p->prior_cwnd;
	s->full_bw = p->full_bw;
	s->ack_epoch_mstamp = p->ack_epoch_mstamp;
	s->extra_acked[0] = p->extra_acked[0];
	s->extra_acked[1] = p->extra_acked[1];
	s->ack_epoch_acked = p->aggregation & 0xfffff;
	s->extra_acked_win_rtts = p->aggregation >> 20 & 31;
	s->extra_acked_win_idx = p->aggregation >> 25 & 1;
}

FP_INLINE void bbr1_pack(struct bbr1_packed *p, const struct bbr1_state *s)
{
	p->min_rtt_us = s->min_rtt_us;
	p->min_rtt_stamp = s->min_rtt_stamp;
	p->probe_rtt_done_stamp = s->probe_rtt_done_stamp;
	p->bw[0] = s->bw[0].t;
	p->bw[1] = (u32)s->bw[0].v;
	p->bw[2] = s->bw[1].t;
	p->bw[3] = (u32)s->bw[1].v;
	p->bw[4] = s->bw[2].t;
	p->bw[5] = (u32)s->bw[2].v;
	p->rtt_cnt = s->rtt_cnt;
	p->next_rtt_delivered = s->next_rtt_delivered;
	p->hole = s->hole;
	p->cycle_mstamp = s->cycle_mstamp;
	p->modes = (s->mode & 7U) | (s->prev_ca_state & 7U) << 3 | (s->packet_conservation & 1U) << 6 |
		   (s->round_start & 1U) << 7 | (s->idle_restart & 1U) << 8 | (s->probe_rtt_round_done & 1U) << 9 |
		   (s->lt_is_sampling & 1U) << 23 | (s->lt_rtt_cnt & 127U) << 24 | (u32)s->lt_use_bw << 31;
	p->lt_bw = s->lt_bw;
	p->lt_last_delivered = s->lt_last_delivered;
	p->lt_last_stamp = s->lt_last_stamp;
	p->lt_last_lost = s->lt_last_lost;
	p->gains = (s->pacing_gain & 1023U) | (s->cwnd_gain & 1023U) << 10 | (s->full_bw_reached & 1U) << 20 |
		   (s->full_bw_cnt & 3U) << 21 | (s->cycle_idx & 7U) << 23 | (s->has_seen_rtt & 1U) << 26;
	p->prior_cwnd = s->prior_cwnd;
	p->full_bw = s->full_bw;
	p->ack_epoch_mstamp = s->ack_epoch_mstamp;
	p->extra_acked[0] = s->extra_acked[0];
	p->extra_acked[1] = s->extra_acked[1];
	p->aggregation = (s->ack_epoch_acked & 0xfffff) | (s->extra_acked_win_rtts & 31U) << 20 |
			 (s->extra_acked_win_idx & 1U) << 25;
}

FP_INLINE u32 bbr1_max_bw(const struct bbr1 *c)
{
	return (u32)c->s.bw[0].v;
}

/* The bandwidth in use: the long-term (policed) one when it was found, else the windowed maximum. */
FP_INLINE u32 bbr1_bw(const struct bbr1 *c)
{
	return c->s.lt_use_bw ? c->s.lt_bw : bbr1_max_bw(c);
}

/* bbr_rate_bytes_per_sec(): the order of the shifts keeps 2.9 Tbit/s inside 64 bits. */
FP_INLINE u64 bbr1_bytes_per_sec(const struct bbr1 *c, u64 bw, u32 gain)
{
	u64 rate = bw * c->tcp.mss;

	rate *= gain;
	rate >>= BBR1_GAIN_SCALE;
	rate *= FP_USEC_PER_SEC / 100 * (100 - BBR1_PACING_MARGIN_PERCENT);
	return rate >> BBR1_BW_SCALE;
}

FP_INLINE u64 bbr1_pacing_rate(const struct bbr1 *c, u32 bw, u32 gain)
{
	return fp_min64(bbr1_bytes_per_sec(c, bw, gain), c->tcp.max_pacing_rate);
}

/* bbr_init_pacing_rate_from_rtt(): high_gain times a window each RTT, or each millisecond before any RTT. */
FP_INLINE void bbr1_init_pacing_rate(struct bbr1 *c)
{
	u32 rtt_us = FP_USEC_PER_MSEC;

	if (c->tcp.srtt_us) {
		rtt_us = fp_max32(c->tcp.srtt_us >> 3, 1);
		c->s.has_seen_rtt = 1;
	}
	c->tcp.pacing_rate = bbr1_pacing_rate(c, (u32)(((u64)c->tcp.snd_cwnd << BBR1_BW_SCALE) / rtt_us), BBR1_HIGH_GAIN);
}

/* bbr_set_pacing_rate(): before the pipe is full the rate never goes down. */
FP_INLINE void bbr1_set_pacing_rate(struct bbr1 *c, u32 bw, u32 gain)
{
	u64 rate = bbr1_pacing_rate(c, bw, gain);

	if (!c->s.has_seen_rtt && c->tcp.srtt_us)
		bbr1_init_pacing_rate(c);
	if (c->s.full_bw_reached || rate > c->tcp.pacing_rate)
		c->tcp.pacing_rate = rate;
}

FP_INLINE u32 bbr1_min_tso_segs(u64 pacing_rate)
{
	return pacing_rate < BBR1_MIN_TSO_RATE_BITS >> 3 ? 1 : 2;
}

/* bbr_tso_segs_goal(): the packets of one send burst at the present pacing rate. */
FP_INLINE u32 bbr1_tso_segs_goal(const struct bbr1 *c)
{
	u32 bytes = (u32)fp_min64(c->tcp.pacing_rate >> (c->tcp.pacing_shift & 63), c->tcp.gso_limit);
	u32 segs = fp_max32(bytes / fp_max32(c->tcp.mss, 1), bbr1_min_tso_segs(c->tcp.pacing_rate));

	return fp_min32(segs, 0x7f);
}

/* bbr_save_cwnd(): remember the last window that was not cut by recovery or ProbeRTT. */
FP_INLINE void bbr1_save_cwnd(struct bbr1 *c)
{
	if (c->s.prev_ca_state < FP_CA_RECOVERY && c->s.mode != BBR1_PROBE_RTT)
		c->s.prior_cwnd = c->tcp.snd_cwnd;
	else
		c->s.prior_cwnd = fp_max32(c->s.prior_cwnd, c->tcp.snd_cwnd);
}

/* bbr_bdp(): ceil(bw * min_rtt * gain) in packets; the initial window while there is no RTT. */
FP_INLINE u32 bbr1_bdp(const struct bbr1 *c, u32 bw, u32 gain)
{
	u64 product;

	if (c->s.min_rtt_us == ~0U)
		return FP_INIT_CWND;
	product = (u64)bw * c->s.min_rtt_us;
	return (u32)((((product * gain) >> BBR1_GAIN_SCALE) + BBR1_BW_UNIT - 1) >> BBR1_BW_SCALE);
}

/* bbr_quantization_budget(): room for whole bursts at both ends, an even window, a visible probe. */
FP_INLINE u32 bbr1_quantize(const struct bbr1 *c, u32 cwnd)
{
	cwnd += 3 * bbr1_tso_segs_goal(c);
	cwnd = (cwnd + 1) & ~1U;
	if (c->s.mode == BBR1_PROBE_BW && c->s.cycle_idx == 0)
		cwnd += 2;
	return cwnd;
}

FP_INLINE u32 bbr1_inflight(const struct bbr1 *c, u32 bw, u32 gain)
{
	return bbr1_quantize(c, bbr1_bdp(c, bw, gain));
}

/* bbr_packets_in_net_at_edt(): what will still be in the network when the next packet departs. */
FP_INLINE u32 bbr1_in_net_at_edt(const struct bbr1 *c, u32 inflight_now)
{
	u64 edt_ns = fp_max64(c->tcp.wstamp_ns, c->tcp.clock_ns);
	u64 wait_us = (edt_ns - c->tcp.clock_ns) / FP_NSEC_PER_USEC;
	u32 delivered = (u32)((u64)bbr1_bw(c) * wait_us >> BBR1_BW_SCALE);
	u32 inflight = inflight_now;

	if (c->s.pacing_gain > BBR1_GAIN_UNIT)
		inflight += bbr1_tso_segs_goal(c);
	return delivered >= inflight ? 0 : inflight - delivered;
}

FP_INLINE void bbr1_advance_cycle(struct bbr1 *c)
{
	c->s.cycle_idx = (c->s.cycle_idx + 1) & (BBR1_CYCLE_LEN - 1);
	c->s.cycle_mstamp = c->tcp.delivered_mstamp;
}

/* bbr_reset_probe_bw_mode(): any phase first but the draining one. */
FP_INLINE void bbr1_enter_probe_bw(struct bbr1 *c)
{
	c->s.mode = BBR1_PROBE_BW;
	c->s.cycle_idx = BBR1_CYCLE_LEN - 1 - (u32)((u64)fp_random(&c->tcp) * BBR1_CYCLE_RAND >> 32);
	bbr1_advance_cycle(c);
}

FP_INLINE void bbr1_lt_start_interval(struct bbr1 *c)
{
	c->s.lt_last_stamp = (u32)(c->tcp.delivered_mstamp / FP_USEC_PER_MSEC);
	c->s.lt_last_delivered = c->tcp.delivered;
	c->s.lt_last_lost = c->tcp.lost;
	c->s.lt_rtt_cnt = 0;
}

FP_INLINE void bbr1_lt_reset(struct bbr1 *c)
{
	c->s.lt_bw = 0;
	c->s.lt_use_bw = 0;
	c->s.lt_is_sampling = 0;
	bbr1_lt_start_interval(c);
}

/* bbr_lt_bw_interval_done(): two like intervals in a row mean a policer. */
FP_INLINE void bbr1_lt_interval_done(struct bbr1 *c, u32 bw)
{
	if (c->s.lt_bw) {
		u32 diff = bw - c->s.lt_bw;

		if ((s32)diff < 0)
			diff = -diff;
		if (diff * BBR1_GAIN_UNIT <= BBR1_LT_BW_RATIO * c->s.lt_bw ||
		    bbr1_bytes_per_sec(c, diff, BBR1_GAIN_UNIT) <= BBR1_LT_BW_DIFF_BYTES) {
			c->s.lt_bw = (bw + c->s.lt_bw) >> 1;
			c->s.lt_use_bw = 1;
			c->s.pacing_gain = BBR1_GAIN_UNIT;
			c->s.lt_rtt_cnt = 0;
			return;
		}
	}
	c->s.lt_bw = bw;
	bbr1_lt_start_interval(c);
}

/*
 * bbr_lt_bw_sampling(): find a token-bucket policer (Flach et al., SIGCOMM 2016). There is nothing to do without a
 * loss while neither an interval nor a policer's rate is in use: who calls it sees to that.
 */
FP_STEP int bbr1_lt_sample(struct bbr1 *c, s32 losses, u32 app_limited)
{
	u32 lost, delivered, ms;

	if (!c)
		return 0;
	if (c->s.lt_use_bw) {
		if (c->s.mode == BBR1_PROBE_BW && c->s.round_start) {
			c->s.lt_rtt_cnt = (c->s.lt_rtt_cnt + 1) & 127;
			if (c->s.lt_rtt_cnt >= BBR1_LT_MAX_ROUNDS) {
				bbr1_lt_reset(c);
				bbr1_enter_probe_bw(c);
			}
		}
		return 0;
	}
	/* The first loss says that the policer's tokens are spent; earlier samples would be too high. */
	if (!c->s.lt_is_sampling) {
		bbr1_lt_start_interval(c);
		c->s.lt_is_sampling = 1;
	}
	if (app_limited) {
		bbr1_lt_reset(c);
		return 0;
	}
	if (c->s.round_start)
		c->s.lt_rtt_cnt = (c->s.lt_rtt_cnt + 1) & 127;
	if (c->s.lt_rtt_cnt < BBR1_LT_MIN_ROUNDS)
		return 0;
	if (c->s.lt_rtt_cnt > 4 * BBR1_LT_MIN_ROUNDS) {
		bbr1_lt_reset(c);
		return 0;
	}
	/* Likewise an interval ends only at a loss. */
	if (!losses)
		return 0;
	lost = c->tcp.lost - c->s.lt_last_lost;
	delivered = c->tcp.delivered - c->s.lt_last_delivered;
	if (!delivered || lost << BBR1_GAIN_SCALE < BBR1_LT_LOSS_THRESHOLD * delivered)
		return 0;
	ms = (u32)(c->tcp.delivered_mstamp / FP_USEC_PER_MSEC) - c->s.lt_last_stamp;
	if ((s32)ms < 1)
		return 0;
	if (ms >= ~0U / FP_USEC_PER_MSEC) {
		bbr1_lt_reset(c);
		return 0;
	}
	bbr1_lt_interval_done(c, (u32)(((u64)delivered << BBR1_BW_SCALE) / (ms * FP_USEC_PER_MSEC)));
	return 0;
}

/* bbr_update_bw(): rounds, the long-term bandwidth, and the windowed maximum. */
FP_STEP int bbr1_update_bw(struct bbr1 *c)
{
	u32 interval_us;
	u64 bw;

	if (!c)
		return 0;
	c->s.round_start = 0;
	if (c->tcp.rs_delivered < 0 || c->tcp.rs_interval_us <= 0)
		return 0;
	if (!fp_before(c->tcp.rs_prior_delivered, c->s.next_rtt_delivered)) {
		c->s.next_rtt_delivered = c->tcp.delivered;
		c->s.rtt_cnt++;
		c->s.round_start = 1;
		c->s.packet_conservation = 0;
	}
	if (c->tcp.rs_losses || c->s.lt_is_sampling || c->s.lt_use_bw)
		bbr1_lt_sample(c, c->tcp.rs_losses, c->tcp.rs_flags & FP_RS_APP_LIMITED);

	interval_us = (u32)c->tcp.rs_interval_us;
	if (!interval_us)
		return 0;
	bw = ((u64)(u32)c->tcp.rs_delivered << BBR1_BW_SCALE) / interval_us;
	/* An application-limited sample tells of the application, unless it beats the model. */
	if (!(c->tcp.rs_flags & FP_RS_APP_LIMITED) || bw >= bbr1_max_bw(c))
		fp_filter_max(c->s.bw, BBR1_BW_WINDOW_ROUNDS, c->s.rtt_cnt, (u32)bw);
	return 0;
}

/* bbr_update_ack_aggregation(): the most that ACKs delivered beyond bw times time, over 5 to 10 rounds. */
FP_STEP int bbr1_update_aggregation(struct bbr1 *c)
{
	u32 expected, extra;

	if (!c)
		return 0;
	if ((s32)c->tcp.rs_acked_sacked <= 0 || c->tcp.rs_delivered < 0 || c->tcp.rs_interval_us <= 0)
		return 0;
	if (c->s.round_start) {
		if (c->s.extra_acked_win_rtts < 31)
			c->s.extra_acked_win_rtts++;
		if (c->s.extra_acked_win_rtts >= BBR1_AGGREGATION_WINDOW_ROUNDS) {
			c->s.extra_acked_win_rtts = 0;
			c->s.extra_acked_win_idx = !c->s.extra_acked_win_idx;
			if (c->s.extra_acked_win_idx)
				c->s.extra_acked[1] = 0;
			else
				c->s.extra_acked[0] = 0;
		}
	}
	expected = (u32)((u64)bbr1_bw(c) * fp_stamp_delta(c->tcp.delivered_mstamp, c->s.ack_epoch_mstamp) >>
			 BBR1_BW_SCALE);
	/* A new epoch when ACKs fall behind the bandwidth, or before the 20-bit counter overflows. */
	if (c->s.ack_epoch_acked <= expected ||
	    c->s.ack_epoch_acked + c->tcp.rs_acked_sacked >= BBR1_AGGREGATION_EPOCH_MAX) {
		c->s.ack_epoch_acked = 0;
		c->s.ack_epoch_mstamp = c->tcp.delivered_mstamp;
		expected = 0;
	}
	c->s.ack_epoch_acked = fp_min32(0xfffff, c->s.ack_epoch_acked + c->tcp.rs_acked_sacked);
	extra = fp_min32(c->s.ack_epoch_acked - expected, c->tcp.snd_cwnd);
	if (c->s.extra_acked_win_idx) {
		if (extra > c->s.extra_acked[1])
			c->s.extra_acked[1] = (u16)extra;
	} else if (extra > c->s.extra_acked[0]) {
		c->s.extra_acked[0] = (u16)extra;
	}
	return 0;
}

/* bbr_is_next_cycle_phase(): each gain ends by its own rule. */
FP_INLINE int bbr1_cycle_phase_done(const struct bbr1 *c)
{
	int full_length = fp_stamp_delta(c->tcp.delivered_mstamp, c->s.cycle_mstamp) > c->s.min_rtt_us;
	u32 inflight;

	if (c->s.pacing_gain == BBR1_GAIN_UNIT)
		return full_length;
	inflight = bbr1_in_net_at_edt(c, c->tcp.rs_prior_in_flight);
	if (c->s.pacing_gain > BBR1_GAIN_UNIT)
		return full_length && (c->tcp.rs_losses || inflight >= bbr1_inflight(c, bbr1_max_bw(c), c->s.pacing_gain));
	return full_length || inflight <= bbr1_inflight(c, bbr1_max_bw(c), BBR1_GAIN_UNIT);
}

/* bbr_update_cycle_phase(), bbr_check_full_bw_reached(), bbr_check_drain(). */
FP_STEP int bbr1_update_phase(struct bbr1 *c)
{
	if (!c)
		return 0;
	if (c->s.mode == BBR1_PROBE_BW && bbr1_cycle_phase_done(c))
		bbr1_advance_cycle(c);

	if (!c->s.full_bw_reached && c->s.round_start && !(c->tcp.rs_flags & FP_RS_APP_LIMITED)) {
		u32 threshold = (u32)((u64)c->s.full_bw * BBR1_FULL_BW_THRESHOLD >> BBR1_GAIN_SCALE);

		if (bbr1_max_bw(c) >= threshold) {
			c->s.full_bw = bbr1_max_bw(c);
			c->s.full_bw_cnt = 0;
		} else {
			c->s.full_bw_cnt = (c->s.full_bw_cnt + 1) & 3;
			c->s.full_bw_reached = c->s.full_bw_cnt >= BBR1_FULL_BW_ROUNDS;
		}
	}

	if (c->s.mode == BBR1_STARTUP && c->s.full_bw_reached) {
		c->s.mode = BBR1_DRAIN;
		c->tcp.snd_ssthresh = bbr1_inflight(c, bbr1_max_bw(c), BBR1_GAIN_UNIT);
	}
	if (c->s.mode == BBR1_DRAIN &&
	    bbr1_in_net_at_edt(c, c->tcp.in_flight) <= bbr1_inflight(c, bbr1_max_bw(c), BBR1_GAIN_UNIT))
		bbr1_enter_probe_bw(c);
	return 0;
}

/* bbr_check_probe_rtt_done(): give the window back and go on as before. */
FP_INLINE void bbr1_check_probe_rtt_done(struct bbr1 *c)
{
	if (!c->s.probe_rtt_done_stamp || !fp_after(c->tcp.ticks, c->s.probe_rtt_done_stamp))
		return;
	c->s.min_rtt_stamp = c->tcp.ticks;
	c->tcp.snd_cwnd = fp_max32(c->tcp.snd_cwnd, c->s.prior_cwnd);
	if (c->s.full_bw_reached)
		bbr1_enter_probe_bw(c);
	else
		c->s.mode = BBR1_STARTUP;
}

/* bbr_update_min_rtt(), bbr_update_gains(). */
FP_STEP int bbr1_update_min_rtt(struct bbr1 *c)
{
	int expired;

	if (!c)
		return 0;
	expired = fp_after(c->tcp.ticks, c->s.min_rtt_stamp + BBR1_MIN_RTT_WINDOW_S * c->tcp.hz);
	if (c->tcp.rs_rtt_us >= 0 && (c->tcp.rs_rtt_us < (s64)c->s.min_rtt_us ||
				      (expired && !(c->tcp.rs_flags & FP_RS_ACK_DELAYED)))) {
		c->s.min_rtt_us = (u32)c->tcp.rs_rtt_us;
		c->s.min_rtt_stamp = c->tcp.ticks;
	}
	if (expired && !c->s.idle_restart && c->s.mode != BBR1_PROBE_RTT) {
		c->s.mode = BBR1_PROBE_RTT;
		bbr1_save_cwnd(c);
		c->s.probe_rtt_done_stamp = 0;
	}
	if (c->s.mode == BBR1_PROBE_RTT) {
		/* Rate samples of a window of four packets say nothing of the path. */
		c->tcp.app_limited = fp_max32(c->tcp.delivered + c->tcp.in_flight, 1);
		if (!c->s.probe_rtt_done_stamp && c->tcp.in_flight <= BBR1_PROBE_RTT_CWND) {
			c->s.probe_rtt_done_stamp = c->tcp.ticks + (BBR1_PROBE_RTT_MS * c->tcp.hz + 999) / 1000;
			c->s.probe_rtt_round_done = 0;
			c->s.next_rtt_delivered = c->tcp.delivered;
		} else if (c->s.probe_rtt_done_stamp) {
			if (c->s.round_start)
				c->s.probe_rtt_round_done = 1;
			if (c->s.probe_rtt_round_done)
				bbr1_check_probe_rtt_done(c);
		}
	}
	if (c->tcp.rs_delivered > 0)
		c->s.idle_restart = 0;

	c->s.pacing_gain = BBR1_GAIN_UNIT;
	switch (c->s.mode) {
	case BBR1_STARTUP:
		c->s.pacing_gain = BBR1_HIGH_GAIN;
		c->s.cwnd_gain = BBR1_HIGH_GAIN;
		break;
	case BBR1_DRAIN:
		c->s.pacing_gain = BBR1_DRAIN_GAIN;
		c->s.cwnd_gain = BBR1_HIGH_GAIN;
		break;
	case BBR1_PROBE_BW:
		if (!c->s.lt_use_bw && c->s.cycle_idx == 0)
			c->s.pacing_gain = BBR1_GAIN_UNIT * 5 / 4;
		else if (!c->s.lt_use_bw && c->s.cycle_idx == 1)
			c->s.pacing_gain = BBR1_GAIN_UNIT * 3 / 4;
		c->s.cwnd_gain = BBR1_CWND_GAIN;
		break;
	default:
		c->s.cwnd_gain = BBR1_GAIN_UNIT;
		break;
	}
	return 0;
}

/* bbr_ack_aggregation_cwnd(). */
FP_INLINE u32 bbr1_aggregation_cwnd(const struct bbr1 *c)
{
	u32 most, extra;

	if (!c->s.full_bw_reached)
		return 0;
	most = (u32)((u64)bbr1_bw(c) * BBR1_AGGREGATION_MAX_US >> BBR1_BW_SCALE);
	extra = fp_max32(c->s.extra_acked[0], c->s.extra_acked[1]);
	return fp_min32(extra, most);
}

/*
 * bbr_set_cwnd_to_recover_or_restore(): one round of packet conservation when recovery starts, the
 * saved window when it ends. True while conserving.
 */
FP_INLINE int bbr1_recover_or_restore(struct bbr1 *c, u32 acked, u32 *cwnd_out)
{
	u32 prev = c->s.prev_ca_state, state = c->tcp.ca_state;
	u32 cwnd = c->tcp.snd_cwnd;

	if (c->tcp.rs_losses > 0) {
		cwnd -= (u32)c->tcp.rs_losses;
		if ((s32)cwnd < 1)
			cwnd = 1;
	}
	if (state == FP_CA_RECOVERY && prev != FP_CA_RECOVERY) {
		c->s.packet_conservation = 1;
		c->s.next_rtt_delivered = c->tcp.delivered;
		cwnd = c->tcp.in_flight + acked;
	} else if (prev >= FP_CA_RECOVERY && state < FP_CA_RECOVERY) {
		cwnd = fp_max32(cwnd, c->s.prior_cwnd);
		c->s.packet_conservation = 0;
	}
	c->s.prev_ca_state = state & 7;
	if (c->s.packet_conservation) {
		*cwnd_out = fp_max32(cwnd, c->tcp.in_flight + acked);
		return 1;
	}
	*cwnd_out = cwnd;
	return 0;
}

/* The end of bbr_main(): bbr_set_pacing_rate(), bbr_set_cwnd(). */
FP_STEP int bbr1_set_outputs(struct bbr1 *c)
{
	u32 acked, bw, cwnd, target;

	if (!c)
		return 0;
	bw = bbr1_bw(c);
	bbr1_set_pacing_rate(c, bw, c->s.pacing_gain);

	acked = c->tcp.rs_acked_sacked;
	cwnd = c->tcp.snd_cwnd;
	if (acked && !bbr1_recover_or_restore(c, acked, &cwnd)) {
		target = bbr1_quantize(c, bbr1_bdp(c, bw, c->s.cwnd_gain) + bbr1_aggregation_cwnd(c));
		if (c->s.full_bw_reached)
			cwnd = fp_min32(cwnd + acked, target);
		else if (cwnd < target || c->tcp.delivered < FP_INIT_CWND)
			cwnd += acked;
		cwnd = fp_max32(cwnd, BBR1_PROBE_RTT_CWND);
	}
	c->tcp.snd_cwnd = fp_min32(cwnd, c->tcp.snd_cwnd_clamp);
	if (c->s.mode == BBR1_PROBE_RTT)
		c->tcp.snd_cwnd = fp_min32(c->tcp.snd_cwnd, BBR1_PROBE_RTT_CWND);
	return 0;
}

/* bbr_main(): cong_control, on each ACK. */
FP_INLINE void bbr1_main(struct bbr1 *c)
{
	bbr1_update_bw(c);
	bbr1_update_aggregation(c);
	bbr1_update_phase(c);
	bbr1_update_min_rtt(c);
	bbr1_set_outputs(c);
}

/* bbr_init(): fields that it leaves alone keep what they had. */
FP_INLINE void bbr1_init(struct bbr1 *c)
{
	c->s.prior_cwnd = 0;
	c->tcp.snd_ssthresh = FP_INFINITE_SSTHRESH;
	c->s.rtt_cnt = 0;
	c->s.next_rtt_delivered = c->tcp.delivered;
	c->s.prev_ca_state = FP_CA_OPEN;
	c->s.packet_conservation = 0;
	c->s.probe_rtt_done_stamp = 0;
	c->s.probe_rtt_round_done = 0;
	c->s.min_rtt_us = c->tcp.min_rtt_us;
	c->s.min_rtt_stamp = c->tcp.ticks;
	fp_filter_reset(c->s.bw, c->s.rtt_cnt, 0);
	c->s.has_seen_rtt = 0;
	bbr1_init_pacing_rate(c);
	c->s.round_start = 0;
	c->s.idle_restart = 0;
	c->s.full_bw_reached = 0;
	c->s.full_bw = 0;
	c->s.full_bw_cnt = 0;
	c->s.cycle_mstamp = 0;
	c->s.cycle_idx = 0;
	bbr1_lt_reset(c);
	c->s.mode = BBR1_STARTUP;
	c->s.ack_epoch_mstamp = c->tcp.tcp_mstamp;
	c->s.ack_epoch_acked = 0;
	c->s.extra_acked_win_rtts = 0;
	c->s.extra_acked_win_idx = 0;
	c->s.extra_acked[0] = 0;
	c->s.extra_acked[1] = 0;
}

/* bbr_cwnd_event(): transmission starts again after the application paused. */
FP_INLINE void bbr1_event(struct bbr1 *c, u32 event)
{
	if (event != FP_CA_EVENT_TX_START || !c->tcp.app_limited)
		return;
	c->s.idle_restart = 1;
	c->s.ack_epoch_mstamp = c->tcp.tcp_mstamp;
	c->s.ack_epoch_acked = 0;
	if (c->s.mode == BBR1_PROBE_BW)
		bbr1_set_pacing_rate(c, bbr1_bw(c), BBR1_GAIN_UNIT);
	else if (c->s.mode == BBR1_PROBE_RTT)
		bbr1_check_probe_rtt_done(c);
}

/* bbr_set_state(): a retransmission timeout ends a round and feeds the policer detector one loss. */
FP_INLINE void bbr1_state_change(struct bbr1 *c, u32 new_state)
{
	if (new_state != FP_CA_LOSS)
		return;
	c->s.prev_ca_state = FP_CA_LOSS;
	c->s.full_bw = 0;
	c->s.round_start = 1;
	bbr1_lt_sample(c, 1, 0);
}

/* bbr_undo_cwnd(): the slow-down was spurious. */
FP_INLINE u32 bbr1_undo(struct bbr1 *c)
{
	c->s.full_bw = 0;
	c->s.full_bw_cnt = 0;
	bbr1_lt_reset(c);
	return c->tcp.snd_cwnd;
}

/* bbr_ssthresh(): recovery starts. */
FP_INLINE u32 bbr1_ssthresh(struct bbr1 *c)
{
	bbr1_save_cwnd(c);
	return c->tcp.snd_ssthresh;
}

/* One callback by its number. */
FP_INLINE u32 bbr1_call(struct bbr1 *c, u32 op, u32 argument)
{
	switch (op) {
	case FP_OP_INIT:
		bbr1_init(c);
		return 0;
	case FP_OP_MAIN:
		bbr1_main(c);
		return 0;
	case FP_OP_EVENT:
		bbr1_event(c, argument);
		return 0;
	case FP_OP_STATE:
		bbr1_state_change(c, argument);
		return 0;
	case FP_OP_UNDO:
		return bbr1_undo(c);
	case FP_OP_SSTHRESH:
		return bbr1_ssthresh(c);
	case FP_OP_MIN_TSO:
		return bbr1_min_tso_segs(c->tcp.pacing_rate);
	default:
		return 0;
	}
}

#endif
