/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The cores, compiled for the host, so that they can be tested and replayed without a kernel. */
#include "bbr1.h"
#include "record.h"

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

/* The sizes that the two languages must agree on. */
u32 fp_native_size_of_tcp(void)
{
	return sizeof(struct fp_tcp);
}

u32 fp_native_size_of_record(void)
{
	return sizeof(struct fp_record);
}
