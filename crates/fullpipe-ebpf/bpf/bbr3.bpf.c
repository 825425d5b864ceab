// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * fp_bbr3: BBR v3 of draft-ietf-ccwg-bbr, adapted to stock kernels, as a struct_ops program. The core in
 * bbr3.h is the draft's; this file gives it what a stock kernel does not:
 *
 * - P.tx_in_flight and P.lost (draft, "Per-packet (P) state") would be stored with each packet. Here a ring
 *   remembers snd_nxt, inflight, lost and delivered after each ACK: what leaves until the next one is a burst. What was
 *   delivered when the newest acknowledged packet was last sent (rate_sample.prior_delivered) tells its burst, and
 *   its sequence number how far into the burst it was. With more bursts in flight than half the ring, entries are
 *   at least cwnd/96 apart, and what was acknowledged between two entries is missed.
 * - HandleLostPacket(P) would be called for each packet marked lost. Here what an ACK marked lost is looked up in the
 *   retransmission queue before it leaves again: sequence number and count of delivered packets of its last
 *   transmission lead to its burst. Where it is not found (a timer marked it, and it has left again; beyond the
 *   first of many; the kernel's memory may not be read), it is taken as sent when the newest acknowledged packet was: RACK takes
 *   for lost what was sent before that.
 * How close both come is measured by bbr3_measured.bpf.c (crates/fullpipe/tests/bbr3_adaptations.rs).
 * - OnEnterFastRecovery and OnEnterRTO come as set_state(). After a time-out the kernel has cut the window by then: what
 *   was last written here is the window before.
 * - A tail loss probe that repaired a loss shows as CWR that begins and ends within one ACK: NoteLoss().
 * - Marks of congestion are tcp_sock's delivered_ce: of classic ECN (RFC 3168), all that is acknowledged while the peer
 *   echoes one.
 * - C.is_cwnd_limited is tcp_sock's; delivered, lost and inflight are packets times the MSS of their time.
 *
 * Variant `linux` is Google's v3 as far as a stock kernel gives what that needs: next departures are tcp_sock's
 * tcp_wstamp_ns, delayed ACKs rate_sample's is_ack_delayed, ACKs that marked something lost the change of tcp_sock's lost.
 * What it does not give:
 * - the route feature ECN_LOW, and marks per ACK: marks are ignored, as Google's v3 ignores them on any other route;
 * - tcp_skb_cb's tx.in_flight and the callback skb_marked_lost(): the ring and the queue, as for the draft;
 * - the callback tso_segs(): bursts are those of tcp_tso_autosize(), and min_tso_segs() is left out (below);
 * - rerouting of a flow that suffers (PLB): its calls are not open to programs.
 * Google's fast path, which leaves the model alone on some application-limited ACKs, is left out, too: it saves time.
 *
 * There are kernels on which a callback is now and then not run, and its caller reads an undefined value (docs/
 * explanation/bbr3-on-stock-kernels.md, "Skipped BPF calls"). So nothing here counts on having seen every call: what is delivered
 * and lost comes from the connection's own counters, recovery by its state, and a window or threshold that was not
 * written here is not believed beyond what the kernel itself would write. min_tso_segs and sndbuf_expand,
 * whose answers the kernel believes unseen, are left out.
 */
/* Of struct flow and all in it: one more with every change, for an update to know whose state it finds. */
#define FP_STATE_LAYOUT 3
#include "kernel.h"
#include "bbr3.h"
#include "status.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* bbr3_measured.bpf.c looks at what each ACK gave the core, and at what of it is approximated. */
#ifndef FP_ON_ACK
#define FP_ON_ACK(f, tp, end_seq) ((void)(end_seq))
#endif

/* One call of HandleLostPacket(); the connection had lost `lost` packets with it. */
#ifndef FP_ON_LOST
#define FP_ON_LOST(f, socket, lost, packet) ((void)(lost), (void)(packet))
#endif

#ifndef FP_ON_PROBE_LOSS
#define FP_ON_PROBE_LOSS() ((void)0)
#endif

#define RING 128U
/* Segments searched for the next loss in the retransmission queue, and losses of one ACK reported one by one. */
#define LOOKED_AT 64U
#define TOLD 16U
/* More levels than a red-black tree of 32-bit sequence numbers has. */
#define LEVELS 64U

/* The connection as a burst could begin. */
struct burst {
	u32 seq; /* snd_nxt */
	u32 inflight; /* bytes */
	u32 lost; /* packets lost on the connection */
	u32 delivered; /* and delivered */
	u32 again; /* bytes retransmitted in it, before its new data */
};

struct flow {
	struct bbr3 b;
	/* What the kernel's packet counters were when the byte counters were last brought up to date. */
	u32 delivered_packets;
	u32 lost_packets;
	u32 ce_packets;
	/* And what they were at the last ACK: other calls during an ACK bring the byte counters up to date, too. */
	u32 acked_packets;
	u32 marked_lost;
	/* The window as it was last written: any other value is the kernel's doing. */
	u32 cwnd_packets;
	/* InitialCwnd in packets. */
	u32 initial_cwnd;
	/* enum fp_ca_state as it was last seen, and snd_una when CWR began, in the ACK that is being worked on. */
	u32 ca_state;
	u32 cwr_una;
	u32 cwr_in_this_ack;
	/* Bursts written so far, and the one that the newest acknowledged packet was last sent in. */
	u32 head;
	u32 acked_burst;
	/* tcp_sock's total_retrans when the last of them began, and the packets to be retransmitted at that time. */
	u32 retransmitted;
	u32 pending;
	/* The controller has been taken from the socket, when so much was sent, delivered and lost. */
	u32 left;
	u32 left_nxt;
	u32 left_delivered;
	u32 left_lost;
	/*
	 * Where tcp_sock's app_limited cannot be written, MarkConnectionAppLimited()'s mark: what is sent from when so much
	 * was delivered until so much is. 0: there is none.
	 */
	u32 marked_from;
	u32 marked_to;
	struct burst ring[RING];
};

struct {
	__uint(type, FP_MAP_SK_STORAGE);
	__uint(map_flags, FP_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} flows SEC(".maps");

/* The connection's part of the core's inputs. */
FP_INLINE void read_conn(struct flow *f, const struct tcp_sock *tp)
{
	struct bbr3_conn *c = &f->b.c;
	u32 mss = fp_max32(tp->mss_cache, 1);
	u32 ca_state = FP_BITFIELD(&tp->inet_conn, icsk_ca_state);

	c->now = tp->tcp_clock_cache;
	c->smss = mss;
	c->initial_cwnd = (u64)f->initial_cwnd * mss;
	c->inflight = (u64)fp_in_flight(tp) * mss;
	c->delivered += (u64)(tp->delivered - f->delivered_packets) * mss;
	f->delivered_packets = tp->delivered;
	c->lost += (u64)(tp->lost - f->lost_packets) * mss;
	f->lost_packets = tp->lost;
	c->srtt = (u64)tp->srtt_us * 125;
	c->next_departure = tp->tcp_wstamp_ns;
	c->is_cwnd_limited = FP_BITFIELD(tp, is_cwnd_limited);
	c->recovery = ca_state < FP_CA_RECOVERY ? BBR3_OPEN :
		      ca_state == FP_CA_RECOVERY ? BBR3_FAST_RECOVERY : BBR3_LOSS_RECOVERY;
	c->has_selective_acks = FP_BITFIELD(tp, rx_opt.sack_ok) != 0;
	/* The kernel cuts the window, and never raises it but to what undo_cwnd() answered. */
	if (tp->snd_cwnd != f->cwnd_packets)
		c->cwnd = fp_min64((u64)tp->snd_cwnd * mss, fp_max64(c->cwnd, f->b.prior_cwnd));
	c->pacing_rate = tp->inet_conn.icsk_inet.sk.sk_pacing_rate;
}

FP_INLINE void write_conn(struct flow *f, struct tcp_sock *tp)
{
	const struct bbr3_conn *c = &f->b.c;
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	u64 rate = fp_min64(c->pacing_rate, sk->sk_max_pacing_rate);
	u32 cwnd = fp_min32(fp_max32((u32)(c->cwnd / fp_max64(c->smss, 1)), 1), tp->snd_cwnd_clamp);

	f->cwnd_packets = cwnd;
	if (tp->snd_cwnd != cwnd)
		tp->snd_cwnd = cwnd;
	if (sk->sk_pacing_rate != rate)
		sk->sk_pacing_rate = rate;
	if (tp->snd_ssthresh != FP_INFINITE_SSTHRESH)
		tp->snd_ssthresh = FP_INFINITE_SSTHRESH;
}

/* The connection is, or is about to be, in this state of loss recovery. */
FP_INLINE void follow_state(struct flow *f, u32 state)
{
	int was_recovering = f->ca_state >= FP_CA_RECOVERY, recovers = state >= FP_CA_RECOVERY;

	/* A time-out during recovery, or after another one, saves the window, too. */
	if (state == FP_CA_LOSS)
		bbr3_on_enter_rto(&f->b);
	else if (recovers && !was_recovering)
		bbr3_on_enter_recovery(&f->b);
	else if (f->ca_state == FP_CA_LOSS && recovers && bbr3_is_linux(&f->b)) /* a retransmission was lost, too */
		bbr3_restore_cwnd(&f->b);
	else if (was_recovering && !recovers)
		bbr3_on_exit_recovery(&f->b, f->ca_state == FP_CA_LOSS ? BBR3_LOSS_RECOVERY : BBR3_FAST_RECOVERY);
	f->ca_state = state;
}

/*
 * Moves a place in the ring on to the burst in which the packet that ends at `end_seq` was sent, when `delivered`
 * packets had been delivered. Bursts between two ACKs share that number: of new data, sequence numbers tell them
 * apart; retransmissions go first.
 */
FP_INLINE u32 advance(const struct flow *f, u32 at, u32 delivered, u32 end_seq)
{
	/* The writer may have overtaken the reader. */
	if (f->head - at > RING)
		at = f->head - RING;
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < RING; i++) {
		const struct burst *now = &f->ring[at & (RING - 1)];
		const struct burst *next = &f->ring[(at + 1) & (RING - 1)];

		if ((s32)(f->head - (at + 1)) <= 0 || fp_after(next->delivered, delivered))
			break;
		if (next->delivered == delivered && !fp_before(next->seq, end_seq) &&
		    (now->delivered == delivered || fp_before(now->seq, end_seq)))
			break;
		at++;
	}
	return at;
}

/*
 * The place of the burst of the packet that an ACK's sample is of. Mostly it left after that of the last ACK; one that
 * was late left before, and is looked for from the oldest burst on.
 */
FP_INLINE u32 burst_of_acked(const struct flow *f, u32 delivered, u32 end_seq)
{
	const struct burst *last = &f->ring[f->acked_burst & (RING - 1)];
	u32 from = f->acked_burst;

	if (fp_after(last->delivered, delivered) || (last->delivered == delivered && !fp_before(last->seq, end_seq)))
		from = f->head - fp_min32(f->head, RING);
	return advance(f, from, delivered, end_seq);
}

/* What was in flight when that packet, which ends at `end_seq`, was sent, itself included. */
FP_INLINE u64 tx_in_flight(const struct flow *f, u32 at, u32 end_seq)
{
	const struct burst *burst = &f->ring[at & (RING - 1)];
	u32 into = end_seq - burst->seq;

	if (!f->head)
		return f->b.c.inflight;
	/* Retransmissions go first, and count as the burst's first packet. */
	return (u64)burst->inflight + ((s32)into > 0 ? burst->again + into : (u32)f->b.c.smss);
}

/* What was lost since that packet was sent. */
FP_INLINE u64 lost_since(const struct flow *f, u32 at, const struct tcp_sock *tp)
{
	if (!f->head)
		return 0;
	return (u64)(tp->lost - f->ring[at & (RING - 1)].lost) * f->b.c.smss;
}

/*
 * Records in the last burst what it retransmitted before its new data: what was marked lost at its start. What a timer
 * has marked since came after.
 */
FP_INLINE void end_burst(struct flow *f, const struct tcp_sock *tp)
{
	u32 packets = fp_min32(tp->total_retrans - f->retransmitted, f->pending);

	if (f->head)
		f->ring[(f->head - 1) & (RING - 1)].again = packets * tp->mss_cache;
}

/*
 * From here on a burst may leave: after each ACK, after idle, after a time-out. There is no callback for a packet
 * that leaves, but for min_tso_segs, which has to be answered right each time (see bbr1.bpf.c).
 */
FP_INLINE void begin_burst(struct flow *f, const struct tcp_sock *tp)
{
	struct burst *burst = &f->ring[(f->head - 1) & (RING - 1)];
	u32 distance = tp->snd_nxt - burst->seq;

	end_burst(f, tp);
	/* When nothing has left since, the same burst begins now, not then. */
	if (!f->head || distance || tp->total_retrans != f->retransmitted) {
		u32 used = f->head - f->acked_burst;

		/* Most of the ring is in flight: keep only entries that are far enough apart. */
		if (distance < (u32)f->b.c.cwnd / 96 &&
		    used > (tp->total_retrans == f->retransmitted ? RING / 2 : RING / 4 * 3))
			return;
		burst = &f->ring[f->head & (RING - 1)];
		f->head++;
	}
	burst->seq = tp->snd_nxt;
	burst->inflight = fp_in_flight(tp) * tp->mss_cache;
	burst->lost = tp->lost;
	burst->delivered = tp->delivered;
	burst->again = 0;
	f->retransmitted = tp->total_retrans;
	f->pending = tp->lost_out - fp_min32(tp->retrans_out, tp->lost_out);
}

FP_INLINE void publish(const struct bbr3 *b, struct tcp_sock *tp)
{
	u64 *priv = tp->inet_conn.icsk_ca_priv;

	priv[0] = FP_STATUS_MAGIC | b->mode;
	priv[1] = b->bw;
	priv[2] = b->min_rtt;
	priv[3] = (u64)b->pacing_gain | (u64)b->cwnd_gain << 32;
	priv[4] = b->inflight_longterm;
	priv[5] = b->inflight_shortterm;
	priv[6] = b->round_count;
	priv[7] = bbr3_max_bw(b);
	priv[8] = b->bw_shortterm;
}

FP_STEP int start_flow(struct flow *f)
{
	if (!f)
		return 0;
	bbr3_init(&f->b);
	return 0;
}

/* The socket's state, begun anew. */
FP_INLINE struct flow *begin_flow(struct tcp_sock *tp)
{
	struct flow *f = bpf_sk_storage_get(&flows, tp, 0, FP_SK_STORAGE_CREATE);

	if (!f)
		return f;
	/* The socket may have had this controller before. */
	__builtin_memset(&f->b, 0, sizeof(f->b));
	f->b.random = (u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
	f->head = 0;
	f->acked_burst = 0;
	f->retransmitted = tp->total_retrans;
	f->ca_state = FP_BITFIELD(&tp->inet_conn, icsk_ca_state);
	f->cwr_in_this_ack = 0;
	f->left = 0;
	f->marked_to = 0;
	/*
	 * A connection may have carried data on another controller. Rounds go by what it has delivered in all, for that is
	 * what its packets in flight are stamped with.
	 */
	f->b.c.delivered = (u64)tp->delivered * tp->mss_cache;
	f->b.c.lost = (u64)tp->lost * tp->mss_cache;
	f->delivered_packets = tp->delivered;
	f->lost_packets = tp->lost;
	f->acked_packets = tp->delivered;
	f->marked_lost = tp->lost;
	f->ce_packets = tp->delivered_ce;
	f->cwnd_packets = tp->snd_cwnd;
	f->b.c.cwnd = (u64)tp->snd_cwnd * tp->mss_cache;
	/* The window of a new connection is the route's initcwnd, or the kernel's. The SYN or its ACK counts as delivered. */
	f->initial_cwnd = tp->delivered <= 1 ? tp->snd_cwnd : FP_INIT_CWND;
	read_conn(f, tp);
	f->b.c.now = bpf_ktime_get_ns();
	start_flow(f);
	write_conn(f, tp);
	publish(&f->b, tp);
	fp_need_pacing(tp);
	return f;
}

SEC("struct_ops/fp_bbr3_init")
void fp_bbr3_init(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct flow *f = bpf_sk_storage_get(&flows, tp, 0, 0);

	/*
	 * Nothing has happened on the connection since it was taken from this controller, or from another build with the same
	 * storage: `cc update` moves live sockets so. What was known of the path still is.
	 */
	if (f && f->left && f->left_nxt == tp->snd_nxt && f->left_delivered == tp->delivered &&
	    f->left_lost == tp->lost) {
		f->left = 0;
		publish(&f->b, tp);
		fp_need_pacing(tp);
		return;
	}
	begin_flow(tp);
}

SEC("struct_ops/fp_bbr3_release")
void fp_bbr3_release(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct flow *f = bpf_sk_storage_get(&flows, tp, 0, 0);

	if (f) {
		f->left = 1;
		f->left_nxt = tp->snd_nxt;
		f->left_delivered = tp->delivered;
		f->left_lost = tp->lost;
	}
	fp_end_pacing(tp);
}

/* Whether a packet was sent under a mark, the kernel's or ours, when so much was delivered. */
FP_INLINE u32 was_app_limited(const struct flow *f, u32 delivered, u32 kernels)
{
	if (!(fp_config.options & FP_OPTION_OWN_MARK) || !f->marked_to || kernels)
		return kernels;
	return !fp_after(delivered, f->marked_to) && !fp_before(delivered, f->marked_from);
}

/*
 * Whether memory may be read. Each step is verified separately from its callers, so each that reads checks: what follows is dead
 * to the verifier then, and it refuses no helper that is not there.
 */
FP_INLINE int reads(void)
{
	return !(fp_config.options & FP_OPTION_READS_NOTHING);
}

/* The leftmost node below one of a red-black tree: the first in sequence. Nodes are numbers to the verifier, and read as memory. */
FP_STEP u64 leftmost(u64 node)
{
	if (!node || !reads())
		return 0;
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < LEVELS; i++) {
		u64 left = FP_READ(u64, &((struct rb_node *)node)->rb_left);

		if (!left)
			break;
		node = left;
	}
	return node;
}

/* rb_next(): the next segment of the queue; 0 behind the last. */
FP_STEP u64 next_segment(u64 node)
{
	u64 right;

	if (!reads())
		return 0;
	right = FP_READ(u64, &((struct rb_node *)node)->rb_right);
	if (right)
		return leftmost(right);
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < LEVELS; i++) {
		u64 parent = FP_READ(u64, &((struct rb_node *)node)->__rb_parent_color) & ~3ULL;

		if (!parent || FP_READ(u64, &((struct rb_node *)parent)->rb_right) != node)
			return parent;
		node = parent;
	}
	return 0;
}

/* What an ACK marked lost, looked for in the retransmission queue. */
struct search {
	u64 socket;
	u64 node;   /* the next segment to look at */
	u32 before; /* packets marked before and not retransmitted: they come first */
	u32 left;   /* packets to be found */
	u32 mss;
	u32 connection_lost; /* tcp_sock's lost, with all of them */
	/* A lost segment, or what was not found: packets, and of the last of them sequence number and tcp_skb_cb's tx. */
	u32 packets;
	u32 seq;
	u32 end_seq;
	u32 delivered;
	u32 app_limited;
	u32 is_found;
};

/* Goes on to the next segment that was marked lost; 0 where none is found. */
FP_STEP int next_lost(struct search *s)
{
	if (!s || !reads())
		return 0;
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < LOOKED_AT; i++) {
		u64 node = s->node;
		const struct tcp_skb_cb *cb = (const struct tcp_skb_cb *)((struct sk_buff *)node)->cb;
		u32 size;

		if (!node || !s->left)
			return 0;
		s->node = next_segment(node);
		if ((FP_READ(u8, &cb->sacked) & (FP_SKB_LOST | FP_SKB_RETRANSMITTED | FP_SKB_ACKED)) != FP_SKB_LOST)
			continue;
		s->seq = FP_READ(u32, &cb->seq);
		s->end_seq = FP_READ(u32, &cb->end_seq);
		size = (s->end_seq - s->seq + s->mss - 1) / fp_max32(s->mss, 1);
		if (s->before && s->before >= size) {
			s->before -= size;
			continue;
		}
		s->before = 0;
		s->packets = fp_min32(fp_max32(size, 1), s->left);
		s->left -= s->packets;
		s->delivered = FP_READ(u32, &cb->tx.delivered);
		s->app_limited = FP_READ_BITFIELD(cb, tx.is_app_limited);
		s->is_found = 1;
		return 1;
	}
	return 0;
}

/* HandleLostPacket(), for the packets of a segment, or for those that were not found. */
FP_STEP int tell_lost(struct flow *f, const struct search *s)
{
	struct bbr3_lost packet = {};
	const struct burst *burst;
	u32 at, lost, into = 0;

	if (!f || !s)
		return 0;
	at = s->is_found ? advance(f, f->head - fp_min32(f->head, RING), s->delivered, s->end_seq) : f->acked_burst;
	burst = &f->ring[at & (RING - 1)];
	lost = s->connection_lost - s->left;
	packet.bytes = (u64)s->packets * f->b.c.smss;
	packet.app_limited = s->app_limited;
	packet.tx_in_flight = f->b.c.inflight;
	if (f->head) {
		if (s->is_found)
			into = s->end_seq - burst->seq;
		/* Retransmissions go first, and count as the burst's first packet. */
		packet.tx_in_flight = (u64)burst->inflight + ((s32)into > 0 ? burst->again + into : packet.bytes);
		/* What a timer marked, which is not found any more, was lost before: a burst since then has counted it. */
		packet.lost = fp_max64(fp_after(lost, burst->lost) ? (u64)(lost - burst->lost) * f->b.c.smss : 0, packet.bytes);
	}
	FP_ON_LOST(f, s->socket, lost, &packet);
	bbr3_handle_lost_packet(&f->b, &packet);
	return 0;
}

/*
 * The packets that this ACK marked lost. They have not left again yet: TCP sends them after this, from
 * retransmit_skb_hint on. Gives the number of contiguous ranges.
 */
FP_INLINE u32 lose(struct flow *f, const struct tcp_sock *tp, u32 packets, u32 app_limited)
{
	u32 unsent = tp->lost_out - fp_min32(tp->retrans_out, tp->lost_out), ranges = 0, end = 0;
	struct search s = {
		.socket = (u64)tp,
		.before = unsent - fp_min32(unsent, packets),
		.left = packets,
		.mss = tp->mss_cache,
		.connection_lost = tp->lost,
	};

	if (reads()) {
		s.node = FP_READ(u64, &tp->retransmit_skb_hint);
		if (!s.node)
			s.node = leftmost(FP_READ(u64, &tp->inet_conn.icsk_inet.sk.tcp_rtx_queue.rb_node));
	}
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < TOLD; i++) {
		if (!next_lost(&s))
			break;
		s.app_limited = was_app_limited(f, s.delivered, s.app_limited);
		ranges += !ranges || s.seq != end;
		end = s.end_seq;
		tell_lost(f, &s);
	}
	if (s.left) {
		s.packets = s.left;
		s.left = 0;
		s.is_found = 0;
		s.app_limited = app_limited;
		tell_lost(f, &s);
		ranges += !ranges;
	}
	return ranges;
}

/* MarkConnectionAppLimited() */
FP_INLINE void mark_app_limited(struct flow *f, struct tcp_sock *tp)
{
	u32 to = fp_max32(tp->delivered + fp_in_flight(tp), 1);

	if (!(fp_config.options & FP_OPTION_OWN_MARK)) {
		tp->app_limited = to;
		return;
	}
	if (!f->marked_to || fp_after(tp->delivered, f->marked_to))
		f->marked_from = tp->delivered;
	f->marked_to = to;
}

SEC("struct_ops/fp_bbr3_cong_control")
void fp_bbr3_cong_control(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	const struct rate_sample *rs = fp_sample_argument(ctx);
	struct flow *f = bpf_sk_storage_get(&flows, tp, 0, 0);
	struct bbr3_sample *sample;
	u32 lost, acked, burst, end_seq, app_limited, ca_state, ranges = 0;
	u64 mss;

	/* init() was not called, or another build has taken the place of the one that it was. */
	if (!f) {
		begin_flow(tp);
		return;
	}
	lost = tp->lost - f->marked_lost;
	f->marked_lost = tp->lost;
	acked = tp->delivered - f->acked_packets;
	f->acked_packets = tp->delivered;
	f->cwr_in_this_ack = 0;
	ca_state = FP_BITFIELD(&tp->inet_conn, icsk_ca_state);
	/* set_state() was not called: the window before the time-out is the one last written, as in set_state(). */
	if (ca_state == FP_CA_LOSS && f->ca_state != FP_CA_LOSS)
		follow_state(f, FP_CA_LOSS);
	read_conn(f, tp);
	if (f->ca_state != ca_state)
		follow_state(f, ca_state);
	mss = f->b.c.smss;
	sample = &f->b.rs;
	end_seq = FP_FIELD_EXISTS(rs->last_end_seq) ? rs->last_end_seq : tp->snd_una;
	end_burst(f, tp);
	burst = f->acked_burst;
	if (rs->delivered >= 0) {
		burst = burst_of_acked(f, rs->prior_delivered, end_seq);
		if (fp_after(burst, f->acked_burst))
			f->acked_burst = burst;
	}
	app_limited = was_app_limited(f, rs->prior_delivered, rs->is_app_limited);
	if ((s32)lost > 0)
		ranges = lose(f, tp, lost, app_limited);
	if (f->marked_to && !rs->is_app_limited && fp_after(rs->prior_delivered, f->marked_to))
		f->marked_to = 0;

	sample->has_data = rs->delivered >= 0;
	sample->delivered = rs->delivered > 0 ? (u64)rs->delivered * mss : 0;
	sample->prior_delivered =
		f->b.c.delivered - fp_min64((u64)(tp->delivered - rs->prior_delivered) * mss, f->b.c.delivered);
	sample->delivery_rate = rs->interval_us > 0 && rs->delivered > 0 ?
					bbr3_rate_of(sample->delivered, (u64)rs->interval_us * 1000) :
					0;
	sample->newly_acked = (u64)acked * mss;
	sample->newly_lost = (u64)lost * mss;
	sample->lost_ranges = ranges;
	sample->rtt = rs->rtt_us >= 0 ? (u64)rs->rtt_us * 1000 : BBR3_INFINITE;
	sample->is_app_limited = app_limited;
	sample->is_ack_delayed = rs->is_ack_delayed;
	sample->tx_in_flight = tx_in_flight(f, burst, end_seq);
	sample->lost = lost_since(f, burst, tp);
	sample->ce_count = tp->delivered_ce - f->ce_packets;
	f->ce_packets = tp->delivered_ce;
	FP_ON_ACK(f, tp, end_seq);

	bbr3_on_ack(&f->b);
	if (f->b.marks_app_limited)
		mark_app_limited(f, tp);
	write_conn(f, tp);
	publish(&f->b, tp);
	begin_burst(f, tp);
}

FP_INLINE void begin_to_send(struct tcp_sock *tp)
{
	struct flow *f = bpf_sk_storage_get(&flows, tp, 0, 0);

	if (!f)
		return;
	begin_burst(f, tp);
	if (!tp->app_limited && !f->marked_to)
		return;
	read_conn(f, tp);
	bbr3_on_restart_from_idle(&f->b);
	write_conn(f, tp);
}

FP_ON_TX_START(fp_bbr3, begin_to_send)

SEC("struct_ops/fp_bbr3_set_state")
void fp_bbr3_set_state(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	u32 state = (u8)ctx[1], before;
	struct flow *f = bpf_sk_storage_get(&flows, tp, 0, 0);

	if (!f)
		return;
	before = f->ca_state;
	/* A timer may have marked packets lost, which leave again before the next ACK. */
	if (state >= FP_CA_RECOVERY)
		begin_burst(f, tp);
	/*
	 * tcp_process_tlp_ack() enters CWR and leaves it at once. Marks and a full queue of the host's own keep a connection
	 * in CWR until what was in flight is acknowledged.
	 */
	if (state == FP_CA_CWR) {
		f->cwr_in_this_ack = 1;
		f->cwr_una = tp->snd_una;
	} else if (state < FP_CA_CWR && f->cwr_in_this_ack && f->cwr_una == tp->snd_una) {
		read_conn(f, tp);
		bbr3_note_congestion(&f->b);
		FP_ON_PROBE_LOSS();
		f->cwr_in_this_ack = 0;
	}
	if (state < FP_CA_RECOVERY && before < FP_CA_RECOVERY) {
		f->ca_state = state;
		return;
	}
	/* The window before a time-out cut it is still in the state. */
	if (state < FP_CA_RECOVERY)
		read_conn(f, tp);
	follow_state(f, state);
	if (state < FP_CA_RECOVERY)
		write_conn(f, tp);
}

SEC("struct_ops/fp_bbr3_undo_cwnd")
u32 fp_bbr3_undo_cwnd(u64 *ctx)
{
	struct tcp_sock *tp = FP_TCP(ctx);
	struct flow *f = bpf_sk_storage_get(&flows, tp, 0, 0);

	if (!f)
		return tp->snd_cwnd;
	read_conn(f, tp);
	bbr3_on_spurious_loss(&f->b);
	write_conn(f, tp);
	return tp->snd_cwnd;
}

/* Called for CWR as well as for recovery, and before the state that distinguishes them. */
SEC("struct_ops/fp_bbr3_ssthresh")
u32 fp_bbr3_ssthresh(u64 *ctx)
{
	return FP_TCP(ctx)->snd_ssthresh;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops fp_bbr3 = {
	.init = (void *)fp_bbr3_init,
	.release = (void *)fp_bbr3_release,
	.cong_control = (void *)fp_bbr3_cong_control,
	.cwnd_event = (void *)fp_bbr3_cwnd_event,
	.cwnd_event_tx_start = (void *)fp_bbr3_cwnd_event_tx_start,
	.set_state = (void *)fp_bbr3_set_state,
	.undo_cwnd = (void *)fp_bbr3_undo_cwnd,
	.ssthresh = (void *)fp_bbr3_ssthresh,
	.flags = FP_CONG_NON_RESTRICTED,
	.name = "fp_bbr3",
};
