/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * From a frame to the addresses and ports of a TCP segment, or to the reason why not.
 *
 * Only what steering needs is checked: enough that a segment which is redirected has whole headers
 * in its first buffer, and that nothing the kernel should judge is taken from it. Checksums,
 * sequence numbers and TCP options are the worker's.
 */
#ifndef MPXDP_PARSE_H
#define MPXDP_PARSE_H

#include "kernel.h"
#include "verdict.h"

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100 /* IEEE 802.1Q */
#define ETHERTYPE_QINQ 0x88a8 /* IEEE 802.1ad */

#define MAX_VLAN_TAGS 2

/* RFC 8200 section 4.1 lists three of the kinds followed here, the destination options twice. The
 * rest is room for senders that repeat one. */
#define MAX_EXTENSION_HEADERS 7

#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_TCP 6
#define PROTOCOL_ROUTING 43
#define PROTOCOL_FRAGMENT 44
#define PROTOCOL_DESTINATION_OPTIONS 60

/*
 * None of the headers is packed: their fields lie at multiples of their own size within the header,
 * so that the compiler reads each in one load and not octet by octet. The header itself lies at an
 * odd multiple of two, which the kernel allows where the processor reads unaligned words (x86-64,
 * arm64 and most others).
 */
struct ethernet {
	__u8 destination[6];
	__u8 source[6];
	__be16 type;
};

struct vlan_tag {
	__be16 control;
	__be16 type;
};

struct ipv4 {
	__u8 version_and_length;
	__u8 service;
	__be16 total_length;
	__be16 identification;
	__be16 fragment;
	__u8 hops;
	__u8 protocol;
	__be16 checksum;
	__be32 source;
	__be32 destination;
};

/* The fragment field's "more fragments" bit and offset; "don't fragment" is not among them. */
#define IPV4_FRAGMENT_MASK 0x3fff

struct ipv6 {
	__be32 version_and_flow;
	__be16 payload_length;
	__u8 next;
	__u8 hops;
	__be32 source[4];
	__be32 destination[4];
};

/* The part that hop-by-hop options, destination options and routing headers share. The last two
 * fields are those of a routing header. */
struct ipv6_extension {
	__u8 next;
	__u8 length;
	__u8 kind;
	__u8 segments_left;
	__u8 rest[4];
};

struct tcp {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 acknowledgment;
	__u8 offset;
	__u8 flags;
	__be16 window;
	__be16 checksum;
	__be16 urgent;
};

/* A transport address as the maps' keys hold it. An IPv4 address fills the first word, and
 * `family` keeps it apart from an IPv6 address that begins alike. The port is in network order. */
struct endpoint {
	__be32 address[4];
	__be16 port;
	__u8 family; /* 4 or 6 */
	__u8 zero;
};

/* Where the parsing stands. Every read is preceded by a comparison with `end`. */
struct cursor {
	void *at;
	void *end;
	__u32 frame; /* octets from `at` to the end of the whole frame, all buffers counted */
};

/* The two ends of a segment as this host sees them: it came from `remote`. */
struct flow {
	struct endpoint local;
	struct endpoint remote;
};

/* What the parsers return when the flow is filled; any other verdict says why the packet passes. */
#define PARSED VERDICT_COUNT

static __always_inline enum verdict parse_tcp(struct cursor *cursor, __u32 available,
					      struct flow *flow)
{
	struct tcp *tcp = cursor->at;
	__u32 header;

	/* The IP header says that the datagram is too short for TCP: no frame makes that right. */
	if (available < sizeof(*tcp))
		return VERDICT_MALFORMED;
	if ((void *)(tcp + 1) > cursor->end)
		return VERDICT_TRUNCATED;
	header = (tcp->offset >> 4) * 4;
	if (header < sizeof(*tcp) || header > available)
		return VERDICT_MALFORMED;
	/* The worker reads the options out of the first buffer. */
	if (cursor->at + header > cursor->end)
		return VERDICT_TRUNCATED;
	flow->remote.port = tcp->source;
	flow->local.port = tcp->destination;
	return PARSED;
}

static __always_inline enum verdict parse_ipv4(struct cursor *cursor, struct flow *flow)
{
	struct ipv4 *ip = cursor->at;
	__u32 header, total;

	if ((void *)(ip + 1) > cursor->end)
		return VERDICT_TRUNCATED;
	header = (ip->version_and_length & 0x0f) * 4;
	total = bpf_ntohs(ip->total_length);
	if (ip->version_and_length >> 4 != 4 || header < sizeof(*ip) || total < header)
		return VERDICT_MALFORMED;
	if (total > cursor->frame)
		return VERDICT_TRUNCATED;
	if (ip->fragment & bpf_htons(IPV4_FRAGMENT_MASK))
		return VERDICT_FRAGMENT;
	if (ip->protocol != PROTOCOL_TCP)
		return VERDICT_NOT_TCP;

	flow->local.address[0] = ip->destination;
	flow->remote.address[0] = ip->source;
	flow->local.family = 4;
	flow->remote.family = 4;
	cursor->at += header;
	return parse_tcp(cursor, total - header, flow);
}

static __always_inline enum verdict parse_ipv6(struct cursor *cursor, struct flow *flow)
{
	struct ipv6 *ip = cursor->at;
	__u32 available, headers;
	__u8 next;

	if ((void *)(ip + 1) > cursor->end)
		return VERDICT_TRUNCATED;
	if (((__u8 *)ip)[0] >> 4 != 6)
		return VERDICT_MALFORMED;
	available = bpf_ntohs(ip->payload_length);
	if (available + sizeof(*ip) > cursor->frame)
		return VERDICT_TRUNCATED;
	next = ip->next;
	cursor->at += sizeof(*ip);

	for (headers = 0; headers <= MAX_EXTENSION_HEADERS; headers++) {
		struct ipv6_extension *extension = cursor->at;
		__u32 length;

		switch (next) {
		case PROTOCOL_TCP:
			__builtin_memcpy(flow->local.address, ip->destination, 16);
			__builtin_memcpy(flow->remote.address, ip->source, 16);
			flow->local.family = 6;
			flow->remote.family = 6;
			return parse_tcp(cursor, available, flow);
		case PROTOCOL_FRAGMENT:
			return VERDICT_FRAGMENT;
		case PROTOCOL_HOP_BY_HOP:
			/* RFC 8200 section 4.1: only right behind the fixed header. */
			if (headers != 0)
				return VERDICT_MALFORMED;
			break;
		case PROTOCOL_DESTINATION_OPTIONS:
		case PROTOCOL_ROUTING:
			break;
		default:
			/* Also what IPsec protects: only the kernel can judge it. */
			return VERDICT_NOT_TCP;
		}

		if (available < sizeof(*extension))
			return VERDICT_MALFORMED;
		if ((void *)(extension + 1) > cursor->end)
			return VERDICT_TRUNCATED;
		length = (extension->length + 1) * 8;
		if (length > available)
			return VERDICT_MALFORMED;
		/* RFC 8200 section 4.4: while segments are left the destination is a waypoint. */
		if (next == PROTOCOL_ROUTING && extension->segments_left != 0)
			return VERDICT_SOURCE_ROUTE;
		next = extension->next;
		available -= length;
		cursor->at += length;
	}
	return VERDICT_EXTENSION;
}

static __always_inline enum verdict parse(struct xdp_md *context, struct flow *flow)
{
	struct cursor cursor = {
		.at = (void *)(long)context->data,
		.end = (void *)(long)context->data_end,
		.frame = bpf_xdp_get_buff_len(context),
	};
	struct ethernet *ethernet = cursor.at;
	__be16 type;
	__u32 tags;

	if ((void *)(ethernet + 1) > cursor.end)
		return VERDICT_TRUNCATED;
	if (ethernet->destination[0] & 1)
		return VERDICT_GROUP_MAC;
	type = ethernet->type;
	cursor.at += sizeof(*ethernet);
	cursor.frame -= sizeof(*ethernet);

#pragma unroll
	for (tags = 0; tags < MAX_VLAN_TAGS; tags++) {
		struct vlan_tag *tag = cursor.at;

		if (type != bpf_htons(ETHERTYPE_VLAN) && type != bpf_htons(ETHERTYPE_QINQ))
			break;
		if ((void *)(tag + 1) > cursor.end)
			return VERDICT_TRUNCATED;
		type = tag->type;
		cursor.at += sizeof(*tag);
		cursor.frame -= sizeof(*tag);
	}

	switch (type) {
	case bpf_htons(ETHERTYPE_IPV4):
		return parse_ipv4(&cursor, flow);
	case bpf_htons(ETHERTYPE_IPV6):
		return parse_ipv6(&cursor, flow);
	case bpf_htons(ETHERTYPE_VLAN):
	case bpf_htons(ETHERTYPE_QINQ):
		return VERDICT_VLAN_DEPTH;
	default:
		return VERDICT_NOT_IP;
	}
}

#endif
