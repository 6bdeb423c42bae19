/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The address maps and the one way to ask them. */
#pragma once

#include <linux/bpf.h>
#include "signet.h"

/* Sizes are set by the loader; these are what bare tools get. */
#define SIGNET_ADDRESSES 512000
#define SIGNET_ROWS      131072

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SIGNET_ADDRESSES);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__type(key, struct signet_addr_key);
	__type(value, struct signet_addr_value);
} signet_ipcache SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, SIGNET_ADDRESSES);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__type(key, struct signet_addr_key);
	__type(value, struct signet_addr_value);
} signet_ipcache_lpm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SIGNET_ROWS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct signet_row);
} signet_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__type(key, __u32);
	__type(value, struct signet_meta);
} signet_meta SEC(".maps");

enum signet_verdict {
	SIGNET_MISS = 0, /* no entry: world */
	SIGNET_HIT  = 1, /* an entry with a live number */
	SIGNET_DENY = 2, /* known and denied, or an entry that does not prove itself */
};

struct signet_result {
	__u32 verdict; /* enum signet_verdict */
	__u32 number;
	__u32 flags;
	__u32 row;
};

enum signet_proof {
	SIGNET_ABSENT,
	SIGNET_PROVEN,
	SIGNET_UNPROVEN,
};

/*
 * A value of the hash is one aligned word, because its element may be recycled
 * for another key while we hold the pointer: both halves must be of one moment.
 */
static __always_inline int signet_ask_hash(const struct signet_addr_key *key,
					   __u32 check, __u32 *row)
{
	const volatile __u64 *found = bpf_map_lookup_elem(&signet_ipcache, key);
	struct signet_addr_value value;
	__u64 word;

	if (!found)
		return SIGNET_ABSENT;
	word = *found;
	__builtin_memcpy(&value, &word, sizeof(value));
	*row = value.row;
	return value.check == check ? SIGNET_PROVEN : SIGNET_UNPROVEN;
}

/* Keeps the first bits of the address and clears the rest. */
static __always_inline void signet_mask(struct signet_addr_key *key, __u32 bits)
{
	for (int i = 0; i < 16; i++) {
		__u32 left = bits > 8 * i ? bits - 8 * i : 0;

		if (left < 8)
			key->addr[i] &= (__u8)(0xff00 >> left);
	}
	key->prefixlen = SIGNET_KEY_FIXED_BITS + bits;
}

/*
 * A node of the trie never changes once it can be found, and its memory is
 * freed after a grace period; so two 32-bit loads do (the value stands at a
 * multiple of 4 there). It vouches for its own prefix, not for the whole address.
 */
static __always_inline int signet_ask_trie(const struct signet_addr_key *key, __u32 *row)
{
	const struct signet_addr_value *found = bpf_map_lookup_elem(&signet_ipcache_lpm, key);
	struct signet_addr_key prefix = *key;
	__u32 check, bits;

	if (!found)
		return SIGNET_ABSENT;
	*row = found->row;
	check = found->check;
	bits = check & 0xff;
	if (bits > key->prefixlen - SIGNET_KEY_FIXED_BITS)
		return SIGNET_UNPROVEN;
	signet_mask(&prefix, bits);
	return signet_check(&prefix) == check ? SIGNET_PROVEN : SIGNET_UNPROVEN;
}

/* The one step from a row index to what the row says. */
static __always_inline void signet_read_row(__u32 row, struct signet_result *res)
{
	const volatile __u64 *header = bpf_map_lookup_elem(&signet_rows, &row);
	__u32 half[2];
	__u64 word;

	res->row = row;
	res->verdict = SIGNET_DENY;
	if (!header)
		return;
	word = *header;
	__builtin_memcpy(half, &word, sizeof(half));
	if (!(half[1] & SIGNET_ROW_VALID))
		return;
	res->number = half[0];
	res->flags = half[1];
	if (!(half[1] & SIGNET_ROW_DENIED))
		res->verdict = SIGNET_HIT;
}

/*
 * Asks the hash, then the trie. An unproven value is asked for once more: if
 * the element was recycled under us, the second answer is the true one. If it
 * still does not prove itself the address is denied; it never falls through to
 * a shorter prefix or to world.
 */
static __always_inline void signet_lookup_key(const struct signet_addr_key *key,
					      struct signet_result *res)
{
	__u32 check = signet_check(key);
	__u32 row = SIGNET_ROW_NONE;
	int proof;

	__builtin_memset(res, 0, sizeof(*res));
	proof = signet_ask_hash(key, check, &row);
	if (proof == SIGNET_UNPROVEN)
		proof = signet_ask_hash(key, check, &row);
	if (proof == SIGNET_ABSENT) {
		proof = signet_ask_trie(key, &row);
		if (proof == SIGNET_UNPROVEN)
			proof = signet_ask_trie(key, &row);
	}
	if (proof == SIGNET_ABSENT)
		return;
	if (proof == SIGNET_UNPROVEN) {
		res->verdict = SIGNET_DENY;
		res->row = row;
		return;
	}
	signet_read_row(row, res);
}
