/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What became of a packet, and the counters of it: one slot a verdict and CPU.
 *
 * The loader's `Verdict` lists the same names in the same order; a test compares the two.
 */
#ifndef MPXDP_VERDICT_H
#define MPXDP_VERDICT_H

#include "kernel.h"

enum verdict {
	/* To the queue's AF_XDP socket. */
	VERDICT_FLOW,     /* the 4-tuple is one of ours */
	VERDICT_LISTENER, /* the destination is one of our listeners */

	/* Dropped. */
	VERDICT_NO_SOCKET, /* ours, but its queue has no socket: the kernel would reset it */

	/* Passed to the kernel. */
	VERDICT_GROUP_MAC,      /* destination is a multicast or broadcast MAC */
	VERDICT_NOT_IP,         /* neither IPv4 nor IPv6 */
	VERDICT_VLAN_DEPTH,     /* more than two VLAN tags */
	VERDICT_NOT_TCP,        /* another transport protocol */
	VERDICT_FRAGMENT,       /* an IP fragment, or marked as one */
	VERDICT_EXTENSION,      /* more extension headers than we follow */
	VERDICT_SOURCE_ROUTE,   /* a routing header that does not end here */
	VERDICT_TRUNCATED,      /* the headers or the datagram reach past the frame */
	VERDICT_MALFORMED,      /* a length or version field that cannot be right */
	VERDICT_NO_MATCH,       /* well-formed TCP for somebody else */

	VERDICT_COUNT,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICT_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* A CPU's slot has one writer: XDP runs with the CPU to itself, so a plain add is enough. */
static __always_inline void count(enum verdict verdict)
{
	__u32 slot = verdict;
	__u64 *counter = bpf_map_lookup_elem(&counters, &slot);

	if (counter)
		*counter += 1;
}

#endif
