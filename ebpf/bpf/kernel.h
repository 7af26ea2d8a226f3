/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The few facts of the kernel's BPF interface that the programs need.
 *
 * They are stated here, not taken from the system's headers, so that the object depends on the
 * compiler alone and a rebuild on another distribution compares equal.
 */
#ifndef MPXDP_KERNEL_H
#define MPXDP_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;

/* Map types, by their number in the interface. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_XSKMAP = 17,
};

/* Entries of a hash are allocated when they are added, not when the map is made. */
enum { BPF_F_NO_PREALLOC = 1 };

enum xdp_action {
	XDP_ABORTED = 0,
	XDP_DROP = 1,
	XDP_PASS = 2,
	XDP_TX = 3,
	XDP_REDIRECT = 4,
};

/* The program's context. `data` and `data_end` bound the frame's first buffer. */
struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#endif
