// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * fp_bbr3 with its adaptations measured: writes what the core was given of each ACK, and what the connection
 * really was as each segment left (seen where the network stack queues a packet for its device, still under the
 * socket's lock and before TCP counts the segment as in flight).
 */
#define FP_STATE_LAYOUT 3 /* as bbr3.bpf.c, which is included below */
#include "kernel.h"
#include "bbr3.h"
#include "measured.h"

struct {
	__uint(type, FP_MAP_RINGBUF);
	__uint(max_entries, 32 << 20);
} measured SEC(".maps");

struct fp_measured_counts {
	u64 missed; /* records that found the ring full */
	u64 probe_losses; /* losses that a tail loss probe repaired */
} fp_measured_counts SEC(".data.counts");

FP_INLINE struct fp_measured *reserve(u64 socket, u32 kind)
{
	struct fp_measured *m = bpf_ringbuf_reserve(&measured, sizeof(*m), 0);

	if (!m) {
		__sync_fetch_and_add(&fp_measured_counts.missed, 1);
		return m;
	}
	__builtin_memset(m, 0, sizeof(*m));
	m->socket = socket;
	m->kind = kind;
	return m;
}

FP_INLINE void on_ack(const struct bbr3_sample *sample, const struct tcp_sock *tp, u32 end_seq)
{
	struct fp_measured *m = reserve((u64)tp, FP_MEASURED_ACK);

	if (!m)
		return;
	m->mss = tp->mss_cache;
	m->lost = tp->lost;
	m->seq = tp->snd_una;
	m->end_seq = end_seq;
	m->has_data = sample->has_data;
	m->used_tx_in_flight = sample->tx_in_flight;
	m->used_lost = sample->lost;
	bpf_ringbuf_submit(m, 0);
}

FP_INLINE void on_lost(u64 socket, u32 mss, u32 lost, const struct bbr3_lost *packet)
{
	struct fp_measured *m = reserve(socket, FP_MEASURED_LOST);

	if (!m)
		return;
	m->mss = mss;
	m->lost = lost;
	m->packets = (u32)packet->bytes / fp_max32(mss, 1);
	m->used_tx_in_flight = packet->tx_in_flight;
	m->used_lost = packet->lost;
	bpf_ringbuf_submit(m, 0);
}

#define FP_ON_ACK(f, tp, end_seq) on_ack(&(f)->b.rs, tp, end_seq)
#define FP_ON_LOST(f, socket, lost, packet) on_lost(socket, (u32)(f)->b.c.smss, lost, packet)
#define FP_ON_PROBE_LOSS() __sync_fetch_and_add(&fp_measured_counts.probe_losses, 1)
#include "bbr3.bpf.c"

FP_INLINE u32 network_order(u32 word)
{
	return __builtin_bswap32(word);
}

/* "fp_measured", as two words. */
#define NAME_FIRST 0x757361656d5f7066ULL
#define NAME_REST 0x646572ULL

SEC("tp_btf/net_dev_queue")
int fp_sent(u64 *ctx)
{
	const struct sk_buff *skb = (const struct sk_buff *)ctx[0];
	struct tcp_sock *tp = (struct tcp_sock *)skb->sk;
	const struct tcp_congestion_ops *ops;
	struct fp_measured *m;
	struct {
		u32 ports;
		u32 seq;
		u32 ack;
		u8 offset;
		u8 flags;
		u16 window;
	} header;
	const unsigned char *transport;
	u32 payload, left;
	u64 name[2];

	if (!tp)
		return 0;
	ops = FP_READ(const struct tcp_congestion_ops *, &tp->inet_conn.icsk_ca_ops);
	if (bpf_probe_read_kernel(name, sizeof(name), &ops->name) || name[0] != NAME_FIRST || name[1] != NAME_REST)
		return 0;
	transport = skb->head + skb->transport_header;
	if (bpf_probe_read_kernel(&header, sizeof(header), transport))
		return 0;
	payload = skb->len - (u32)(transport - skb->data) - (header.offset >> 4) * 4;
	if ((s32)payload <= 0)
		return 0;
	m = reserve((u64)tp, FP_MEASURED_SENT);
	if (!m)
		return 0;
	m->mss = FP_READ(u32, &tp->mss_cache);
	m->lost = FP_READ(u32, &tp->lost);
	left = FP_READ(u32, &tp->sacked_out) + FP_READ(u32, &tp->lost_out);
	m->in_flight = FP_READ(u32, &tp->packets_out) - left + FP_READ(u32, &tp->retrans_out);
	m->seq = network_order(header.seq);
	m->end_seq = m->seq + payload;
	bpf_ringbuf_submit(m, 0);
	return 0;
}
