/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Passes everything to the kernel. A benchmark puts it before the kernel's own receiver, which then
 * pays for the XDP front end as ours does.
 */
#include "kernel.h"

SEC("xdp.frags")
int mpxdp_front(struct xdp_md *context __attribute__((unused)))
{
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
