/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_MSG_GOLDEN_H
#define KVSCOUT_TESTS_MSG_GOLDEN_H

#include "msg.h"

/*
 * One body of every kind, byte by byte as <kvscout/protocol.h> orders them. Written by hand from that file and not by
 * the codec: this is what a stranger's client would send. Hashes have 16 bytes. Where a range allows it, all bytes of
 * a number differ, so that a wrong order, width or place is seen.
 */

enum {
	GOLDEN_HASH_BYTES = 16,
	N_GOLDENS = 2 * SCOUT_OP_LAST - 1 /* a request and a reply for each opcode; ERROR has a reply only */
};

struct golden {
	uint8_t opcode, kind;
	const uint8_t *body;
	uint32_t len;
};

extern const uint8_t golden_lookup[];
extern const uint8_t golden_store[];
extern const uint8_t golden_keys[];

/* NULL: there is none. */
const struct golden *golden_of(uint8_t opcode, uint8_t kind);

#endif
