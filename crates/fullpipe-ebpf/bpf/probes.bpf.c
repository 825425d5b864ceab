// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the running kernel lets a congestion controller do, each asked by a controller that does that alone. They are
 * verified one by one and never registered.
 */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, FP_MAP_SK_STORAGE);
	__uint(map_flags, FP_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} probed SEC(".maps");

#define FP_PROBE(what)                                      \
	SEC(".struct_ops") struct tcp_congestion_ops what = { \
		.init = (void *)what##_init,                \
		.name = #what,                              \
	}

/* Nothing at all: struct_ops for TCP. */
SEC("struct_ops/fpp_nothing_init")
void fpp_nothing_init(u64 *ctx)
{
}
FP_PROBE(fpp_nothing);

SEC("struct_ops/fpp_pacing_init")
void fpp_pacing_init(u64 *ctx)
{
	struct sock *sk = &FP_TCP(ctx)->inet_conn.icsk_inet.sk;

	sk->sk_pacing_rate = sk->sk_max_pacing_rate;
	sk->sk_pacing_status = FP_SK_PACING_NEEDED;
}
FP_PROBE(fpp_pacing);

SEC("struct_ops/fpp_mark_init")
void fpp_mark_init(u64 *ctx)
{
	FP_TCP(ctx)->app_limited = 1;
}
FP_PROBE(fpp_mark);

SEC("struct_ops/fpp_storage_init")
void fpp_storage_init(u64 *ctx)
{
	u64 *kept = bpf_sk_storage_get(&probed, FP_TCP(ctx), 0, FP_SK_STORAGE_CREATE);

	if (kept)
		*kept = 1;
}
FP_PROBE(fpp_storage);

/* A core's step: a function that is verified by itself and works on a structure. */
__attribute__((noinline)) int fpp_step(struct fp_best *best)
{
	if (!best)
		return 0;
	best->v++;
	return 0;
}

SEC("struct_ops/fpp_steps_init")
void fpp_steps_init(u64 *ctx)
{
	struct fp_best best = {};

	fpp_step(&best);
	FP_TCP(ctx)->snd_cwnd = fp_max32(best.v, 2);
}
FP_PROBE(fpp_steps);

SEC("struct_ops/fpp_reading_init")
void fpp_reading_init(u64 *ctx)
{
	if (FP_READ(u64, &FP_TCP(ctx)->inet_conn.icsk_inet.sk.tcp_rtx_queue.rb_node))
		FP_TCP(ctx)->snd_cwnd = 2;
}
FP_PROBE(fpp_reading);
