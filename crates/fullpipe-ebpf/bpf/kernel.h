/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The part of the kernel that the controllers see: only the fields they touch. libbpf relocates every
 * access to the layout of the running kernel (CO-RE), so order and offsets here mean nothing and no
 * vmlinux.h is needed.
 */
#ifndef FP_KERNEL_H
#define FP_KERNEL_H

#include "types.h"

#define SEC(name) __attribute__((section(name), used))
#define FP_KFUNC __attribute__((section(".ksyms")))
#define FP_WEAK __attribute__((weak))
#define FP_CORE __attribute__((preserve_access_index))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

#define FP_MAP_RINGBUF 27
#define FP_MAP_SK_STORAGE 24
#define FP_F_NO_PREALLOC 1
#define FP_SK_STORAGE_CREATE 1
#define FP_CONG_NON_RESTRICTED 1U
#define FP_SK_PACING_NONE 0U
#define FP_SK_PACING_NEEDED 1U

typedef _Bool bool;

struct rb_node {
	unsigned long __rb_parent_color;
	struct rb_node *rb_right;
	struct rb_node *rb_left;
} FP_CORE;

struct rb_root {
	struct rb_node *rb_node;
} FP_CORE;

struct sk_buff {
	struct rb_node rbnode; /* in the retransmission queue */
	struct sock *sk;
	unsigned int len;
	char cb[48];
	unsigned char *head;
	unsigned char *data;
	u16 transport_header;
} FP_CORE;

/* What TCP keeps in sk_buff's cb. */
struct tcp_skb_cb {
	u32 seq;
	u32 end_seq;
	u8 sacked; /* FP_SKB_* */
	struct {
		u32 is_app_limited : 1;
		u32 delivered; /* packets, when it was last sent */
	} tx;
} FP_CORE;

#define FP_SKB_ACKED 0x01U
#define FP_SKB_RETRANSMITTED 0x02U
#define FP_SKB_LOST 0x04U

struct sock {
	struct rb_root tcp_rtx_queue;
	u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	unsigned int sk_gso_max_size;
	u8 sk_pacing_shift;
} FP_CORE;

struct inet_sock {
	struct sock sk;
} FP_CORE;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops *icsk_ca_ops;
	u8 icsk_ca_state : 5;
	u64 icsk_ca_priv[13];
} FP_CORE;

struct minmax_sample {
	u32 t;
	u32 v;
} FP_CORE;

struct minmax {
	struct minmax_sample s[3];
} FP_CORE;

struct tcp_options_received {
	u16 sack_ok : 3;
} FP_CORE;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	struct tcp_options_received rx_opt;
	u64 tcp_wstamp_ns;
	u64 tcp_clock_cache;
	u64 tcp_mstamp;
	u64 delivered_mstamp;
	u64 bytes_acked;
	u32 mss_cache;
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 prior_cwnd;
	u32 snd_una;
	u32 snd_nxt;
	u32 write_seq;
	u32 high_seq;
	u32 tlp_high_seq;
	u32 srtt_us;
	u32 packets_out;
	u32 max_packets_out;
	u32 lost_out;
	u32 sacked_out;
	u32 retrans_out;
	u32 delivered;
	u32 delivered_ce;
	u32 lost;
	u32 total_retrans;
	u32 app_limited;
	struct sk_buff *retransmit_skb_hint;
	u8 is_cwnd_limited : 1;
	u8 ecn_flags;
	struct minmax rtt_min;
} FP_CORE;

struct rate_sample {
	u64 prior_mstamp;
	u32 prior_delivered;
	s32 delivered;
	s32 delivered_ce;
	long interval_us;
	long rtt_us;
	int losses;
	u32 acked_sacked;
	u32 prior_in_flight;
	u32 last_end_seq;
	bool is_app_limited;
	bool is_ack_delayed;
} FP_CORE;

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
	u32 in_flight;
} FP_CORE;

enum tcp_ca_event { FP_EVENT_UNUSED = 0 };

/*
 * The members that our programs fill in. libbpf joins them to the kernel's by name and the loader clears
 * those that the running kernel does not have.
 */
struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*cwnd_event_tx_start)(struct sock *sk);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*min_tso_segs)(struct sock *sk);
	void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs);
	u32 (*undo_cwnd)(struct sock *sk);
	u32 (*sndbuf_expand)(struct sock *sk);
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	char name[16];
	u32 flags;
} FP_CORE;

/* Helpers by their number in uapi/linux/bpf.h. */
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u64 (*bpf_get_socket_cookie)(void *sk) = (void *)46;
static void *(*bpf_sk_storage_get)(void *map, void *sk, void *value, u64 flags) = (void *)107;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static u64 (*bpf_jiffies64)(void) = (void *)118;
static void *(*bpf_skc_to_tcp_sock)(void *sk) = (void *)137;
static long (*bpf_seq_write)(void *seq, const void *data, u32 size) = (void *)127;
static long (*bpf_ringbuf_output)(void *map, void *data, u64 size, u64 flags) = (void *)130;
static void *(*bpf_ringbuf_reserve)(void *map, u64 size, u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *data, u64 flags) = (void *)132;

/* A bit-field, wherever the running kernel keeps it (enum bpf_field_info_kind). */
#define FP_BITFIELD(base, field)                                                                  \
	({                                                                                        \
		const char *_at = (const char *)(base) + __builtin_preserve_field_info((base)->field, 0); \
		u64 _value = 0;                                                                   \
		asm volatile("" : "+r"(_at));                                                     \
		switch (__builtin_preserve_field_info((base)->field, 1)) {                        \
		case 1:                                                                           \
			_value = *(const u8 *)_at;                                                \
			break;                                                                    \
		case 2:                                                                           \
			_value = *(const u16 *)_at;                                               \
			break;                                                                    \
		case 4:                                                                           \
			_value = *(const u32 *)_at;                                               \
			break;                                                                    \
		case 8:                                                                           \
			_value = *(const u64 *)_at;                                               \
			break;                                                                    \
		}                                                                                 \
		_value <<= __builtin_preserve_field_info((base)->field, 4);                       \
		_value >>= __builtin_preserve_field_info((base)->field, 5);                       \
		(u32)_value;                                                                      \
	})
#define FP_FIELD_EXISTS(field) __builtin_preserve_field_info(field, 2)

/*
 * A field, of this type, of what the verifier knows no more of than that it is a number: it is read as memory. (The type
 * is named, for that of a field behind a pointer to const would be const, and never be read back.)
 */
#define FP_READ(type, pointer) \
	({ \
		type _value = 0; \
		bpf_probe_read_kernel((void *)&_value, sizeof(_value), (pointer)); \
		_value; \
	})
/* And a bit-field that lies within four bytes of its own type. */
#define FP_READ_BITFIELD(base, field)                                                                        \
	({                                                                                                   \
		u32 _word = 0;                                                                               \
		u64 _bits;                                                                                   \
		bpf_probe_read_kernel((void *)&_word, sizeof(_word),                                         \
				      (const char *)(base) + __builtin_preserve_field_info((base)->field, 0)); \
		_bits = (u64)_word << __builtin_preserve_field_info((base)->field, 4);                       \
		(u32)(_bits >> __builtin_preserve_field_info((base)->field, 5));                             \
	})

/*
 * What the loader tells a program before the kernel sees it, in a map of its own so that it can be found
 * again in a loaded program.
 */
struct fp_config {
	/* Parameters of cong_control on the running kernel: 2 before Linux 6.10, 4 since (counted in its BTF). */
	u32 cong_control_args;
	u32 options; /* FP_OPTION_* */
	/* Which build of the object this is. */
	u64 build;
	/* Of this structure and of the settings' map, FP_FORMAT, and of what the program keeps of a socket. */
	u32 format;
	u32 state_layout;
};
/* One more with every change: an update carries the settings over from a build of the same format. */
#define FP_FORMAT 2U
#ifndef FP_STATE_LAYOUT
#define FP_STATE_LAYOUT 0U
#endif
/* The recorder disturbs the state before some callbacks. */
#define FP_OPTION_PERTURB 2U
/* The kernel lets no program write tcp_sock's app_limited: who marks a connection keeps the mark to himself. */
#define FP_OPTION_OWN_MARK 4U
/* Nor how a connection is paced: one that comes from a controller that paces goes on being paced. */
#define FP_OPTION_KEEPS_PACING 8U
/* Nor may a program read the kernel's memory (lockdown=confidentiality): what was lost is not looked up among what was sent. */
#define FP_OPTION_READS_NOTHING 16U

const volatile struct fp_config fp_config SEC(".rodata.config") = { 4, 0, 0, FP_FORMAT, FP_STATE_LAYOUT };

/* tcp_packets_in_flight(). */
FP_INLINE u32 fp_in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
}

/*
 * GSO_LEGACY_MAX_SIZE - 1 - MAX_TCP_HEADER. The header's share depends on the kernel's configuration;
 * sk_setup_caps() leaves exactly this number in sk_gso_max_size for a device of the usual 64 KiB. For
 * any other device take the largest header a kernel can have.
 */
FP_INLINE u32 fp_gso_limit(u32 gso_max_size)
{
	if (gso_max_size < FP_GSO_LEGACY_MAX_SIZE && gso_max_size > FP_GSO_LEGACY_MAX_SIZE - 512)
		return gso_max_size;
	return FP_GSO_LEGACY_MAX_SIZE - 1 - 320;
}

/*
 * The connection before a callback. The tick clock is TCP's own microsecond stamp in milliseconds: it
 * is already read, and as fine as the finest jiffies.
 */
FP_INLINE void fp_read_tcp(struct fp_tcp *t, const struct tcp_sock *tp)
{
	const struct inet_connection_sock *icsk = &tp->inet_conn;
	const struct sock *sk = &icsk->icsk_inet.sk;

	t->tcp_mstamp = tp->tcp_mstamp;
	t->delivered_mstamp = tp->delivered_mstamp;
	t->clock_ns = tp->tcp_clock_cache;
	t->wstamp_ns = tp->tcp_wstamp_ns;
	t->pacing_rate = sk->sk_pacing_rate;
	t->max_pacing_rate = sk->sk_max_pacing_rate;
	t->delivered = tp->delivered;
	t->lost = tp->lost;
	t->in_flight = fp_in_flight(tp);
	t->snd_cwnd = tp->snd_cwnd;
	t->snd_cwnd_clamp = tp->snd_cwnd_clamp;
	t->snd_ssthresh = tp->snd_ssthresh;
	t->app_limited = tp->app_limited;
	t->mss = tp->mss_cache;
	t->srtt_us = tp->srtt_us;
	t->min_rtt_us = tp->rtt_min.s[0].v;
	t->ticks = (u32)(t->tcp_mstamp / FP_USEC_PER_MSEC);
	t->hz = 1000;
	t->gso_limit = fp_gso_limit(sk->sk_gso_max_size);
	t->pacing_shift = sk->sk_pacing_shift;
	t->ca_state = FP_BITFIELD(icsk, icsk_ca_state);
}

FP_INLINE void fp_no_sample(struct fp_tcp *t)
{
	t->rs_interval_us = 0;
	t->rs_rtt_us = 0;
	t->rs_delivered = 0;
	t->rs_losses = 0;
	t->rs_prior_delivered = 0;
	t->rs_prior_in_flight = 0;
	t->rs_acked_sacked = 0;
	t->rs_flags = 0;
}

FP_INLINE void fp_read_sample(struct fp_tcp *t, const struct rate_sample *rs)
{
	t->rs_interval_us = rs->interval_us;
	t->rs_rtt_us = rs->rtt_us;
	t->rs_delivered = rs->delivered;
	t->rs_losses = rs->losses;
	t->rs_prior_delivered = rs->prior_delivered;
	t->rs_prior_in_flight = rs->prior_in_flight;
	t->rs_acked_sacked = rs->acked_sacked;
	t->rs_flags = (rs->is_app_limited ? FP_RS_APP_LIMITED : 0) | (rs->is_ack_delayed ? FP_RS_ACK_DELAYED : 0);
}

/* What a callback may change, written only where it changed. */
FP_INLINE void fp_write_tcp(struct tcp_sock *tp, const struct fp_tcp *t)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	if (tp->snd_cwnd != t->snd_cwnd)
		tp->snd_cwnd = t->snd_cwnd;
	if (tp->snd_ssthresh != t->snd_ssthresh)
		tp->snd_ssthresh = t->snd_ssthresh;
	if (!(fp_config.options & FP_OPTION_OWN_MARK) && tp->app_limited != t->app_limited)
		tp->app_limited = t->app_limited;
	if (sk->sk_pacing_rate != t->pacing_rate)
		sk->sk_pacing_rate = t->pacing_rate;
}

/* Switches TCP's own pacing on where no fq does it already. */
FP_INLINE void fp_need_pacing(struct tcp_sock *tp)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	if (sk->sk_pacing_status == FP_SK_PACING_NONE)
		sk->sk_pacing_status = FP_SK_PACING_NEEDED;
}

/*
 * The opposite, for a controller that does not pace or that gives its socket away: a socket that comes from a controller
 * that paces would go on being paced by a rate that was another's. An application's own limit (SO_MAX_PACING_RATE) keeps
 * its pacing.
 */
FP_INLINE void fp_end_pacing(struct tcp_sock *tp)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	if (!(fp_config.options & FP_OPTION_KEEPS_PACING) && sk->sk_pacing_status == FP_SK_PACING_NEEDED &&
	    sk->sk_max_pacing_rate == ~0UL)
		sk->sk_pacing_status = FP_SK_PACING_NONE;
}

/*
 * The rate sample among cong_control's arguments. Two loads at fixed places, in assembly, because the
 * compiler would merge them into one at a computed place, which the verifier refuses.
 */
FP_INLINE const struct rate_sample *fp_sample_argument(const u64 *ctx)
{
	const struct rate_sample *rs;

	if (fp_config.cong_control_args == 4)
		asm volatile("%0 = *(u64 *)(%1 + 24)" : "=r"(rs) : "r"(ctx));
	else
		asm volatile("%0 = *(u64 *)(%1 + 8)" : "=r"(rs) : "r"(ctx));
	return rs;
}

#define FP_TCP(ctx) ((struct tcp_sock *)(ctx)[0])

/* The kernel's own BBR, for the programs that wrap it. */
extern void bbr_init(struct sock *sk) FP_KFUNC;
extern void bbr_main(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs) FP_KFUNC;
/* A kernel has the one or the other, as it has cwnd_event_tx_start or not. */
extern void bbr_cwnd_event(struct sock *sk, enum tcp_ca_event event) FP_KFUNC FP_WEAK;
extern void bbr_cwnd_event_tx_start(struct sock *sk) FP_KFUNC FP_WEAK;
extern void bbr_set_state(struct sock *sk, u8 new_state) FP_KFUNC;
extern u32 bbr_undo_cwnd(struct sock *sk) FP_KFUNC;
extern u32 bbr_ssthresh(struct sock *sk) FP_KFUNC;
extern u32 bbr_min_tso_segs(struct sock *sk) FP_KFUNC;
extern u32 bbr_sndbuf_expand(struct sock *sk) FP_KFUNC;

/* Calls `begins` for a connection that begins to send: an event among others, or a call of its own on the newest kernels. */
#define FP_ON_TX_START(name, begins)                      \
	SEC("struct_ops/" #name "_cwnd_event")            \
	void name##_cwnd_event(u64 *ctx)                  \
	{                                                 \
		if ((u32)ctx[1] == FP_CA_EVENT_TX_START)  \
			begins(FP_TCP(ctx));              \
	}                                                 \
                                                          \
	SEC("struct_ops/" #name "_cwnd_event_tx_start")   \
	void name##_cwnd_event_tx_start(u64 *ctx)         \
	{                                                 \
		begins(FP_TCP(ctx));                      \
	}

#endif
