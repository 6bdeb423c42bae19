// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//go:build ignore

/*
 * signet_lookup tells whose address a packet carries. It is run through
 * BPF_PROG_TEST_RUN, by tests and by the tools that explain an address; it
 * changes no packet and is attached nowhere.
 *
 * In:  an Ethernet frame with IPv4 or IPv6; mark 0 = source, 1 = destination.
 * Out: cb[0] verdict, cb[1] number, cb[2] flags, cb[3] row, cb[4] the check
 *      word of the full address. Returns TC_ACT_UNSPEC when the frame is not
 *      IP, TC_ACT_SHOT for a denied address, else TC_ACT_OK.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include "address.h"

/* Byte offsets of the addresses behind the start of the IP header. */
enum {
	IPV4_SOURCE      = 12,
	IPV4_DESTINATION = 16,
	IPV6_SOURCE      = 8,
	IPV6_DESTINATION = 24,
};

/* Fills the key with the wanted address; -1 when the frame is not IP. */
static __always_inline int frame_key(struct __sk_buff *skb, struct signet_addr_key *key)
{
	__u32 destination = skb->mark;
	int offset;

	switch (skb->protocol) {
	case bpf_htons(ETH_P_IP):
		key->family = SIGNET_IPV4;
		key->prefixlen = SIGNET_KEY_FIXED_BITS + 32;
		offset = ETH_HLEN + (destination ? IPV4_DESTINATION : IPV4_SOURCE);
		return bpf_skb_load_bytes(skb, offset, key->addr, 4);
	case bpf_htons(ETH_P_IPV6):
		key->family = SIGNET_IPV6;
		key->prefixlen = SIGNET_KEY_FIXED_BITS + 128;
		offset = ETH_HLEN + (destination ? IPV6_DESTINATION : IPV6_SOURCE);
		return bpf_skb_load_bytes(skb, offset, key->addr, 16);
	}
	return -1;
}

SEC("tc")
int signet_lookup(struct __sk_buff *skb)
{
	struct signet_addr_key key = {};
	struct signet_result res;

	if (frame_key(skb, &key) < 0)
		return TC_ACT_UNSPEC;
	signet_lookup_key(&key, &res);
	skb->cb[0] = res.verdict;
	skb->cb[1] = res.number;
	skb->cb[2] = res.flags;
	skb->cb[3] = res.row;
	skb->cb[4] = signet_check(&key);
	return res.verdict == SIGNET_DENY ? TC_ACT_SHOT : TC_ACT_OK;
}


char LICENSE[] SEC("license") = "Dual BSD/GPL";
