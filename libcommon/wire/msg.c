/* SPDX-License-Identifier: Apache-2.0 */
#include "msg.h"

#include <kvscout/error.h>

/*
 * DESIGN
 *
 * Frames and operation headers of the wire protocol, and the names of its numbers. Bodies: msg_internal.h.
 *
 * A frame is checked once, as a whole, before the first of its operations is looked at: "none of the operations of
 * such a frame is executed" needs no undoing then, and scout__frame_next() cannot fail half-way. The check reads 24
 * bytes for each operation and none of the bodies.
 *
 * Order of the checks: the magic says whether the rest means anything; then the version, since another version may
 * place every other field elsewhere; then sizes; then the operations from the first to the last, and the first fault
 * found is the answer. Bytes after the last operation are TRUNCATED, as missing bytes are: in both cases the length
 * is not the operations' length.
 *
 * Threads: any; no state. Everything here works on the caller's memory; the tables are constant.
 */

enum frame_field {
	FRAME_MAGIC = 0,
	FRAME_VERSION = 4,
	FRAME_RESERVED = 6,
	FRAME_LENGTH = 8,
	FRAME_OP_COUNT = 12,
	FRAME_EPOCH = 16,
	FRAME_SENT_US = 24
};

enum op_field {
	OP_OPCODE = 0,
	OP_KIND = 1,
	OP_STATUS = 2,
	OP_LENGTH = 4,
	OP_CORR = 8,
	OP_BUDGET_US = 16,
	OP_RESERVED = 20
};

/* Whether the fields of an operation header fit its direction. */
static bool
op_header_is_clean(const uint8_t *op, bool requests)
{
	uint64_t corr = scout__load_u64(op + OP_CORR);

	if (scout__load_u32(op + OP_RESERVED) != 0)
		return false;
	if (requests)
		return op[OP_KIND] == SCOUT_KIND_REQUEST && scout__load_u16(op + OP_STATUS) == 0 && corr != 0;
	/* An ERROR answers a frame whose correlation ids could not be read. */
	return op[OP_KIND] == SCOUT_KIND_REPLY && scout__load_u32(op + OP_BUDGET_US) == 0 &&
	       (corr != 0 || op[OP_OPCODE] == SCOUT_OP_ERROR);
}

/* Check that @left bytes at @op hold exactly @n clean operations. */
static int
check_ops(const uint8_t *op, size_t left, uint32_t n, bool requests)
{
	for (; n > 0; n--) {
		size_t whole;

		if (left < SCOUT_OP_HEADER_BYTES)
			return SCOUT_WIRE_TRUNCATED;
		if (scout__load_u32(op + OP_LENGTH) > left - SCOUT_OP_HEADER_BYTES)
			return SCOUT_WIRE_TRUNCATED;
		if (!op_header_is_clean(op, requests))
			return SCOUT_WIRE_BAD_RESERVED;
		whole = SCOUT_OP_HEADER_BYTES + (size_t)scout__load_u32(op + OP_LENGTH);
		op += whole;
		left -= whole;
	}
	return left == 0 ? SCOUT_WIRE_OK : SCOUT_WIRE_TRUNCATED;
}

int
scout__frame_check(const void *data, size_t len, bool requests, struct scout__frame *ret_frame)
{
	const uint8_t *p = data;
	struct scout__frame frame;
	int status;

	if (len < SCOUT_FRAME_HEADER_BYTES || scout__load_u32(p + FRAME_MAGIC) != SCOUT_WIRE_MAGIC)
		return -1;
	frame.version = scout__load_u16(p + FRAME_VERSION);
	frame.length = scout__load_u32(p + FRAME_LENGTH);
	frame.op_count = scout__load_u32(p + FRAME_OP_COUNT);
	frame.epoch = scout__load_u64(p + FRAME_EPOCH);
	frame.sent_us = scout__load_u64(p + FRAME_SENT_US);

	if (frame.version != SCOUT_WIRE_VERSION)
		return SCOUT_WIRE_BAD_VERSION;
	if (len > SCOUT_MAX_FRAME || frame.op_count == 0 || frame.op_count > SCOUT_MAX_OPS)
		return SCOUT_WIRE_TOO_LARGE;
	if (frame.length != len)
		return SCOUT_WIRE_TRUNCATED;
	if (scout__load_u16(p + FRAME_RESERVED) != 0)
		return SCOUT_WIRE_BAD_RESERVED;
	status = check_ops(p + SCOUT_FRAME_HEADER_BYTES, len - SCOUT_FRAME_HEADER_BYTES, frame.op_count, requests);
	if (status != SCOUT_WIRE_OK)
		return status;
	*ret_frame = frame;
	return SCOUT_WIRE_OK;
}

unsigned
scout__frame_version(const void *data)
{
	return scout__load_u16((const uint8_t *)data + FRAME_VERSION);
}

struct scout__reader
scout__frame_ops(const void *data, size_t len)
{
	struct scout__reader ops = scout__reader_of(data, len);

	(void)scout__get_bytes(&ops, SCOUT_FRAME_HEADER_BYTES); /* too short: latched, and next() ends at once */
	return ops;
}

bool
scout__frame_next(struct scout__reader *ops, struct scout__op *ret_op)
{
	const uint8_t *head, *body;
	uint32_t length;

	if (ops->bad || ops->left == 0)
		return false;
	head = scout__get_bytes(ops, SCOUT_OP_HEADER_BYTES);
	if (!head)
		return false;
	length = scout__load_u32(head + OP_LENGTH);
	body = scout__get_bytes(ops, length);
	if (!body)
		return false;
	ret_op->opcode = head[OP_OPCODE];
	ret_op->kind = head[OP_KIND];
	ret_op->status = scout__load_u16(head + OP_STATUS);
	ret_op->length = length;
	ret_op->budget_us = scout__load_u32(head + OP_BUDGET_US);
	ret_op->corr = scout__load_u64(head + OP_CORR);
	ret_op->body = body;
	return true;
}

void
scout__frame_begin(struct scout__writer *w)
{
	scout__put_u32(w, SCOUT_WIRE_MAGIC);
	scout__put_u16(w, SCOUT_WIRE_VERSION);
	scout__put_u16(w, 0);
	scout__put_u32(w, 0); /* from here on: scout__frame_end() */
	scout__put_u32(w, 0);
	scout__put_u64(w, 0);
	scout__put_u64(w, 0);
}

size_t
scout__op_begin(struct scout__writer *w, uint8_t opcode, uint8_t kind, uint16_t status, uint64_t corr,
		uint32_t budget_us)
{
	size_t offset = w->len;

	scout__put_u8(w, opcode);
	scout__put_u8(w, kind);
	scout__put_u16(w, status);
	scout__put_u32(w, 0); /* scout__op_end() */
	scout__put_u64(w, corr);
	scout__put_u32(w, budget_us);
	scout__put_u32(w, 0);
	return offset;
}

void
scout__op_end(struct scout__writer *w, size_t op_offset)
{
	if (w->bad)
		return;
	if (w->len > SCOUT_MAX_FRAME) {
		w->bad = true;
		return;
	}
	scout__patch_u32(w, op_offset + OP_LENGTH, (uint32_t)(w->len - op_offset - SCOUT_OP_HEADER_BYTES));
}

void
scout__frame_end(struct scout__writer *w, uint32_t op_count, uint64_t epoch, uint64_t sent_us)
{
	/* A frame that no peer would accept must not look finished. */
	if (w->len > SCOUT_MAX_FRAME || op_count == 0 || op_count > SCOUT_MAX_OPS)
		w->bad = true;
	if (w->bad)
		return;
	scout__patch_u32(w, FRAME_LENGTH, (uint32_t)w->len);
	scout__patch_u32(w, FRAME_OP_COUNT, op_count);
	scout__patch_u64(w, FRAME_EPOCH, epoch);
	scout__patch_u64(w, FRAME_SENT_US, sent_us);
}

/* "op 0" to "op 255": an opcode is one byte, so a table needs no buffer with an owner. */
#define TEN_OPS(tens)                                                                                                  \
	("op " tens "0"), ("op " tens "1"), ("op " tens "2"), ("op " tens "3"), ("op " tens "4"), ("op " tens "5"),    \
		("op " tens "6"), ("op " tens "7"), ("op " tens "8"), ("op " tens "9")

static const char *const op_numbers[] = {
	TEN_OPS(""),   TEN_OPS("1"),  TEN_OPS("2"),  TEN_OPS("3"),  TEN_OPS("4"),  TEN_OPS("5"),  TEN_OPS("6"),
	TEN_OPS("7"),  TEN_OPS("8"),  TEN_OPS("9"),  TEN_OPS("10"), TEN_OPS("11"), TEN_OPS("12"), TEN_OPS("13"),
	TEN_OPS("14"), TEN_OPS("15"), TEN_OPS("16"), TEN_OPS("17"), TEN_OPS("18"), TEN_OPS("19"), TEN_OPS("20"),
	TEN_OPS("21"), TEN_OPS("22"), TEN_OPS("23"), TEN_OPS("24"), TEN_OPS("25"),
};
#undef TEN_OPS

static const char *const op_names[] = {
	[SCOUT_OP_HELLO] = "HELLO",
	[SCOUT_OP_PING] = "PING",
	[SCOUT_OP_LOOKUP] = "LOOKUP",
	[SCOUT_OP_ADMIT] = "ADMIT",
	[SCOUT_OP_FINISH] = "FINISH",
	[SCOUT_OP_RESET] = "RESET",
	[SCOUT_OP_REGISTER] = "REGISTER",
	[SCOUT_OP_STORE] = "STORE",
	[SCOUT_OP_STORE_DONE] = "STORE_DONE",
	[SCOUT_OP_RETRIEVE] = "RETRIEVE",
	[SCOUT_OP_RETRIEVE_DONE] = "RETRIEVE_DONE",
	[SCOUT_OP_STATUS] = "STATUS",
	[SCOUT_OP_ERROR] = "ERROR",
	[SCOUT_OP_CLEAR] = "CLEAR",
	[SCOUT_OP_KEYS] = "KEYS",
	[SCOUT_OP_PEERS] = "PEERS",
	[SCOUT_OP_TENANTS] = "TENANTS",
	[SCOUT_OP_DROP] = "DROP",
	[SCOUT_OP_FEED] = "FEED",
};
_Static_assert(sizeof(op_names) / sizeof(op_names[0]) == SCOUT_OP_LAST + 1, "an opcode has no name");

/* One row has all about a wire status, so that a new status cannot get a name without an error. */
#define STATUS(name, error) [SCOUT_WIRE_##name] = {#name, error}

static const struct {
	const char *name;
	int error;
} statuses[] = {
	STATUS(OK, 0),
	STATUS(TRUNCATED, SCOUT_ERR_PROTOCOL),
	STATUS(BAD_VERSION, SCOUT_ERR_VERSION),
	STATUS(TOO_LARGE, SCOUT_ERR_PROTOCOL),
	STATUS(BAD_RESERVED, SCOUT_ERR_PROTOCOL),
	STATUS(BAD_BODY, SCOUT_ERR_PROTOCOL),
	STATUS(UNKNOWN_OP, SCOUT_ERR_PROTOCOL),
	STATUS(NO_HELLO, SCOUT_ERR_EPOCH),
	STATUS(STALE_EPOCH, SCOUT_ERR_EPOCH),
	STATUS(EXPIRED, SCOUT_ERR_TIMEOUT),
	STATUS(NAMESPACE, SCOUT_ERR_NAMESPACE),
	STATUS(SHARD_BYTES, SCOUT_ERR_SHARD_BYTES),
	STATUS(NO_SESSION, SCOUT_ERR_NO_SESSION),
	STATUS(STATE, SCOUT_ERR_STATE),
	STATUS(LIMIT, SCOUT_ERR_LIMIT),
	STATUS(NO_ROOM, SCOUT_ERR_NO_ROOM),
	STATUS(WEIGHTS, SCOUT_ERR_WEIGHTS),
	STATUS(RANGE, SCOUT_ERR_PROTOCOL),
	STATUS(SHUTDOWN, SCOUT_ERR_UNREACHABLE),
	STATUS(ROLE, SCOUT_ERR_PROTOCOL),
	STATUS(CLEARED, SCOUT_ERR_CLEARED),
	STATUS(UNSUPPORTED, SCOUT_ERR_UNSUPPORTED),
	STATUS(GROUPS_DIFFER, SCOUT_ERR_GROUPS_DIFFER),
	STATUS(GROUP, SCOUT_ERR_GROUP),
	STATUS(GROUP_LIMIT, SCOUT_ERR_GROUP_LIMIT),
	STATUS(SECRET, SCOUT_ERR_PERMISSION),
	STATUS(RIGHTS, SCOUT_ERR_PERMISSION),
};
#undef STATUS
_Static_assert(sizeof(statuses) / sizeof(statuses[0]) == SCOUT_WIRE_LAST + 1, "a wire status has no row");

const char *
scout__op_name(unsigned opcode)
{
	if (opcode >= 1 && opcode <= SCOUT_OP_LAST)
		return op_names[opcode];
	return opcode <= UINT8_MAX ? op_numbers[opcode] : "op ?";
}

const char *
scout__wire_name(unsigned status)
{
	return status <= SCOUT_WIRE_LAST ? statuses[status].name : "unknown status";
}

int
scout__wire_error(unsigned status)
{
	return status <= SCOUT_WIRE_LAST ? statuses[status].error : SCOUT_ERR_PROTOCOL;
}
