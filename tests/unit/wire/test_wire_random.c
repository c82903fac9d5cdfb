/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "body_rig.h"

/*
 * Golden bodies with random bytes in random places: each is either taken, and then encodes to the same bytes, or refused by the name of
 * a field. Then frames of random operations. The random numbers are the same in each run, so a failure can be seen again.
 */

enum {
	ROUNDS = 5000,
	FRAMES = 300,
	OPS = 64,
	ROOM = 1 << 16
};

static uint64_t state = 0x9e3779b97f4a7c15;

/* splitmix64, below @n */
static uint32_t
below(uint32_t n)
{
	uint64_t z = state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return (uint32_t)((z ^ (z >> 31)) % n);
}

/* Small numbers and the ends are drawn more often than chance would. */
static uint8_t
random_byte(void)
{
	static const uint8_t often[] = {0, 1, 2, 0x7f, 0x80, 0xff};

	return below(2) ? often[below(sizeof(often))] : (uint8_t)below(256);
}

START_LOOP_TEST(a_body_with_random_bytes_survives_the_round_trip_or_is_refused, 0, N_MSG_CODECS)
{
	const struct msg_codec *codec = &msg_codecs[_i];
	unsigned taken = 0;

	if (codec->golden_len == 0)
		return;
	for (int round = 0; round < ROUNDS; round++) {
		uint8_t bytes[256];
		const char *field;

		memcpy(bytes, codec->golden, codec->golden_len);
		for (uint32_t n = 1 + below(4); n > 0; n--)
			bytes[below(codec->golden_len)] = random_byte();
		taken += body_status(codec, bytes, codec->golden_len, GOLDEN_HASH_BYTES, &field) == SCOUT_WIRE_OK;
	}
	ck_assert_msg(taken > ROUNDS / 100, "%s: only %u are taken", codec->name, taken);
}
END_TEST

/* One frame of golden bodies of one direction; @order gets which codec each operation has. */
static size_t
put_random_frame(uint8_t *frame, uint8_t kind, uint8_t *order, uint32_t n)
{
	struct scout__writer w = {.buf = frame, .cap = ROOM};

	scout__frame_begin(&w);
	for (uint32_t i = 0; i < n; i++) {
		size_t op;

		do {
			order[i] = (uint8_t)below(N_MSG_CODECS);
		} while (msg_codecs[order[i]].kind != kind);
		op = scout__op_begin(&w, msg_codecs[order[i]].opcode, kind, 0, i + 1,
				     kind == SCOUT_KIND_REQUEST ? below(UINT32_MAX) : 0);
		scout__put_bytes(&w, msg_codecs[order[i]].golden, msg_codecs[order[i]].golden_len);
		scout__op_end(&w, op);
	}
	scout__frame_end(&w, n, below(UINT32_MAX), below(UINT32_MAX));
	ck_assert(!w.bad);
	return w.len;
}

START_LOOP_TEST(random_frames_are_taken_apart, SCOUT_KIND_REQUEST, SCOUT_KIND_REPLY + 1)
{
	const uint8_t kind = (uint8_t)_i;
	uint8_t frame[ROOM], order[OPS];

	for (int round = 0; round < FRAMES; round++) {
		uint32_t n = 1 + below(OPS), i = 0;
		size_t len = put_random_frame(frame, kind, order, n);
		uint8_t *exact = malloc(len);
		struct scout__frame head;
		struct scout__reader ops;
		struct scout__op op;

		ck_assert_ptr_nonnull(exact);
		memcpy(exact, frame, len);
		ck_assert_int_eq(scout__frame_check(exact, len, kind == SCOUT_KIND_REQUEST, &head), SCOUT_WIRE_OK);
		ops = scout__frame_ops(exact, len);
		for (; scout__frame_next(&ops, &op); i++) {
			const struct msg_codec *codec = &msg_codecs[order[i]];

			ck_assert_uint_eq(op.opcode, codec->opcode);
			ck_assert_uint_eq(op.kind, kind);
			ck_assert_uint_eq(op.corr, i + 1);
			ck_assert_uint_eq(op.length, codec->golden_len);
			ck_assert_mem_eq(op.body, codec->golden, op.length);
		}
		ck_assert_uint_eq(i, n);
		free(exact);
	}
}
END_TEST
