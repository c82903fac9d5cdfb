/* SPDX-License-Identifier: Apache-2.0 */
/* The test's end of the actors: commands and replies on two pipes. */
#include "fault_rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault_rig_internal.h"
#include "worker_rig.h"

struct fault_actor *
fault_actor_of(struct fault *f, uint64_t weights)
{
	struct fault_actor *a = &f->actors[f->n_actors++];
	char readers[16], ranks[16], heartbeat[16], timeout[16], version[32], line[64];
	char *argv[] = {(char *)(uintptr_t)fault_program("KVSCOUT_ACTOR"),
			f->endpoint,
			readers,
			ranks,
			heartbeat,
			timeout,
			version,
			NULL};
	int to[2], from[2];

	ck_assert_uint_le(f->n_actors, FAULT_ACTORS);
	(void)snprintf(readers, sizeof(readers), "%u", (unsigned)f->readers);
	(void)snprintf(ranks, sizeof(ranks), "%u", (unsigned)f->kv_ranks);
	(void)snprintf(heartbeat, sizeof(heartbeat), "%u", (unsigned)f->heartbeat_ms);
	(void)snprintf(timeout, sizeof(timeout), "%u", (unsigned)f->transfer_timeout_ms);
	(void)snprintf(version, sizeof(version), "%" PRIu64, weights);
	fault_pipe(to);
	fault_pipe(from);
	a->pid = fault_spawn(argv, (const int[4]){to[0], from[1], -1, f->life[0]});
	(void)close(to[0]);
	(void)close(from[1]);
	a->to = to[1];
	a->from = from[0];
	ck_assert_msg(fault_read_line(a->from, "the start of an actor", line, sizeof(line)) > 0,
		      "the actor did not start");
	ck_assert_str_eq(line, "ok actor");
	return a;
}

struct fault_actor *
fault_actor(struct fault *f)
{
	return fault_actor_of(f, 0);
}

struct fault_actor *
fault_worker(struct fault *f)
{
	struct fault_actor *a = fault_actor(f);

	(void)fault_ask(a, "worker 0");
	return a;
}

struct fault_actor *
fault_scheduler(struct fault *f)
{
	struct fault_actor *a = fault_actor(f);

	(void)fault_ask(a, "client");
	return a;
}

void
fault_up_with(struct fault *f, struct fault_actor **ret_sched, struct fault_actor **ret_worker,
	      struct fault_actor **ret_other)
{
	fault_up(f);
	*ret_sched = fault_scheduler(f);
	*ret_worker = fault_worker(f);
	if (ret_other)
		*ret_other = fault_worker(f);
}

void
fault_kill(struct fault_actor *a)
{
	ck_assert_int_eq(kill(a->pid, SIGKILL), 0);
	ck_assert(WIFSIGNALED(fault_wait_exit(a->pid)));
	(void)close(a->to);
	(void)close(a->from);
	a->pid = 0;
}

void
fault_freeze(struct fault_actor *a)
{
	int status;

	ck_assert_int_eq(kill(a->pid, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(a->pid, &status, WUNTRACED), a->pid);
	ck_assert(WIFSTOPPED(status));
}

void
fault_thaw(struct fault_actor *a)
{
	ck_assert_int_eq(kill(a->pid, SIGCONT), 0);
}

__attribute__((format(printf, 2, 0))) static void
send_line(struct fault_actor *a, const char *fmt, va_list args)
{
	char line[512];
	int n = vsnprintf(line, sizeof(line) - 1, fmt, args);

	ck_assert_int_ge(n, 0);
	ck_assert_uint_lt((size_t)n, sizeof(line) - 1);
	line[n++] = '\n';
	ck_assert_int_eq(write(a->to, line, (size_t)n), n);
}

static const char *
success(const struct fault_actor *a, const char *fmt)
{
	ck_assert_msg(strncmp(a->line, "ok", 2) == 0, "%s: %s", fmt, a->line);
	return a->line + (a->line[2] ? 3 : 2);
}

static void
hear(struct fault_actor *a, const char *fmt)
{
	ck_assert_msg(fault_read_line(a->from, fmt, a->line, sizeof(a->line)) >= 0, "the actor died of: %s", fmt);
}

void
fault_send(struct fault_actor *a, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	send_line(a, fmt, args);
	va_end(args);
}

const char *
fault_hear(struct fault_actor *a)
{
	hear(a, "what was sent");
	return success(a, "what was sent");
}

const char *
fault_try(struct fault_actor *a, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	send_line(a, fmt, args);
	va_end(args);
	hear(a, fmt);
	return a->line;
}

const char *
fault_ask(struct fault_actor *a, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	send_line(a, fmt, args);
	va_end(args);
	hear(a, fmt);
	return success(a, fmt);
}

uint64_t
fault_number(const char *reply)
{
	uint64_t value;

	ck_assert_int_eq(sscanf(reply, "%" SCNu64, &value), 1);
	return value;
}

struct fault_hit
fault_hit_of(const char *reply)
{
	struct fault_hit hit;

	ck_assert_int_eq(sscanf(reply, "%" SCNu64 " %u %" SCNu64 " %d %d %" SCNu64, &hit.tokens, &hit.chunks,
				&hit.ticket, &hit.reason, &hit.error, &hit.us),
			 6);
	return hit;
}

struct fault_hit
fault_look(struct fault_actor *a, const char *id, uint32_t prompt, uint32_t n)
{
	return fault_hit_of(fault_ask(a, "lookup %s %u %u %u", id, (unsigned)prompt, (unsigned)n,
				      (unsigned)(n * FAULT_CHUNK_TOKENS + 1)));
}

struct fault_hit
fault_lookup(struct fault_actor *a, const char *id, uint32_t prompt, uint32_t n)
{
	struct fault_hit hit;

	wait_until((hit = fault_look(a, id, prompt, n)).reason != SCOUT_REASON_UNREACHABLE) {
		(void)fault_ask(a, "finish %s", id);
	}
	return hit;
}

uint64_t
fault_store_begin(struct fault_actor *a, uint32_t w, uint32_t prompt, uint32_t bytes, uint32_t n, uint64_t ticket)
{
	return fault_number(fault_ask(a, "store %u %u %u %u 1 %" PRIu64, (unsigned)w, (unsigned)prompt, (unsigned)bytes,
				      (unsigned)n, ticket));
}

struct fault_done
fault_wait_done(struct fault_actor *a, uint32_t w)
{
	const char *reply = fault_ask(a, "done %u", (unsigned)w);
	struct fault_done done = {.missing = ""};
	int n;

	n = sscanf(reply, "%" SCNu64 " %d %d %u %u %u %u %512s", &done.job, &done.status, &done.kind, &done.chunks,
		   &done.present, &done.no_room, &done.n_missing, done.missing);
	ck_assert_int_ge(n, 7);
	return done;
}

struct fault_done
fault_store(struct fault_actor *a, uint32_t w, uint32_t prompt, uint32_t n)
{
	uint64_t job = fault_store_begin(a, w, prompt, prompt, n, 0);
	struct fault_done done = fault_wait_done(a, w);

	ck_assert_uint_eq(done.job, job);
	return done;
}

uint64_t
fault_retrieve_begin(struct fault_actor *a, uint32_t w, uint64_t ticket, uint32_t from, uint32_t n)
{
	(void)fault_ask(a, "wipe %u", (unsigned)w);
	return fault_number(fault_ask(a, "retrieve %u %" PRIu64 " %u %u %u", (unsigned)w, ticket, (unsigned)from,
				      (unsigned)n, FAULT_LOAD_PAGE));
}

struct fault_done
fault_retrieve(struct fault_actor *a, uint32_t w, uint64_t ticket, uint32_t from, uint32_t n)
{
	uint64_t job = fault_retrieve_begin(a, w, ticket, from, n);
	struct fault_done done = fault_wait_done(a, w);

	ck_assert_uint_eq(done.job, job);
	return done;
}

void
fault_enqueued(struct fault_actor *a, uint32_t w, uint64_t job)
{
	(void)fault_ask(a, "enqueued %u %" PRIu64, (unsigned)w, job);
}

void
fault_check_pages(struct fault_actor *a, uint32_t w, const struct fault_done *done, uint32_t prompt, uint32_t from,
		  uint32_t n)
{
	const char *pages = fault_ask(a, "pages %u %u %u %u %u", (unsigned)w, FAULT_LOAD_PAGE, (unsigned)n,
				      (unsigned)prompt, (unsigned)from);
	size_t named = strlen(done->missing);
	uint32_t n_named = 0;

	ck_assert_uint_eq(strlen(pages), n);
	for (uint32_t i = 0; i < n; i++) {
		bool missing = i < named && done->missing[i] == 'M';

		n_named += missing;
		ck_assert_msg(pages[i] == (missing ? 'U' : 'R'), "block %u of %s is %s: pages %s, named %s",
			      (unsigned)i, missing ? "those named" : "those filled",
			      pages[i] == 'W' ? "wrong" : "not so", pages, done->missing);
	}
	ck_assert_uint_eq(n_named, done->n_missing);
}

void
fault_check_all(struct fault_actor *a, uint32_t w, const struct fault_done *done, uint32_t prompt, uint32_t from,
		uint32_t n)
{
	ck_assert_msg(done->status == 0, "%s", scout_err_name(done->status));
	ck_assert_uint_eq(done->n_missing, 0);
	fault_check_pages(a, w, done, prompt, from, n);
}

uint32_t
fault_pressure(struct fault *f, struct fault_actor *a, uint32_t rounds)
{
	uint64_t end_us = wait_begin();
	uint32_t no_room = 0;

	for (uint32_t i = 0; i < rounds;) {
		struct fault_done done = fault_store(a, 0, 100000 + f->next_prompt++, f->pool_chunks);

		/* A server that gets no CPU for half a second is taken for gone: once more. */
		ck_assert_msg(done.status == 0 || (done.status == SCOUT_ERR_UNREACHABLE && scout__now_us() < end_us),
			      "%s", scout_err_name(done.status));
		no_room += done.status == 0 ? done.no_room : 0;
		i += done.status == 0;
	}
	return no_room;
}
