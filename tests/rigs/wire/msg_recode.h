/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_MSG_RECODE_H
#define KVSCOUT_TESTS_MSG_RECODE_H

#include "msg.h"

/*
 * Decode a body and encode what was decoded: the same bytes must come out, since no two bodies mean the same. One row
 * for each body of the protocol, so the unit tests and the fuzzer cannot forget one.
 */
struct msg_codec {
	const char *name;
	uint8_t opcode, kind;
	/* The status of the get. When that is OK, @w has got the bytes again. */
	int (*recode)(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w, const char **ret_field);
};

enum {
	N_MSG_CODECS = 2 * SCOUT_OP_LAST - 1 /* a request and a reply for each opcode; ERROR has a reply only */
};

extern const struct msg_codec msg_codecs[]; /* N_MSG_CODECS of them */

#endif
