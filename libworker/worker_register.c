/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "cpus.h"
#include "sized.h"

/*
 * DESIGN
 *
 * Purpose: the registration: scout_worker_register() on the caller's thread, and the courier that keeps it up.
 *
 * The server must know the layout of our KV rank before it grants slots. The caller describes the pages; from then on
 * the registration belongs to the courier: whenever a connection comes up with an epoch that does not know us, the
 * courier registers before any job asks. Jobs wait for that in to_ask, within their own timeouts.
 *
 * A refusal (another worker of that rank came first, with another layout) ends the jobs with its error, is logged
 * once for each reason, and is tried again every second: the other worker may leave. A connection that is refused for
 * good is treated likewise: the link tries again by itself.
 *
 * The caller may wait for the first registration. After a refusal it takes the registration back, and may call again
 * with another layout. When its time is over, the courier goes on alone. A REGISTER that was taken back may still be
 * answered: the number of the attempt shows it.
 *
 * scout_worker_register() leaves no trace when it is refused: it takes the registration back from the courier and waits
 * until the courier has let go of the engine (the courier never blocks, so that is short), and only then closes the
 * engine. Otherwise the courier keeps the registration.
 *
 * scout_worker_unregister() does the same while there are jobs: it drops each job, or waits for its copy, before the courier lets go.
 * A job that waits for an answer of the server may live longer; it touches no page.
 *
 * Rejected: keeping a refused registration after the call has returned. The engine is open on the refused layout, and
 * a caller that wants another layout would have to close the engine first.
 */

#define REGISTER_AGAIN_US 1000000u
#define REGISTER_NO_ROOM_US 10000u /* no credit or no memory for the operation */
#define REGISTER_BODY_BYTES 8u
#define REGISTER_TABLE_BYTES (14u + SCOUT_MAX_NAME) /* and the planes */

/* ---- the courier ---- */

/* Report to the caller, if it waits. */
static void SCOUT_ON_COURIER
conclude(struct scout_worker *w, enum scout__reg_state state, int code, const char *text)
{
	(void)pthread_mutex_lock(&w->mu);
	w->reg = state;
	w->reg_code = code;
	(void)snprintf(w->reg_text, sizeof(w->reg_text), "%s", text);
	(void)pthread_cond_broadcast(&w->cond);
	(void)pthread_mutex_unlock(&w->mu);
}

static void SCOUT_ON_COURIER
put_tables(const struct scout_worker *w, struct scout__writer *writer)
{
	uint64_t plane_bytes[SCOUT_MAX_PLANES];

	for (uint32_t t = 0; t < w->n_tables; t++) {
		const struct scout__table *table = &w->tables[t];
		struct scout__table_msg msg = {
			.group = table->group,
			.dtype = table->dtype,
			.block_tokens = table->block_tokens,
			.n_planes = table->layout.n_planes,
			.layout_tag = {table->layout_tag, (uint16_t)strlen(table->layout_tag)},
		};

		for (uint32_t i = 0; i < table->layout.n_planes; i++)
			plane_bytes[i] = table->layout.planes[i].block_bytes;
		scout__put_table(writer, &msg, plane_bytes);
	}
}

static void SCOUT_ON_COURIER
send_register(struct scout_worker *w)
{
	size_t bytes = REGISTER_BODY_BYTES;
	struct scout__register_msg msg = {
		.kv_rank = (uint16_t)w->cfg.kv_rank,
		.reader = (uint16_t)w->cfg.reader,
		.numa = w->numa,
		.n_tables = (uint16_t)w->n_tables,
	};
	struct scout__writer *writer;

	for (uint32_t t = 0; t < w->n_tables; t++)
		bytes += REGISTER_TABLE_BYTES + (size_t)w->tables[t].layout.n_planes * sizeof(uint64_t);
	writer = scout__link_op_begin(w->link, SCOUT_OP_REGISTER, 0,
				      (w->reg_attempt + 1) << SCOUT__COOKIE_BITS | SCOUT__COOKIE_REGISTER, bytes);
	if (!writer) {
		w->reg_retry_us = scout__now_us() + REGISTER_NO_ROOM_US;
		return;
	}
	scout__put_register(writer, &msg);
	put_tables(w, writer);
	scout__link_op_end(w->link);
	w->reg_attempt++;
	w->reg_in_flight = true;
}

bool
scout__worker_is_registered(const struct scout_worker *w)
{
	return w->up && w->reg_epoch != 0 && w->reg_epoch == w->epoch;
}

/* REGISTER is to be sent, at reg_retry_us or now: not before the memory of an earlier server is unmapped. */
static bool SCOUT_ON_COURIER
is_due(struct scout_worker *w)
{
	return w->up && w->reg_wanted && !w->reg_in_flight && !scout__worker_is_registered(w) &&
	       !scout__mappings_are_leaving(&w->mappings);
}

void
scout__worker_register_pump(struct scout_worker *w, uint64_t now_us)
{
	if (is_due(w) && now_us >= w->reg_retry_us)
		send_register(w);
	if (w->up && w->reg_error && !scout__worker_is_registered(w))
		scout__jobs_fail_waiting(w, w->reg_error);
}

uint64_t
scout__worker_register_next(struct scout_worker *w)
{
	return is_due(w) ? w->reg_retry_us : UINT64_MAX;
}

/* The sentence of a refusal. */
static void
text_of(const struct scout__op *op, char *buf, size_t len)
{
	struct scout__str text;

	if (scout__get_text(op, &text) == SCOUT_WIRE_OK && text.len > 0)
		(void)snprintf(buf, len, "%.*s", (int)text.len, text.p);
	else
		(void)snprintf(buf, len, "the server refused: %s", scout__wire_name(op->status));
}

/* Check the reply against our layout. Returns 0, or the error with a sentence in @text. */
static int SCOUT_ON_COURIER
judge_reply(const struct scout_worker *w, const struct scout__op *op, char *text, size_t len)
{
	struct scout__register_reply reply;
	const char *field;

	if (op->status == SCOUT_WIRE_STATE) {
		text_of(op, text, len);
		return SCOUT_ERR_UNREACHABLE;
	}
	if (op->status != SCOUT_WIRE_OK) {
		text_of(op, text, len);
		return scout__wire_error(op->status);
	}
	if (scout__get_register_reply(op, &reply, &field) != SCOUT_WIRE_OK)
		return scout__fail(text, len, SCOUT_ERR_PROTOCOL, "the REGISTER reply breaks the protocol: %s %s",
				   field, scout__field_rule(op, field));
	if (reply.n_tables != w->n_tables)
		return scout__fail(
			text, len, SCOUT_ERR_PROTOCOL,
			"the server answers for %u page tables, this worker has %u: are both of one release?",
			(unsigned)reply.n_tables, (unsigned)w->n_tables);
	for (uint32_t t = 0; t < w->n_tables; t++)
		if (reply.tables[t].shard_bytes != w->tables[t].shard_bytes ||
		    reply.tables[t].slot_stride < w->tables[t].shard_bytes)
			return scout__fail(
				text, len, SCOUT_ERR_PROTOCOL,
				"the server counts %llu bytes in a shard of group %u (stride %llu), this worker %llu: "
				"are both of one release?",
				(unsigned long long)reply.tables[t].shard_bytes, (unsigned)w->tables[t].group,
				(unsigned long long)reply.tables[t].slot_stride,
				(unsigned long long)w->tables[t].shard_bytes);
	return 0;
}

void
scout__worker_on_registered(struct scout_worker *w, uint64_t attempt, const struct scout__op *op)
{
	char text[SCOUT__TEXT_BYTES];
	int before = w->reg_error;
	int rc;

	if (attempt != w->reg_attempt || !w->reg_in_flight)
		return;
	w->reg_in_flight = false;
	if (!op)
		return; /* the connection was lost: register again when it is back */
	rc = judge_reply(w, op, text, sizeof(text));
	w->reg_error = rc;
	if (rc == 0) {
		scout__log(&w->log, SCOUT_LOG_INFO, w->reg_epoch ? "registered again" : "registered");
		w->reg_epoch = w->epoch;
		atomic_store(&w->is_registered, true);
		conclude(w, SCOUT__REG_OK, 0, "");
		return;
	}
	/* REGISTER is repeated every second: log once for each reason. */
	scout__log(&w->log, rc == before ? SCOUT_LOG_DEBUG : SCOUT_LOG_ERROR, "cannot register: %s", text);
	w->reg_retry_us = scout__now_us() + REGISTER_AGAIN_US;
	conclude(w, SCOUT__REG_FAILED, rc, text);
}

void
scout__worker_register_down(struct scout_worker *w, int error, const char *text)
{
	if (w->reg_wanted && !scout_err_is_retriable(error) && !scout__worker_adopt_mends(w, error))
		conclude(w, SCOUT__REG_FAILED, error, text);
}

/* The courier was started before the pages were known. */
static void SCOUT_ON_COURIER
go_to_node(struct scout_worker *w)
{
	struct scout__cpus_scope before; /* for good */

	/* The list was accepted when the worker was made, and has not changed. */
	if (w->has_node_cpus)
		(void)scout__cpus_enter(&before, w->cfg.cpus, &w->node_cpus, NULL, 0);
}

void
scout__worker_on_register(struct scout_worker *w)
{
	int error = w->link ? scout__link_error(w->link) : 0;

	w->reg_wanted = true;
	w->reg_retry_us = 0;
	w->reg_error = 0;
	go_to_node(w);
	scout__mappings_attach(&w->mappings, w->copy, w->engine);
	if (!w->up && error)
		scout__worker_register_down(w, error, w->down_text);
}

void
scout__worker_on_forget(struct scout_worker *w)
{
	w->reg_wanted = false;
	w->reg_in_flight = false;
	scout__jobs_collect_compared(w, true);
	scout__jobs_sweep(w); /* no job looks at the tables again */
	scout__worker_unregistered(w);
	scout__verifier_forget(&w->verifier, &w->mappings);
	scout__mappings_detach(&w->mappings);
	conclude(w, SCOUT__REG_NONE, 0, "");
}

/* ---- the caller ---- */

/*
 * Wait until the courier reports a result, or the time is over. Returns 0, SCOUT_ERR_TIMEOUT (the courier goes on),
 * or why we were refused.
 */
static int
wait_registered(struct scout_worker *w, uint32_t timeout_ms, char *err, size_t err_len)
{
	uint64_t until_us = scout__now_us() + (uint64_t)timeout_ms * 1000;
	int rc = 0;

	(void)pthread_mutex_lock(&w->mu);
	while (w->reg == SCOUT__REG_WANTED && rc == 0)
		rc = scout__cond_wait_until(&w->cond, &w->mu, until_us);
	if (w->reg == SCOUT__REG_OK)
		rc = 0;
	else if (w->reg == SCOUT__REG_FAILED)
		rc = scout__fail(err, err_len, w->reg_code, "%s", w->reg_text);
	else
		rc = scout__fail(err, err_len, SCOUT_ERR_TIMEOUT,
				 "%s: not registered within %u ms%s%s; goes on in the background", w->cfg.endpoint,
				 (unsigned)timeout_ms, w->down_code ? ": " : "", w->down_code ? w->down_text : "");
	(void)pthread_mutex_unlock(&w->mu);
	return rc;
}

/* Take the registration back; afterwards the courier does not know the engine any more. */
static void
take_back(struct scout_worker *w)
{
	(void)pthread_mutex_lock(&w->mu);
	w->reg = SCOUT__REG_WANTED;
	(void)pthread_mutex_unlock(&w->mu);
	scout__worker_post(w, SCOUT__WORD_FORGET);
	(void)pthread_mutex_lock(&w->mu);
	while (w->reg != SCOUT__REG_NONE)
		(void)pthread_cond_wait(&w->cond, &w->mu);
	(void)pthread_mutex_unlock(&w->mu);
}

static int
register_pages(struct scout_worker *w, const struct scout_table *tables, size_t n_tables, uint32_t timeout_ms,
	       char *err, size_t err_len)
{
	int rc;

	if (scout__courier_forked(w->courier))
		return scout__fail(err, err_len, SCOUT_ERR_FORKED, "%s", scout_strerror(SCOUT_ERR_FORKED));
	if (w->registered)
		return scout__fail(
			err, err_len, SCOUT_ERR_STATE,
			"the worker is registered already: for another layout call scout_worker_unregister() "
			"first");
	rc = scout__worker_check_tables(w, tables, n_tables, err, err_len);
	if (rc)
		return rc;
	rc = scout__worker_take_tables(w, tables, n_tables, err, err_len);
	if (rc == 0)
		rc = scout__worker_open_engine(w, err, err_len);
	if (rc)
		goto err_drop;
	(void)pthread_mutex_lock(&w->mu);
	w->reg = SCOUT__REG_WANTED;
	(void)pthread_mutex_unlock(&w->mu);
	scout__worker_post(w, SCOUT__WORD_REGISTER);
	rc = timeout_ms ? wait_registered(w, timeout_ms, err, err_len) : 0;
	if (rc && rc != SCOUT_ERR_TIMEOUT) {
		take_back(w);
		goto err_drop;
	}
	w->registered = true;
	w->registration++;
	return rc;

err_drop:
	scout__worker_drop_layout(w);
	return rc;
}

/* Convert the planes of a caller with another version of struct scout_plane; the result is for free(). */
static int
take_planes(const struct scout_table *table, size_t plane_size, struct scout_plane **ret_planes)
{
	struct scout_plane *planes = calloc(table->n_planes, sizeof(*planes));
	int rc = planes ? 0 : SCOUT_ERR_NOMEM;

	for (size_t i = 0; i < table->n_planes && rc == 0; i++)
		rc = scout__sized_read(&planes[i], sizeof(planes[i]),
				       SCOUT__SIZE_UP_TO(struct scout_plane, block_bytes),
				       (const uint8_t *)table->planes + i * plane_size, plane_size);
	if (rc)
		free(planes);
	else
		*ret_planes = planes;
	return rc;
}

/* Convert table @i of the caller; if its planes had to be converted, too, *ret_planes gets them. */
static int
read_table(const struct scout_table *tables, size_t i, size_t table_size, size_t plane_size, struct scout_table *ret,
	   struct scout_plane **ret_planes)
{
	int rc = scout__sized_read(ret, sizeof(*ret), SCOUT__SIZE_UP_TO(struct scout_table, layout_tag),
				   (const uint8_t *)tables + i * table_size, table_size);

	if (rc || plane_size == sizeof(struct scout_plane) || !ret->planes || ret->n_planes == 0 ||
	    ret->n_planes > SCOUT_MAX_PLANES)
		return rc;
	rc = take_planes(ret, plane_size, ret_planes);
	ret->planes = *ret_planes;
	return rc;
}

int
scout_worker_register_sized(struct scout_worker *w, const struct scout_table *tables, size_t n_tables,
			    size_t table_size, size_t plane_size, uint32_t timeout_ms, char *err, size_t err_len)
{
	struct scout_plane *planes[SCOUT__GROUPS_MAX] = {NULL};
	struct scout_table own[SCOUT__GROUPS_MAX];
	int rc = 0;

	if (!w || !tables || n_tables == 0)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "%s",
				   w ? "tables: must be at least one page table" : "worker is NULL");
	if (n_tables > SCOUT__GROUPS_MAX)
		return scout__fail(err, err_len, SCOUT_ERR_GROUP,
				   "%zu tables: must be one for each group, and the key group names %u", n_tables,
				   (unsigned)w->groups.n);
	for (size_t i = 0; i < n_tables && rc == 0; i++)
		rc = read_table(tables, i, table_size, plane_size, &own[i], &planes[i]);
	if (rc)
		(void)scout__fail(err, err_len, rc, "tables of %zu bytes, planes of %zu: %s", table_size, plane_size,
				  scout_strerror(rc));
	else
		rc = register_pages(w, own, n_tables, timeout_ms, err, err_len);
	for (size_t i = 0; i < n_tables; i++)
		free(planes[i]);
	return rc;
}

int
scout_worker_unregister(struct scout_worker *w)
{
	struct scout__job *job;

	if (!w)
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(w->courier))
		return SCOUT_ERR_FORKED;
	if (!w->registered)
		return 0;
	w->registered = false;
	w->registration++; /* jobs that poll has not reported belong to other pages */
	scout__worker_drop_all(w);
	TAILQ_FOREACH(job, &w->live_jobs, live_link)
	scout__worker_wait_copy(w, job);
	take_back(w);
	scout__worker_drop_layout(w);
	return 0;
}
