/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The cores, compiled for the host, so that they can be tested and replayed without a kernel. */
#include "bbr1.h"
#include "bbr3.h"
#include "hybla.h"
#include "record.h"
#include "split.h"

/* Runs one callback of BBR v1 over the kernel's own 104 bytes of state; gives what the callback returns. */
u32 fp_native_bbr1(struct bbr1_packed *state, struct fp_tcp *tcp, u32 op, u32 argument)
{
	struct bbr1 c;
	u32 result;

	bbr1_unpack(&c.s, state);
	c.tcp = *tcp;
	result = bbr1_call(&c, op, argument);
	bbr1_pack(state, &c.s);
	*tcp = c.tcp;
	return result;
}

/* What happens to a BBR v3 flow. */
enum fp_bbr3_call {
	FP_BBR3_INIT = 0,
	FP_BBR3_RESTART = 1,
	FP_BBR3_LOST = 2,
	FP_BBR3_ACK = 3,
	FP_BBR3_ENTER_RECOVERY = 4,
	FP_BBR3_EXIT_RECOVERY = 5,
	FP_BBR3_SPURIOUS = 6,
	FP_BBR3_CONGESTION = 7,
	FP_BBR3_ENTER_RTO = 8,
};

/* Runs one call of BBR v3's core; its inputs are in the state's own c and rs. */
void fp_native_bbr3(struct bbr3 *b, u32 call, const struct bbr3_lost *lost)
{
	switch (call) {
	case FP_BBR3_INIT:
		bbr3_init(b);
		break;
	case FP_BBR3_RESTART:
		bbr3_on_restart_from_idle(b);
		break;
	case FP_BBR3_LOST:
		bbr3_handle_lost_packet(b, lost);
		break;
	case FP_BBR3_ACK:
		bbr3_on_ack(b);
		break;
	case FP_BBR3_ENTER_RECOVERY:
		bbr3_on_enter_recovery(b);
		break;
	case FP_BBR3_EXIT_RECOVERY:
		bbr3_on_exit_recovery(b, b->c.recovery);
		break;
	case FP_BBR3_SPURIOUS:
		bbr3_on_spurious_loss(b);
		break;
	case FP_BBR3_CONGESTION:
		bbr3_note_congestion(b);
		break;
	case FP_BBR3_ENTER_RTO:
		bbr3_on_enter_rto(b);
		break;
	}
}

/* BBR v3's arithmetic on rates, for a test of its own. */
u64 fp_native_bbr3_bytes_in(u64 rate, u64 span)
{
	return bbr3_bytes_in(rate, span);
}

u64 fp_native_bbr3_rate_of(u64 bytes, u64 span)
{
	return bbr3_rate_of(bytes, span);
}

u32 fp_native_size_of_bbr3(void)
{
	return sizeof(struct bbr3);
}

/* Hybla's init (0) and cong_avoid (1). */
void fp_native_hybla(struct hybla *h, u32 call, u32 acked)
{
	if (call == 0)
		hybla_init(h);
	else
		hybla_cong_avoid(h, acked);
}

u32 fp_native_hybla_ssthresh(u32 snd_cwnd)
{
	return hybla_ssthresh(snd_cwnd);
}

u32 fp_native_size_of_hybla(void)
{
	return sizeof(struct hybla);
}

/* The sizes that the two languages must agree on. */
u32 fp_native_size_of_tcp(void)
{
	return sizeof(struct fp_tcp);
}

u32 fp_native_size_of_record(void)
{
	return sizeof(struct fp_record);
}

/* Which arm of a split a connection is in, and by which hash. */
u32 fp_native_split(const struct fp_split_setup *setup, const struct fp_split_end *local,
		    const struct fp_split_end *remote, const struct fp_split_table *table, u64 *hash)
{
	*hash = fp_split_hash(setup, local, remote);
	return fp_split_pick(table, *hash);
}

u32 fp_native_split_is_asked_for(const struct fp_split_step *steps, const struct fp_split_end *local,
				 const struct fp_split_end *remote)
{
	return fp_split_is_asked_for(steps, local, remote);
}

u32 fp_native_size_of_split(u32 which)
{
	switch (which) {
	case 0:
		return sizeof(struct fp_split_setup);
	case 1:
		return sizeof(struct fp_split_table);
	case 2:
		return sizeof(struct fp_split_closed);
	case 3:
		return sizeof(struct fp_split_step);
	default:
		return sizeof(struct fp_split_counts);
	}
}
