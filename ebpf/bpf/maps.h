/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The tables that say which packets are ours. The loader writes them, the program only reads.
 */
#ifndef MPXDP_MAPS_H
#define MPXDP_MAPS_H

#include "kernel.h"
#include "parse.h"

/* More receive queues than any NIC we know of gives one port in use. */
#define MAX_QUEUES 256
#define MAX_LISTENERS 1024
#define MAX_LOCAL_ADDRESSES 1024
#define MAX_FLOWS 65536

/* The AF_XDP socket of each receive queue. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/*
 * Which of the tables below may know a local port, as USE_ bits. Nearly every packet that is not
 * ours is passed after this one array access, and one that is costs only the look-ups it needs.
 */
#define USE_FLOW 0x01
#define USE_LISTENER_IPV4 0x02
#define USE_LISTENER_IPV6 0x04
#define USE_ANY_IPV4 0x08
#define USE_ANY_IPV6 0x10

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u8);
} ports SEC(".maps");

/* Connections of ours whose local port is no listener's, or not only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct flow);
	__type(value, __u8);
} flows SEC(".maps");

/* Listeners at one address. Those at any address are bits of `ports` alone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_LISTENERS);
	__type(key, struct endpoint);
	__type(value, __u8);
} listeners SEC(".maps");

/* What "any local address" means; the port is zero. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_LOCAL_ADDRESSES);
	__type(key, struct endpoint);
	__type(value, __u8);
} local_addresses SEC(".maps");

#endif
