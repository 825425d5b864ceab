/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Hybla (Caini, Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous networks", 2004) in the
 * fixed-point arithmetic of Linux's net/ipv4/tcp_hybla.c: grows the window as a Reno flow with a round-trip
 * time of 25 ms would, however long the path. With rho = RTT / 25 ms, at least 1: slow start adds
 * 2^rho - 1 packets an ACK, congestion avoidance rho^2 / cwnd. A pure core.
 */
#ifndef FP_HYBLA_H
#define FP_HYBLA_H

#include "types.h"

#define HYBLA_RTT0_MS 25U
#define HYBLA_ONE 128U /* a packet, in the unit of increments */
#define HYBLA_CLAMP 65535U

struct hybla {
	/* The connection's, by their names in struct tcp_sock; the first three are written back. */
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_ssthresh;
	u32 snd_cwnd_clamp;
	u32 srtt_us; /* eight times the smoothed RTT */
	u32 is_limiting; /* tcp_is_cwnd_limited() */
	/* State. */
	u32 enabled;
	u32 cents;    /* fractions of a packet not yet added, in 1/128 */
	u32 rho_8;    /* rho in 1/8; 0 before the first RTT */
	u32 rho2_128; /* rho^2 in 1/128 */
	u32 min_srtt; /* the least srtt_us seen */
	u32 rtt0_ms;
};

/* hybla_recalc_param() */
FP_INLINE void hybla_recalculate(struct hybla *h)
{
	u64 square;

	h->rho_8 = fp_max32(h->srtt_us / (fp_max32(h->rtt0_ms, 1) * 1000), 8);
	square = 2 * (u64)h->rho_8 * h->rho_8;
	h->rho2_128 = square > ~0U ? ~0U : (u32)square;
	h->min_srtt = h->srtt_us;
}

/* 2^(n/8) in 1/128. */
FP_INLINE u32 hybla_eighth_power(u32 n)
{
	switch (n) {
	case 0:
		return 128;
	case 1:
		return 139;
	case 2:
		return 152;
	case 3:
		return 165;
	case 4:
		return 181;
	case 5:
		return 197;
	case 6:
		return 215;
	default:
		return 234;
	}
}

FP_INLINE u32 hybla_add(u32 a, u32 b)
{
	return a + b < a ? ~0U : a + b;
}

/* hybla_init() */
FP_INLINE void hybla_init(struct hybla *h)
{
	h->enabled = 1;
	h->cents = 0;
	hybla_recalculate(h);
	h->snd_cwnd = h->rho_8 >> 3;
}

/* tcp_reno_cong_avoid(): what Hybla does while losses are being sorted out. */
FP_INLINE void hybla_reno(struct hybla *h, u32 acked)
{
	u32 every, cwnd;

	if (h->snd_cwnd < h->snd_ssthresh) {
		cwnd = fp_min32(hybla_add(h->snd_cwnd, acked), h->snd_ssthresh);
		acked -= cwnd - h->snd_cwnd;
		h->snd_cwnd = fp_min32(cwnd, h->snd_cwnd_clamp);
		if (!acked)
			return;
	}
	every = fp_max32(h->snd_cwnd, 1);
	if (h->snd_cwnd_cnt >= every) {
		h->snd_cwnd_cnt = 0;
		h->snd_cwnd = hybla_add(h->snd_cwnd, 1);
	}
	h->snd_cwnd_cnt = hybla_add(h->snd_cwnd_cnt, acked);
	if (h->snd_cwnd_cnt >= every) {
		u32 increase = h->snd_cwnd_cnt / every;

		h->snd_cwnd_cnt -= increase * every;
		h->snd_cwnd = hybla_add(h->snd_cwnd, increase);
	}
	h->snd_cwnd = fp_min32(h->snd_cwnd, h->snd_cwnd_clamp);
}

/* hybla_cong_avoid(): `acked` packets were newly acknowledged and the window may grow. */
FP_INLINE void hybla_cong_avoid(struct hybla *h, u32 acked)
{
	u32 increment, slow_start;

	h->snd_cwnd_clamp = fp_min32(h->snd_cwnd_clamp, HYBLA_CLAMP);
	if (h->srtt_us < h->min_srtt || (!h->rho_8 && h->srtt_us))
		hybla_recalculate(h);
	if (!h->is_limiting)
		return;
	if (!h->enabled) {
		hybla_reno(h, acked);
		return;
	}
	if (!h->rho_8)
		hybla_recalculate(h);

	slow_start = h->snd_cwnd < h->snd_ssthresh;
	if (slow_start) {
		increment = (1U << fp_min32(h->rho_8 >> 3, 16)) * hybla_eighth_power(h->rho_8 & 7) - HYBLA_ONE;
	} else {
		increment = h->rho2_128 / fp_max32(h->snd_cwnd, 1);
		if (increment < HYBLA_ONE)
			h->snd_cwnd_cnt++;
	}
	h->snd_cwnd = hybla_add(h->snd_cwnd, increment / HYBLA_ONE);
	h->cents += increment % HYBLA_ONE;
	if (h->cents >= HYBLA_ONE) {
		h->cents -= HYBLA_ONE;
		h->snd_cwnd = hybla_add(h->snd_cwnd, 1);
		h->snd_cwnd_cnt = 0;
	}
	/* Where the increment rounds to nothing, still a packet a window. */
	if (!increment && h->snd_cwnd_cnt >= h->snd_cwnd) {
		h->snd_cwnd = hybla_add(h->snd_cwnd, 1);
		h->snd_cwnd_cnt = 0;
	}
	if (slow_start)
		h->snd_cwnd = fp_min32(h->snd_cwnd, h->snd_ssthresh);
	h->snd_cwnd = fp_min32(h->snd_cwnd, h->snd_cwnd_clamp);
}

/* tcp_reno_ssthresh() */
FP_INLINE u32 hybla_ssthresh(u32 snd_cwnd)
{
	return fp_max32(snd_cwnd >> 1, 2);
}

#endif
