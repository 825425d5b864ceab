/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * BBR v3 of the IETF draft (draft-ietf-ccwg-bbr), its functions by the draft's names. A pure core: bytes,
 * nanoseconds, bytes a second, gains in 1/256. It knows the connection only as struct bbr3_conn and an
 * ACK only as struct bbr3_sample; who calls it fills them in.
 */
#ifndef FP_BBR3_H
#define FP_BBR3_H

#include "types.h"

#define BBR3_INFINITE (~0ULL)
#define BBR3_NS_PER_SEC 1000000000ULL
#define BBR3_NS_PER_MSEC 1000000ULL

#define BBR3_UNIT_GAIN 256U /* 1 */
#define BBR3_MAX_SEND_QUANTUM 65536U

/*
 * What can be varied: the variant (enum bbr3_variant), and the constants of the draft (§ Core Algorithm Design
 * Parameters and the sections that use them), by the names, in the units and in the order of Params in
 * crates/fullpipe-cc/src/bbr/v3/params.rs. The gains of Google's v3 for Linux come as constants, too: the loader sets them
 * with the variant.
 */
struct bbr3_params {
	u32 variant;
	u32 ecn;
	u32 advance_on_leaving_down;
	u32 startup_pacing_gain; /* gains in 1/256 */
	u32 startup_cwnd_gain;
	u32 drain_pacing_gain;
	u32 default_cwnd_gain;
	u32 probe_down_pacing_gain;
	u32 probe_cruise_pacing_gain;
	u32 probe_refill_pacing_gain;
	u32 probe_up_pacing_gain;
	u32 probe_up_cwnd_gain;
	u32 probe_rtt_pacing_gain;
	u32 probe_rtt_cwnd_gain;
	u32 pacing_margin_percent;
	u32 loss_thresh_permille;
	u32 beta_percent;
	u32 headroom_percent;
	u32 min_pipe_cwnd_packets;
	u32 full_bw_growth; /* in 1/256 */
	u32 full_bw_rounds;
	u32 startup_full_loss_count;
	u32 drain_rounds;
	u32 extra_acked_rounds;
	u32 min_rtt_filter_ms;
	u32 probe_rtt_interval_ms;
	u32 probe_rtt_duration_ms;
	u32 probe_wait_base_ms;
	u32 probe_wait_random_ms;
	u32 probe_max_rounds;
};

#ifdef __bpf__
/* One for all sockets of a loaded controller, in a map of its own: the loader writes it, then and later. */
struct bbr3_params fp_settings __attribute__((section(".data.settings"), used)) = {
	.variant = 0, /* BBR3_DRAFT */
	.ecn = 1,
	.advance_on_leaving_down = 0,
	.startup_pacing_gain = 709, /* 2.77 */
	.startup_cwnd_gain = 512,
	.drain_pacing_gain = 128,
	.default_cwnd_gain = 512,
	.probe_down_pacing_gain = 230, /* 0.90 */
	.probe_cruise_pacing_gain = 256,
	.probe_refill_pacing_gain = 256,
	.probe_up_pacing_gain = 320, /* 1.25 */
	.probe_up_cwnd_gain = 576, /* 2.25 */
	.probe_rtt_pacing_gain = 256,
	.probe_rtt_cwnd_gain = 128,
	.pacing_margin_percent = 1,
	.loss_thresh_permille = 20,
	.beta_percent = 70,
	.headroom_percent = 15,
	.min_pipe_cwnd_packets = 4,
	.full_bw_growth = 320,
	.full_bw_rounds = 3,
	.startup_full_loss_count = 6,
	.drain_rounds = 3,
	.extra_acked_rounds = 10,
	.min_rtt_filter_ms = 10000,
	.probe_rtt_interval_ms = 5000,
	.probe_rtt_duration_ms = 200,
	.probe_wait_base_ms = 2000,
	.probe_wait_random_ms = 1000,
	.probe_max_rounds = 63,
};
#define BBR3_P(b) ((void)(b), &fp_settings)
#else
#define BBR3_P(b) (&(b)->params)
#endif

/* Variant in crates/fullpipe-cc/src/bbr/v3/variant.rs, without the draft to the letter. */
enum bbr3_variant {
	BBR3_DRAFT = 0,
	BBR3_LINUX = 1, /* Google's v3 for Linux */
};

enum bbr3_mode {
	BBR3_STARTUP = 0,
	BBR3_DRAIN = 1,
	BBR3_PROBE_BW_DOWN = 2,
	BBR3_PROBE_BW_CRUISE = 3,
	BBR3_PROBE_BW_REFILL = 4,
	BBR3_PROBE_BW_UP = 5,
	BBR3_PROBE_RTT = 6,
	BBR3_NO_MODE = 7,
};

enum bbr3_ack_phase {
	BBR3_ACKS_INIT = 0,
	BBR3_ACKS_REFILLING = 1,
	BBR3_ACKS_PROBE_STARTING = 2,
	BBR3_ACKS_PROBE_FEEDBACK = 3,
	BBR3_ACKS_PROBE_STOPPING = 4,
};

enum bbr3_recovery {
	BBR3_OPEN = 0,
	BBR3_FAST_RECOVERY = 1,
	BBR3_LOSS_RECOVERY = 2,
};

/* The connection (the draft's C.), set before each call; the last three are the core's to change. */
struct bbr3_conn {
	u64 now;
	u64 smss;
	u64 initial_cwnd;
	u64 inflight;
	u64 delivered;
	u64 lost;
	u64 srtt; /* 0: none yet */
	u64 next_departure; /* the earliest time at which the next packet leaves */
	u8 is_cwnd_limited;
	u8 recovery; /* enum bbr3_recovery */
	u8 has_selective_acks;
	u8 spare[5];
	u64 cwnd;
	u64 pacing_rate;
	u64 send_quantum;
};

/* The rate sample of an ACK (the draft's RS.), or of a packet being marked lost. */
struct bbr3_sample {
	u64 delivery_rate; /* 0: no valid sample */
	u64 delivered;
	u64 prior_delivered;
	u64 tx_in_flight;
	u64 lost;
	u64 newly_acked;
	u64 newly_lost;
	u64 rtt; /* BBR3_INFINITE: none */
	u32 lost_ranges;
	u32 ce_count;
	u8 is_app_limited;
	u8 has_data; /* this ACK newly acknowledged a packet */
	u8 is_ack_delayed; /* perhaps, by the receiver */
	u8 spare[5];
};

struct bbr3 {
	struct bbr3_conn c;
	struct bbr3_sample rs;

	struct fp_best extra_acked_filter[3];
	u64 extra_acked_slots[2]; /* BBR3_LINUX: the best of the present slot of rounds and of the last */
	u64 random;        /* SplitMix64 */
	u64 max_bw_last;   /* the best of the last probing cycle */
	u64 max_bw_cycle;  /* the best of the present one: 0 while it has no sample */
	u64 bw;
	u64 bw_shortterm;
	u64 bw_latest;
	u64 min_rtt; /* BBR3_INFINITE: none yet */
	u64 min_rtt_stamp;
	u64 probe_rtt_min_delay;
	u64 probe_rtt_min_stamp;
	u64 probe_rtt_done_stamp; /* 0: not armed */
	u64 inflight_longterm;
	u64 inflight_shortterm;
	u64 inflight_latest;
	u64 extra_acked_interval_start;
	u64 extra_acked_delivered;
	u64 extra_acked;
	u64 next_round_delivered;
	u64 loss_round_delivered;
	u64 full_bw;
	u64 prior_cwnd;
	u64 cycle_stamp;
	u64 bw_probe_wait;
	u64 probe_up_acked_per_inc;
	u64 bw_probe_up_acked;
	u64 undo_bw_shortterm;
	u64 undo_inflight_shortterm;
	u64 undo_inflight_longterm;
	u64 ce_in_round;
	u32 round_count;
	u32 drain_start_round;
	u32 rounds_since_probe_up;
	u32 bw_probe_up_rounds;
	u32 lost_ranges_in_round;
	u32 full_bw_count;
	u32 extra_acked_slot_rounds;
	u16 pacing_gain;
	u16 cwnd_gain;
	u8 mode;
	u8 undo_mode;
	u8 ack_phase;
	u8 round_start;
	u8 loss_round_start;
	u8 is_loss_in_round;
	u8 full_bw_now;
	u8 full_bw_reached;
	u8 idle_restart;
	u8 probe_rtt_expired;
	u8 probe_rtt_round_done;
	u8 is_bw_probe_sample;
	u8 prev_probe_too_high;
	u8 prev_probe_precautionary;
	u8 has_rtt;
	u8 undo_saved; /* the undo fields are from before the present recovery episode */
	u8 marks_app_limited; /* the last ACK was handled in ProbeRTT: MarkConnectionAppLimited() */
	u8 filter_advanced; /* max_bw's filter has advanced since DOWN was entered */
	u8 spare[6];
#ifndef __bpf__
	struct bbr3_params params;
#endif
};

/* Whether this is Google's v3 for Linux. */
FP_INLINE int bbr3_is_linux(const struct bbr3 *b)
{
	return BBR3_P(b)->variant == BBR3_LINUX;
}

FP_INLINE u64 bbr3_gain(u64 value, u32 gain)
{
	return value * gain >> 8;
}

/* Rounded down; exact for every value. */
FP_INLINE u64 bbr3_percent(u64 value, u32 percent)
{
	return value / 100 * percent + value % 100 * percent / 100;
}

/* BBR.Beta * value */
FP_INLINE u64 bbr3_beta(const struct bbr3 *b, u64 value)
{
	return value == BBR3_INFINITE ? value : bbr3_percent(value, BBR3_P(b)->beta_percent);
}

/*
 * rate (bytes/s) times span (ns), in bytes, rounded down. Up to half a terabit a second and a quarter of a second
 * the product fits and one division does. Beyond, exact without 128-bit numbers, which BPF does not have: with
 * rate = q s + r and span = t s + n, s a second's nanoseconds, it is q span + r t + r n / s.
 */
FP_INLINE u64 bbr3_bytes_in(u64 rate, u64 span)
{
	u64 q, r, t, n;

	if (!(rate >> 36) && !(span >> 28))
		return rate * span / BBR3_NS_PER_SEC;
	q = rate / BBR3_NS_PER_SEC;
	r = rate % BBR3_NS_PER_SEC;
	t = span / BBR3_NS_PER_SEC;
	n = span % BBR3_NS_PER_SEC;
	return q * span + r * t + r * n / BBR3_NS_PER_SEC;
}

/* bytes in span (ns), as bytes/s, rounded down: at once when that fits, else in three steps of a thousand. */
FP_INLINE u64 bbr3_rate_of(u64 bytes, u64 span)
{
	u64 q, r, rate;

	if (!span)
		return bytes ? BBR3_INFINITE : 0;
	if (!(bytes >> 34))
		return bytes * BBR3_NS_PER_SEC / span;
	q = bytes / span;
	r = bytes % span * 1000;
	rate = q * 1000 + r / span;
	r = r % span * 1000;
	rate = rate * 1000 + r / span;
	r = r % span * 1000;
	return rate * 1000 + r / span;
}

FP_INLINE int bbr3_in_probe_bw(const struct bbr3 *b)
{
	return b->mode >= BBR3_PROBE_BW_DOWN && b->mode <= BBR3_PROBE_BW_UP;
}

/* IsProbingBW() */
FP_INLINE int bbr3_is_probing_bw(const struct bbr3 *b)
{
	return b->mode == BBR3_STARTUP || b->mode == BBR3_PROBE_BW_REFILL || b->mode == BBR3_PROBE_BW_UP;
}

FP_INLINE u64 bbr3_min_pipe_cwnd(const struct bbr3 *b)
{
	return BBR3_P(b)->min_pipe_cwnd_packets * b->c.smss;
}

/* The maximum over this probing cycle and the last. */
FP_INLINE u64 bbr3_max_bw(const struct bbr3 *b)
{
	return fp_max64(b->max_bw_last, b->max_bw_cycle);
}

/* BDPMultiple(gain), for a bandwidth. */
FP_INLINE u64 bbr3_bdp_multiple(const struct bbr3 *b, u64 bw, u32 gain)
{
	if (b->min_rtt == BBR3_INFINITE)
		return b->c.initial_cwnd;
	return bbr3_gain(bbr3_bytes_in(bw, b->min_rtt), gain);
}

/* QuantizationBudget(inflight_cap), UpdateOffloadBudget() */
FP_INLINE u64 bbr3_quantize(const struct bbr3 *b, u64 cap)
{
	cap = fp_max64(cap, 3 * b->c.send_quantum);
	cap = fp_max64(cap, bbr3_min_pipe_cwnd(b));
	if (b->mode == BBR3_PROBE_BW_UP)
		cap += 2 * b->c.smss;
	return cap;
}

/* Inflight(1.0), for a bandwidth. */
FP_INLINE u64 bbr3_inflight(const struct bbr3 *b, u64 bw)
{
	return bbr3_quantize(b, bbr3_bdp_multiple(b, bw, BBR3_UNIT_GAIN));
}

/* InflightWithHeadroom() */
FP_INLINE u64 bbr3_inflight_with_headroom(const struct bbr3 *b)
{
	u64 headroom;

	if (b->inflight_longterm == BBR3_INFINITE)
		return BBR3_INFINITE;
	headroom = fp_max64(b->c.smss, bbr3_percent(b->inflight_longterm, BBR3_P(b)->headroom_percent));
	if (b->inflight_longterm < headroom)
		return bbr3_min_pipe_cwnd(b);
	return fp_max64(b->inflight_longterm - headroom, bbr3_min_pipe_cwnd(b));
}

/* TargetInflight(); in Linux with the quantization budget. */
FP_INLINE u64 bbr3_target_inflight(const struct bbr3 *b)
{
	u64 bdp = bbr3_bdp_multiple(b, b->bw, BBR3_UNIT_GAIN);

	if (bbr3_is_linux(b))
		bdp = bbr3_quantize(b, bdp);
	return fp_min64(bdp, b->c.cwnd);
}

/* StartRound() */
FP_INLINE void bbr3_start_round(struct bbr3 *b)
{
	b->next_round_delivered = b->c.delivered;
}

/* ResetFullBW() */
FP_INLINE void bbr3_reset_full_bw(struct bbr3 *b)
{
	b->full_bw = 0;
	b->full_bw_count = 0;
	b->full_bw_now = 0;
}

/* ResetShortTermModel() */
FP_INLINE void bbr3_reset_short_term(struct bbr3 *b)
{
	b->bw_shortterm = BBR3_INFINITE;
	b->inflight_shortterm = BBR3_INFINITE;
}

/* ResetCongestionSignals() */
FP_INLINE void bbr3_reset_congestion_signals(struct bbr3 *b)
{
	b->is_loss_in_round = 0;
	b->bw_latest = 0;
	b->inflight_latest = 0;
	b->ce_in_round = 0;
}

/* A number from 0 to n - 1 (SplitMix64: Steele, Lea, Flood 2014). */
FP_INLINE u32 bbr3_random_below(struct bbr3 *b, u32 n)
{
	u64 z;

	b->random += 0x9e3779b97f4a7c15ULL;
	z = (b->random ^ b->random >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return (u32)(((z ^ z >> 31) >> 32) * n >> 32);
}

/* SaveCwnd() */
FP_INLINE void bbr3_save_cwnd(struct bbr3 *b)
{
	if (b->c.recovery == BBR3_OPEN && b->mode != BBR3_PROBE_RTT)
		b->prior_cwnd = b->c.cwnd;
	else
		b->prior_cwnd = fp_max64(b->prior_cwnd, b->c.cwnd);
}

/* RestoreCwnd() */
FP_INLINE void bbr3_restore_cwnd(struct bbr3 *b)
{
	b->c.cwnd = fp_max64(b->c.cwnd, b->prior_cwnd);
}

/* EnterStartup() */
FP_INLINE void bbr3_enter_startup(struct bbr3 *b)
{
	b->mode = BBR3_STARTUP;
	b->pacing_gain = BBR3_P(b)->startup_pacing_gain;
	b->cwnd_gain = BBR3_P(b)->startup_cwnd_gain;
}

/* EnterDrain() */
FP_INLINE void bbr3_enter_drain(struct bbr3 *b)
{
	b->mode = BBR3_DRAIN;
	b->pacing_gain = BBR3_P(b)->drain_pacing_gain;
	b->cwnd_gain = BBR3_P(b)->default_cwnd_gain;
	b->drain_start_round = b->round_count;
	if (bbr3_is_linux(b))
		bbr3_reset_congestion_signals(b);
}

/* StartProbeBW_DOWN(), PickProbeWait() */
FP_INLINE void bbr3_start_down(struct bbr3 *b)
{
	bbr3_reset_congestion_signals(b);
	b->probe_up_acked_per_inc = BBR3_INFINITE;
	b->rounds_since_probe_up = bbr3_random_below(b, 2);
	b->bw_probe_wait = (u64)BBR3_P(b)->probe_wait_base_ms * BBR3_NS_PER_MSEC +
			   (u64)bbr3_random_below(b, fp_max32(BBR3_P(b)->probe_wait_random_ms * 1000, 1)) * 1000;
	b->cycle_stamp = b->c.now;
	b->filter_advanced = 0;
	b->ack_phase = BBR3_ACKS_PROBE_STOPPING;
	bbr3_start_round(b);
	b->mode = BBR3_PROBE_BW_DOWN;
	b->pacing_gain = BBR3_P(b)->probe_down_pacing_gain;
	b->cwnd_gain = BBR3_P(b)->default_cwnd_gain;
}

/* AdvanceMaxBwFilter(), once a cycle where leaving DOWN may do it, too. */
FP_INLINE void bbr3_advance_max_bw_filter(struct bbr3 *b)
{
	if (b->filter_advanced && BBR3_P(b)->advance_on_leaving_down)
		return;
	b->filter_advanced = 1;
	if (b->max_bw_cycle) {
		b->max_bw_last = b->max_bw_cycle;
		b->max_bw_cycle = 0;
	}
}

/* DOWN may be about to end before a round of it was measured. */
FP_INLINE void bbr3_leave_down(struct bbr3 *b)
{
	if (BBR3_P(b)->advance_on_leaving_down && b->mode == BBR3_PROBE_BW_DOWN)
		bbr3_advance_max_bw_filter(b);
}

/* StartProbeBW_CRUISE() */
FP_INLINE void bbr3_start_cruise(struct bbr3 *b)
{
	bbr3_leave_down(b);
	if (bbr3_is_linux(b) && b->inflight_shortterm != BBR3_INFINITE)
		b->inflight_shortterm = fp_min64(b->inflight_shortterm, b->inflight_longterm);
	b->mode = BBR3_PROBE_BW_CRUISE;
	b->pacing_gain = BBR3_P(b)->probe_cruise_pacing_gain;
	b->cwnd_gain = BBR3_P(b)->default_cwnd_gain;
}

/* StartProbeBW_REFILL() */
FP_INLINE void bbr3_start_refill(struct bbr3 *b)
{
	bbr3_leave_down(b);
	bbr3_reset_short_term(b);
	b->bw_probe_up_rounds = 0;
	b->bw_probe_up_acked = 0;
	b->prev_probe_precautionary = 0;
	b->ack_phase = BBR3_ACKS_REFILLING;
	bbr3_start_round(b);
	b->mode = BBR3_PROBE_BW_REFILL;
	b->pacing_gain = BBR3_P(b)->probe_refill_pacing_gain;
	b->cwnd_gain = BBR3_P(b)->default_cwnd_gain;
}

/* RaiseInflightLongtermSlope() */
FP_INLINE void bbr3_raise_slope(struct bbr3 *b)
{
	u64 growth_this_round = 1ULL << (b->bw_probe_up_rounds & 31);

	b->bw_probe_up_rounds = fp_min32(b->bw_probe_up_rounds + 1, 30);
	b->probe_up_acked_per_inc = fp_max64(b->c.cwnd / growth_this_round, b->c.smss);
}

/* StartProbeBW_UP() */
FP_INLINE void bbr3_start_up(struct bbr3 *b)
{
	b->ack_phase = BBR3_ACKS_PROBE_STARTING;
	bbr3_start_round(b);
	bbr3_reset_full_bw(b);
	b->full_bw = b->rs.delivery_rate;
	b->mode = BBR3_PROBE_BW_UP;
	b->pacing_gain = BBR3_P(b)->probe_up_pacing_gain;
	b->cwnd_gain = BBR3_P(b)->probe_up_cwnd_gain;
	bbr3_raise_slope(b);
}

/* SetPacingRateWithGain(): never lowered before the pipe is full; PacingMarginPercent below the estimate. */
FP_INLINE void bbr3_set_pacing_rate(struct bbr3 *b, u32 gain)
{
	u64 rate = bbr3_percent(bbr3_gain(b->bw, gain), 100 - BBR3_P(b)->pacing_margin_percent);

	if (b->bw && (b->full_bw_reached || rate > b->c.pacing_rate))
		b->c.pacing_rate = fp_max64(rate, 1);
}

/* SetSendQuantum(): what leaves in a millisecond, between two packets and 64 KiB. */
FP_INLINE void bbr3_set_send_quantum(struct bbr3 *b)
{
	b->c.send_quantum = fp_max64(fp_min64(b->c.pacing_rate / 1000, BBR3_MAX_SEND_QUANTUM), 2 * b->c.smss);
}

/* InitPacingRate() */
FP_INLINE void bbr3_init_pacing_rate(struct bbr3 *b)
{
	u64 rtt = b->c.srtt ? b->c.srtt : BBR3_NS_PER_MSEC;

	if (b->c.srtt)
		b->has_rtt = 1;
	b->c.pacing_rate = bbr3_gain(bbr3_rate_of(b->c.initial_cwnd, rtt), BBR3_P(b)->startup_pacing_gain);
	bbr3_set_send_quantum(b);
}

/* IsInflightTooHigh() of packets marked Congestion Experienced: more than LossThresh of what was in flight. */
FP_INLINE int bbr3_is_too_marked(const struct bbr3 *b, u64 marked, u64 inflight)
{
	return marked * 1000 > inflight * BBR3_P(b)->loss_thresh_permille;
}

/* The same of packets lost, of which there may be more without selective ACKs. Linux counts packets, and tolerates 5/256. */
FP_INLINE int bbr3_is_too_high(const struct bbr3 *b, u64 lost, u64 inflight)
{
	u64 smss = fp_max64(b->c.smss, 1);

	if (lost && !b->c.has_selective_acks)
		return 1;
	if (bbr3_is_linux(b))
		return lost / smss > inflight / smss * 5 / 256;
	return bbr3_is_too_marked(b, lost, inflight);
}

/* HandleInflightTooHigh() */
FP_INLINE void bbr3_handle_inflight_too_high(struct bbr3 *b, u64 tx_in_flight, u32 app_limited)
{
	b->prev_probe_too_high = 1;
	b->is_bw_probe_sample = 0;
	if (!app_limited)
		b->inflight_longterm = fp_max64(tx_in_flight, bbr3_beta(b, bbr3_target_inflight(b)));
	if (b->mode == BBR3_PROBE_BW_UP) {
		b->undo_mode = BBR3_PROBE_BW_UP;
		bbr3_start_down(b);
	}
}

/*
 * SaveStateUponLoss(), once a recovery episode: saving again at each round's first loss would overwrite what
 * was there before the episode with what the episode itself has changed.
 */
FP_INLINE void bbr3_save_state_upon_loss(struct bbr3 *b)
{
	if (b->undo_saved)
		return;
	bbr3_save_cwnd(b);
	b->undo_saved = 1;
	b->undo_mode = BBR3_NO_MODE;
	b->undo_bw_shortterm = b->bw_shortterm;
	b->undo_inflight_shortterm = b->inflight_shortterm;
	b->undo_inflight_longterm = b->inflight_longterm;
}

/*
 * NoteLoss(), of what cannot turn out to be spurious: a mark, or a loss that is repaired already. There is nothing to
 * undo, and what would be saved here would be restored by some later episode.
 */
FP_INLINE void bbr3_note_congestion(struct bbr3 *b)
{
	if (!b->is_loss_in_round)
		b->loss_round_delivered = b->c.delivered;
	b->is_loss_in_round = 1;
}

/* NoteLoss() */
FP_INLINE void bbr3_note_loss(struct bbr3 *b)
{
	bbr3_note_congestion(b);
	bbr3_save_state_upon_loss(b);
}

/* A packet that was marked lost. */
struct bbr3_lost {
	u64 bytes;
	u64 tx_in_flight; /* when it was sent, itself included */
	u64 lost;         /* on the connection since it was sent, itself included */
	u64 app_limited;
};

/* HandleLostPacket(P), InflightAtLoss(P) */
FP_STEP int bbr3_handle_lost_packet(struct bbr3 *b, const struct bbr3_lost *lost)
{
	u64 inflight_prev, lost_prev, permille, prefix = 0;

	if (!b || !lost)
		return 0;
	bbr3_note_loss(b);
	if (!b->is_bw_probe_sample || !bbr3_is_too_high(b, lost->lost, lost->tx_in_flight))
		return 0;
	inflight_prev = lost->tx_in_flight > lost->bytes ? lost->tx_in_flight - lost->bytes : 0;
	lost_prev = lost->lost > lost->bytes ? lost->lost - lost->bytes : 0;
	/* (LossThresh * inflight_prev - lost_prev) / (1 - LossThresh); losses that exceed it already leave none. */
	permille = BBR3_P(b)->loss_thresh_permille;
	if (inflight_prev * permille > lost_prev * 1000)
		prefix = (inflight_prev * permille - lost_prev * 1000) / (1000 - permille);
	bbr3_handle_inflight_too_high(b, inflight_prev + prefix, lost->app_limited != 0);
	return 0;
}

/* A marked packet counts as lost, but is not retransmitted (the draft leaves it open). */
FP_STEP int bbr3_handle_ce_marks(struct bbr3 *b)
{
	if (!b)
		return 0;
	bbr3_note_congestion(b);
	b->ce_in_round += (u64)b->rs.ce_count * b->c.smss;
	if (b->is_bw_probe_sample && bbr3_is_too_marked(b, b->ce_in_round, b->rs.tx_in_flight))
		bbr3_handle_inflight_too_high(b, b->rs.tx_in_flight, b->rs.is_app_limited);
	return 0;
}

/* UpdateRound(), UpdateMaxBw() */
FP_INLINE void bbr3_update_max_bw(struct bbr3 *b)
{
	b->round_start = 0;
	if (b->rs.prior_delivered >= b->next_round_delivered) {
		bbr3_start_round(b);
		b->round_count++;
		b->rounds_since_probe_up++;
		b->round_start = 1;
	}
	if (b->rs.delivery_rate && (b->rs.delivery_rate >= bbr3_max_bw(b) || !b->rs.is_app_limited))
		b->max_bw_cycle = fp_max64(b->max_bw_cycle, b->rs.delivery_rate);
}

/* AdaptLowerBoundsFromCongestion(): once a round that saw loss, unless probing. */
FP_INLINE void bbr3_adapt_lower_bounds(struct bbr3 *b)
{
	if (bbr3_is_probing_bw(b) || !b->is_loss_in_round)
		return;
	if (b->bw_shortterm == BBR3_INFINITE)
		b->bw_shortterm = bbr3_max_bw(b);
	if (b->inflight_shortterm == BBR3_INFINITE)
		b->inflight_shortterm = b->c.cwnd;
	b->bw_shortterm = fp_max64(b->bw_latest, bbr3_beta(b, b->bw_shortterm));
	b->inflight_shortterm = fp_max64(b->inflight_latest, bbr3_beta(b, b->inflight_shortterm));
}

/* UpdateLatestDeliverySignals(), UpdateCongestionSignals() */
FP_STEP int bbr3_update_signals(struct bbr3 *b)
{
	if (!b)
		return 0;
	b->loss_round_start = 0;
	b->bw_latest = fp_max64(b->bw_latest, b->rs.delivery_rate);
	b->inflight_latest = fp_max64(b->inflight_latest, b->rs.delivered);
	if (b->rs.prior_delivered >= b->loss_round_delivered) {
		b->loss_round_delivered = b->c.delivered;
		b->loss_round_start = 1;
	}
	bbr3_update_max_bw(b);
	if (b->loss_round_start) {
		bbr3_adapt_lower_bounds(b);
		b->is_loss_in_round = 0;
	}
	return 0;
}

/* Google's filter: two slots of five rounds, or of one until the pipe is full. */
FP_INLINE void bbr3_update_extra_acked_slots(struct bbr3 *b, u64 extra)
{
	if (b->round_start) {
		b->extra_acked_slot_rounds++;
		if (b->extra_acked_slot_rounds >= (b->full_bw_reached ? 5U : 1U)) {
			b->extra_acked_slot_rounds = 0;
			b->extra_acked_slots[1] = b->extra_acked_slots[0];
			b->extra_acked_slots[0] = 0;
		}
	}
	b->extra_acked_slots[0] = fp_max64(b->extra_acked_slots[0], extra);
	b->extra_acked = fp_max64(b->extra_acked_slots[0], b->extra_acked_slots[1]);
}

/* UpdateACKAggregation() */
FP_STEP int bbr3_update_aggregation(struct bbr3 *b)
{
	u64 expected, extra;

	if (!b)
		return 0;
	expected = bbr3_bytes_in(b->bw, b->c.now - b->extra_acked_interval_start);
	if (b->extra_acked_delivered <= expected) {
		b->extra_acked_delivered = 0;
		b->extra_acked_interval_start = b->c.now;
		expected = 0;
	}
	b->extra_acked_delivered += b->rs.newly_acked;
	extra = fp_min64(b->extra_acked_delivered - expected, b->c.cwnd);
	if (bbr3_is_linux(b))
		bbr3_update_extra_acked_slots(b, extra);
	else
		b->extra_acked = fp_filter_max(b->extra_acked_filter,
					       b->full_bw_reached ? BBR3_P(b)->extra_acked_rounds : 1, b->round_count,
					       extra);
	return 0;
}

/*
 * CheckStartupHighLoss(): a round in fast recovery with more than LossThresh lost, of several ranges; without selective
 * ACKs, which show a loss a round at most, any loss. And a round after the first mark with as many packets marked.
 */
FP_INLINE int bbr3_is_startup_congested(struct bbr3 *b)
{
	u64 fewest_marks = (u64)BBR3_P(b)->startup_full_loss_count * b->c.smss;
	int high = 0;

	/* Linux counts ACKs that marked something lost, in four bits. */
	if (bbr3_is_linux(b))
		b->lost_ranges_in_round = fp_min32(b->lost_ranges_in_round + (b->rs.newly_lost > 0), 15);
	else
		b->lost_ranges_in_round += b->rs.lost_ranges;
	if (b->loss_round_start) {
		high = b->lost_ranges_in_round >= BBR3_P(b)->startup_full_loss_count &&
		       bbr3_is_too_high(b, b->rs.lost, b->rs.tx_in_flight);
		b->lost_ranges_in_round = 0;
	}
	if (!b->c.has_selective_acks && b->rs.newly_lost)
		high = 1;
	if (high && b->c.recovery == BBR3_FAST_RECOVERY) {
		b->undo_mode = BBR3_STARTUP;
		return 1;
	}
	return b->loss_round_start && b->ce_in_round >= fewest_marks &&
	       bbr3_is_too_marked(b, b->ce_in_round, b->rs.tx_in_flight);
}

/* What will be in the network when the next packet leaves (bbr_packets_in_net_at_edt()), while draining. */
FP_INLINE u64 bbr3_inflight_at_departure(const struct bbr3 *b)
{
	u64 delivered;

	if (b->c.next_departure <= b->c.now)
		return b->c.inflight;
	delivered = bbr3_bytes_in(b->bw, b->c.next_departure - b->c.now);
	return b->c.inflight > delivered ? b->c.inflight - delivered : 0;
}

/* CheckDrainDone(); Linux goes by the next departure, and limits no rounds. */
FP_INLINE int bbr3_is_drained(const struct bbr3 *b)
{
	u64 least = bbr3_inflight(b, b->bw);

	if (bbr3_is_linux(b))
		return bbr3_inflight_at_departure(b) <= least;
	return b->c.inflight <= least || b->round_count > b->drain_start_round + BBR3_P(b)->drain_rounds;
}

/* CheckFullBWReached(), CheckStartupHighLoss(), CheckStartupDone(), CheckDrainDone() */
FP_STEP int bbr3_check_startup_and_drain(struct bbr3 *b)
{
	if (!b)
		return 0;
	/* Linux looks for growth on every ACK, and counts rounds without it. */
	if (!b->full_bw_now && (b->round_start || bbr3_is_linux(b)) && !b->rs.is_app_limited) {
		if (b->rs.delivery_rate >= bbr3_gain(b->full_bw, BBR3_P(b)->full_bw_growth)) {
			bbr3_reset_full_bw(b);
			b->full_bw = b->rs.delivery_rate;
		} else if (b->round_start) {
			b->full_bw_count++;
			b->full_bw_now = b->full_bw_count >= BBR3_P(b)->full_bw_rounds;
			if (b->full_bw_now)
				b->full_bw_reached = 1;
		}
	}

	if (!b->full_bw_reached && bbr3_is_startup_congested(b)) {
		b->full_bw_now = 1;
		b->full_bw_reached = 1;
		b->inflight_longterm =
			fp_max64(bbr3_bdp_multiple(b, bbr3_max_bw(b), BBR3_UNIT_GAIN), b->inflight_latest);
	}
	if (b->mode == BBR3_STARTUP && b->full_bw_reached)
		bbr3_enter_drain(b);

	if (b->mode == BBR3_DRAIN && bbr3_is_drained(b))
		bbr3_start_down(b);
	return 0;
}

/* AdaptLongTermModel(): true when it decided a state transition. */
FP_INLINE int bbr3_adapt_long_term(struct bbr3 *b)
{
	if (b->ack_phase == BBR3_ACKS_PROBE_STARTING && b->round_start)
		b->ack_phase = BBR3_ACKS_PROBE_FEEDBACK;
	if (b->ack_phase == BBR3_ACKS_PROBE_STOPPING && b->round_start) {
		b->is_bw_probe_sample = 0;
		b->ack_phase = BBR3_ACKS_INIT;
		if (bbr3_in_probe_bw(b) && !b->rs.is_app_limited)
			bbr3_advance_max_bw_filter(b);
		if (bbr3_in_probe_bw(b) && b->prev_probe_precautionary && !b->prev_probe_too_high) {
			bbr3_start_refill(b);
			return 1;
		}
	}
	if (bbr3_is_too_high(b, b->rs.lost, b->rs.tx_in_flight)) {
		/* Linux judges the loss when a packet is acknowledged, too. */
		if (bbr3_is_linux(b) && b->is_bw_probe_sample)
			bbr3_handle_inflight_too_high(b, b->rs.tx_in_flight, b->rs.is_app_limited);
		return 0;
	}
	if (b->inflight_longterm == BBR3_INFINITE)
		return 0;
	if (b->rs.tx_in_flight > b->inflight_longterm)
		b->inflight_longterm = b->rs.tx_in_flight;
	/* ProbeInflightLongtermUpward() */
	if (b->mode == BBR3_PROBE_BW_UP && b->c.is_cwnd_limited && b->c.cwnd >= b->inflight_longterm) {
		b->bw_probe_up_acked += b->rs.newly_acked;
		if (b->bw_probe_up_acked >= b->probe_up_acked_per_inc) {
			u64 delta = b->bw_probe_up_acked / fp_max64(b->probe_up_acked_per_inc, 1);

			b->bw_probe_up_acked -= delta * b->probe_up_acked_per_inc;
			b->inflight_longterm += delta * b->c.smss;
		}
		if (b->round_start)
			bbr3_raise_slope(b);
	}
	return 0;
}

/* IsTimeToProbeBW(): the wall clock, or as many rounds as Reno would take (packets against rounds). */
FP_INLINE int bbr3_is_time_to_probe(const struct bbr3 *b)
{
	u64 reno_rounds = bbr3_target_inflight(b) / fp_max64(b->c.smss, 1);

	return b->c.now > b->cycle_stamp + b->bw_probe_wait ||
	       b->rounds_since_probe_up >= fp_min64(reno_rounds, BBR3_P(b)->probe_max_rounds);
}

/*
 * IsTimeToGoDown(). Inflight reaches the bound when, before this ACK, another full packet would not have fit:
 * counted in bytes and after the ACK it would hardly ever equal a bound that cwnd obeys.
 */
FP_INLINE int bbr3_is_time_to_go_down(struct bbr3 *b)
{
	if (b->prev_probe_too_high && b->c.inflight + b->rs.newly_acked + b->c.smss > b->inflight_longterm) {
		b->prev_probe_precautionary = 1;
		return 1;
	}
	if (b->c.is_cwnd_limited && b->c.cwnd >= b->inflight_longterm) {
		bbr3_reset_full_bw(b);
		b->full_bw = b->rs.delivery_rate;
		return 0;
	}
	return b->full_bw_now;
}

/* UpdateProbeBWCyclePhase() */
FP_STEP int bbr3_update_cycle(struct bbr3 *b)
{
	if (!b)
		return 0;
	if (!b->full_bw_reached || bbr3_adapt_long_term(b))
		return 0;
	switch (b->mode) {
	case BBR3_PROBE_BW_DOWN:
		if (bbr3_is_time_to_probe(b))
			bbr3_start_refill(b);
		else if (b->c.inflight <= bbr3_inflight_with_headroom(b) &&
			 b->c.inflight <= bbr3_inflight(b, bbr3_max_bw(b)))
			bbr3_start_cruise(b);
		break;
	case BBR3_PROBE_BW_CRUISE:
		if (bbr3_is_time_to_probe(b))
			bbr3_start_refill(b);
		break;
	case BBR3_PROBE_BW_REFILL:
		if (b->round_start) {
			b->is_bw_probe_sample = 1;
			bbr3_start_up(b);
		}
		break;
	case BBR3_PROBE_BW_UP:
		if (bbr3_is_time_to_go_down(b)) {
			b->prev_probe_too_high = 0;
			bbr3_start_down(b);
		}
		break;
	default:
		break;
	}
	return 0;
}

/* ProbeRTTCwnd() */
FP_INLINE u64 bbr3_probe_rtt_cwnd(const struct bbr3 *b)
{
	return fp_max64(bbr3_bdp_multiple(b, b->bw, BBR3_P(b)->probe_rtt_cwnd_gain), bbr3_min_pipe_cwnd(b));
}

/* CheckProbeRTTDone(), ExitProbeRTT() */
FP_INLINE void bbr3_check_probe_rtt_done(struct bbr3 *b)
{
	if (!b->probe_rtt_done_stamp || b->c.now <= b->probe_rtt_done_stamp)
		return;
	b->probe_rtt_min_stamp = b->c.now;
	bbr3_restore_cwnd(b);
	bbr3_reset_short_term(b);
	if (b->full_bw_reached) {
		bbr3_start_down(b);
		bbr3_start_cruise(b);
	} else {
		bbr3_enter_startup(b);
	}
}

/* UpdateMinRTT(), CheckProbeRTT(), HandleProbeRTT() */
FP_STEP int bbr3_update_min_rtt(struct bbr3 *b)
{
	if (!b)
		return 0;
	b->probe_rtt_expired = b->c.now > b->probe_rtt_min_stamp + (u64)BBR3_P(b)->probe_rtt_interval_ms * BBR3_NS_PER_MSEC;
	/* In Linux a delayed ACK does not replace an expired minimum. */
	if (b->rs.rtt != BBR3_INFINITE &&
	    (b->rs.rtt < b->probe_rtt_min_delay ||
	     (b->probe_rtt_expired && !(b->rs.is_ack_delayed && bbr3_is_linux(b))))) {
		b->probe_rtt_min_delay = b->rs.rtt;
		b->probe_rtt_min_stamp = b->c.now;
	}
	/* And an equal one renews the stamp. */
	if (b->probe_rtt_min_delay < b->min_rtt ||
	    b->c.now > b->min_rtt_stamp + (u64)BBR3_P(b)->min_rtt_filter_ms * BBR3_NS_PER_MSEC ||
	    (b->probe_rtt_min_delay == b->min_rtt && bbr3_is_linux(b))) {
		b->min_rtt = b->probe_rtt_min_delay;
		b->min_rtt_stamp = b->probe_rtt_min_stamp;
	}

	if (b->mode != BBR3_PROBE_RTT && b->probe_rtt_expired && !b->idle_restart) {
		b->mode = BBR3_PROBE_RTT;
		bbr3_save_cwnd(b);
		b->pacing_gain = BBR3_P(b)->probe_rtt_pacing_gain;
		b->cwnd_gain = BBR3_P(b)->probe_rtt_cwnd_gain;
		b->probe_rtt_done_stamp = 0;
		b->ack_phase = BBR3_ACKS_PROBE_STOPPING;
		bbr3_start_round(b);
	}
	if (b->mode == BBR3_PROBE_RTT) {
		b->marks_app_limited = 1;
		if (!b->probe_rtt_done_stamp) {
			if (b->c.inflight <= bbr3_probe_rtt_cwnd(b)) {
				b->probe_rtt_done_stamp = b->c.now + (u64)BBR3_P(b)->probe_rtt_duration_ms * BBR3_NS_PER_MSEC;
				b->probe_rtt_round_done = 0;
				bbr3_start_round(b);
			}
		} else {
			if (b->round_start)
				b->probe_rtt_round_done = 1;
			if (b->probe_rtt_round_done)
				bbr3_check_probe_rtt_done(b);
		}
	}
	if (b->rs.delivered > 0)
		b->idle_restart = 0;
	return 0;
}

/* AdvanceLatestDeliverySignals(), BoundBWForModel() */
FP_INLINE void bbr3_bound_bw(struct bbr3 *b)
{
	if (b->loss_round_start) {
		b->bw_latest = b->rs.delivery_rate;
		b->inflight_latest = b->rs.delivered;
		b->ce_in_round = 0;
	}
	b->bw = fp_min64(bbr3_max_bw(b), b->bw_shortterm);
}

/* UpdateControlParameters(): SetPacingRate(), SetSendQuantum(), SetCwnd() */
FP_STEP int bbr3_update_control(struct bbr3 *b)
{
	u64 cap = BBR3_INFINITE, max_inflight, extra_acked;

	if (!b)
		return 0;
	bbr3_set_pacing_rate(b, b->pacing_gain);
	bbr3_set_send_quantum(b);

	/* UpdateMaxInflight(); in Linux extra_acked is 100 ms of bandwidth at most. */
	extra_acked = b->extra_acked;
	if (bbr3_is_linux(b))
		extra_acked = fp_min64(extra_acked, bbr3_bytes_in(b->bw, 100 * BBR3_NS_PER_MSEC));
	max_inflight = bbr3_quantize(b, bbr3_bdp_multiple(b, b->bw, b->cwnd_gain) + extra_acked);
	if (b->full_bw_reached)
		b->c.cwnd = fp_min64(b->c.cwnd + b->rs.newly_acked, max_inflight);
	else if (b->c.cwnd < max_inflight || b->c.delivered < b->c.initial_cwnd)
		b->c.cwnd += b->rs.newly_acked;
	b->c.cwnd = fp_max64(b->c.cwnd, bbr3_min_pipe_cwnd(b));
	/* BoundCwndForProbeRTT() */
	if (b->mode == BBR3_PROBE_RTT)
		b->c.cwnd = fp_min64(b->c.cwnd, bbr3_probe_rtt_cwnd(b));
	/* BoundCwndForModel() */
	if (bbr3_in_probe_bw(b) && b->mode != BBR3_PROBE_BW_CRUISE)
		cap = b->inflight_longterm;
	else if (b->mode == BBR3_PROBE_RTT || b->mode == BBR3_PROBE_BW_CRUISE)
		cap = bbr3_inflight_with_headroom(b);
	cap = fp_min64(cap, b->inflight_shortterm);
	cap = fp_max64(cap, bbr3_min_pipe_cwnd(b));
	b->c.cwnd = fp_min64(b->c.cwnd, cap);
	return 0;
}

/* UpdateOnACK() */
FP_INLINE void bbr3_on_ack(struct bbr3 *b)
{
	if (!b->has_rtt && b->c.srtt)
		bbr3_init_pacing_rate(b);
	/* Google's v3 negotiates ECN and ignores marks, but on routes with ECN_LOW. */
	if (BBR3_P(b)->ecn && b->rs.ce_count && !bbr3_is_linux(b))
		bbr3_handle_ce_marks(b);
	b->marks_app_limited = b->mode == BBR3_PROBE_RTT;
	/* An ACK that acknowledges nothing new says nothing of the path, but the window may have been restored. */
	if (b->rs.has_data) {
		bbr3_update_signals(b);
		bbr3_update_aggregation(b);
		bbr3_check_startup_and_drain(b);
		bbr3_update_cycle(b);
		bbr3_update_min_rtt(b);
		bbr3_bound_bw(b);
	}
	bbr3_update_control(b);
}

/* OnTransmit(), HandleRestartFromIdle(): nothing is in flight, and the application had paused. */
FP_STEP int bbr3_on_restart_from_idle(struct bbr3 *b)
{
	if (!b)
		return 0;
	b->idle_restart = 1;
	b->extra_acked_interval_start = b->c.now;
	b->extra_acked_delivered = 0;
	if (bbr3_in_probe_bw(b))
		bbr3_set_pacing_rate(b, BBR3_UNIT_GAIN);
	else if (b->mode == BBR3_PROBE_RTT)
		bbr3_check_probe_rtt_done(b);
	return 0;
}

/* OnEnterFastRecovery() */
FP_INLINE void bbr3_on_enter_recovery(struct bbr3 *b)
{
	bbr3_save_cwnd(b);
	bbr3_save_state_upon_loss(b);
}

/* OnEnterRTO() but for the window, which the caller cuts. In Linux the window before it bounds inflight, unless probing. */
FP_INLINE void bbr3_on_enter_rto(struct bbr3 *b)
{
	bbr3_on_enter_recovery(b);
	if (bbr3_is_linux(b) && !bbr3_is_probing_bw(b) && b->inflight_shortterm == BBR3_INFINITE)
		b->inflight_shortterm = fp_max64(b->c.cwnd, b->prior_cwnd);
}

/* Recovery of this kind ends, by repair: RestoreCwnd(), in Linux only after a time-out. */
FP_INLINE void bbr3_on_exit_recovery(struct bbr3 *b, u32 recovery)
{
	if (recovery == BBR3_LOSS_RECOVERY || !bbr3_is_linux(b))
		bbr3_restore_cwnd(b);
	b->undo_saved = 0;
}

/* HandleSpuriousLossDetection() */
FP_STEP int bbr3_on_spurious_loss(struct bbr3 *b)
{
	u32 undo_mode;

	if (!b)
		return 0;
	undo_mode = b->undo_mode;
	bbr3_restore_cwnd(b);
	b->is_loss_in_round = 0;
	bbr3_reset_full_bw(b);
	if (b->undo_saved) {
		b->bw_shortterm = fp_max64(b->bw_shortterm, b->undo_bw_shortterm);
		b->inflight_shortterm = fp_max64(b->inflight_shortterm, b->undo_inflight_shortterm);
		b->inflight_longterm = fp_max64(b->inflight_longterm, b->undo_inflight_longterm);
	}
	b->undo_saved = 0;
	b->undo_mode = BBR3_NO_MODE;
	/* Linux restores the bounds and the plateau detector only. */
	if (bbr3_is_linux(b))
		return 0;
	if (undo_mode == BBR3_STARTUP && b->mode != BBR3_STARTUP) {
		b->full_bw_reached = 0;
		if (b->mode != BBR3_PROBE_RTT)
			bbr3_enter_startup(b);
	} else if (undo_mode == BBR3_PROBE_BW_UP && b->mode != BBR3_PROBE_BW_UP && b->mode != BBR3_PROBE_RTT) {
		bbr3_start_refill(b);
	}
	return 0;
}

/* OnInit(); the connection's fields and the random seed are set, everything else is zero. */
FP_STEP int bbr3_init(struct bbr3 *b)
{
	if (!b)
		return 0;
	b->min_rtt = b->c.srtt ? b->c.srtt : BBR3_INFINITE;
	b->min_rtt_stamp = b->c.now;
	b->probe_rtt_min_delay = b->min_rtt;
	b->probe_rtt_min_stamp = b->c.now;
	b->undo_mode = BBR3_NO_MODE;
	b->extra_acked_interval_start = b->c.now;
	b->inflight_longterm = BBR3_INFINITE;
	b->probe_up_acked_per_inc = BBR3_INFINITE;
	b->ack_phase = BBR3_ACKS_INIT;
	bbr3_reset_short_term(b);
	bbr3_init_pacing_rate(b);
	bbr3_enter_startup(b);
	return 0;
}

#endif
