// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * fp_bbr3 with its adaptations measured: writes what the core was given of each ACK, and what the connection
 * really was as each segment left (seen where the network stack queues a packet for its device, still under the
 * socket's lock and before TCP counts the segment as in flight).
 */
#define FP_STATE_LAYOUT 2 /* as bbr3.bpf.c, which is included below */
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

FP_INLINE struct fp_measured *reserve(const struct tcp_sock *tp, u32 kind)
{
	struct fp_measured *m = bpf_ringbuf_reserve(&measured, sizeof(*m), 0);

	if (!m) {
		__sync_fetch_and_add(&fp_measured_counts.missed, 1);
		return m;
	}
	__builtin_memset(m, 0, sizeof(*m));
	m->socket = (u64)tp;
	m->kind = kind;
	return m;
}

FP_INLINE void on_ack(const struct bbr3_sample *sample, u32 newly_lost, const struct tcp_sock *tp, u32 end_seq,
		      const struct bbr3_lost *packet)
{
	struct fp_measured *m = reserve(tp, FP_MEASURED_ACK);

	if (!m)
		return;
	m->mss = tp->mss_cache;
	m->lost = tp->lost;
	m->seq = tp->snd_una;
	m->end_seq = end_seq;
	m->newly_lost = newly_lost;
	m->has_data = sample->has_data;
	m->sample_tx_in_flight = sample->tx_in_flight;
	m->sample_lost = sample->lost;
	m->packet_bytes = packet->bytes;
	m->packet_tx_in_flight = packet->tx_in_flight;
	m->packet_lost = packet->lost;
	bpf_ringbuf_submit(m, 0);
}

#define FP_ON_ACK(f, tp, end_seq, packet) on_ack(&(f)->b.rs, lost, tp, end_seq, packet)
#define FP_ON_PROBE_LOSS() __sync_fetch_and_add(&fp_measured_counts.probe_losses, 1)
#include "bbr3.bpf.c"

struct sk_buff {
	struct sock *sk;
	unsigned int len;
	unsigned char *head;
	unsigned char *data;
	u16 transport_header;
} FP_CORE;

FP_INLINE u32 network_order(u32 word)
{
	return __builtin_bswap32(word);
}

/* Of a socket that a packet names the verifier knows no more than that: its fields are read as memory. */
#define READ(pointer) \
	({ \
		typeof(*(pointer)) _value = 0; \
		bpf_probe_read_kernel((void *)&_value, sizeof(_value), (pointer)); \
		_value; \
	})

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
	ops = READ(&tp->inet_conn.icsk_ca_ops);
	if (bpf_probe_read_kernel(name, sizeof(name), &ops->name) || name[0] != NAME_FIRST || name[1] != NAME_REST)
		return 0;
	transport = skb->head + skb->transport_header;
	if (bpf_probe_read_kernel(&header, sizeof(header), transport))
		return 0;
	payload = skb->len - (u32)(transport - skb->data) - (header.offset >> 4) * 4;
	if ((s32)payload <= 0)
		return 0;
	m = reserve(tp, FP_MEASURED_SENT);
	if (!m)
		return 0;
	m->mss = READ(&tp->mss_cache);
	m->lost = READ(&tp->lost);
	left = READ(&tp->sacked_out) + READ(&tp->lost_out);
	m->in_flight = READ(&tp->packets_out) - left + READ(&tp->retrans_out);
	m->seq = network_order(header.seq);
	m->end_seq = m->seq + payload;
	bpf_ringbuf_submit(m, 0);
	return 0;
}
