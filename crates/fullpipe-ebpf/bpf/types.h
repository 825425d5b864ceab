/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The words both worlds use: the same core files compile for the BPF target and natively. */
#ifndef FP_TYPES_H
#define FP_TYPES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;

#ifndef FP_INLINE
#define FP_INLINE static inline __attribute__((always_inline))
#endif

/*
 * A step of a core. In BPF a global function is verified once, by itself, so a controller of several
 * steps stays far below the verifier's limit of a million instructions; natively it is just a function.
 */
#ifdef __bpf__
#define FP_STEP __attribute__((noinline))
#else
#define FP_STEP static
#endif

#define FP_USEC_PER_MSEC 1000U
#define FP_USEC_PER_SEC 1000000U
#define FP_NSEC_PER_USEC 1000U

FP_INLINE u32 fp_min32(u32 a, u32 b)
{
	return a < b ? a : b;
}

FP_INLINE u32 fp_max32(u32 a, u32 b)
{
	return a > b ? a : b;
}

FP_INLINE u64 fp_min64(u64 a, u64 b)
{
	return a < b ? a : b;
}

FP_INLINE u64 fp_max64(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* Serial-number order of 32-bit counters (tcp.h before()/after(), jiffies). */
FP_INLINE int fp_before(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

FP_INLINE int fp_after(u32 a, u32 b)
{
	return (s32)(b - a) < 0;
}

/* tcp_stamp_us_delta(): never negative, cut to 32 bits. */
FP_INLINE u32 fp_stamp_delta(u64 later, u64 earlier)
{
	return (s64)(later - earlier) > 0 ? (u32)(later - earlier) : 0;
}

/* A value and the round in which it was seen. */
struct fp_best {
	u64 v;
	u32 t;
	u32 spare;
};

/* minmax_reset(): forget everything but this sample. */
FP_INLINE void fp_filter_reset(struct fp_best *m, u32 t, u64 v)
{
	m[0].t = m[1].t = m[2].t = t;
	m[0].v = m[1].v = m[2].v = v;
}

/* minmax_running_max(): Kathleen Nichols' best, second and third best over a sliding window (lib/win_minmax.c). */
FP_INLINE u64 fp_filter_max(struct fp_best *m, u32 window, u32 t, u64 v)
{
	u32 age;

	if (v >= m[0].v || t - m[2].t > window) {
		fp_filter_reset(m, t, v);
		return v;
	}
	if (v >= m[1].v) {
		m[2].t = m[1].t = t;
		m[2].v = m[1].v = v;
	} else if (v >= m[2].v) {
		m[2].t = t;
		m[2].v = v;
	}
	age = t - m[0].t;
	if (age > window) {
		m[0] = m[1];
		m[1] = m[2];
		m[2].t = t;
		m[2].v = v;
		if (t - m[0].t > window) {
			m[0] = m[1];
			m[1] = m[2];
		}
	} else if (m[1].t == m[0].t && age > window / 4) {
		m[2].t = m[1].t = t;
		m[2].v = m[1].v = v;
	} else if (m[2].t == m[1].t && age > window / 2) {
		m[2].t = t;
		m[2].v = v;
	}
	return m[0].v;
}

/* enum tcp_ca_state (uapi/linux/tcp.h). */
enum fp_ca_state {
	FP_CA_OPEN = 0,
	FP_CA_DISORDER = 1,
	FP_CA_CWR = 2,
	FP_CA_RECOVERY = 3,
	FP_CA_LOSS = 4,
};

/* enum tcp_ca_event, the one that matters here. */
#define FP_CA_EVENT_TX_START 0

#define FP_INIT_CWND 10U
#define FP_INFINITE_SSTHRESH 0x7fffffffU
#define FP_GSO_LEGACY_MAX_SIZE 65536U

/*
 * What a controller may know of its connection in one callback, and what it may change: the fields of
 * struct tcp_sock, inet_connection_sock, sock and rate_sample, by their names there. Times are in
 * microseconds unless the name says otherwise; counts are packets; rates are bytes a second.
 */
struct fp_tcp {
	u64 tcp_mstamp;
	u64 delivered_mstamp;
	u64 clock_ns;   /* tcp_clock_cache */
	u64 wstamp_ns;  /* tcp_wstamp_ns: departure time of the next packet */
	u64 pacing_rate; /* written back */
	u64 max_pacing_rate;
	s64 rs_interval_us;
	s64 rs_rtt_us;
	s32 rs_delivered;
	s32 rs_losses;
	u32 rs_prior_delivered;
	u32 rs_prior_in_flight;
	u32 rs_acked_sacked;
	u32 rs_flags; /* FP_RS_* */
	u32 delivered;
	u32 lost;
	u32 in_flight; /* tcp_packets_in_flight() */
	u32 snd_cwnd;  /* written back */
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh; /* written back */
	u32 app_limited;  /* written back */
	u32 mss;          /* mss_cache */
	u32 srtt_us;      /* eight times the smoothed RTT, as the kernel keeps it */
	u32 min_rtt_us;   /* tcp_min_rtt(): ~0 when there is none */
	u32 ticks;        /* a 32-bit clock of `hz` ticks a second: tcp_jiffies32 in the kernel's BBR */
	u32 hz;
	u32 gso_limit;     /* GSO_LEGACY_MAX_SIZE - 1 - MAX_TCP_HEADER, which depends on the kernel's configuration */
	u32 pacing_shift;  /* sk_pacing_shift */
	u32 ca_state;      /* icsk_ca_state */
	u32 random;        /* for fp_random() where no helper gives one */
};

/* A fresh random number. A program draws one only when it is wanted, which is seldom. */
#ifdef __bpf__
static u32 (*bpf_get_prandom_u32)(void) = (void *)7;

FP_INLINE u32 fp_random(const struct fp_tcp *t)
{
	return bpf_get_prandom_u32();
}
#else
FP_INLINE u32 fp_random(const struct fp_tcp *t)
{
	return t->random;
}
#endif

#define FP_RS_APP_LIMITED 1U
#define FP_RS_ACK_DELAYED 2U

/* The callbacks of struct tcp_congestion_ops that carry state from one call to the next. */
enum fp_op {
	FP_OP_INIT = 0,
	FP_OP_MAIN = 1,
	FP_OP_EVENT = 2,
	FP_OP_STATE = 3,
	FP_OP_UNDO = 4,
	FP_OP_SSTHRESH = 5,
	FP_OP_MIN_TSO = 6,
	FP_OP_ACKED = 7,
};

#endif
