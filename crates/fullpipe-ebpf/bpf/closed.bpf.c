// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Hands out the final account of every TCP socket that closes, for `fullpipe records`. At the tracepoint
 * sock:inet_sock_set_state, and not as a sockops program: that would have to be switched on in each socket as it opens
 * (so it knows none that was open before), is called for the handshake of each as well, and stands in line with the
 * programs that others attach to a control group.
 *
 * Two programs, because the kernel skips a program that is already running on the processor. What is called within a
 * process (fp_opened, with more to do) can be interrupted by packets that close other sockets; fp_closed returns at
 * once from all but a closing, and its misses are counted by the kernel (recursion_misses).
 */
#include "kernel.h"
#include "closed.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define FP_MAP_HASH 1
#define FP_MAP_PERCPU_ARRAY 6
#define FP_RB_NO_WAKEUP 1
#define FP_RB_FORCE_WAKEUP 2
#define FP_RB_AVAIL_DATA 0
#define FP_IPPROTO_TCP 6
#define FP_SOCK_DONE 1 /* enum sock_flags: a FIN came */
#define FP_ECN_AGREED (1 | 16) /* TCP_ECN_MODE_RFC3168, TCP_ECN_MODE_ACCECN */

enum { ESTABLISHED = 1, SYN_SENT, SYN_RECV, FIN_WAIT1, FIN_WAIT2, TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, LISTEN };

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ringbuf_query)(void *map, u64 flags) = (void *)134;
static void *(*bpf_get_current_task_btf)(void) = (void *)158;

/* Those of kernel.h have other fields: libbpf leaves out what follows three underscores. */
struct ns_common___closed {
	u32 inum;
} FP_CORE;

struct net___closed {
	struct ns_common___closed ns;
	u64 net_cookie;
} FP_CORE;

typedef struct {
	struct net___closed *net;
} FP_CORE possible_net_t___closed;

typedef struct {
	s64 counter;
} FP_CORE atomic64_t___closed;

typedef struct {
	u32 val;
} FP_CORE kuid_t___closed;

struct in6_addr___closed {
	union {
		u32 u6_addr32[4];
	} in6_u;
} FP_CORE;

struct sock_common___closed {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport;
	u16 skc_family;
	possible_net_t___closed skc_net;
	struct in6_addr___closed skc_v6_daddr;
	struct in6_addr___closed skc_v6_rcv_saddr;
	atomic64_t___closed skc_cookie;
	unsigned long skc_flags;
} FP_CORE;

struct kernfs_node___closed {
	u64 id;
} FP_CORE;

struct cgroup___closed {
	struct kernfs_node___closed *kn;
} FP_CORE;

struct sock_cgroup_data___closed {
	struct cgroup___closed *cgroup;
} FP_CORE;

struct sock___closed {
	struct sock_common___closed __sk_common;
	int sk_err;
	u16 sk_protocol;
	kuid_t___closed sk_uid;
	struct sock_cgroup_data___closed sk_cgrp_data;
} FP_CORE;

struct inet_sock___closed {
	u16 inet_sport;
} FP_CORE;

struct inet_connection_sock___closed {
	struct inet_sock___closed icsk_inet;
	const struct tcp_congestion_ops *icsk_ca_ops;
} FP_CORE;

struct tcp_options_received___closed {
	u16 tstamp_ok : 1;
	u16 wscale_ok : 1;
	u16 sack_ok : 3;
	u16 snd_wscale : 4;
	u16 rcv_wscale : 4;
	u16 mss_clamp;
} FP_CORE;

struct tcp_sock___closed {
	struct inet_connection_sock___closed inet_conn;
	struct tcp_options_received___closed rx_opt;
	u64 bytes_sent;
	u64 bytes_acked;
	u64 bytes_received;
	u64 bytes_retrans;
	u32 segs_out;
	u32 segs_in;
	u32 data_segs_out;
	u32 data_segs_in;
	u32 total_retrans;
	u32 dsack_dups;
	u32 reord_seen;
	u32 rcv_ooopack;
	u32 delivered;
	u32 delivered_ce;
	u32 srtt_us;
	struct minmax rtt_min;
	u32 snd_cwnd;
	u32 snd_ssthresh;
	u32 mss_cache;
	u32 rate_delivered;
	u32 rate_interval_us;
	u32 chrono_start;
	u32 chrono_stat[3];
	u32 lsndtime;
	u32 snd_una;
	u32 write_seq;
	u16 total_rto;
	u8 chrono_type : 2;
	u8 rate_app_limited : 1;
	u8 ecn_flags;
} FP_CORE;

struct task_struct___closed {
	struct task_struct___closed *group_leader;
	int tgid;
	char comm[16];
} FP_CORE;

/* What the loader tells before the kernel sees the programs. */
struct fp_closed_config {
	u64 netns_cookie; /* of the only network namespace to tell of; 0 for all */
	u64 wake_at; /* bytes in the ring at which its reader is woken before its time */
};
const volatile struct fp_closed_config fp_closed_config SEC(".rodata.closings") = { 0, 0 };

struct {
	__uint(type, FP_MAP_RINGBUF);
	__uint(max_entries, 8 << 20); /* the loader's choice takes its place */
} closings SEC(".maps");

struct fp_closed_counts {
	u64 closed;
	u64 lost; /* of them, found the ring full */
};
struct {
	__uint(type, FP_MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fp_closed_counts);
} closing_counts SEC(".maps");

/*
 * What is seen of a connection before it closes, by its socket's address: given to it as it opens, taken away as it closes. Not
 * in the socket's own storage: making that took the whole of this twice as long. More sockets than there is room for are
 * as those that were open before.
 */
struct fp_opened {
	u64 at_ns;
	u64 process[2]; /* a name, 16 bytes */
	u32 pid;
	u32 by; /* FP_OPENED_… */
};
struct {
	__uint(type, FP_MAP_HASH);
	__uint(max_entries, 1 << 18);
	__uint(map_flags, FP_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct fp_opened);
} openings SEC(".maps");

FP_INLINE int is_told(const struct sock___closed *sk)
{
	return sk->sk_protocol == FP_IPPROTO_TCP &&
	       (!fp_closed_config.netns_cookie ||
		sk->__sk_common.skc_net.net->net_cookie == fp_closed_config.netns_cookie);
}

/* The calling process, by the name of its first thread: that is the one which /proc/PID/comm has. */
FP_INLINE void note_process(u32 *pid, u64 *name)
{
	const struct task_struct___closed *task = bpf_get_current_task_btf();
	const struct task_struct___closed *leader = task->group_leader;

	*pid = task->tgid;
	name[0] = *(const u64 *)&leader->comm[0];
	name[1] = *(const u64 *)&leader->comm[8];
}

SEC("tp_btf/inet_sock_set_state")
int fp_opened(u64 *ctx)
{
	struct sock___closed *sk = (void *)ctx[0];
	int from = (int)ctx[1], to = (int)ctx[2];
	struct fp_opened fresh = {}, *opened;
	u64 key = (u64)sk;

	/* A process connects, or a connection comes in; a process closes first, or second. */
	if (to == SYN_SENT)
		fresh.by = FP_OPENED_HERE;
	else if (to == SYN_RECV && from != SYN_SENT)
		fresh.by = FP_OPENED_THERE;
	else if (to != FIN_WAIT1 && to != LAST_ACK)
		return 0;
	if (!is_told(sk))
		return 0;
	if (fresh.by != FP_OPENED_UNSEEN) {
		fresh.at_ns = bpf_ktime_get_ns();
		if (fresh.by == FP_OPENED_HERE)
			note_process(&fresh.pid, fresh.process);
		bpf_map_update_elem(&openings, &key, &fresh, 0);
		return 0;
	}
	opened = bpf_map_lookup_elem(&openings, &key);
	if (!opened) {
		/* It was open before: its process alone is noted. */
		note_process(&fresh.pid, fresh.process);
		bpf_map_update_elem(&openings, &key, &fresh, 0);
	} else if (!opened->pid) {
		note_process(&opened->pid, opened->process);
	}
	return 0;
}

FP_INLINE void note_times(struct fp_closed *c, const struct tcp_sock___closed *tp)
{
	u32 now = (u32)bpf_jiffies64(), running = FP_BITFIELD(tp, chrono_type);
	u32 since = now - tp->chrono_start;

	/* tcp_get_info_chrono_stats() */
	c->busy_ticks = tp->chrono_stat[0] + (running == 1 ? since : 0);
	c->rwnd_ticks = tp->chrono_stat[1] + (running == 2 ? since : 0);
	c->sndbuf_ticks = tp->chrono_stat[2] + (running == 3 ? since : 0);
	c->idle_ticks = now - tp->lsndtime;
}

FP_INLINE void note_ends(struct fp_closed *c, const struct sock___closed *sk, const struct tcp_sock___closed *tp)
{
	const struct sock_common___closed *common = &sk->__sk_common;

	c->family = common->skc_family;
	/* The one that it sent from: skc_num may have been given back already (inet_put_port). */
	c->local_port = __builtin_bswap16(tp->inet_conn.icsk_inet.inet_sport);
	c->remote_port = __builtin_bswap16(common->skc_dport);
	if (c->family == 2 /* AF_INET */) {
		c->local[0] = common->skc_rcv_saddr;
		c->remote[0] = common->skc_daddr;
	} else if (FP_FIELD_EXISTS(common->skc_v6_daddr)) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			c->local[i] = common->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
			c->remote[i] = common->skc_v6_daddr.in6_u.u6_addr32[i];
		}
	}
	c->netns = common->skc_net.net->ns.inum;
	c->netns_cookie = common->skc_net.net->net_cookie;
	/* Read, not asked for (bpf_get_socket_cookie): the kernel gives one to who asks, and looking shall change nothing. */
	c->cookie = common->skc_cookie.counter;
	c->uid = sk->sk_uid.val;
	if (FP_FIELD_EXISTS(sk->sk_cgrp_data.cgroup))
		c->cgroup = sk->sk_cgrp_data.cgroup->kn->id;
}

FP_INLINE void note_account(struct fp_closed *c, const struct tcp_sock___closed *tp)
{
	const struct tcp_congestion_ops *ops = tp->inet_conn.icsk_ca_ops;
	u64 *controller = (u64 *)c->controller;

	controller[0] = *(const u64 *)&ops->name[0];
	controller[1] = *(const u64 *)&ops->name[8];
	c->bytes_sent = tp->bytes_sent;
	c->bytes_acked = tp->bytes_acked;
	c->bytes_received = tp->bytes_received;
	c->bytes_retrans = tp->bytes_retrans;
	c->segs_out = tp->segs_out;
	c->segs_in = tp->segs_in;
	c->data_segs_out = tp->data_segs_out;
	c->data_segs_in = tp->data_segs_in;
	c->total_retrans = tp->total_retrans;
	c->dsack_dups = tp->dsack_dups;
	c->reord_seen = tp->reord_seen;
	c->rcv_ooopack = tp->rcv_ooopack;
	c->delivered = tp->delivered;
	c->delivered_ce = tp->delivered_ce;
	c->srtt_us = tp->srtt_us;
	c->min_rtt_us = tp->rtt_min.s[0].v;
	c->snd_cwnd = tp->snd_cwnd;
	c->snd_ssthresh = tp->snd_ssthresh;
	c->mss = tp->mss_cache;
	c->peer_mss = tp->rx_opt.mss_clamp;
	c->rate_delivered = tp->rate_delivered;
	c->rate_interval_us = tp->rate_interval_us;
	if (FP_FIELD_EXISTS(tp->total_rto))
		c->total_rto = tp->total_rto;
	c->window_scale = FP_BITFIELD(tp, rx_opt.snd_wscale);
	c->own_window_scale = FP_BITFIELD(tp, rx_opt.rcv_wscale);
	c->flags |= tp->snd_una == tp->write_seq ? FP_CLOSED_ALL_ACKED : 0;
	c->flags |= FP_BITFIELD(tp, rate_app_limited) ? FP_CLOSED_RATE_APP_LIMITED : 0;
	c->flags |= tp->ecn_flags & FP_ECN_AGREED ? FP_CLOSED_ECN : 0;
	c->flags |= FP_BITFIELD(tp, rx_opt.sack_ok) ? FP_CLOSED_SACK : 0;
	c->flags |= FP_BITFIELD(tp, rx_opt.tstamp_ok) ? FP_CLOSED_TIMESTAMPS : 0;
	c->flags |= FP_BITFIELD(tp, rx_opt.wscale_ok) ? FP_CLOSED_WINDOW_SCALE : 0;
}

SEC("tp_btf/inet_sock_set_state")
int fp_closed(u64 *ctx)
{
	struct sock___closed *sk = (void *)ctx[0];
	int from = (int)ctx[1];
	struct fp_closed_counts *counts;
	const struct tcp_sock___closed *tp;
	const struct fp_opened *opened;
	struct fp_closed *c;
	u64 *process, key = (u64)sk;
	u32 first = 0;

	if ((int)ctx[2] != CLOSE || from == CLOSE || from == LISTEN || !is_told(sk))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	counts = bpf_map_lookup_elem(&closing_counts, &first);
	if (!tp || !counts)
		return 0;
	/* Plain: while this runs nothing else does that would count here. */
	counts->closed++;
	c = bpf_ringbuf_reserve(&closings, sizeof(*c), 0);
	if (!c) {
		counts->lost++;
		bpf_map_delete_elem(&openings, &key);
		return 0;
	}
	__builtin_memset(c, 0, sizeof(*c));
	c->closed_ns = bpf_ktime_get_ns();
	c->state = from;
	c->error = sk->sk_err;
	c->flags = sk->__sk_common.skc_flags >> FP_SOCK_DONE & 1 ? FP_CLOSED_FIN_CAME : 0;
	note_ends(c, sk, tp);
	note_account(c, tp);
	note_times(c, tp);
	process = (u64 *)c->process;
	opened = bpf_map_lookup_elem(&openings, &key);
	if (opened) {
		c->opened_ns = opened->at_ns;
		c->opened_by = opened->by;
		c->pid = opened->pid;
		process[0] = opened->process[0];
		process[1] = opened->process[1];
		bpf_map_delete_elem(&openings, &key);
	}
	/* Without an error from the other end, what ends these at once is their process (tcp_close, tcp_disconnect). */
	if (!c->pid && !c->error && (from == ESTABLISHED || from == CLOSE_WAIT || from == SYN_SENT))
		note_process(&c->pid, process);
	bpf_ringbuf_submit(c, bpf_ringbuf_query(&closings, FP_RB_AVAIL_DATA) >= fp_closed_config.wake_at ?
				      FP_RB_FORCE_WAKEUP : FP_RB_NO_WAKEUP);
	return 0;
}
