/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Steers TCP segments of our listeners and connections into the AF_XDP socket of the receive queue
 * they came in on. Everything else goes on to the kernel.
 */
#include "kernel.h"
#include "maps.h"
#include "match.h"
#include "parse.h"
#include "verdict.h"

SEC("xdp.frags")
int mpxdp_steer(struct xdp_md *context)
{
	struct flow flow = {};
	enum verdict verdict = parse(context, &flow);
	long action = XDP_PASS;

	if (verdict == PARSED)
		verdict = match(&flow);
	if (verdict == VERDICT_FLOW || verdict == VERDICT_LISTENER) {
		/* The low bits of the flags are what an empty slot returns. */
		action = bpf_redirect_map(&sockets, context->rx_queue_index, XDP_DROP);
		if (action != XDP_REDIRECT)
			verdict = VERDICT_NO_SOCKET;
	}
	count(verdict);
	return action;
}

char _license[] SEC("license") = "Dual BSD/GPL";
