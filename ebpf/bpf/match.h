/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Whether a TCP segment is ours. Connections come before listeners, as in any TCP.
 */
#ifndef MPXDP_MATCH_H
#define MPXDP_MATCH_H

#include "kernel.h"
#include "maps.h"
#include "parse.h"
#include "verdict.h"

static __always_inline enum verdict match(const struct flow *flow)
{
	__u32 port = bpf_ntohs(flow->local.port);
	int is_ipv4 = flow->local.family == 4;
	__u8 *uses = bpf_map_lookup_elem(&ports, &port);
	__u8 use;

	if (!uses)
		return VERDICT_NO_MATCH;
	use = *uses;
	if (!use)
		return VERDICT_NO_MATCH;

	if (use & USE_FLOW) {
		if (bpf_map_lookup_elem(&flows, flow))
			return VERDICT_FLOW;
	}
	if (use & (is_ipv4 ? USE_LISTENER_IPV4 : USE_LISTENER_IPV6)) {
		if (bpf_map_lookup_elem(&listeners, &flow->local))
			return VERDICT_LISTENER;
	}
	if (use & (is_ipv4 ? USE_ANY_IPV4 : USE_ANY_IPV6)) {
		struct endpoint address = flow->local;

		address.port = 0;
		if (bpf_map_lookup_elem(&local_addresses, &address))
			return VERDICT_LISTENER;
	}
	return VERDICT_NO_MATCH;
}

#endif
