/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "msg.h"

/*
 * One row for each body of the protocol, so that neither the unit tests nor the fuzzer can forget one: its golden bytes, and how it is
 * decoded and what was decoded is encoded. The same bytes must come out, since no two bodies mean the same.
 */
struct msg_codec {
	const char *name;
	uint8_t opcode, kind;
	/* The status of the get. When that is OK, @w has got the bytes again. */
	int (*recode)(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w, const char **ret_field);
	const uint8_t *golden;
	uint32_t golden_len;
};

enum {
	GOLDEN_HASH_BYTES = 16,
	N_MSG_CODECS = 2 * SCOUT_OP_LAST - 1 /* a request and a reply for each opcode; ERROR has a reply only */
};

extern const struct msg_codec msg_codecs[]; /* N_MSG_CODECS of them */

/* NULL: there is none. */
const struct msg_codec *codec_of(uint8_t opcode, uint8_t kind);
