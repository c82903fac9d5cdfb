/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "msg_recode.h"

/*
 * Round trips with random contents. Every body is put from random fields inside their ranges, many of them into one
 * frame; then the frame is checked and taken apart, and every body must decode and encode to the bytes that were put.
 * The random numbers are the same in each run, so a failure can be seen again.
 */

enum {
	ROUNDS = 300,
	ROOM = 1 << 20
};

static uint64_t state = 0x9e3779b97f4a7c15;

/* splitmix64 */
static uint64_t
random_u64(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

/* @min and @max included; the ends are drawn more often than chance would. */
static uint32_t
between(uint32_t min, uint32_t max)
{
	switch (random_u64() % 8) {
	case 0:
		return min;
	case 1:
		return max;
	default:
		return min + (uint32_t)(random_u64() % ((uint64_t)max - min + 1));
	}
}

static uint64_t
not_zero(void)
{
	uint64_t v = random_u64() >> between(0, 63);

	return v > 0 ? v : 1;
}

static uint8_t noise[1 << 16];
static char printable[1 << 10];

static struct scout__str
random_str(uint32_t min, uint32_t max)
{
	return (struct scout__str){.p = (const char *)noise + between(0, 100), .len = (uint16_t)between(min, max)};
}

static struct scout__clear_state
random_clear_state(void)
{
	struct scout__clear_state m = {.joined = random_u64() >> 2};

	if (random_u64() & 1) {
		m.generation = not_zero() >> 1 | 1;
		m.cleared = (not_zero() >> 2) + 1;
	}
	return m;
}

/* Of characters that a name may have. */
static struct scout__str
random_name(uint32_t min, uint32_t max)
{
	return (struct scout__str){.p = printable + between(0, 100), .len = (uint16_t)between(min, max)};
}

static void
put_random_hello(struct scout__writer *w, unsigned hash_bytes)
{
	uint16_t kv_ranks = (uint16_t)between(1, SCOUT_MAX_RANKS);
	uint16_t rank_count = (uint16_t)between(1, kv_ranks);
	struct scout__hello m = {
		.token = not_zero(),
		.role = (uint16_t)between(SCOUT_ROLE_CLIENT, SCOUT_ROLE_WORKER),
		.hash_bytes = (uint16_t)hash_bytes,
		.chunk_tokens = between(1, UINT32_MAX),
		.rank_first = (uint16_t)between(0, (uint32_t)kv_ranks - rank_count),
		.rank_count = rank_count,
		.kv_ranks = kv_ranks,
		.readers = (uint16_t)between(1, SCOUT_MAX_READERS),
		.heartbeat_ms = (uint32_t)random_u64(),
		.weights = random_u64(),
		.clear = random_clear_state(),
		.name_space = random_name(1, SCOUT_MAX_NAME),
	};

	m.hash_tokens = between(1, 512);
	m.groups.n = between(1, SCOUT_MAX_GROUPS);
	for (uint32_t i = 0; i < m.groups.n; i++) {
		uint16_t policy = (uint16_t)between(0, SCOUT_POLICY_LAST);
		bool has_span = policy == SCOUT_POLICY_WINDOW || policy == SCOUT_POLICY_LOCAL;

		m.groups.group[i] = (struct scout__group){
			.policy = policy,
			.readers = (uint16_t)between(1, SCOUT_MAX_READERS),
			.unit_tokens = m.hash_tokens * between(1, 4096),
			.span_tokens = has_span ? between(1, UINT32_MAX) : 0,
			.margin_tokens = (uint32_t)random_u64(),
		};
	}
	scout__put_hello(w, &m);
}

static void
put_random_hello_reply(struct scout__writer *w)
{
	const struct scout__hello_reply m = {
		.credits = (uint32_t)random_u64(),
		.max_frame = (uint32_t)random_u64(),
		.weights = random_u64(),
		.clear = random_clear_state(),
		.software = random_str(0, 300),
		.lease_path = random_str(0, 107),
	};

	scout__put_hello_reply(w, &m);
}

static void
put_random_lookup(struct scout__writer *w, unsigned hash_bytes)
{
	uint32_t n = between(1, 40);
	uint16_t flags = (uint16_t)between(0, SCOUT_LOOKUP_AHEAD);
	uint32_t first = between(0, SCOUT_MAX_CHUNKS - n), beyond = between(0, n), end = first + n - beyond;
	const struct scout__lookup_msg m = {
		.ticket = not_zero(),
		.n = n,
		.first = first,
		.beyond = beyond,
		.skip = flags & SCOUT_LOOKUP_AHEAD ? first : between(first, end),
		.expect = flags & SCOUT_LOOKUP_RENEW ? 0 : between(0, end),
		.more = (uint16_t)between(0, SCOUT_MAX_LENGTHS - 1),
		.flags = flags,
		.poll_timeout_ms = (uint32_t)random_u64(),
		.poll_interval_ms = (uint32_t)random_u64(),
		.tenant = random_name(0, SCOUT_MAX_NAME),
		.hashes = noise + between(0, 1000),
	};

	scout__put_lookup(w, &m, hash_bytes);
}

static void
put_random_lookup_reply(struct scout__writer *w)
{
	uint32_t hit = between(0, SCOUT_MAX_CHUNKS), length = hit, n_more = 0;
	uint8_t lengths[SCOUT_MAX_LENGTHS * sizeof(uint32_t)];
	struct scout__writer more = {.buf = lengths, .cap = sizeof(lengths)};
	struct scout__lookup_reply m = {
		.hit = hit, .l1 = between(0, hit), .l2 = between(0, hit), .limited = between(0, 1)};

	for (uint32_t n = between(0, SCOUT_MAX_LENGTHS - 1); n_more < n && length > 1; n_more++)
		scout__put_u32(&more, length = between(1, length - 1));
	m.n_more = n_more;
	m.more = lengths;
	scout__put_lookup_reply(w, &m);
}

static void
put_random_register(struct scout__writer *w)
{
	uint64_t planes[100];
	const struct scout__register_msg m = {
		.kv_rank = (uint16_t)between(0, SCOUT_MAX_RANKS - 1),
		.reader = (uint16_t)between(0, SCOUT_MAX_READERS - 1),
		.numa = (uint16_t)random_u64(),
		.n_tables = (uint16_t)between(1, SCOUT_MAX_GROUPS),
	};

	scout__put_register(w, &m);
	for (uint32_t t = 0; t < m.n_tables; t++) {
		const struct scout__table_msg table = {
			.group = (uint16_t)between(t * 1000, t * 1000 + 999),
			.dtype = (uint16_t)between(0, SCOUT_DTYPE_LAST),
			.block_tokens = between(1, UINT32_MAX),
			.n_planes = between(1, 100),
			.layout_tag = random_name(0, SCOUT_MAX_NAME),
		};

		for (uint32_t i = 0; i < table.n_planes; i++)
			planes[i] = random_u64();
		scout__put_table(w, &table, planes);
	}
}

static void
put_random_register_reply(struct scout__writer *w)
{
	struct scout__register_reply m = {.segments = (uint32_t)random_u64(),
					  .n_tables = (uint16_t)between(1, SCOUT_MAX_GROUPS)};

	for (uint32_t i = 0; i < m.n_tables; i++) {
		m.tables[i].shard_bytes = random_u64();
		m.tables[i].slot_stride = random_u64();
	}
	scout__put_register_reply(w, &m);
}

static void
put_random_retrieve(struct scout__writer *w)
{
	struct scout__retrieve_msg m = {.ticket = random_u64(), .n_parts = (uint16_t)between(1, SCOUT_MAX_GROUPS)};
	uint32_t left = SCOUT_MAX_CHUNKS;

	for (uint32_t i = 0; i < m.n_parts; i++) {
		uint32_t n = between(0, left);

		m.parts[i].group = (uint16_t)between(i * 1000, i * 1000 + 999);
		m.parts[i].from = between(0, SCOUT_MAX_CHUNKS - n);
		m.parts[i].to = m.parts[i].from + n;
		left -= n;
	}
	scout__put_retrieve(w, &m);
}

static void
put_random_store(struct scout__writer *w, unsigned hash_bytes)
{
	const struct scout__store_msg m = {
		.ticket = random_u64(),
		.n = between(1, 40),
		.tenant = random_name(0, SCOUT_MAX_NAME),
		.hashes = noise + between(0, 1000),
	};

	scout__put_store(w, &m, hash_bytes);
}

static void
put_random_grants(struct scout__writer *w)
{
	uint32_t n = between(0, 40);

	scout__put_grants_head(w, random_u64(), n);
	for (uint32_t i = 0; i < n; i++) {
		struct scout__grant g = {.state = (uint16_t)between(SCOUT_GRANT_GRANTED, SCOUT_GRANT_MISSING)};

		if (g.state == SCOUT_GRANT_GRANTED) {
			g.segment = (uint32_t)random_u64();
			g.offset = random_u64();
			g.generation = random_u64();
		}
		scout__put_grant(w, &g);
	}
}

static void
put_random_status(struct scout__writer *w)
{
	uint32_t n = between(0, 20);

	scout__put_u32(w, n);
	for (uint32_t i = 0; i < n; i++) {
		struct scout__str name = random_str(0, 40);

		scout__put_str(w, name.p, name.len);
		scout__put_u64(w, random_u64());
	}
}

static void
put_random_keys(struct scout__writer *w, unsigned hash_bytes)
{
	struct scout__keys_msg m = {
		.ticket = not_zero(), .n_parts = (uint16_t)between(1, 4), .tenant = random_name(0, 255)};

	for (uint32_t i = 0; i < m.n_parts; i++) {
		m.parts[i].group = (uint16_t)(i * 3 + between(0, 2));
		m.parts[i].n = between(1, 9);
		m.n += m.parts[i].n;
	}
	scout__put_keys(w, &m, hash_bytes);
	for (uint32_t i = 0; i < m.n * hash_bytes; i++)
		scout__put_bytes(w, &(uint8_t){(uint8_t)random_u64()}, 1);
}

static void
put_random_keys_reply(struct scout__writer *w)
{
	uint8_t hits[3] = {0}, later[3] = {0};
	struct scout__keys_reply m = {.n = between(1, 24), .limited = between(0, 1), .hit = hits, .later = later};

	for (uint32_t i = 0; i < m.n; i++) {
		uint32_t what = between(0, 2);

		hits[i / 8] |= (uint8_t)((what == 1) << i % 8);
		later[i / 8] |= (uint8_t)((what == 2) << i % 8);
		m.l1 += what == 1;
	}
	m.l2 = between(0, m.l1);
	m.l1 -= m.l2;
	scout__put_keys_reply(w, &m);
}

static void
put_random_request(struct scout__writer *w, uint8_t opcode, unsigned hash_bytes)
{
	uint32_t n = between(1, SCOUT_MAX_CHUNKS);

	switch (opcode) {
	case SCOUT_OP_HELLO:
		put_random_hello(w, hash_bytes);
		break;
	case SCOUT_OP_LOOKUP:
		put_random_lookup(w, hash_bytes);
		break;
	case SCOUT_OP_KEYS:
		put_random_keys(w, hash_bytes);
		break;
	case SCOUT_OP_ADMIT:
		scout__put_admit(
			w, &(struct scout__admit_msg){random_u64(), (uint32_t)random_u64(), (uint32_t)random_u64()});
		break;
	case SCOUT_OP_FINISH:
		scout__put_finish(w, &(struct scout__finish_msg){random_u64(), (uint32_t)(random_u64() % 3)});
		break;
	case SCOUT_OP_RESET:
	case SCOUT_OP_CLEAR:
		scout__put_one_u64(w, not_zero());
		break;
	case SCOUT_OP_REGISTER:
		put_random_register(w);
		break;
	case SCOUT_OP_STORE:
		put_random_store(w, hash_bytes);
		break;
	case SCOUT_OP_STORE_DONE:
		scout__put_store_done(w, &(struct scout__store_done_msg){random_u64(), n, between(0, n)});
		break;
	case SCOUT_OP_RETRIEVE:
		put_random_retrieve(w);
		break;
	case SCOUT_OP_RETRIEVE_DONE:
		scout__put_retrieve_done(w, &(struct scout__retrieve_done_msg){random_u64(), (uint32_t)random_u64()});
		break;
	case SCOUT_OP_PING:
	case SCOUT_OP_STATUS:
		break; /* empty */
	default:
		ck_abort_msg("no random body for %s request", scout__op_name(opcode));
	}
}

static void
put_random_reply(struct scout__writer *w, uint8_t opcode)
{
	struct scout__str text;

	switch (opcode) {
	case SCOUT_OP_HELLO:
		put_random_hello_reply(w);
		break;
	case SCOUT_OP_LOOKUP:
		put_random_lookup_reply(w);
		break;
	case SCOUT_OP_KEYS:
		put_random_keys_reply(w);
		break;
	case SCOUT_OP_ADMIT:
		scout__put_admit_reply(w, between(0, SCOUT_MAX_CHUNKS));
		break;
	case SCOUT_OP_CLEAR:
		scout__put_clear_reply(w, &(struct scout__clear_reply){.clear = random_clear_state(),
								       .stores = 4,
								       .pending = between(0, 4)});
		break;
	case SCOUT_OP_REGISTER:
		put_random_register_reply(w);
		break;
	case SCOUT_OP_STORE:
	case SCOUT_OP_RETRIEVE:
		put_random_grants(w);
		break;
	case SCOUT_OP_STORE_DONE:
		scout__put_store_done_reply(w, between(0, SCOUT_MAX_CHUNKS));
		break;
	case SCOUT_OP_STATUS:
		put_random_status(w);
		break;
	case SCOUT_OP_ERROR:
		text = random_str(0, 1000);
		scout__put_str(w, text.p, text.len);
		break;
	case SCOUT_OP_PING:
	case SCOUT_OP_FINISH:
	case SCOUT_OP_RESET:
	case SCOUT_OP_RETRIEVE_DONE:
		break; /* empty */
	default:
		ck_abort_msg("no random body for %s reply", scout__op_name(opcode));
	}
}

/* Takes @frame apart; the codec of each body must give its bytes again. Returns how many operations there were. */
static uint32_t
recode_frame(const uint8_t *frame, size_t len, const uint8_t *order, unsigned hash_bytes, uint8_t *buf)
{
	struct scout__reader ops = scout__frame_ops(frame, len);
	struct scout__op op;
	uint32_t n = 0;

	for (; scout__frame_next(&ops, &op); n++) {
		const struct msg_codec *codec = &msg_codecs[order[n]];
		struct scout__writer w = {.buf = buf, .cap = ROOM};
		const char *field = "";
		int status = codec->recode(&op, hash_bytes, &w, &field);

		ck_assert_msg(status == SCOUT_WIRE_OK, "%s: %s", codec->name, field);
		ck_assert_uint_eq(op.opcode, codec->opcode);
		ck_assert_uint_eq(op.kind, codec->kind);
		ck_assert_uint_eq(op.corr, n + 1);
		ck_assert(!w.bad);
		ck_assert_uint_eq(w.len, op.length);
		ck_assert_mem_eq(buf, op.body, op.length);
	}
	return n;
}

/* One frame of random bodies of one direction; @order gets which codec each operation has. */
static size_t
put_random_frame(uint8_t *frame, uint8_t kind, unsigned hash_bytes, uint8_t *order, uint32_t n)
{
	struct scout__writer w = {.buf = frame, .cap = ROOM};

	scout__frame_begin(&w);
	for (uint32_t i = 0; i < n; i++) {
		const struct msg_codec *codec;
		size_t op;

		do {
			order[i] = (uint8_t)between(0, N_MSG_CODECS - 1);
		} while (msg_codecs[order[i]].kind != kind);
		codec = &msg_codecs[order[i]];
		op = scout__op_begin(&w, codec->opcode, kind, 0, i + 1,
				     kind == SCOUT_KIND_REQUEST ? (uint32_t)random_u64() : 0);
		if (kind == SCOUT_KIND_REQUEST)
			put_random_request(&w, codec->opcode, hash_bytes);
		else
			put_random_reply(&w, codec->opcode);
		scout__op_end(&w, op);
	}
	scout__frame_end(&w, n, random_u64(), random_u64());
	ck_assert(!w.bad);
	return w.len;
}

START_TEST(random_frames_survive_the_round_trip)
{
	const uint8_t kind = (uint8_t)_i;
	uint8_t *frame = malloc(ROOM), *buf = malloc(ROOM);
	unsigned seen[N_MSG_CODECS] = {0};

	ck_assert(frame && buf);
	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)random_u64();
	for (size_t i = 0; i < sizeof(printable); i++)
		printable[i] = (char)between(' ', '~');
	for (int round = 0; round < ROUNDS; round++) {
		unsigned hash_bytes = between(SCOUT_MIN_HASH, SCOUT_MAX_HASH);
		uint32_t n = between(1, 64);
		uint8_t order[64];
		size_t len = put_random_frame(frame, kind, hash_bytes, order, n);
		uint8_t *exact = malloc(len);
		struct scout__frame head;

		ck_assert_ptr_nonnull(exact);
		memcpy(exact, frame, len);
		ck_assert_int_eq(scout__frame_check(exact, len, kind == SCOUT_KIND_REQUEST, &head), SCOUT_WIRE_OK);
		ck_assert_uint_eq(recode_frame(exact, len, order, hash_bytes, buf), n);
		for (uint32_t i = 0; i < n; i++)
			seen[order[i]]++;
		free(exact);
	}
	for (int i = 0; i < N_MSG_CODECS; i++)
		ck_assert_msg(msg_codecs[i].kind != kind || seen[i] > 100, "%s is too rare", msg_codecs[i].name);
	free(frame);
	free(buf);
}
END_TEST

START_TEST(the_largest_lookup_survives_the_round_trip)
{
	const size_t hashes_len = (size_t)SCOUT_MAX_CHUNKS * SCOUT_MAX_HASH;
	uint8_t *hashes = calloc(1, hashes_len), *buf = malloc(hashes_len + 64);
	const struct scout__lookup_msg m = {.ticket = 1, .n = SCOUT_MAX_CHUNKS, .hashes = hashes};
	struct scout__writer w = {.buf = buf, .cap = hashes_len + 64};
	struct scout__op op = {.opcode = SCOUT_OP_LOOKUP, .body = buf};
	struct scout__lookup_msg got;
	const char *field;

	ck_assert(hashes && buf);
	hashes[hashes_len - 1] = 0x77;
	scout__put_lookup(&w, &m, SCOUT_MAX_HASH);
	ck_assert(!w.bad);
	op.length = (uint32_t)w.len;
	ck_assert_int_eq(scout__get_lookup(&op, SCOUT_MAX_HASH, &got, &field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.n, SCOUT_MAX_CHUNKS);
	ck_assert_uint_eq(got.hashes[hashes_len - 1], 0x77);
	free(hashes);
	free(buf);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("wire_random");
	TCase *tcase = tcase_create("round trips");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, random_frames_survive_the_round_trip, SCOUT_KIND_REQUEST, SCOUT_KIND_REPLY + 1);
	tcase_add_test(tcase, the_largest_lookup_survives_the_round_trip);
	suite_add_tcase(suite, tcase);
	return suite;
}
