/* SPDX-License-Identifier: Apache-2.0 */
#include "matrix_rig.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker_rig.h"

/*
 * DESIGN
 *
 * The scheduler and the one who breaks things are one thread: faults are struck between steps, and steps go on while they last.
 * So a step's time is that of the library alone, and of a machine that does other things: it is reported, not judged.
 *
 * Pace, not waiting: poll(NULL, 0, 1) is the engine's own time between two steps. Everything that is waited for has a deadline.
 */

/*
 * C2, with room for a busy machine: so many steps, of a millisecond at least, may find no answer after the deadline. Counted, since time
 * also passes while nobody runs.
 */
#define LATE_STEPS 1000u
#define HEARTBEAT_MS (FAULT_SANITIZED ? 250u : 50u)

/* ---- what breaks ---- */

void
matrix_real(struct matrix *m)
{
	struct fault_done done;

	m->real.pool_chunks = 16;
	fault_up(&m->real);
	m->worker = fault_worker(&m->real);
	done = fault_store(m->worker, 0, MATRIX_PROMPT, MATRIX_CHUNKS);
	assert_ok(done.status);
}

void
matrix_fake(struct matrix *m)
{
	m->fake = fake_start();
	fake_set_hit(m->fake, MATRIX_CHUNKS);
}

void
matrix_proxy(struct matrix *m)
{
	const char *endpoint = m->fake ? fake_endpoint(m->fake) : m->real.endpoint;

	m->proxy = proxy_start(endpoint + strlen("ipc://"));
}

void
matrix_client_at(struct matrix *m, const char *endpoint)
{
	struct scout_client_config cfg;
	char err[256] = "";

	m->timeout_ms = m->timeout_ms ? m->timeout_ms : 300;
	scout_client_config_init(&cfg);
	cfg.endpoint = endpoint;
	cfg.name_space = "rig";
	cfg.chunk_tokens = FAULT_CHUNK_TOKENS;
	cfg.heartbeat_ms = m->heartbeat_ms ? m->heartbeat_ms : HEARTBEAT_MS;
	cfg.lookup_timeout_ms = m->timeout_ms;
	cfg.connect_timeout_ms = m->connect_timeout_ms ? m->connect_timeout_ms : 2000;
	/* What a proxy does to the bytes must matter. */
	cfg.local_transport = m->proxy ? SCOUT_LOCAL_SOCKET : rig_transport();
	cfg.kv_ranks = strchr(endpoint, ' ') ? 2 : 1;
	if (m->max_lookups)
		cfg.max_lookups = m->max_lookups;
	if (m->arena_bytes)
		cfg.arena_bytes = m->arena_bytes;
	if (getenv("RIG_LOG"))
		cfg.log = rig_log;
	ck_assert_msg(scout_client_new(&cfg, &m->client, err, sizeof(err)) == 0, "%s", err);
	scout_client_config_fini(&cfg);
}

void
matrix_client(struct matrix *m)
{
	matrix_client_at(m, m->proxy ? proxy_endpoint(m->proxy) : m->fake ? fake_endpoint(m->fake) : m->real.endpoint);
}

void
matrix_ready(struct matrix *m)
{
	char err[256] = "";

	ck_assert_msg(scout_client_wait_ready(m->client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
}

void
matrix_stop(pid_t pid)
{
	int status;

	ck_assert_int_eq(kill(pid, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
}

void
matrix_cont(pid_t pid)
{
	ck_assert_int_eq(kill(pid, SIGCONT), 0);
}

/* ---- the scheduler ---- */

void
matrix_ask(struct matrix *m, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		ck_assert_uint_lt(m->n_requests, MATRIX_REQUESTS);
		struct matrix_request *r = &m->requests[m->n_requests];

		*r = (struct matrix_request){.n = MATRIX_CHUNKS};
		(void)snprintf(r->id, sizeof(r->id), "r%u", (unsigned)m->n_requests++);
	}
}

static void
ask_one(struct matrix *m, struct matrix_request *r, const uint8_t *hashes)
{
	struct scout_query q = {.id = r->id,
				.hashes = hashes,
				.hash_len = RIG_HASH,
				.n = r->n,
				.prompt_tokens = r->n * FAULT_CHUNK_TOKENS + 1};
	uint64_t begin_us = scout__now_us();
	int rc = scout_try_lookup(m->client, &q, &r->hit);
	uint64_t late_us;

	if (rc == SCOUT_ERR_BUSY) {
		m->n_busy++;
		return;
	}
	ck_assert_msg(rc == 0 || rc == SCOUT_NOT_YET, "%s: %s", r->id, scout_err_name(rc));
	if (!r->accepted) {
		r->accepted = true;
		r->accepted_us = begin_us;
	}
	late_us = scout__now_us() - r->accepted_us;
	r->late_steps += late_us > m->timeout_ms * UINT64_C(1000);
	ck_assert_msg(r->late_steps <= LATE_STEPS, "%s: no answer after %" PRIu64 " ms", r->id, late_us / 1000);
	if (rc == 0) {
		r->answered = true;
		m->worst_us = late_us > m->worst_us ? late_us : m->worst_us;
	}
}

void
matrix_step(struct matrix *m)
{
	uint8_t *hashes = rig_hashes(MATRIX_PROMPT, MATRIX_CHUNKS);
	uint64_t begin_us = scout__now_us(), took_us;

	scout_step_begin(m->client);
	for (uint32_t i = 0; i < m->n_requests; i++)
		if (!m->requests[i].answered && !m->requests[i].finished)
			ask_one(m, &m->requests[i], hashes);
	scout_step_end(m->client);
	took_us = scout__now_us() - begin_us;
	m->longest_step_us = took_us > m->longest_step_us ? took_us : m->longest_step_us;
	free(hashes);
	(void)poll(NULL, 0, 1);
}

void
matrix_steps_ms(struct matrix *m, uint32_t ms)
{
	uint64_t end_us = scout__now_us() + ms * UINT64_C(1000);

	while (scout__now_us() < end_us)
		matrix_step(m);
}

static bool
all_answered(const struct matrix *m)
{
	for (uint32_t i = 0; i < m->n_requests; i++)
		if (!m->requests[i].answered && !m->requests[i].finished)
			return false;
	return true;
}

void
matrix_answers(struct matrix *m)
{
	wait_until(all_answered(m))
		matrix_step(m);
}

void
matrix_patient(struct matrix *m)
{
	m->heartbeat_ms = 2000;
	m->timeout_ms = 5000;
}

void
matrix_hits(struct matrix *m, uint32_t count)
{
	uint32_t hits = 0;

	wait_until(hits == count) {
		matrix_finish(m);
		m->n_requests = 0;
		matrix_ask(m, count);
		matrix_answers(m);
		hits = 0;
		for (uint32_t i = 0; i < count; i++)
			hits += m->requests[i].hit.chunks == MATRIX_CHUNKS;
	}
}

void
matrix_all_failed(const struct matrix *m, uint32_t first)
{
	for (uint32_t i = first; i < m->n_requests; i++)
		ck_assert_msg(m->requests[i].hit.error != 0 && m->requests[i].hit.tokens == 0, "%s: %s",
			      m->requests[i].id, scout_reason_name(m->requests[i].hit.reason));
}

void
matrix_all_hit(const struct matrix *m, uint32_t first)
{
	for (uint32_t i = first; i < m->n_requests; i++)
		ck_assert_msg(m->requests[i].hit.chunks == MATRIX_CHUNKS, "%s: %s, %u chunks", m->requests[i].id,
			      scout_reason_name(m->requests[i].hit.reason), (unsigned)m->requests[i].hit.chunks);
}

void
matrix_finish(struct matrix *m)
{
	for (uint32_t i = 0; i < m->n_requests; i++) {
		if (m->requests[i].finished)
			continue;
		ck_assert_int_eq(scout_finish(m->client, m->requests[i].id), 0);
		m->requests[i].finished = true;
	}
}

struct scout_client_counters
matrix_stats(struct matrix *m)
{
	struct scout_client_counters s = {0};

	ck_assert_int_eq(scout_client_stats(m->client, &s), 0);
	return s;
}

/* ---- afterwards ---- */

void
matrix_works(struct matrix *m, bool must_hit)
{
	m->works = false;
	wait_until(m->works) {
		const struct matrix_request *r;

		matrix_finish(m);
		m->n_requests = m->n_requests > MATRIX_REQUESTS - 2 ? 0 : m->n_requests;
		matrix_ask(m, 1);
		r = &m->requests[m->n_requests - 1];
		matrix_answers(m);
		m->works = r->hit.error == 0 && (!must_hit || r->hit.chunks == MATRIX_CHUNKS);
	}
}

void
matrix_refill(struct matrix *m)
{
	struct fault_done done = {.status = -1};
	uint64_t job;

	wait_until(done.status == 0 && done.no_room == 0) {
		const char *reply =
			fault_try(m->worker, "store 0 %u %u %u 1 0", MATRIX_PROMPT, MATRIX_PROMPT, MATRIX_CHUNKS);

		if (sscanf(reply, "ok %" SCNu64, &job) == 1)
			done = fault_wait_done(m->worker, 0);
		matrix_step(m);
	}
	matrix_works(m, true);
}

void
matrix_end(struct matrix *m)
{
	matrix_finish(m);
	if (m->fake) {
		wait_until((m->left = fake_open_sessions(m->fake)) == 0)
			matrix_step(m);
	}
	if (m->real.server) {
		fault_settle(&m->real);
		m->left = fault_status(&m->real, "holds") + fault_status(&m->real, "l1.bytes_promised") +
			  fault_status(&m->real, "sessions");
	}
	scout_client_free(m->client);
	if (m->proxy)
		proxy_stop(m->proxy);
	if (m->fake)
		fake_stop(m->fake);
	if (m->real.server)
		fault_down(&m->real);
}
