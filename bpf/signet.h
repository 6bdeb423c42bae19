/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The layouts that programs and user space share. Integers are in the byte
 * order of the machine, except addresses, which stand as in a packet. A change
 * of any layout here needs a new SIGNET_LAYOUT_VERSION.
 */
#pragma once

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* How many selectors a row has room for, in words of 64. The one place. */
#define SIGNET_SELECTOR_WORDS 4

enum signet_layout {
	SIGNET_MAGIC          = 0x5349474e, /* "SIGN" */
	SIGNET_LAYOUT_VERSION = 1,
	SIGNET_ROW_WORDS      = 1 + SIGNET_SELECTOR_WORDS, /* header + bitmap */
	SIGNET_ROW_NONE       = 0, /* never valid: what a zeroed value points to */
	SIGNET_ROW_DENY       = 1, /* known addresses whose number is dead */
	SIGNET_ROW_FIRST      = 2, /* the first row for a number */
	SIGNET_KEY_FIXED_BITS = 32, /* cluster_id, pad, family: always matched */
	SIGNET_CHECK_SEED     = 0x5169e7,
};

enum signet_family {
	SIGNET_IPV4 = 1,
	SIGNET_IPV6 = 2,
};

enum signet_row_flags {
	SIGNET_ROW_VALID   = 1 << 0, /* in use */
	SIGNET_ROW_DENIED  = 1 << 1, /* whoever has this row is denied */
	SIGNET_ROW_CLEARED = 1 << 2, /* no longer in use, not yet to be reused */
};

/*
 * 24 bytes, byte for byte the key of cilium_ipcache_v2. In the exact hash the
 * same bytes are compared whole; prefixlen is then 32 + 32 or 32 + 128.
 */
struct signet_addr_key {
	__u32 prefixlen; /* SIGNET_KEY_FIXED_BITS + bits of the address prefix */
	__u16 cluster_id;
	__u8 pad;
	__u8 family; /* enum signet_family */
	__u8 addr[16]; /* IPv4 in the first 4 bytes, the rest zero */
};

/* 8 bytes, written and (in the hash) read as one 64-bit word. */
struct signet_addr_value {
	__u32 row;
	__u32 check; /* signet_check() of the key this value was written for */
};

/* 40 bytes; a multiple of 8, so the stride of the mapped array is the same. */
struct signet_row {
	__u32 number;
	__u32 flags; /* enum signet_row_flags */
	__u64 selectors[SIGNET_SELECTOR_WORDS]; /* bit s set = selector s matches */
};

/* The one element of signet_meta. */
struct signet_meta {
	__u32 magic;
	__u32 layout;
	__u32 row_size;
	__u32 selector_words;
};

_Static_assert(sizeof(struct signet_addr_key) == 24, "address key");
_Static_assert(sizeof(struct signet_addr_value) == 8, "address value");
_Static_assert(sizeof(struct signet_row) == 8 * SIGNET_ROW_WORDS, "row");
_Static_assert(sizeof(struct signet_row) % 8 == 0, "row stride");

static __always_inline __u32 signet_rotl(__u32 x, int n)
{
	return (x << n) | (x >> (32 - n));
}

/*
 * The check word of a key. The six 32-bit words of the key go one after the
 * other through a multiply-rotate mix (the construction of MurmurHash3), the
 * end is avalanched, and the low byte is replaced by the number of address bits.
 * So 24 bits vouch for the whole key, and a value read from the trie tells
 * itself for which prefix length it was written. bpf.Check in Go is its twin.
 */
static __always_inline __u32 signet_check(const struct signet_addr_key *key)
{
	const __u32 *word = (const __u32 *)key;
	__u32 h = SIGNET_CHECK_SEED;

	for (int i = 0; i < 6; i++) {
		__u32 k = word[i] * 0xcc9e2d51;

		k = signet_rotl(k, 15) * 0x1b873593;
		h = signet_rotl(h ^ k, 13) * 5 + 0xe6546b64;
	}
	h ^= sizeof(*key);
	h = (h ^ (h >> 16)) * 0x85ebca6b;
	h = (h ^ (h >> 13)) * 0xc2b2ae35;
	h ^= h >> 16;
	return (h & 0xffffff00) | (key->prefixlen - SIGNET_KEY_FIXED_BITS);
}
