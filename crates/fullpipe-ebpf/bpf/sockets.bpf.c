// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Walks the TCP sockets of a network namespace. fp_sockets writes what `fullpipe cc status` and
 * `fullpipe watch` show of those that use one of our controllers; fp_migrate gives the sockets of one controller another. fp_watched writes
 * the same as fp_sockets of the sockets that were put into `watched` alone, in any namespace. fp_watched_files does so
 * by the open files of the reading process, where a security module refuses to walk `watched`. fp_kept walks any
 * map of socket storage and writes a byte for each socket that has an entry there.
 */
#include "kernel.h"
#include "status.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct bpf_iter_meta {
	void *seq;
} FP_CORE;

typedef struct {
	s64 counter;
} FP_CORE atomic64_t;

struct sock_common {
	volatile u8 skc_state;
	atomic64_t skc_cookie;
} FP_CORE;

/* Of inet_connection_sock: a program chose the controller of this socket. */
struct inet_connection_sock___choice {
	u8 icsk_ca_setsockopt : 1;
} FP_CORE;

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} FP_CORE;

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct sock_common *sk;
	void *value;
} FP_CORE;

struct file {
	u32 f_flags;
} FP_CORE;

struct task_struct {
	s32 tgid;
} FP_CORE;

struct socket {
	struct sock *sk;
} FP_CORE;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct file *file;
} FP_CORE;

/* The sockets to watch, each with the number that its watcher knows it by. */
struct {
	__uint(type, FP_MAP_SK_STORAGE);
	__uint(map_flags, FP_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} watched SEC(".maps");

struct fp_migration {
	u64 from[2]; /* names, 16 bytes each */
	char to[16];
};
const volatile struct fp_migration fp_migration SEC(".rodata.migration") = { { 0, 0 }, { 0 } };

static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static struct socket *(*bpf_sock_from_file)(struct file *file) = (void *)162;
static long (*bpf_setsockopt)(void *socket, int level, int option, const void *value, int size) = (void *)49;
#define TCP_LISTEN 10
#define IPPROTO_TCP 6
#define TCP_CONGESTION 13

FP_INLINE void name_of(const struct tcp_sock *tp, u64 *first, u64 *second)
{
	const struct tcp_congestion_ops *ops = tp->inet_conn.icsk_ca_ops;

	*first = *(const u64 *)&ops->name[0];
	*second = *(const u64 *)&ops->name[8];
}

FP_INLINE void describe(struct fp_socket *socket, const struct sock_common *common, const struct tcp_sock *tp)
{
	u64 first, second;

	name_of(tp, &first, &second);
	__builtin_memcpy(socket->controller, &first, 8);
	__builtin_memcpy(socket->controller + 8, &second, 8);
#pragma unroll
	for (int i = 0; i < 13; i++)
		socket->priv[i] = tp->inet_conn.icsk_ca_priv[i];
	socket->pacing_rate = tp->inet_conn.icsk_inet.sk.sk_pacing_rate;
	socket->bytes_acked = tp->bytes_acked;
	/* Read, not asked for (bpf_get_socket_cookie): the kernel gives one to who asks, and looking shall change nothing. */
	socket->cookie = common->skc_cookie.counter;
	socket->snd_cwnd = tp->snd_cwnd;
	socket->mss = tp->mss_cache;
	socket->srtt_us = tp->srtt_us;
	socket->tcp_state = common->skc_state;
	socket->pacing_status = tp->inet_conn.icsk_inet.sk.sk_pacing_status;
	socket->spare = 0;
}

SEC("iter/tcp")
int fp_sockets(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct fp_socket socket = {};
	struct tcp_sock *tp;
	u64 first, second;

	if (!common)
		return 0;
	tp = bpf_skc_to_tcp_sock(common);
	if (!tp)
		return 0;
	name_of(tp, &first, &second);
	if ((first & 0xffff) != ('f' | 'p' << 8))
		return 0;
	describe(&socket, common, tp);
	bpf_seq_write(ctx->meta->seq, &socket, sizeof(socket));
	return 0;
}

SEC("iter/tcp")
int fp_migrate(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tp;
	u64 first, second;
	char to[16];

	if (!common)
		return 0;
	tp = bpf_skc_to_tcp_sock(common);
	if (!tp)
		return 0;
	name_of(tp, &first, &second);
	if (first != fp_migration.from[0] || second != fp_migration.from[1])
		return 0;
#pragma unroll
	for (int i = 0; i < 16; i++)
		to[i] = fp_migration.to[i];
	/*
	 * What a listener is given here the kernel takes for its program's choice, which connections inherit before any
	 * default. A listener without an explicit choice is skipped where the name stays: its connections follow the default.
	 */
	if (common->skc_state == TCP_LISTEN && first == *(u64 *)to && second == *(u64 *)(to + 8) &&
	    !FP_BITFIELD((struct inet_connection_sock___choice *)&tp->inet_conn, icsk_ca_setsockopt))
		return 0;
	bpf_setsockopt(tp, IPPROTO_TCP, TCP_CONGESTION, to, sizeof(to));
	return 0;
}

/* Writes a watched socket with its number. */
FP_INLINE int write_watched(void *seq, u64 number, const struct sock_common *common, const struct tcp_sock *tp)
{
	struct fp_watched_socket seen = {};

	seen.number = number;
	describe(&seen.socket, common, tp);
	bpf_seq_write(seq, &seen, sizeof(seen));
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int fp_watched(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock_common *common = ctx->sk;
	const u64 *number = ctx->value;
	struct tcp_sock *tp;

	if (!common || !number)
		return 0;
	tp = bpf_skc_to_tcp_sock(common);
	if (!tp)
		return 0;
	return write_watched(ctx->meta->seq, *number, common, tp);
}

SEC("iter/task_file")
int fp_watched_files(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct tcp_sock *tp;
	struct sock *sk;
	u64 *number;

	if (!task || !file || task->tgid != (s32)(bpf_get_current_pid_tgid() >> 32))
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	number = bpf_sk_storage_get(&watched, tp, 0, 0);
	if (!number)
		return 0;
	return write_watched(ctx->meta->seq, *number, (struct sock_common *)tp, tp);
}

SEC("iter/bpf_sk_storage_map")
int fp_kept(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	u8 one = 1;

	if (ctx->sk)
		bpf_seq_write(ctx->meta->seq, &one, sizeof(one));
	return 0;
}
