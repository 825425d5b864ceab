// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Gives every new connection of a control group's processes a controller. */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Not a kernel structure but the interface's own: its fields are where they are. */
struct bpf_sock_ops {
	u32 op;
};

struct fp_choice {
	char name[16];
};
const volatile struct fp_choice fp_choice SEC(".rodata.choice") = { { 0 } };

static long (*bpf_setsockopt)(void *socket, int level, int option, const void *value, int size) = (void *)49;
#define IPPROTO_TCP 6
#define TCP_CONGESTION 13
/* uapi/linux/bpf.h: BPF_SOCK_OPS_TCP_CONNECT_CB, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB */
#define TCP_CONNECT 3
#define PASSIVE_ESTABLISHED 5

SEC("sockops")
int fp_choose(struct bpf_sock_ops *ctx)
{
	u32 op = ctx->op;
	char name[16];

	if (op != TCP_CONNECT && op != PASSIVE_ESTABLISHED)
		return 1;
#pragma unroll
	for (int i = 0; i < 16; i++)
		name[i] = fp_choice.name[i];
	bpf_setsockopt(ctx, IPPROTO_TCP, TCP_CONGESTION, name, sizeof(name));
	return 1;
}
