/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "msg_recode.h"
#include "fuzz.h"

/*
 * DESIGN
 *
 * The codec against hostile bytes. An input is taken three ways: as a frame by a server and by a client, as a bare
 * body by every get (a mutation rarely gets the three lengths around a body right), and as a message of the lease
 * connection. What is accepted must encode to the very bytes that came in. Everything lies in heap blocks of exactly
 * its size, so that the address sanitizer sees a read or a write one byte too far.
 */

static uint8_t *
exact_block(const uint8_t *data, size_t size)
{
	uint8_t *block = calloc(size > 0 ? size : 1, 1);

	MUST(block);
	if (size > 0)
		memcpy(block, data, size);
	return block;
}

/* One body through one get; @buf has as much room as the body has bytes. */
static void
try_codec(const struct msg_codec *codec, const struct scout__op *op, unsigned hash_bytes, uint8_t *buf)
{
	struct scout__writer w = {.buf = buf, .cap = op->length};
	const char *field = NULL;
	int status = codec->recode(op, hash_bytes, &w, &field);

	if (status == SCOUT_WIRE_OK) {
		MUST(!w.bad && w.len == op->length);
		MUST(w.len == 0 || memcmp(buf, op->body, w.len) == 0);
		return;
	}
	MUST(status == SCOUT_WIRE_BAD_BODY || status == SCOUT_WIRE_RANGE || status == SCOUT_WIRE_GROUP_LIMIT);
	MUST(field && field[0] != '\0');
	MUST(w.len == 0);
}

static void
try_all_codecs(const struct scout__op *op)
{
	uint8_t *buf = malloc(op->length > 0 ? op->length : 1);

	MUST(buf);
	for (int i = 0; i < N_MSG_CODECS; i++) {
		struct scout__op as = *op;

		as.opcode = msg_codecs[i].opcode;
		try_codec(&msg_codecs[i], &as, SCOUT_MIN_HASH, buf);
		try_codec(&msg_codecs[i], &as, SCOUT_MAX_HASH, buf);
	}
	free(buf);
}

/* The reply to a LOOKUP with AHEAD, whose maps follow from the groups that the client has said at HELLO. */
static void
try_ahead(const struct scout__op *op, const struct scout__groups *groups, uint32_t hash_tokens, uint8_t *buf)
{
	struct scout__writer w = {.buf = buf, .cap = op->length};
	struct scout__ahead_groups m;
	const char *field = NULL;
	int status = scout__get_ahead_groups(op, groups, hash_tokens, &m, &field);

	if (status != SCOUT_WIRE_OK) {
		MUST(status == SCOUT_WIRE_BAD_BODY || status == SCOUT_WIRE_RANGE);
		MUST(field && field[0] != '\0');
		return;
	}
	scout__put_lookup_reply(&w, &m.lookup);
	scout__put_u32(&w, m.known);
	scout__put_u32(&w, 0);
	for (uint32_t g = 0; g < groups->n; g++) {
		MUST(m.of[g].n == (uint64_t)m.known * hash_tokens / groups->group[g].unit_tokens);
		scout__put_bytes(&w, m.of[g].present, (m.of[g].n + (size_t)7) / 8);
		scout__put_bytes(&w, m.of[g].in_l2, (m.of[g].n + (size_t)7) / 8);
	}
	MUST(!w.bad && w.len == op->length && memcmp(buf, op->body, w.len) == 0);
}

/* Of one group, of three with other units, and of as many as there may be. */
static void
try_ahead_groups(const struct scout__op *op)
{
	static const uint32_t numbers[] = {1, 3, SCOUT_MAX_GROUPS};
	uint8_t *buf = malloc(op->length > 0 ? op->length : 1);

	MUST(buf);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct scout__groups groups = {.n = numbers[i]};

		for (uint32_t g = 0; g < groups.n; g++)
			groups.group[g].unit_tokens = 16 * (1 + g % 4);
		try_ahead(op, &groups, 16, buf);
	}
	free(buf);
}

static void
copy_op(struct scout__writer *w, const struct scout__op *op)
{
	size_t offset = scout__op_begin(w, op->opcode, op->kind, op->status, op->corr, op->budget_us);

	scout__put_bytes(w, op->body, op->length);
	scout__op_end(w, offset);
}

static void
try_frame(const uint8_t *data, size_t size, bool requests)
{
	struct scout__frame frame;
	struct scout__writer w = {.cap = size};
	struct scout__reader ops;
	struct scout__op op;
	uint32_t n = 0;
	int status = scout__frame_check(data, size, requests, &frame);

	if (status != SCOUT_WIRE_OK) {
		MUST(status == -1 || (status >= SCOUT_WIRE_TRUNCATED && status <= SCOUT_WIRE_BAD_RESERVED));
		return;
	}
	w.buf = malloc(size);
	MUST(w.buf);
	scout__frame_begin(&w);
	ops = scout__frame_ops(data, size);
	for (; scout__frame_next(&ops, &op); n++) {
		MUST(op.kind == (requests ? SCOUT_KIND_REQUEST : SCOUT_KIND_REPLY));
		MUST(scout__op_name(op.opcode) && scout__wire_name(op.status));
		try_all_codecs(&op);
		copy_op(&w, &op);
	}
	MUST(scout__reader_done(&ops) && n == frame.op_count);
	scout__frame_end(&w, n, frame.epoch, frame.sent_us);
	MUST(!w.bad && w.len == size && memcmp(w.buf, data, size) == 0);
	free(w.buf);
}

static void
try_lease(const uint8_t *data, size_t size)
{
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	struct scout__lease_msg m;

	if (!scout__get_lease(data, size, &m))
		return;
	MUST(scout__put_lease(buf, &m) == size);
	MUST(memcmp(buf, data, size) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *block = exact_block(data, size);
	const struct scout__op bare = {.length = (uint32_t)size, .body = block};

	try_frame(block, size, true);
	try_frame(block, size, false);
	if (size <= UINT32_MAX) {
		try_all_codecs(&bare);
		try_ahead_groups(&bare);
	}
	try_lease(block, size);
	free(block);
	return 0;
}
