/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * Groups of layers as the key `group` names them and as HELLO carries them: which policy, and in which units their KV is
 * stored. A group's number is its place in the array. All fields hold resolved values: no 0 stands for a default.
 */

#define SCOUT__GROUPS_MAX 32u

/* The numbers are those of the wire. */
enum scout__policy {
	SCOUT__POLICY_ALL = 0, /* every unit up to the length */
	SCOUT__POLICY_WINDOW,  /* the units in which the last span_tokens tokens of the length lie */
	SCOUT__POLICY_LOCAL,   /* the units of the run of span_tokens tokens in which the length's last token lies */
	SCOUT__POLICY_STATE    /* the unit that ends at exactly the length */
};
#define SCOUT__POLICY_LAST SCOUT__POLICY_STATE

struct scout__group {
	uint16_t policy;  /* enum scout__policy */
	uint16_t readers; /* workers that read each shard */
	uint32_t unit_tokens;
	uint32_t span_tokens;   /* of window and local; else 0 */
	uint32_t margin_tokens; /* beyond the length */
};

struct scout__groups {
	uint32_t n; /* 1..SCOUT__GROUPS_MAX */
	struct scout__group group[SCOUT__GROUPS_MAX];
};
