/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which arm of a split a connection is in: a keyed hash of what is assigned (the connection, or the prefix of its remote
 * end), compared with shares. The same file compiles for the kernel and natively; crate fullpipe-split has it in Rust.
 */
#ifndef FP_SPLIT_H
#define FP_SPLIT_H

#include "types.h"

#define FP_SPLIT_ARMS 8
#define FP_SPLIT_PORTS 8
/* No arm: the connection is outside the experiment. */
#define FP_SPLIT_OUTSIDE 0xffU

enum fp_split_by {
	FP_SPLIT_BY_CONNECTION = 0,
	FP_SPLIT_BY_PREFIX = 1,
	/* The table has the whole host in one arm, and changes with the period. */
	FP_SPLIT_BY_TIME = 2,
};

/* An end of a connection: the address as IPv6 has it (IPv4 as ::ffff:a.b.c.d), in the order of the wire. */
struct fp_split_end {
	u64 address[2];
	u16 port; /* in the host's order */
	u16 spare[3];
};

/* What does not change while a split runs. */
struct fp_split_setup {
	u64 key[2];
	/* What of a remote address counts, of an IPv4 one as it is mapped, and of an IPv6 one. */
	u64 mask4[2];
	u64 mask6[2];
	u32 by;
	u32 ports; /* how many of `port` count; 0: all local ports are in the experiment */
	u16 port[FP_SPLIT_PORTS];
};

/* Which connections are asked for: a condition in postfix order, each step on a stack of bits. */
#define FP_SPLIT_STEPS 24

enum fp_split_step_kind {
	FP_SPLIT_END = 0,
	/* Pushes whether an end's address has these bits, of this family if one is asked for, and a port within bounds. */
	FP_SPLIT_TEST = 1,
	/* Take two, push one. */
	FP_SPLIT_AND = 2,
	FP_SPLIT_OR = 3,
	FP_SPLIT_NOT = 4,
};

struct fp_split_step {
	u64 value[2];
	u64 mask[2];
	u16 low;
	u16 high;
	u8 kind;
	u8 remote;
	u8 family; /* 4, 6, or 0 for both */
	u8 spare;
};

/* The shares: arm i has the hashes below cut[i] that no earlier arm has. */
struct fp_split_table {
	u64 generation;
	u64 cut[FP_SPLIT_ARMS]; /* cumulative, of 2^32 */
	char name[FP_SPLIT_ARMS][16]; /* empty: the arm leaves its connections what they have */
	u32 arms;
	u32 spare;
};

#define FP_SPLIT_ROTATE(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))

struct fp_split_hash {
	u64 v0, v1, v2, v3;
};

FP_INLINE void fp_split_round(struct fp_split_hash *h)
{
	h->v0 += h->v1;
	h->v1 = FP_SPLIT_ROTATE(h->v1, 13) ^ h->v0;
	h->v0 = FP_SPLIT_ROTATE(h->v0, 32);
	h->v2 += h->v3;
	h->v3 = FP_SPLIT_ROTATE(h->v3, 16) ^ h->v2;
	h->v0 += h->v3;
	h->v3 = FP_SPLIT_ROTATE(h->v3, 21) ^ h->v0;
	h->v2 += h->v1;
	h->v1 = FP_SPLIT_ROTATE(h->v1, 17) ^ h->v2;
	h->v2 = FP_SPLIT_ROTATE(h->v2, 32);
}

FP_INLINE void fp_split_word(struct fp_split_hash *h, u64 word)
{
	h->v3 ^= word;
	fp_split_round(h);
	fp_split_round(h);
	h->v0 ^= word;
}

FP_INLINE void fp_split_begin(struct fp_split_hash *h, const u64 key[2])
{
	h->v0 = key[0] ^ 0x736f6d6570736575ULL;
	h->v1 = key[1] ^ 0x646f72616e646f6dULL;
	h->v2 = key[0] ^ 0x6c7967656e657261ULL;
	h->v3 = key[1] ^ 0x7465646279746573ULL;
}

/* The end of SipHash-2-4 over so many bytes, a multiple of eight. */
FP_INLINE u64 fp_split_end_hash(struct fp_split_hash *h, u64 bytes)
{
	fp_split_word(h, bytes << 56);
	h->v2 ^= 0xff;
	fp_split_round(h);
	fp_split_round(h);
	fp_split_round(h);
	fp_split_round(h);
	return h->v0 ^ h->v1 ^ h->v2 ^ h->v3;
}

/* ::ffff:0:0/96, as the words of a little-endian machine. */
FP_INLINE int fp_split_is_mapped(const struct fp_split_end *end)
{
	return end->address[0] == 0 && (u32)end->address[1] == 0xffff0000U;
}

FP_INLINE u64 fp_split_test(const volatile struct fp_split_step *step, const struct fp_split_end *end)
{
	u8 family = step->family;

	return (family == 0 || fp_split_is_mapped(end) == (family == 4)) &&
	       (end->address[0] & step->mask[0]) == step->value[0] &&
	       (end->address[1] & step->mask[1]) == step->value[1] && end->port >= step->low &&
	       end->port <= step->high;
}

/* Whether a connection is asked for; all are where nothing is. */
FP_INLINE int fp_split_is_asked_for(const volatile struct fp_split_step *step, const struct fp_split_end *local,
				    const struct fp_split_end *remote)
{
	u64 stack = 1;

#ifdef __bpf__
#pragma unroll
#endif
	for (int i = 0; i < FP_SPLIT_STEPS; i++) {
		u8 kind = step[i].kind;

		if (kind == FP_SPLIT_TEST)
			stack = (stack << 1) | fp_split_test(&step[i], step[i].remote ? remote : local);
		else if (kind == FP_SPLIT_AND)
			stack = ((stack >> 1) & ~1ULL) | (stack & (stack >> 1) & 1);
		else if (kind == FP_SPLIT_OR)
			stack = (stack >> 1) | (stack & 1);
		else if (kind == FP_SPLIT_NOT)
			stack ^= 1;
	}
	return stack & 1;
}

/* SipHash-2-4 of what is assigned. */
FP_INLINE u64 fp_split_hash(const struct fp_split_setup *setup, const struct fp_split_end *local,
			    const struct fp_split_end *remote)
{
	struct fp_split_hash h;

	fp_split_begin(&h, setup->key);
	if (setup->by == FP_SPLIT_BY_CONNECTION) {
		fp_split_word(&h, local->address[0]);
		fp_split_word(&h, local->address[1]);
		fp_split_word(&h, remote->address[0]);
		fp_split_word(&h, remote->address[1]);
		fp_split_word(&h, (u64)local->port << 16 | remote->port);
		return fp_split_end_hash(&h, 40);
	}
	if (fp_split_is_mapped(remote)) {
		fp_split_word(&h, remote->address[0] & setup->mask4[0]);
		fp_split_word(&h, remote->address[1] & setup->mask4[1]);
	} else {
		fp_split_word(&h, remote->address[0] & setup->mask6[0]);
		fp_split_word(&h, remote->address[1] & setup->mask6[1]);
	}
	return fp_split_end_hash(&h, 16);
}

/* The arm of a hash. */
FP_INLINE u32 fp_split_pick(const struct fp_split_table *table, u64 hash)
{
	u32 place = (u32)(hash >> 32), arm = FP_SPLIT_OUTSIDE;

	for (int i = FP_SPLIT_ARMS - 1; i >= 0; i--)
		if ((u32)i < table->arms && place < table->cut[i])
			arm = (u32)i;
	return arm;
}

/* A closed connection, as reported to user space. */
struct fp_split_closed {
	u64 cookie;
	u64 opened_ns; /* bpf_ktime_get_ns() */
	u64 closed_ns;
	u64 generation; /* of the shares when it opened */
	u64 bytes_acked; /* tcp_sock's counters, SYN and FIN counted in */
	u64 bytes_received;
	u64 bytes_sent; /* payload, including retransmissions */
	u64 bytes_retrans;
	u64 rtt_sum_us; /* of the smoothed RTT, at each sample of the first 10 MB */
	u32 rtt_samples;
	u32 srtt_us;
	u32 min_rtt_us; /* ~0: none */
	u32 total_retrans;
	u32 data_segs_out;
	u32 busy_ticks; /* jiffies in which there was something to send or to be acknowledged */
	u32 reached_us[3]; /* from the opening until 100 kB, 1 MB, 10 MB were acknowledged; 0: never */
	u32 mss;
	struct fp_split_end local;
	struct fp_split_end remote;
	char controller[16]; /* at the end */
	u8 arm;
	u8 active; /* opened from here */
	u8 state; /* from which it closed */
	u8 reset;
	u32 spare;
};

/* What is counted while a split runs. */
struct fp_split_counts {
	u64 opened[FP_SPLIT_ARMS];
	u64 closed[FP_SPLIT_ARMS];
	u64 bytes_acked[FP_SPLIT_ARMS];
	u64 bytes_retrans[FP_SPLIT_ARMS];
	u64 total_retrans[FP_SPLIT_ARMS];
	u64 refused[FP_SPLIT_ARMS]; /* the kernel did not give them the arm's controller */
	u64 program; /* left alone: the program had chosen a controller */
	u64 route; /* left alone: the route names one */
	u64 outside; /* hashes that no arm has */
	u64 elsewhere; /* not asked for */
	u64 lapsed; /* opened after the lease expired */
	u64 lost; /* closed, but the ring was full */
};

#endif
