/* SPDX-License-Identifier: Apache-2.0 */
#include "msg.h"

#include <string.h>

/*
 * What protocol.h allows in each field that a get may find wrong, as text for a refusal or a log line. The gets check; this table
 * only explains. tests/unit/wire/test_wire_strict.c compares the two: each field that a get names has a row. Any thread.
 */

#define QUOTE(number) #number
#define TEXT_OF(macro) QUOTE(macro)
#define COUNT "must be 1.." TEXT_OF(SCOUT_MAX_CHUNKS)
#define COUNT_OR_0 "must be 0.." TEXT_OF(SCOUT_MAX_CHUNKS)
#define NAME "must be UTF-8 text without control characters, "

enum {
	REQUEST = SCOUT_KIND_REQUEST,
	REPLY = SCOUT_KIND_REPLY,
	ANY = 2
};

/* The first row that fits counts; opcode 0 fits any. */
static const struct {
	const char *field, *rule;
	uint8_t opcode, kind;
} rows[] = {
	{"length", "of the body must be exactly what its fields say", 0, ANY},
	{"reserved", "fields and unknown flags must be 0", 0, ANY},
	{"token", "must be a random number other than 0", 0, ANY},
	{"secret", "must be 16 random bytes, not all 0", 0, ANY},
	{"role", "must be 1 (client) or 2 (worker)", 0, ANY},
	{"hash_bytes", "must be " TEXT_OF(SCOUT_MIN_HASH) ".." TEXT_OF(SCOUT_MAX_HASH), 0, ANY},
	{"chunk_tokens", "must be 1 or more", 0, ANY},
	{"kv_ranks", "must be 1.." TEXT_OF(SCOUT_MAX_RANKS), 0, ANY},
	{"rank_count", "must be 1..kv_ranks", 0, ANY},
	{"rank_first", "must be 0..kv_ranks - rank_count", 0, ANY},
	{"readers", "must be 1.." TEXT_OF(SCOUT_MAX_READERS), 0, ANY},
	{"namespace", NAME "1.." TEXT_OF(SCOUT_MAX_NAME) " bytes", 0, ANY},
	{"tenant", NAME "0.." TEXT_OF(SCOUT_MAX_NAME) " bytes, and empty without SCOUT_DROP_TENANT", SCOUT_OP_DROP,
	 REQUEST},
	{"tenant", NAME "0.." TEXT_OF(SCOUT_MAX_NAME) " bytes", 0, ANY},
	{"joined", "must be at most SCOUT_MAX_STAMP (2^63 - 1), in requests at most SCOUT_MAX_HEARD_STAMP (2^62 - 1)",
	 0, ANY},
	{"cleared", "must be at most SCOUT_MAX_STAMP (2^63 - 1), in requests at most SCOUT_MAX_HEARD_STAMP (2^62 - 1)",
	 0, ANY},
	{"generation", "must not be 0; only a worker may send 2^64 - 1, for the generation that the namespace has",
	 SCOUT_OP_CLEAR, REQUEST},
	{"generation", "must be 0 with cleared = 0 only, and never 2^64 - 1", SCOUT_OP_CLEAR, REPLY},
	{"generation", "must be 0 with cleared = 0 only, and never 2^64 - 1", SCOUT_OP_HELLO, ANY},
	{"generation", "must be a random number other than 0 and 2^64 - 1", SCOUT_OP_DROP, ANY},
	{"generation", "must be 0 in a grant without a slot", 0, ANY},
	{"segment", "must be 0 in a grant without a slot", 0, ANY},
	{"offset", "must be 0 in a grant without a slot", 0, ANY},
	{"pending", "must be at most stores", 0, ANY},
	{"ticket", "must be a random number other than 0", 0, ANY},
	{"flags", "must not have RENEW and AHEAD together", 0, ANY},
	{"first", "must be 0.." TEXT_OF(SCOUT_MAX_CHUNKS) " - n", 0, ANY},
	{"beyond", "must be 0..n", 0, ANY},
	{"skip", "must be first..first + n - beyond, and first with AHEAD", 0, ANY},
	{"expect", "must be 0..first + n - beyond, and 0 with RENEW", 0, ANY},
	{"poll_timeout_ms", "must be 0.." TEXT_OF(SCOUT_MAX_POLL_MS), 0, ANY},
	{"more", "must be below " TEXT_OF(SCOUT_MAX_LENGTHS), SCOUT_OP_LOOKUP, REQUEST},
	{"more", "must be lengths above 0 and below hit, the longest first", 0, ANY},
	{"n_more", "must be below " TEXT_OF(SCOUT_MAX_LENGTHS), 0, ANY},
	{"group", "must be larger than in the table or part before it", 0, ANY},
	{"hash_tokens", "must be 1 or more", 0, ANY},
	{"n_groups", "must be 1.." TEXT_OF(SCOUT_MAX_GROUPS), 0, ANY},
	{"policy", "must be 0 (all), 1 (window), 2 (local) or 3 (state)", 0, ANY},
	{"unit_tokens", "must be a multiple of hash_tokens, and not 0", 0, ANY},
	{"span_tokens", "must be 1 or more for the policies window and local, and 0 for the others", 0, ANY},
	{"n_tables", "must be 1.." TEXT_OF(SCOUT_MAX_GROUPS), 0, ANY},
	{"n_parts", "must be 1.." TEXT_OF(SCOUT_MAX_GROUPS), 0, ANY},
	{"layout_tag", NAME "0.." TEXT_OF(SCOUT_MAX_NAME) " bytes", 0, ANY},
	{"hit", COUNT_OR_0, 0, ANY},
	{"hits", "must be 0 after the last key", 0, ANY},
	{"later", "must be 0 for keys that are hits, and after the last key", 0, ANY},
	{"l1", "must be at most as many as there are hits", SCOUT_OP_KEYS, REPLY},
	{"l2", "must be at most the hits that l1 does not count", SCOUT_OP_KEYS, REPLY},
	{"l1", "must be 0..8388608, and 0 without a hit", 0, ANY},
	{"l2", "must be 0..8388608, and 0 without a hit", 0, ANY},
	{"limited", "must be 0 or 1", 0, ANY},
	{"hint", "must be 0 (unknown), 1 (likely) or 2 (unlikely)", 0, ANY},
	{"known", "must be hit.." TEXT_OF(SCOUT_MAX_CHUNKS), 0, ANY},
	{"kept", COUNT_OR_0, 0, ANY},
	{"outcome", "must be 0 to 4 (SCOUT_OUTCOME_*)", 0, ANY},
	{"readable", COUNT_OR_0, 0, ANY},
	{"weights", "must not be 0", 0, ANY},
	{"kv_rank", "must be at most " TEXT_OF(SCOUT_MAX_RANKS), SCOUT_OP_PEERS, REPLY},
	{"kv_rank", "must be below " TEXT_OF(SCOUT_MAX_RANKS), 0, ANY},
	{"reader", "must be below " TEXT_OF(SCOUT_MAX_READERS), 0, ANY},
	{"block_tokens", "must be 1 or more", 0, ANY},
	{"dtype", "must be 0.." TEXT_OF(SCOUT_DTYPE_LAST), 0, ANY},
	{"n_planes", "must be 1 or more, and of all tables together at most " TEXT_OF(SCOUT_MAX_PLANES), 0, ANY},
	{"n", "must be at most " TEXT_OF(SCOUT_MAX_LISTED), SCOUT_OP_PEERS, REPLY},
	{"n", "must be at most " TEXT_OF(SCOUT_MAX_LISTED), SCOUT_OP_TENANTS, REPLY},
	{"n", COUNT, SCOUT_OP_LOOKUP, REQUEST},
	{"n", "must be 1 or more in each part, and of all parts together at most " TEXT_OF(SCOUT_MAX_KEYS),
	 SCOUT_OP_KEYS, REQUEST},
	{"n", "must be 1.." TEXT_OF(SCOUT_MAX_KEYS), SCOUT_OP_KEYS, REPLY},
	{"n", COUNT, SCOUT_OP_STORE, REQUEST},
	{"n", COUNT_OR_0, 0, ANY},
	{"committed", "must be 0..n", 0, ANY},
	{"feed", "must be a random number other than 0", 0, ANY},
	{"sequence", "must be 0 when feed is 0", 0, ANY},
	{"cursor", "must be 0 when feed is 0", 0, ANY},
	{"kind", "must be 1 (stored), 2 (removed), 3 (cleared) or 4 (dropped)", 0, ANY},
	{"medium", "must be 1 (host memory) or 2 (L2) for kinds 1 and 2, and 0 for the others", 0, ANY},
	{"description", "must have at most " TEXT_OF(SCOUT_MAX_DESCRIPTION) " bytes", 0, ANY},
	{"from", "must be 0..to", 0, ANY},
	{"to", "must be from.." TEXT_OF(SCOUT_MAX_CHUNKS) ", and all parts together at most as long", 0, ANY},
};

const char *
scout__field_rule(const struct scout__op *op, const char *field)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		bool is_of = (rows[i].opcode == 0 || rows[i].opcode == op->opcode) &&
			     (rows[i].kind == ANY || rows[i].kind == op->kind);

		if (is_of && strcmp(rows[i].field, field) == 0)
			return rows[i].rule;
	}
	return NULL;
}
