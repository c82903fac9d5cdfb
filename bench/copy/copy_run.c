/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: a run on a GPU that loses nothing it has measured.
 *
 * Two processes. The one that reports has no CUDA in it: it prints and writes each result as it comes, and keeps the
 * time. A child measures point after point and sends results through a pipe. A child that crashes, meets a sticky
 * error of the device, or says nothing for too long is ended and costs the point that it was at; a new child goes on
 * behind it, in a new context. So one method that hangs in one driver does not take the table with it. The point is
 * tried once more with the method that the goals are for alone; after MAX_REDUCED of these all others are, too.
 *
 * Budget: past --budget-s the child begins no new point, and a little later it is ended in the middle of one. Points
 * are in the order of their importance (copy_plan.c).
 *
 * Messages are smaller than PIPE_BUF, so each arrives whole. The child is forked before anything of CUDA is called.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "copy_gpu.h"
#include "copy_measure.h"
#include "copy_report.h"
#include "say.h"

#define INIT_LIMIT_S 120u
#define GRACE_S 10u
#define REAP_LIMIT_S 15u
#define MAX_CHILDREN 12u
#define MAX_REDUCED 3u

enum copy_message_kind {
	MESSAGE_INFO,
	MESSAGE_BEGIN,
	MESSAGE_RESULT,
	MESSAGE_TEXT, /* why the child ends */
	MESSAGE_END   /* it has nothing more to do */
};

struct copy_message {
	enum copy_message_kind kind;
	unsigned int point;
	int status; /* exit status that goes with a text */
	union {
		struct copy_gpu_info info;
		struct copy_result result;
		char text[200];
	} u;
};

_Static_assert(sizeof(struct copy_message) <= PIPE_BUF, "messages are written whole");

/* ---- the child ---- */

static int child_pipe = -1; /* const after the fork */

static void
send_message(const struct copy_message *message)
{
	ssize_t n;

	do
		n = write(child_pipe, message, sizeof(*message));
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(*message))
		_exit(EXIT_WRONG); /* the reader has gone */
}

/* Instead of a line on standard error: the reporting process puts it where it belongs. */
static void
send_death(int status, const char *text)
{
	struct copy_message message = {.kind = MESSAGE_TEXT, .status = status};

	(void)snprintf(message.u.text, sizeof(message.u.text), "%s", text);
	send_message(&message);
	_exit(status); /* no destructors: the device may be hung */
}

static uint64_t
region_bytes(const struct copy_world *w)
{
	uint64_t bytes = 0;

	for (uint32_t g = 0; g < w->n_groups; g++)
		bytes += w->regions[copy_goal_way(w->opt)][g].bytes;
	return bytes;
}

static uint64_t
spread_bytes(const struct copy_world *w)
{
	uint64_t bytes = 0;

	for (uint32_t g = 0; g < w->n_groups; g++)
		bytes += w->groups[g].layout.n_planes * w->groups[g].layout.n_blocks * w->groups[g].piece;
	return bytes;
}

static void
measure(struct copy_world *w, const struct copy_point *point, bool is_set_up, struct copy_message *message)
{
	struct copy_result *result = &message->u.result;

	*result = (struct copy_result){.status = COPY_UNAVAILABLE};
	if (!is_set_up && !copy_world_set_up(w, point, result->text, sizeof(result->text)))
		return;
	w->point = *point;
	result->total_bytes = copy_world_bytes(w, point->course);
	result->pool_bytes = spread_bytes(w);
	result->slot_region_bytes = region_bytes(w);
	copy_measure_point(w, point, result);
	result->status = COPY_MEASURED;
}

__attribute__((noreturn)) static void
child_main(const struct copy_report *report, const struct copy_gpu *gpu, uint64_t end_us)
{
	static struct copy_world w;
	struct copy_message message = {.kind = MESSAGE_INFO};
	bool is_set_up = false;

	(void)prctl(PR_SET_PDEATHSIG, (unsigned long)SIGKILL, 0UL, 0UL, 0UL);
	copy_on_death = send_death;
	copy_world_open(&w, report->opt, gpu);
	message.u.info = w.info;
	send_message(&message);
	for (unsigned int i = 0; i < report->n_points && scout__now_us() < end_us; i++) {
		if (report->results[i].status != COPY_NOT_MEASURED)
			continue;
		message = (struct copy_message){.kind = MESSAGE_BEGIN, .point = i};
		send_message(&message);
		is_set_up = is_set_up && copy_same_setup(&w.point, &report->points[i]);
		message.kind = MESSAGE_RESULT;
		measure(&w, &report->points[i], is_set_up, &message);
		is_set_up = message.u.result.status == COPY_MEASURED;
		send_message(&message);
	}
	copy_world_close(&w);
	message = (struct copy_message){.kind = MESSAGE_END};
	send_message(&message);
	_exit(0);
}

/* ---- the process that reports ---- */

struct copy_run {
	struct copy_report report;
	unsigned int point_limit_s; /* for a point that says nothing */
	uint64_t end_us;            /* no point begins after this */
	pid_t child;
	int fd;
	int at;                 /* the point that the child is at; -1: none yet */
	char text[200];         /* why it ends */
	int status;             /* with that */
	unsigned int n_reduced; /* points that broke with all methods */
	bool has_said, has_ended, is_out_of_time;
	bool is_broken; /* it ended badly between two points */
};

static void
start_child(struct copy_run *run, const struct copy_gpu *gpu)
{
	int fds[2];

	say_flush(); /* or the child has it, too */
	if (run->report.lines)
		(void)fflush(run->report.lines); /* likewise; an error shows at the end */
	if (pipe(fds) != 0)
		copy_die(EXIT_WRONG, "no pipe");
	run->at = -1;
	run->has_said = false;
	run->has_ended = false;
	run->text[0] = 0;
	run->child = fork();
	if (run->child < 0)
		copy_die(EXIT_WRONG, "no process");
	if (run->child == 0) {
		(void)close(fds[0]);
		child_pipe = fds[1];
		child_main(&run->report, gpu, run->end_us);
	}
	(void)close(fds[1]);
	run->fd = fds[0];
}

/* Milliseconds that the child may say nothing. */
static int
patience_ms(const struct copy_run *run)
{
	uint64_t now_us = scout__now_us(), last_us = run->end_us + GRACE_S * UINT64_C(1000000);
	uint64_t limit_ms = (run->report.has_info ? run->point_limit_s : INIT_LIMIT_S) * UINT64_C(1000);

	if (run->end_us == UINT64_MAX)
		return (int)limit_ms;
	if (now_us >= last_us)
		return 0;
	return (int)((last_us - now_us) / 1000 < limit_ms ? (last_us - now_us) / 1000 + 1 : limit_ms);
}

/* Why it broke with all methods stays with the point. */
static void
take_result(struct copy_run *run, const struct copy_message *message)
{
	struct copy_result *result = &run->report.results[message->point];
	char text[sizeof(result->text)];

	memcpy(text, result->text, sizeof(text));
	*result = message->u.result;
	if (result->text[0] == 0)
		memcpy(result->text, text, sizeof(text));
}

static void
take(struct copy_run *run, const struct copy_message *message)
{
	switch (message->kind) {
	case MESSAGE_INFO:
		if (!run->report.has_info) {
			run->report.info = message->u.info;
			run->report.has_info = true;
			copy_report_begin(&run->report);
		}
		break;
	case MESSAGE_BEGIN:
		run->at = (int)message->point;
		break;
	case MESSAGE_RESULT:
		take_result(run, message);
		copy_report_point(&run->report, message->point);
		run->at = -1;
		break;
	case MESSAGE_TEXT:
		(void)snprintf(run->text, sizeof(run->text), "%s", message->u.text);
		run->status = message->status;
		run->has_said = true;
		break;
	case MESSAGE_END:
		run->has_ended = true;
		break;
	}
}

/* Until the child has no more to say or is out of time. */
static void
listen_to_child(struct copy_run *run)
{
	struct pollfd pfd = {.fd = run->fd, .events = POLLIN};
	struct copy_message message;
	ssize_t n;
	int rc;

	for (;;) {
		rc = poll(&pfd, 1, patience_ms(run));
		if (rc < 0 && errno == EINTR)
			continue;
		if (rc == 0) {
			run->is_out_of_time = scout__now_us() >= run->end_us;
			if (!run->has_said)
				(void)snprintf(run->text, sizeof(run->text), "nothing happened for %u s",
					       run->point_limit_s);
			(void)kill(run->child, SIGKILL); /* it is our child: it is there until we wait for it */
			return;
		}
		n = read(run->fd, &message, sizeof(message));
		if (n != (ssize_t)sizeof(message))
			return;
		take(run, &message);
	}
}

/*
 * A process that hangs in the driver may not end. One that does gives its GPU memory back at its very end, which
 * takes a while, and the next one needs it.
 */
static int
reap(const struct copy_run *run)
{
	uint64_t until_us = scout__now_us() + REAP_LIMIT_S * UINT64_C(1000000);
	int status = 0;

	while (waitpid(run->child, &status, WNOHANG) == 0) {
		if (scout__now_us() > until_us)
			return -1;
		(void)poll(NULL, 0, 10);
	}
	return status;
}

/* The point that broke is tried again without the other methods; false: that has been done. */
static bool
reduce(struct copy_run *run, struct copy_result *result)
{
	struct copy_point *points = run->report.points;

	if (points[run->at].is_reduced || points[run->at].only_auto || run->report.opt->has_method)
		return false;
	complain("point %d: %s; once more with method %s alone", run->at, run->text,
		 copy_way_names[copy_goal_way(run->report.opt)]);
	points[run->at].is_reduced = true;
	run->n_reduced++;
	for (unsigned int i = 0; i < run->report.n_points && run->n_reduced >= MAX_REDUCED; i++)
		points[i].is_reduced |= run->report.results[i].status == COPY_NOT_MEASURED;
	*result = (struct copy_result){.status = COPY_NOT_MEASURED};
	(void)snprintf(result->text, sizeof(result->text), "with all methods: %.180s", run->text);
	return true;
}

/* The child is over: what that means for the point that it was at. Returns whether another one is worth starting. */
static bool
end_child(struct copy_run *run)
{
	int status = reap(run);
	struct copy_result *result = run->at >= 0 ? &run->report.results[run->at] : NULL;

	(void)close(run->fd);
	if (run->is_out_of_time)
		return false; /* the point that it was at is not measured */
	if (run->has_ended)
		return false;
	if (run->text[0] == 0 && status > 0 && WIFSIGNALED(status))
		(void)snprintf(run->text, sizeof(run->text), "the measuring process ended by signal %d",
			       WTERMSIG(status));
	else if (run->text[0] == 0)
		(void)snprintf(run->text, sizeof(run->text), "the measuring process ended with status %d",
			       WIFEXITED(status) ? WEXITSTATUS(status) : status);
	if (!result) {
		run->is_broken = run->report.has_info;
		return false; /* it did not come to a point: nor would the next one */
	}
	*result = (struct copy_result){.status = COPY_FAILED};
	if (reduce(run, result))
		return scout__now_us() < run->end_us;
	memcpy(result->text, run->text, sizeof(result->text));
	copy_report_point(&run->report, (unsigned int)run->at);
	return scout__now_us() < run->end_us;
}

static int
exit_status(const struct copy_run *run)
{
	const struct copy_report *report = &run->report;
	unsigned int failed = 0;
	uint64_t wrong = 0;

	for (unsigned int i = 0; i < report->n_points; i++) {
		failed += report->results[i].status == COPY_FAILED;
		wrong += report->results[i].wrong_bytes;
	}
	if (wrong)
		complain("%" PRIu64 " bytes are wrong", wrong);
	if (failed)
		complain("%u points failed", failed);
	if (run->n_reduced)
		complain("%u points broke with all methods", run->n_reduced);
	if (run->is_broken)
		complain("%s", run->text);
	return wrong || failed || run->n_reduced || run->is_broken ? EXIT_WRONG : 0;
}

static void
check_options(const struct copy_options *opt)
{
	if (opt->has_method && strcmp(opt->method, "memcpy") == 0)
		copy_die(EXIT_USAGE, "--method = \"memcpy\": on cuda one of staged, batch, auto");
	if (opt->has_piece_bytes &&
	    (opt->piece_bytes < COPY_SMALLEST_PIECE || opt->piece_bytes > COPY_LARGEST_PIECE || opt->piece_bytes % 8))
		copy_die(EXIT_USAGE, "--piece-bytes: on cuda a multiple of 8 from %u to %u", COPY_SMALLEST_PIECE,
			 COPY_LARGEST_PIECE);
}

/* --pieces counts the pieces of one copy, as on the host. */
static void
settle_options(struct copy_options *opt)
{
	if (!opt->has_piece_bytes)
		opt->sweep = true;
	if (!opt->sweep && opt->has_pieces)
		opt->total_bytes = opt->piece_bytes * opt->pieces;
	if (opt->total_bytes < COPY_MIN_TOTAL || opt->total_bytes > COPY_MAX_TOTAL)
		copy_die(EXIT_USAGE, "--piece-bytes times --pieces is outside %" PRIu64 "..%" PRIu64,
			 (uint64_t)COPY_MIN_TOTAL, (uint64_t)COPY_MAX_TOTAL);
}

int
copy_run(const struct copy_options *given, const struct copy_gpu *gpu, unsigned int point_limit_s)
{
	static struct copy_run run; /* large: all results */
	struct copy_options opt = *given;

	check_options(&opt);
	settle_options(&opt);
	run = (struct copy_run){.report = {.opt = &opt, .begin_us = scout__now_us()}, .point_limit_s = point_limit_s};
	run.end_us = opt.budget_s ? run.report.begin_us + opt.budget_s * UINT64_C(1000000) : UINT64_MAX;
	run.report.is_quiet = opt.json && strcmp(opt.json, "-") == 0;
	run.report.n_points = copy_plan(&opt, run.report.points);
	run.report.has_given_up = true;
	for (unsigned int children = 0; children < MAX_CHILDREN && run.report.has_given_up; children++) {
		start_child(&run, gpu);
		listen_to_child(&run);
		run.report.has_given_up = end_child(&run);
	}
	if (!run.report.has_info)
		copy_die(run.has_said ? run.status : EXIT_WRONG, "backend cuda: %s", run.text);
	copy_report_end(&run.report);
	return exit_status(&run);
}
