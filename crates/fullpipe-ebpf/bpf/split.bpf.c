// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * fp_split: gives each new connection of a control group the controller of its arm, and writes down what the connection
 * came to when it closes. Sockets whose program or whose route chose a controller are left alone. Connections that open
 * while the owner's lease is over get what they would have got without this.
 */
#include "kernel.h"
#include "split.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define FP_MAP_ARRAY 2

/* Beside what kernel.h has of these structures: libbpf takes no notice of what follows three underscores. */
struct tcp_congestion_ops___split {
	char name[16];
} FP_CORE;

struct in6_addr___split {
	union {
		u32 u6_addr32[4];
	} in6_u;
} FP_CORE;

struct netns_ipv4___split {
	const struct tcp_congestion_ops___split *tcp_congestion_control;
} FP_CORE;

struct net___split {
	struct netns_ipv4___split ipv4;
} FP_CORE;

typedef struct {
	struct net___split *net;
} FP_CORE possible_net_t;

struct sock_common___split {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	possible_net_t skc_net;
	struct in6_addr___split skc_v6_daddr;
	struct in6_addr___split skc_v6_rcv_saddr;
} FP_CORE;

struct sock___split {
	struct sock_common___split __sk_common;
	int sk_err;
} FP_CORE;

struct inet_sock___split {
	struct sock___split sk;
} FP_CORE;

struct inet_connection_sock___split {
	struct inet_sock___split icsk_inet;
	const struct tcp_congestion_ops___split *icsk_ca_ops;
	u8 icsk_ca_setsockopt : 1;
	u8 icsk_ca_dst_locked : 1;
} FP_CORE;

struct tcp_sock___split {
	struct inet_connection_sock___split inet_conn;
	u64 bytes_acked;
	u64 bytes_received;
	u64 bytes_sent;
	u64 bytes_retrans;
	u32 srtt_us;
	u32 mss_cache;
	u32 total_retrans;
	u32 data_segs_out;
	u32 chrono_start;
	u32 chrono_stat[3];
	u8 chrono_type : 2;
	struct minmax rtt_min;
} FP_CORE;

/* Not a kernel structure but the interface's own (uapi/linux/bpf.h): its fields are where they are. */
struct bpf_sock_ops {
	u32 op;
	u32 args[4];
	u32 between[16];
	u32 bpf_sock_ops_cb_flags;
	u32 more[24];
	void *sk;
};
_Static_assert(__builtin_offsetof(struct bpf_sock_ops, bpf_sock_ops_cb_flags) == 84, "uapi/linux/bpf.h");
_Static_assert(__builtin_offsetof(struct bpf_sock_ops, sk) == 184, "uapi/linux/bpf.h");

/* enum of BPF_SOCK_OPS_*_CB, and the flags that ask for them. */
#define ACTIVE_ESTABLISHED 4
#define PASSIVE_ESTABLISHED 5
#define STATE_CHANGE 10
#define RTT_SAMPLE 12
#define STATE_CHANGE_FLAG (1U << 2)
#define RTT_SAMPLE_FLAG (1U << 3)

#define IPPROTO_TCP 6
#define TCP_CONGESTION 13
#define AF_INET6 10
#define TCP_CLOSE 7
/* The reader looks often; waking it for each record costs more than the record. */
#define RING_NO_WAKEUP 1

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_setsockopt)(void *socket, int level, int option, const void *value, int size) = (void *)49;
static long (*bpf_sock_ops_cb_flags_set)(void *ctx, int flags) = (void *)59;

/* What `split status` shows to other processes, and the owner. */
struct fp_split_about {
	u32 owner; /* process */
	u32 arms;
	u64 seed;
	u64 began_unix_ns;
	u64 pid_namespace; /* inode of the owner's PID namespace, in which `owner` is its ID */
	u64 owner_started; /* clock ticks */
	char label[FP_SPLIT_ARMS][32];
	char out[256];
};

const volatile struct fp_split_setup fp_split_setup SEC(".rodata.setup") = {};
const volatile struct fp_split_step fp_split_where[FP_SPLIT_STEPS] SEC(".rodata.where") = {};
const volatile struct fp_split_about fp_split_about SEC(".rodata.about") = {};

/* Until when connections are assigned (bpf_ktime_get_ns()). */
u64 fp_split_lease SEC(".data.lease") = 0;
/* Which of the tables counts: the other one is written, and then this. */
u32 fp_split_which SEC(".data.which") = 0;
struct fp_split_counts fp_split_counts SEC(".data.counts") = {};

struct {
	__uint(type, FP_MAP_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct fp_split_table);
} tables SEC(".maps");

/* Requests of other processes, which the owner reads: shares, from which it writes the tables, and the end of the split. */
struct fp_split_wanted {
	u64 number;
	u64 end;
	u32 share[FP_SPLIT_ARMS]; /* billionths */
};

struct {
	__uint(type, FP_MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fp_split_wanted);
} wanted SEC(".maps");

/* What is kept of a connection while it is open. */
struct fp_split_kept {
	u64 opened_ns;
	u64 generation;
	u64 rtt_sum_us;
	u32 rtt_samples;
	u32 reached_us[3];
	u8 reached;
	u8 arm;
	u8 active;
	u8 spare[5];
};

struct {
	__uint(type, FP_MAP_SK_STORAGE);
	__uint(map_flags, FP_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fp_split_kept);
} kept SEC(".maps");

struct {
	__uint(type, FP_MAP_RINGBUF);
	__uint(max_entries, 1 << 23);
} closed SEC(".maps");

#define COUNT(what) __sync_fetch_and_add(&fp_split_counts.what, 1)

FP_INLINE void ends_of(struct fp_split_end *local, struct fp_split_end *remote, const struct tcp_sock___split *tp)
{
	const struct sock_common___split *common = &tp->inet_conn.icsk_inet.sk.__sk_common;

	local->spare[0] = local->spare[1] = local->spare[2] = 0;
	remote->spare[0] = remote->spare[1] = remote->spare[2] = 0;
	local->port = common->skc_num;
	remote->port = __builtin_bswap16(common->skc_dport);
	if (common->skc_family == AF_INET6) {
		const u32 *here = common->skc_v6_rcv_saddr.in6_u.u6_addr32;
		const u32 *there = common->skc_v6_daddr.in6_u.u6_addr32;

		local->address[0] = here[0] | (u64)here[1] << 32;
		local->address[1] = here[2] | (u64)here[3] << 32;
		remote->address[0] = there[0] | (u64)there[1] << 32;
		remote->address[1] = there[2] | (u64)there[3] << 32;
	} else {
		local->address[0] = 0;
		local->address[1] = 0xffff0000U | (u64)common->skc_rcv_saddr << 32;
		remote->address[0] = 0;
		remote->address[1] = 0xffff0000U | (u64)common->skc_daddr << 32;
	}
}

/* Whether this local port is in the experiment. */
FP_INLINE int is_asked_for(u16 port)
{
	int asked = fp_split_setup.ports == 0;

#pragma unroll
	for (int i = 0; i < FP_SPLIT_PORTS; i++)
		if ((u32)i < fp_split_setup.ports && fp_split_setup.port[i] == port)
			asked = 1;
	return asked;
}

/* The setup without its volatility, which would have every word of the hash read twice. */
FP_INLINE void setup_of(struct fp_split_setup *setup)
{
	setup->key[0] = fp_split_setup.key[0];
	setup->key[1] = fp_split_setup.key[1];
	setup->mask4[0] = fp_split_setup.mask4[0];
	setup->mask4[1] = fp_split_setup.mask4[1];
	setup->mask6[0] = fp_split_setup.mask6[0];
	setup->mask6[1] = fp_split_setup.mask6[1];
	setup->by = fp_split_setup.by;
}

FP_INLINE void on_open(struct bpf_sock_ops *ctx, void *sk, const struct tcp_sock___split *tp, u8 active)
{
	const struct inet_connection_sock___split *icsk = &tp->inet_conn;
	struct net___split *net = icsk->icsk_inet.sk.__sk_common.skc_net.net;
	struct fp_split_end local, remote;
	struct fp_split_setup setup;
	struct fp_split_table *table;
	struct fp_split_kept *keep;
	u64 now = bpf_ktime_get_ns();
	u32 which = *(volatile u32 *)&fp_split_which & 1, arm;

	ends_of(&local, &remote, tp);
	if (!is_asked_for(local.port) || !fp_split_is_asked_for(fp_split_where, &local, &remote)) {
		COUNT(elsewhere);
		return;
	}
	if (now > *(volatile u64 *)&fp_split_lease) {
		COUNT(lapsed);
		return;
	}
	/* Set by setsockopt(TCP_CONGESTION), on the socket or on the listener that it comes from. */
	if (FP_BITFIELD(icsk, icsk_ca_setsockopt)) {
		COUNT(program);
		return;
	}
	/* tcp_ca_dst_init(), tcp_ca_openreq_child(): what is neither a program's choice nor the namespace's is a route's. */
	if (FP_BITFIELD(icsk, icsk_ca_dst_locked) || (net && icsk->icsk_ca_ops != net->ipv4.tcp_congestion_control)) {
		COUNT(route);
		return;
	}
	table = bpf_map_lookup_elem(&tables, &which);
	if (!table)
		return;
	setup_of(&setup);
	arm = fp_split_pick(table, fp_split_hash(&setup, &local, &remote));
	if (arm >= FP_SPLIT_ARMS) {
		COUNT(outside);
		return;
	}
	/* Before the controller's first callback (tcp_init_transfer()), so that nothing of another one is in its state. */
	if (table->name[arm][0] && bpf_setsockopt(ctx, IPPROTO_TCP, TCP_CONGESTION, table->name[arm], 16)) {
		COUNT(refused[arm]);
		return;
	}
	keep = bpf_sk_storage_get(&kept, sk, 0, FP_SK_STORAGE_CREATE);
	if (!keep)
		return;
	keep->opened_ns = now;
	keep->generation = table->generation;
	keep->arm = (u8)arm;
	keep->active = active;
	bpf_sock_ops_cb_flags_set(ctx, (int)(ctx->bpf_sock_ops_cb_flags | STATE_CHANGE_FLAG | RTT_SAMPLE_FLAG));
	COUNT(opened[arm]);
}

/* Notes when 100 kB, 1 MB and 10 MB have been acknowledged. */
FP_INLINE void note_delivered(struct fp_split_kept *keep, const struct tcp_sock___split *tp, u64 now)
{
	u64 acked = tp->bytes_acked, us = (now - keep->opened_ns) / FP_NSEC_PER_USEC;
	u32 passed = us > 0xffffffffULL ? 0xffffffffU : (u32)us;

	if (!passed)
		passed = 1;
	if (keep->reached == 0 && acked >= 100000) {
		keep->reached_us[0] = passed;
		keep->reached = 1;
	}
	if (keep->reached == 1 && acked >= 1000000) {
		keep->reached_us[1] = passed;
		keep->reached = 2;
	}
	if (keep->reached == 2 && acked >= 10000000) {
		keep->reached_us[2] = passed;
		keep->reached = 3;
	}
}

FP_INLINE void on_rtt(struct bpf_sock_ops *ctx, void *sk, const struct tcp_sock___split *tp)
{
	struct fp_split_kept *keep = bpf_sk_storage_get(&kept, sk, 0, 0);

	if (!keep)
		return;
	keep->rtt_sum_us += tp->srtt_us >> 3;
	keep->rtt_samples += 1;
	note_delivered(keep, tp, bpf_ktime_get_ns());
	/* All is known that is asked at every sample: the rest of a long transfer costs nothing. */
	if (keep->reached == 3)
		bpf_sock_ops_cb_flags_set(ctx, (int)(ctx->bpf_sock_ops_cb_flags & ~RTT_SAMPLE_FLAG));
}

/* tcp_get_info_chrono_stats(): all three kinds of time are busy ones. */
FP_INLINE u32 busy_ticks(const struct tcp_sock___split *tp)
{
	u32 ticks = tp->chrono_stat[0] + tp->chrono_stat[1] + tp->chrono_stat[2];

	if (FP_BITFIELD(tp, chrono_type))
		ticks += (u32)bpf_jiffies64() - tp->chrono_start;
	return ticks;
}

FP_INLINE void on_close(struct bpf_sock_ops *ctx, void *sk, const struct tcp_sock___split *tp)
{
	struct fp_split_kept *keep = bpf_sk_storage_get(&kept, sk, 0, 0);
	struct fp_split_closed *record;
	u64 now = bpf_ktime_get_ns();
	const u64 *name;
	u32 arm;

	if (!keep)
		return;
	note_delivered(keep, tp, now);
	arm = keep->arm & (FP_SPLIT_ARMS - 1);
	COUNT(closed[arm]);
	__sync_fetch_and_add(&fp_split_counts.bytes_acked[arm], tp->bytes_acked);
	__sync_fetch_and_add(&fp_split_counts.bytes_retrans[arm], tp->bytes_retrans);
	__sync_fetch_and_add(&fp_split_counts.total_retrans[arm], tp->total_retrans);
	record = bpf_ringbuf_reserve(&closed, sizeof(*record), 0);
	if (!record) {
		COUNT(lost);
		return;
	}
	record->cookie = bpf_get_socket_cookie(ctx);
	record->opened_ns = keep->opened_ns;
	record->closed_ns = now;
	record->generation = keep->generation;
	record->bytes_acked = tp->bytes_acked;
	record->bytes_received = tp->bytes_received;
	record->bytes_sent = tp->bytes_sent;
	record->bytes_retrans = tp->bytes_retrans;
	record->rtt_sum_us = keep->rtt_sum_us;
	record->rtt_samples = keep->rtt_samples;
	record->srtt_us = tp->srtt_us >> 3;
	record->min_rtt_us = tp->rtt_min.s[0].v;
	record->total_retrans = tp->total_retrans;
	record->data_segs_out = tp->data_segs_out;
	record->busy_ticks = busy_ticks(tp);
	record->reached_us[0] = keep->reached_us[0];
	record->reached_us[1] = keep->reached_us[1];
	record->reached_us[2] = keep->reached_us[2];
	record->mss = tp->mss_cache;
	ends_of(&record->local, &record->remote, tp);
	name = (const u64 *)tp->inet_conn.icsk_ca_ops->name;
	((u64 *)record->controller)[0] = name[0];
	((u64 *)record->controller)[1] = name[1];
	record->arm = (u8)arm;
	record->active = keep->active;
	record->state = (u8)ctx->args[0];
	record->reset = tp->inet_conn.icsk_inet.sk.sk_err != 0;
	record->spare = 0;
	bpf_ringbuf_submit(record, RING_NO_WAKEUP);
}

SEC("sockops")
int fp_split(struct bpf_sock_ops *ctx)
{
	const struct tcp_sock___split *tp;
	u32 op = ctx->op;
	void *sk;

	if (op != ACTIVE_ESTABLISHED && op != PASSIVE_ESTABLISHED && op != RTT_SAMPLE &&
	    !(op == STATE_CHANGE && ctx->args[1] == TCP_CLOSE))
		return 1;
	sk = ctx->sk;
	if (!sk)
		return 1;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 1;
	if (op == RTT_SAMPLE)
		on_rtt(ctx, sk, tp);
	else if (op == STATE_CHANGE)
		on_close(ctx, sk, tp);
	else
		on_open(ctx, sk, tp, op == ACTIVE_ESTABLISHED);
	return 1;
}
