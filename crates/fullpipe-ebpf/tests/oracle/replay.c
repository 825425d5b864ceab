/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Replays raw records through the C core of BBR v1 and prints how many differ from what the kernel left. The
 * tests compile it with coverage counters, and with a copy of the core that has mistakes in it, one of which a second
 * argument chooses; then the first record that differs is the last.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bbr1.h"
#include "record.h"

static int differs(const struct fp_record *r, u32 ticks)
{
	struct bbr1_packed before, after;
	struct bbr1 c;
	u32 result;

	memcpy(&before, r->state_before, sizeof(before));
	bbr1_unpack(&c.s, &before);
	c.tcp = r->tcp;
	c.tcp.ticks = ticks;
	result = bbr1_call(&c, r->op, r->argument);
	bbr1_pack(&after, &c.s);
	if (r->op < FP_OP_UNDO)
		result = r->result;
	return memcmp(&after, r->state_after, sizeof(after)) || c.tcp.snd_cwnd != r->snd_cwnd ||
	       c.tcp.snd_ssthresh != r->snd_ssthresh || c.tcp.app_limited != r->app_limited ||
	       c.tcp.pacing_rate != r->pacing_rate || result != r->result;
}

int main(int argc, char **argv)
{
	FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
	struct fp_record r;
	unsigned long records = 0, mismatches = 0;

	if (!file)
		return 2;
#ifdef FP_MUTANTS
	fp_mutant = argc > 2 ? atoi(argv[2]) : 0;
#endif
	while (fread(&r, sizeof(r), 1, file) == 1) {
		records++;
		if (differs(&r, r.tcp.ticks) && (r.ticks == r.tcp.ticks || differs(&r, r.ticks)))
			mismatches++;
		if (mismatches && argc > 2)
			break;
	}
	fclose(file);
	printf("%lu %lu\n", records, mismatches);
	return 0;
}
