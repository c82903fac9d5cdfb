/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "chunk_index.h"
#include "clears.h"
#include "fetch.h"
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "reply.h"
#include "server_core.h"
#include "state.h"
#include "transport.h"

/*
 * DESIGN
 *
 * HELLO: the sender becomes a peer of a namespace, or an older peer (its token says which, its secret proves it) gets
 * this connection. The
 * first HELLO makes the namespace. A HELLO with other parameters, or with another weights version, is refused as long
 * as a peer is in the namespace; else the namespace is made anew, or reset.
 *
 * Threads: loop.
 */

#define HEARTBEAT_MS_DEFAULT 1000u
#define HEARTBEAT_MS_MAX 600000u

/* Name the parameter of @hello that is not the namespace's, with both values; false: all agree. */
SCOUT_ON_LOOP static bool
describe_mismatch(const struct scout__ns *ns, const struct scout__hello *hello, char *text, size_t len)
{
	const struct {
		const char *name;
		uint32_t here, there;
	} fields[] = {
		{"hash_bytes", ns->hash_bytes, hello->hash_bytes},
		{"chunk_tokens", ns->chunk_tokens, hello->chunk_tokens},
		{"hash_tokens", ns->hash_tokens, hello->hash_tokens},
		{"kv_ranks", ns->kv_ranks, hello->kv_ranks},
		{"rank_first", ns->rank_first, hello->rank_first},
		{"rank_count", ns->rank_count, hello->rank_count},
		{"readers", ns->readers, hello->readers},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].here == fields[i].there)
			continue;
		(void)snprintf(text, len, "namespace \"%s\" has %s = %u, this HELLO says %u", ns->name, fields[i].name,
			       (unsigned)fields[i].here, (unsigned)fields[i].there);
		return true;
	}
	return false;
}

/* Name the field and the group that are not the namespace's, with both values; false: all agree. */
SCOUT_ON_LOOP static bool
describe_group_mismatch(const struct scout__ns *ns, const struct scout__hello *hello, char *text, size_t len)
{
	if (ns->groups.n != hello->groups.n) {
		(void)snprintf(text, len, "namespace \"%s\" has %u groups, this HELLO says %u", ns->name,
			       (unsigned)ns->groups.n, (unsigned)hello->groups.n);
		return true;
	}
	for (uint32_t g = 0; g < ns->groups.n; g++) {
		const struct scout__group *here = &ns->groups.group[g], *there = &hello->groups.group[g];
		const struct {
			const char *name;
			uint32_t here, there;
		} fields[] = {
			{"policy", here->policy, there->policy},
			{"readers", here->readers, there->readers},
			{"unit_tokens", here->unit_tokens, there->unit_tokens},
			{"span_tokens", here->span_tokens, there->span_tokens},
			{"margin_tokens", here->margin_tokens, there->margin_tokens},
		};

		for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
			if (fields[i].here == fields[i].there)
				continue;
			(void)snprintf(text, len, "namespace \"%s\" has %s = %u in group %u, this HELLO says %u",
				       ns->name, fields[i].name, (unsigned)fields[i].here, (unsigned)g,
				       (unsigned)fields[i].there);
			return true;
		}
	}
	return false;
}

/* Whether each group has whole shards here, and not too many; else @text names the group. */
SCOUT_ON_LOOP static bool
has_whole_shards(const struct scout__hello *hello, char *text, size_t len)
{
	uint32_t first = (uint32_t)hello->rank_first * hello->readers;
	uint32_t n = (uint32_t)hello->rank_count * hello->readers;
	uint32_t all = (uint32_t)hello->kv_ranks * hello->readers;

	for (uint32_t g = 0; g < hello->groups.n; g++) {
		uint32_t readers = hello->groups.group[g].readers;

		if (first % readers || n % readers || all % readers || all / readers > SCOUT_MAX_RANKS) {
			(void)snprintf(
				text, len,
				"group %u has readers = %u: must divide the %u workers that hold the KV and the %u "
				"of them at this server, and leave at most %d shards",
				(unsigned)g, (unsigned)readers, (unsigned)all, (unsigned)n, SCOUT_MAX_RANKS);
			return false;
		}
	}
	return true;
}

SCOUT_ON_LOOP static bool
weights_differ(const struct scout__ns *ns, const struct scout__hello *hello)
{
	return hello->weights && ns->weights && hello->weights != ns->weights;
}

/* Give a namespace other parameters: only when no peer is in it. */
SCOUT_ON_LOOP static bool
rebuild(struct scout_server *s, struct scout__ns *ns, const struct scout__hello *hello, uint16_t *ret_status,
	char *text, size_t text_len)
{
	uint32_t n_chunks;

	if (ns->n_peers)
		return false; /* the caller has written status and text */
	(void)scout__writes_drop(s, ns);
	if (ns->n_sessions || ns->n_holds || ns->n_moving) {
		*ret_status = SCOUT_WIRE_LIMIT;
		(void)snprintf(text, text_len,
			       "namespace \"%s\" has other parameters, and %u sessions, %u holds and %u transfers of "
			       "L2 that are not over; try again",
			       ns->name, (unsigned)ns->n_sessions, (unsigned)ns->n_holds, (unsigned)ns->n_moving);
		return false;
	}
	n_chunks = scout__ns_count_chunks(ns);
	scout__log_limited(
		&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, n_chunks ? SCOUT_LOG_WARN : SCOUT_LOG_INFO,
		"%s, and no other peer is there: all is made anew, %u chunks are dropped", text, (unsigned)n_chunks);
	if (!scout__ns_remake(s, ns, hello)) {
		*ret_status = SCOUT_WIRE_LIMIT;
		(void)snprintf(text, text_len, "the server is out of memory");
		return false;
	}
	scout__records_open(s, ns);
	return true;
}

/* The namespace of a HELLO, made or rebuilt if necessary; NULL: refused with *ret_status, and @text says why. */
SCOUT_ON_LOOP static struct scout__ns *
namespace_of(struct scout_server *s, const struct scout__hello *hello, const struct scout__peer *known,
	     uint16_t *ret_status, char *text, size_t text_len)
{
	struct scout__ns *ns = scout__ns_find(s, &hello->name_space);
	bool differs;

	if (known && known->ns != ns) {
		*ret_status = SCOUT_WIRE_NAMESPACE;
		(void)snprintf(text, text_len, "this token is in namespace \"%s\"", known->ns->name);
		return NULL;
	}
	*ret_status = SCOUT_WIRE_NAMESPACE;
	differs = ns && describe_mismatch(ns, hello, text, text_len);
	if (ns && !differs && describe_group_mismatch(ns, hello, text, text_len)) {
		*ret_status = SCOUT_WIRE_GROUPS_DIFFER;
		differs = true;
	}
	if ((!differs || !ns->n_peers) && !has_whole_shards(hello, text, text_len)) {
		*ret_status = SCOUT_WIRE_RANGE;
		return NULL;
	}
	if (!ns) {
		ns = scout__ns_make(s, hello);
		if (ns) {
			scout__records_open(s, ns);
		} else {
			*ret_status = SCOUT_WIRE_LIMIT;
			(void)snprintf(text, text_len,
				       "no place for one more namespace: %u are in use, max_namespaces is %u",
				       (unsigned)s->state->n_ns, (unsigned)s->cfg.max_namespaces);
		}
		return ns;
	}
	if (differs)
		return rebuild(s, ns, hello, ret_status, text, text_len) ? ns : NULL;
	if (weights_differ(ns, hello)) {
		if (ns->n_peers) {
			*ret_status = SCOUT_WIRE_WEIGHTS;
			(void)snprintf(text, text_len,
				       "namespace \"%s\" has weights version %llu, this HELLO says %llu", ns->name,
				       (unsigned long long)ns->weights, (unsigned long long)hello->weights);
			return NULL;
		}
		scout__weights_change(s, ns, hello->weights);
	}
	if (!ns->weights)
		ns->weights = hello->weights;
	return ns;
}

SCOUT_ON_LOOP static void
hello_reply(struct scout_server *s, struct scout__peer *peer, uint64_t corr)
{
	static const char software[] = "kvscout " SCOUT_VERSION_STRING;
	const char *lease = s->transport->sender_is_local ? s->transport->paths.lease : "";
	struct scout__hello_reply m = {
		.credits = s->cfg.credits,
		.max_frame = SCOUT_MAX_FRAME,
		.weights = peer->ns->weights,
		.clear = scout__clears_state_of(peer),
		.secret = peer->secret,
		.id = peer->id,
		.software = {software, sizeof(software) - 1},
		.lease_path = {lease, (uint16_t)strlen(lease)},
	};
	struct scout__writer *w;
	size_t op;

	w = scout__reply_begin(s, &peer->dest, SCOUT_OP_HELLO, SCOUT_WIRE_OK, corr,
			       72 + sizeof(software) + m.lease_path.len, &op);
	if (!w)
		return;
	scout__put_hello_reply(w, &m);
	scout__reply_end(s, &peer->dest, op);
}

/* Whether it was refused because it repeats the token of @known without its secret. */
SCOUT_ON_LOOP static bool
refuse_secret(struct scout_server *s, const struct scout__request *req, struct scout__peer *known,
	      const struct scout__hello *hello)
{
	char who[SCOUT__WHO_BYTES], whose[SCOUT__WHO_BYTES];

	if (!known || scout__secret_equal(&known->secret, &hello->secret))
		return false;
	scout__peer_who(s, req->dest, who);
	scout__peer_who(s, &known->dest, whose);
	scout__log_limited(
		&s->log, &s->limit_secret, s->now_us, SCOUT__WARN_INTERVAL_US, SCOUT_LOG_WARN,
		"HELLO of %s refused: it has the token of %s and not its secret. Either that peer lost the reply to its "
		"first HELLO, or another process claims to be that peer",
		who, whose);
	scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_SECRET,
		      "a peer has this token, and the HELLO does not show its secret: say HELLO with a new token");
	return true;
}

/* Why this HELLO is refused, whatever its namespace; NULL: it is not. */
SCOUT_ON_LOOP static const char *
hello_conflict(const struct scout__peer *peer, const struct scout__peer *known, const struct scout__hello *hello)
{
	if (peer && peer != known)
		return "this connection said HELLO with another token before";
	if (known && known->role != hello->role)
		return "this token said HELLO in another role before";
	return NULL;
}

/* Whether a stamp of @hello was refused: if accepted, it would make all later stamps as wrong as itself. */
SCOUT_ON_LOOP static bool
refuse_stamp(struct scout_server *s, struct scout__dest *dest, const struct scout__op *op,
	     const struct scout__hello *hello)
{
	const struct scout__ns *ns = scout__ns_find(s, &hello->name_space);
	uint64_t joined_days = scout__clears_days_ahead(ns, hello->clear.joined);
	uint64_t cleared_days = scout__clears_days_ahead(ns, hello->clear.cleared);

	if (joined_days == 0 && cleared_days == 0)
		return false;
	scout__refuse(s, dest, op->opcode, op->corr, SCOUT_WIRE_RANGE,
		      "%s is %llu days ahead of this server's clock, at most one is allowed: is the clock right?",
		      joined_days ? "joined" : "cleared",
		      (unsigned long long)(joined_days ? joined_days : cleared_days));
	return true;
}

void
scout__serve_hello(struct scout_server *s, struct scout__request *req)
{
	struct scout__peer *known;
	struct scout__hello hello;
	const char *field = "";
	struct scout__ns *ns;
	char text[512];
	uint16_t refusal;
	uint32_t most;
	int status = scout__get_hello(req->op, &hello, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	if (!scout__require_right(s, req, SCOUT__RIGHT_ENGINE, &hello.name_space) ||
	    refuse_stamp(s, req->dest, req->op, &hello))
		return;
	known = scout__peer_by_token(s, hello.token);
	if (refuse_secret(s, req, known, &hello))
		return;
	field = hello_conflict(req->peer, known, &hello);
	if (field) {
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_STATE, "%s", field);
		return;
	}
	if (!known && s->state->n_free_peers == 0) {
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_LIMIT,
			      "max_peers = %u peers are connected: end one, or raise max_peers",
			      (unsigned)s->cfg.max_peers);
		return;
	}
	if (!known && scout__peers_of_source_full(s, &most)) {
		scout__refuse(
			s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_LIMIT,
			"this process, or address, has %u of the max_peers = %u peers, which is all that one may have; those "
			"that left without a word count for some seconds",
			(unsigned)most, (unsigned)s->cfg.max_peers);
		return;
	}
	ns = namespace_of(s, &hello, known, &refusal, text, sizeof(text));
	if (!ns) {
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, refusal, "%s", text);
		return;
	}
	if (!known) {
		known = scout__peer_new(s, ns, hello.token, hello.role);
	} else if ((known != req->peer || known->ended_us) && !scout__peer_move(s, known)) {
		known = NULL; /* a peer that sets its own ZeroMQ identity moves, too, when it has connected again */
	}
	if (!known) {
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_LIMIT,
			      "the server is out of memory");
		return;
	}
	known->sender = req->sender;
	known->judged = s->transport->n_rights;
	known->weights = hello.weights;
	known->heartbeat_ms = hello.heartbeat_ms ? hello.heartbeat_ms : HEARTBEAT_MS_DEFAULT;
	if (known->heartbeat_ms > HEARTBEAT_MS_MAX)
		known->heartbeat_ms = HEARTBEAT_MS_MAX;
	(void)scout__peer_heard(s, known, req->frame->sent_us);
	scout__clears_hear(s, known, &hello.clear, s->fetch && scout__records_known(known->ns));
	scout__records_look(s, known->ns);
	hello_reply(s, known, req->op->corr);
	req->peer = known;
}
