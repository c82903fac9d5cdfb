/* SPDX-License-Identifier: Apache-2.0 */
#include "model_rig.h"

#include "model_parts.h"

struct model m, before;

struct scout__groups groups;

struct op ops[FRAME_OPS];

uint32_t n_ops;

static uint32_t charge; /* chunks that this frame touches at most */

static struct op history[HISTORY];

uint64_t n_done;

uint64_t n_reordered;

uint32_t seed, limit;

struct slot slots[MODEL_RANKS][MODEL_CHUNKS];

struct slot *places[MODEL_CHUNKS][MODEL_RANKS];

static void
print_op(const struct op *op, uint64_t number)
{
	(void)fprintf(stderr, "  %8llu %-13s corr %llu ticket/id %llu a %u b %u", (unsigned long long)number,
		      scout__op_name(op->opcode), (unsigned long long)op->corr, (unsigned long long)op->ticket, op->a,
		      op->b);
	if (op->opcode == SCOUT_OP_LOOKUP)
		(void)fprintf(stderr, "%s%s first %u beyond %u skip %u more %u", op->ask.renews ? " renews" : "",
			      op->ask.ahead ? " ahead" : "", op->ask.first, op->ask.beyond, op->ask.skip, op->ask.more);
	for (uint32_t i = 0; op->opcode == SCOUT_OP_RETRIEVE && i < op->parts.n; i++)
		(void)fprintf(stderr, " group %u [%u, %u)", op->parts.of[i].group, op->parts.of[i].from,
			      op->parts.of[i].to);
	if (op->opcode == SCOUT_OP_LOOKUP || op->opcode == SCOUT_OP_STORE) {
		(void)fprintf(stderr, " group %u tenant %u keys", op->group, op->ask.run.tenant);
		for (uint32_t i = 0; i < op->ask.run.n; i++)
			(void)fprintf(stderr, " %u", op->ask.run.keys[i]);
	}
	(void)fprintf(stderr, " -> %s", op->status ? scout__wire_name((unsigned)op->status) : "OK");
	if (op->opcode == SCOUT_OP_LOOKUP)
		(void)fprintf(stderr, " hit %u, %u more%s", op->hit.hit, op->hit.n_more,
			      op->hit.limited ? " limited" : "");
	else if (op->opcode == SCOUT_OP_STORE || op->opcode == SCOUT_OP_RETRIEVE)
		(void)fprintf(stderr, " granted %u", op->grants.n_granted);
	else
		(void)fprintf(stderr, " %u", op->count);
	if (op->opcode == SCOUT_OP_FINISH)
		(void)fprintf(stderr, ", for %u ms%s: kept %u, outcome %u", op->wish.keep_ms,
			      op->wish.over ? ", over" : "", op->done.kept, op->done.outcome);
	(void)fprintf(stderr, "\n");
}

void
differ(const struct op *op, const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	(void)fprintf(stderr, "the last operations, with what the model answers:\n");
	for (uint64_t i = n_done > HISTORY ? n_done - HISTORY : 0; i < n_done; i++)
		print_op(&history[i % HISTORY], i + 1);
	(void)fprintf(stderr, "%llu bytes promised at most, %u ranks, %u readers, %u sessions, %u tokens a hash\n",
		      (unsigned long long)m.max_promised, m.ranks, m.readers, m.max_sessions, m.hash_tokens);
	for (uint32_t g = 0; g < m.n_groups; g++)
		(void)fprintf(stderr, "group %u: policy %u, unit %u, span %u, margin %u, %u chunks%s\n", g,
			      m.groups[g].policy, m.groups[g].unit, m.groups[g].span, m.groups[g].margin,
			      m.groups[g].capacity, m.groups[g].vacant ? ", vacant" : "");
	ck_abort_msg("operation %llu, %s: %s; replay: KVSCOUT_MODEL_SEED=%u KVSCOUT_MODEL_OPS=%u test_server_model",
		     (unsigned long long)n_done, scout__op_name(op->opcode), text, seed, limit);
}

void
expect(const struct op *op, const char *what, uint64_t got, uint64_t expected)
{
	if (got != expected)
		differ(op, "%s is %llu, the model says %llu", what, (unsigned long long)got,
		       (unsigned long long)expected);
}

static const struct scout__op *
as_op(const struct op *op)
{
	static struct scout__op o;

	o = (struct scout__op){.opcode = op->opcode,
			       .kind = SCOUT_KIND_REPLY,
			       .status = op->reply->status,
			       .corr = op->corr,
			       .length = op->reply->length,
			       .body = op->reply->body};
	return &o;
}

/* What an answer to a lookup ahead says besides: each object of each group. */
static void
check_presence(const struct op *op, const struct scout__ahead_groups *r)
{
	expect(op, "known", r->known, op->hit.known);
	for (uint32_t g = 0; g < m.n_groups; g++) {
		expect(op, "objects", r->of[g].n, op->hit.known / m.groups[g].stride);
		for (uint32_t i = 0; i < r->of[g].n; i++) {
			bool present = r->of[g].present[i / 8] >> i % 8 & 1;

			if (present != op->hit.present[g][i])
				differ(op, "object %u of group %u: %d, the model says %d", i, g, present,
				       op->hit.present[g][i]);
			expect(op, "in L2", r->of[g].in_l2[i / 8] >> i % 8 & 1, 0);
		}
	}
}

static void
check_lookup(const struct op *op)
{
	struct scout__ahead_groups ahead = {.known = 0};
	struct scout__lookup_reply *r = &ahead.lookup;
	const char *field;
	int status;

	if (op->ask.ahead)
		status = scout__get_ahead_groups(as_op(op), &groups, m.hash_tokens, &ahead, &field);
	else
		status = scout__get_lookup_reply(as_op(op), r, &field);
	expect(op, "decoding", (uint64_t)status, SCOUT_WIRE_OK);
	expect(op, "hit", r->hit, op->hit.hit);
	expect(op, "l2", r->l2, 0);
	expect(op, "l1", r->l1, op->hit.l1);
	expect(op, "l2", r->l2, 0);
	expect(op, "limited", r->limited, op->hit.limited);
	expect(op, "number of lengths", r->n_more, op->hit.n_more);
	for (uint32_t i = 0; i < r->n_more; i++)
		expect(op, "length", scout__more_at(r, i), op->hit.more[i]);
	if (op->ask.ahead)
		check_presence(op, &ahead);
}

struct slot *
slot_of(const struct op *op, const struct scout__grant *grant, uint32_t rank)
{
	struct slot *slot = slots[rank];
	uint32_t capacity = 0;

	for (uint32_t g = 0; g < m.n_groups; g++)
		capacity += m.groups[g].capacity;
	while (slot->grant.generation && (slot->grant.segment != grant->segment || slot->grant.offset != grant->offset))
		slot++;
	if (slot >= slots[rank] + capacity)
		differ(op, "there are more slots than %u", capacity);
	return slot;
}

/* Where a granted slot lies, and the generation that it has: that of its store. */
static void
check_place(const struct op *op, const struct scout__grant *grant, uint32_t chunk, uint32_t rank)
{
	struct slot *slot = slot_of(op, grant, rank);

	if (op->opcode == SCOUT_OP_RETRIEVE) {
		expect(op, "slot of its store", slot == places[chunk][rank], true);
		expect(op, "generation", grant->generation, slot->grant.generation);
		return;
	}
	expect(op, "generation bumped", grant->generation > slot->grant.generation, true);
	*slot = (struct slot){*grant, false};
	places[chunk][rank] = slot;
}

void
check_grants(const struct op *op, uint32_t rank)
{
	struct scout__grants r = {0};
	const char *field;

	expect(op, "decoding", (uint64_t)scout__get_grants(as_op(op), &r, &field), SCOUT_WIRE_OK);
	expect(op, "n", r.n, op->grants.n);
	expect(op, "id", r.id, op->grants.id);
	for (uint32_t i = 0; i < r.n; i++) {
		struct scout__grant grant = scout__grant_at(&r, i);

		if (grant.state != op->grants.states[i])
			differ(op, "state of grant %u is %u, the model says %u", i, grant.state, op->grants.states[i]);
		if (grant.state == SCOUT_GRANT_GRANTED)
			check_place(op, &grant, op->grants.chunks[i], rank);
	}
}

static void
check_count(const struct op *op)
{
	const char *field;
	uint32_t n = 0;
	int status;

	if (op->opcode == SCOUT_OP_FINISH) {
		struct scout__finish_reply r = {0, 0};

		expect(op, "decoding", (uint64_t)scout__get_finish_reply(as_op(op), &r, &field), SCOUT_WIRE_OK);
		expect(op, "outcome", r.outcome, op->done.outcome);
		expect(op, "kept", r.kept, op->done.kept);
		return;
	}
	if (op->opcode == SCOUT_OP_STORE_DONE)
		status = scout__get_store_done_reply(as_op(op), &n, &field);
	else
		status = scout__get_admit_reply(as_op(op), &n, &field);
	expect(op, "decoding", (uint64_t)status, SCOUT_WIRE_OK);
	expect(op, op->opcode == SCOUT_OP_STORE_DONE ? "readable" : "kept", n, op->count);
}

static void
check_status(const struct op *op)
{
	struct scout__reader items;
	struct scout__str name;
	const char *field;
	uint32_t seen = 0;
	uint64_t value;
	uint32_t n;

	expect(op, "decoding", (uint64_t)scout__get_status(as_op(op), &n, &items, &field), SCOUT_WIRE_OK);
	while (n-- > 0 && scout__get_status_item(&items, &name, &value)) {
		for (uint32_t i = 0; i < op->n_items; i++) {
			if (strlen(op->items[i].name) != name.len || memcmp(op->items[i].name, name.p, name.len) != 0)
				continue;
			expect(op, op->items[i].name, value, op->items[i].value);
			seen++;
			break;
		}
	}
	expect(op, "number of known items", seen, op->n_items);
}

static void
check_reply(const struct op *op, uint32_t rank)
{
	expect(op, "opcode", op->reply->opcode, op->opcode);
	if (op->reply->status != op->status)
		differ(op, "%s, the model says %s", scout__wire_name(op->reply->status),
		       scout__wire_name((unsigned)op->status));
	if (op->status)
		return;
	if (op->opcode == SCOUT_OP_LOOKUP)
		check_lookup(op);
	else if (op->opcode == SCOUT_OP_STORE || op->opcode == SCOUT_OP_RETRIEVE)
		check_grants(op, rank);
	else if (op->opcode == SCOUT_OP_ADMIT || op->opcode == SCOUT_OP_FINISH || op->opcode == SCOUT_OP_STORE_DONE)
		check_count(op);
	else if (op->opcode == SCOUT_OP_STATUS)
		check_status(op);
	else
		expect(op, "length of the body", op->reply->length, 0);
}

void
execute(struct op *op, uint32_t peer)
{
	m.number = op->number;
	switch (op->opcode) {
	case SCOUT_OP_LOOKUP:
		op->status = model_lookup(&m, peer, op->ticket, &op->ask, &op->hit);
		break;
	case SCOUT_OP_ADMIT:
		op->status = model_admit(&m, peer, op->ticket, op->a, op->b, &op->count);
		break;
	case SCOUT_OP_FINISH:
		op->status = model_finish(&m, peer, op->ticket, &op->wish, &op->done);
		break;
	case SCOUT_OP_RESET:
		op->status = model_reset(&m, peer, op->ticket);
		break;
	case SCOUT_OP_STORE:
		op->status = model_store(&m, peer, op->corr, op->ticket, op->group, &op->ask.run, &op->grants);
		break;
	case SCOUT_OP_STORE_DONE:
		op->status = model_store_done(&m, peer, op->ticket, op->a, op->b, &op->count);
		break;
	case SCOUT_OP_RETRIEVE:
		op->status = model_retrieve(&m, peer, op->corr, op->ticket, &op->parts, &op->grants);
		break;
	case SCOUT_OP_RETRIEVE_DONE:
		op->status = model_retrieve_done(&m, peer, op->ticket, op->a);
		break;
	default:
		op->status = SCOUT_WIRE_OK;
		op->n_items = model_status(&m, op->items);
		break;
	}
}

static void
put_body(struct scout__writer *w, const struct op *op)
{
	static const struct scout__str tenants[MODEL_TENANTS] = {{"", 0}, {"a", 1}, {"bb", 2}};
	const struct model_ask *ask = &op->ask;
	const struct model_run *run = &ask->run;
	uint8_t hashes[MODEL_RUN * 16];
	struct scout__retrieve_msg retrieve = {.ticket = op->ticket, .n_parts = (uint16_t)op->parts.n};
	struct scout__lookup_msg lookup = {
		.ticket = op->ticket,
		.n = run->n - ask->first,
		.first = ask->first,
		.beyond = ask->beyond,
		.skip = ask->skip,
		.more = (uint16_t)ask->more,
		.flags = (uint16_t)((ask->renews ? SCOUT_LOOKUP_RENEW : 0) | (ask->ahead ? SCOUT_LOOKUP_AHEAD : 0)),
		.tenant = tenants[run->tenant],
		.hashes = hashes + (size_t)ask->first * 16};
	struct scout__store_msg store = {.ticket = op->ticket,
					 .n = run->n,
					 .group = (uint16_t)op->group,
					 .tenant = tenants[run->tenant],
					 .hashes = hashes};

	for (uint32_t i = 0; i < run->n; i++)
		wire_hash(hashes + (size_t)i * 16, 16, run->keys[i]);
	for (uint32_t i = 0; i < op->parts.n; i++) {
		retrieve.parts[i].group = (uint16_t)op->parts.of[i].group;
		retrieve.parts[i].from = op->parts.of[i].from;
		retrieve.parts[i].to = op->parts.of[i].to;
	}
	if (op->opcode == SCOUT_OP_LOOKUP)
		scout__put_lookup(w, &lookup, 16);
	else if (op->opcode == SCOUT_OP_STORE)
		scout__put_store(w, &store, 16);
	else if (op->opcode == SCOUT_OP_ADMIT)
		scout__put_admit(w, &(struct scout__admit_msg){op->ticket, op->a, op->b});
	else if (op->opcode == SCOUT_OP_RETRIEVE)
		scout__put_retrieve(w, &retrieve);
	else if (op->opcode == SCOUT_OP_STORE_DONE)
		scout__put_store_done(w, &(struct scout__store_done_msg){op->ticket, op->a, op->b});
	else if (op->opcode == SCOUT_OP_RETRIEVE_DONE)
		scout__put_retrieve_done(w, &(struct scout__retrieve_done_msg){op->ticket, op->a});
	else if (op->opcode == SCOUT_OP_FINISH)
		scout__put_finish(w, &(struct scout__finish_msg){
					     op->ticket, op->wish.over ? SCOUT_FINISH_UNLIKELY : SCOUT_FINISH_UNKNOWN,
					     op->wish.keep_ms});
	else if (op->opcode != SCOUT_OP_STATUS)
		scout__put_one_u64(w, op->ticket);
}

void
frame_begin(void)
{
	before = m;
	n_ops = 0;
	charge = 0;
}

uint32_t
ending(void)
{
	return m.n_groups * MODEL_RUN + MODEL_STORED;
}

/* What it does ends after its reply. */
static bool
wishes(const struct op *op)
{
	return op->opcode == SCOUT_OP_FINISH && (op->wish.keep_ms || op->wish.over);
}

bool
frame_has_room(void)
{
	const struct op *last = n_ops ? &ops[n_ops - 1] : NULL;
	bool is_open = !last || (last->opcode != SCOUT_OP_LOOKUP && !wishes(last)) ||
		       (last->opcode == SCOUT_OP_LOOKUP && model_is_run(&m, &last->ask));

	return is_open && n_ops + 1 < FRAME_OPS && charge + 2 * ending() <= INLINE;
}

const struct op *
add(struct player *p, const struct op *op, uint64_t corr)
{
	uint64_t last_corr = p->wire.last_corr;
	struct op *here = &ops[n_ops++];

	*here = *op;
	here->number = n_done + n_ops;
	here->corr = corr ? corr : last_corr + 1;
	p->wire.last_corr = here->corr - 1;
	put_body(wire_begin(&p->wire, op->opcode), op);
	(void)wire_end(&p->wire);
	p->wire.last_corr = corr ? last_corr : here->corr;
	charge += op->opcode == SCOUT_OP_FINISH ? ending() : m.n_groups * MODEL_RUN;
	execute(here, p->peer);
	return here;
}

static int
by_order(const void *a, const void *b)
{
	const struct wire_reply *x = ((const struct op *)a)->reply;
	const struct wire_reply *y = ((const struct op *)b)->reply;

	return x->order < y->order ? -1 : x->order > y->order;
}

/*
 * The generation words in the shared memory: a shard that is there has that of its grant, what is gone has a newer one.
 * So the next grant of the slot has a newer one still.
 */
static void
check_words(struct player *p, const struct op *op)
{
	int32_t rank = m.peers[p->peer].rank;
	bool live[MODEL_CHUNKS] = {false};

	for (uint32_t i = 0; rank >= 0 && i < MODEL_CHUNKS; i++) {
		const struct slot *slot = places[i][rank];

		if (!m.chunks[i].serial || m.chunks[i].shard[rank] == MODEL_ABSENT)
			continue;
		expect(op, "generation word", wire_generation(&p->wire, &slot->grant), slot->grant.generation);
		live[slot - slots[rank]] = true;
	}
	for (uint32_t i = 0; rank >= 0 && i < MODEL_CHUNKS; i++) {
		struct slot *slot = &slots[rank][i];
		uint64_t word;

		if (live[i] || slot->ended || slot->grant.generation == 0)
			continue;
		word = wire_generation(&p->wire, &slot->grant);
		expect(op, "generation bumped at the end", word > slot->grant.generation, true);
		slot->ended = true;
		slot->grant.generation = word;
	}
}

void
frame_exchange(struct player *p)
{
	bool in_order = true;

	wire_flush(&p->wire);
	for (uint32_t i = 0; i < n_ops; i++) {
		ops[i].reply = wire_wait(&p->wire, ops[i].corr);
		in_order = in_order && (i == 0 || ops[i].reply->order > ops[i - 1].reply->order);
	}
	if (!in_order) {
		n_reordered++; /* which is seldom, but for a server that a sanitizer slows down */
		qsort(ops, n_ops, sizeof(ops[0]), by_order);
		m = before;
		for (uint32_t i = 0; i < n_ops; i++)
			execute(&ops[i], p->peer);
	}
	for (uint32_t i = 0; i < n_ops; i++) {
		history[n_done++ % HISTORY] = ops[i];
		/* STATUS counts a STORE that was begun before it and ends behind it: as the server stands, not as the model. */
		if (ops[i].opcode != SCOUT_OP_STATUS || i + 1 == n_ops)
			check_reply(&ops[i], (uint32_t)m.peers[p->peer].rank);
		wire_reply_free(ops[i].reply);
	}
}

void
frame_end(struct player *p)
{
	if (n_ops && !frame_has_room() && (ops[n_ops - 1].opcode == SCOUT_OP_LOOKUP || wishes(&ops[n_ops - 1]))) {
		bool waits = wishes(&ops[n_ops - 1]);

		frame_exchange(p);
		if (waits) {
			model_time_passes(&m);
			wire_wait_status(&p->wire, "ns.test.bytes_kept", model_bytes_kept(&m, 0, MODEL_PEERS));
			wire_wait_status(&p->wire, "sessions", model_n_sessions(&m, MODEL_NAMESPACES));
		}
		frame_begin();
	}
	(void)add(p, &(struct op){.opcode = SCOUT_OP_STATUS}, 0);
	frame_exchange(p);
	check_words(p, &ops[n_ops - 1]);
}
