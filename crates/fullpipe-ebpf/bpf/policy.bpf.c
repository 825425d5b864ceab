// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A controller that is controlled from user space: on each ACK the window becomes what the socket's entry of
 * `orders` says, and its pacing rate if there is one. What TCP_INFO does not tell of the ACKs is added up in `seen`.
 * A socket without entries keeps the window that it begins with; nothing else changes it, but a retransmission
 * time-out until the next ACK.
 */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct fp_orders {
	u64 pacing_rate; /* bytes a second; 0: as fast as the window lets it */
	u32 cwnd;        /* packets; 0: as it is */
	u32 spare;
};

struct fp_seen {
	u64 rtt_sum_us;
	u32 rtts;
	u32 acks;
	u32 lost; /* packets marked lost on the connection */
	u32 spare;
};

struct {
	__uint(type, FP_MAP_SK_STORAGE);
	__uint(map_flags, FP_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fp_orders);
} orders SEC(".maps");

struct {
	__uint(type, FP_MAP_SK_STORAGE);
	__uint(map_flags, FP_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fp_seen);
} seen SEC(".maps");

SEC("struct_ops/fp_policy_init")
void fp_policy_init(u64 *ctx)
{
	fp_end_pacing(FP_TCP(ctx));
}

SEC("struct_ops/fp_policy_cong_control")
void fp_policy_cong_control(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	const struct rate_sample *rs = fp_sample_argument(ctx);
	struct fp_orders *o = bpf_sk_storage_get(&orders, tp, 0, 0);
	struct fp_seen *s = bpf_sk_storage_get(&seen, tp, 0, 0);
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	if (s) {
		s->acks++;
		s->lost = tp->lost;
		if (rs->rtt_us > 0) {
			s->rtt_sum_us += rs->rtt_us;
			s->rtts++;
		}
	}
	if (!o)
		return;
	if (o->cwnd)
		tp->snd_cwnd = fp_min32(o->cwnd, tp->snd_cwnd_clamp);
	if (o->pacing_rate) {
		sk->sk_pacing_rate = fp_min64(o->pacing_rate, sk->sk_max_pacing_rate);
		fp_need_pacing(tp);
	}
}

/* What is lost changes nothing here: it shows in what is seen. */
SEC("struct_ops/fp_policy_ssthresh")
u32 fp_policy_ssthresh(u64 *ctx)
{
	return FP_INFINITE_SSTHRESH;
}

SEC("struct_ops/fp_policy_undo_cwnd")
u32 fp_policy_undo_cwnd(u64 *ctx)
{
	return FP_TCP(ctx)->snd_cwnd;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops fp_policy = {
	.init = (void *)fp_policy_init,
	.cong_control = (void *)fp_policy_cong_control,
	.ssthresh = (void *)fp_policy_ssthresh,
	.undo_cwnd = (void *)fp_policy_undo_cwnd,
	.flags = FP_CONG_NON_RESTRICTED,
	.name = "fp_policy",
};
