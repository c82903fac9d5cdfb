/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "files_internal.h"
#include "option.h"
#include "url.h"

/*
 * DESIGN
 *
 * The files adapter: objects as files of a folder on a local disk, or on a parallel file system that other nodes write
 * too (shared=1).
 *
 * Two queues come from the loop. One thread, the names thread, answers from the catalogue what exists and touches no
 * disk: a disk that hangs delays no answer. Loads and stores go to `threads` disk threads, each with one operation at a
 * time in plain pread and pwrite. With shared=1 the names thread deals the keys out to a pool that asks the file
 * system.
 *
 * A third kind of thread rebuilds the catalogue once, at the start. Meanwhile only the objects known so far exist: an
 * object that is not known yet is a miss, which costs a computation and is right; a wait could cost every lookup its
 * deadline. The gauge `ready` says when the rebuild is over.
 *
 * Clocks (l2.h): a disk thread begins an operation when it takes it, and reports progress after each piece of
 * SCOUT__FILES_PIECE that it reads or writes, and after each file that it removes to make room. With sync=1 written
 * data is sent to the disk every few pieces, so that the last flush has little left to do and a slow disk shows as
 * slow. A question begins when the catalogue is asked, or when the probe pool takes its first slice, and moves with
 * each slice.
 *
 * At once: twice as many loads as threads, so that no thread waits for the loop between two loads; one write less than
 * threads (or one), so that writes never hold all threads.
 *
 * Ending: every thread sees `stopping` within one operation. A thread that hangs in the kernel is left alone: stop()
 * says so, nothing is freed, and the memory that it uses stays mapped.
 *
 * Threads: open, stop and close run on the server's starter; submit on its loop; other functions as they say. Only
 * `threads`, the scan and the probe pool ever wait for a disk.
 */

#define THREADS_DEFAULT 4

struct files_options {
	uint32_t size;
	uint32_t threads;
	uint32_t direct, sync, shared, remove_old;
	uint64_t max_bytes;
	void *owned;
};

#define FIELD(name) offsetof(struct files_options, name)

static const struct scout__option options[] = {
	{
		.name = "max_bytes",
		.type = SCOUT_OPTION_SIZE,
		.offset = FIELD(max_bytes),
		.max = UINT64_C(1) << 60,
		.def_text = "no limit",
		.doc = "Disk space of the objects, in whole blocks of the file system; beyond it the least recently used are removed; "
		       "0: no limit",
	},
	{
		.name = "threads",
		.type = SCOUT_OPTION_U32,
		.offset = FIELD(threads),
		.def = THREADS_DEFAULT,
		.min = 1,
		.max = SCOUT__FILES_THREADS_MAX,
		.doc = "Loads and stores that run at once",
	},
	{
		.name = "direct",
		.type = SCOUT_OPTION_BOOL,
		.offset = FIELD(direct),
		.max = 1,
		.doc = "Direct I/O, around the page cache",
	},
	{
		.name = "sync",
		.type = SCOUT_OPTION_BOOL,
		.offset = FIELD(sync),
		.max = 1,
		.doc = "A store ends when it is on the disk, not in the page cache",
	},
	{
		.name = "shared",
		.type = SCOUT_OPTION_BOOL,
		.offset = FIELD(shared),
		.max = 1,
		.doc = "Other servers write to this folder too; each question goes to the file system",
	},
	{
		.name = "remove_old",
		.type = SCOUT_OPTION_BOOL,
		.offset = FIELD(remove_old),
		.max = 1,
		.doc = "Remove, at the start, the objects of other formats that an upgrade has left; without it they stay unused "
		       "and are removed first when max_bytes is reached",
	},
};

static const struct scout__option_table table = {
	.options = options,
	.n = sizeof(options) / sizeof(options[0]),
	.struct_size = sizeof(struct files_options),
	.v1_size = sizeof(struct files_options),
	.owned_offset = FIELD(owned),
};

int
scout__files_options_row(size_t i, struct scout_config_row *ret_row)
{
	return scout__options_row(&table, i, ret_row, sizeof(*ret_row));
}

/* ---- threads ---- */

static void
cancel(struct scout__files *files, struct scout__l2_op *op)
{
	op->result = SCOUT__L2_CANCELLED;
	op->detail = 0;
	scout__l2_complete(files->port, op);
}

static void
answer_names(struct scout__files *files, struct scout__l2_op *op)
{
	op->detail = 0;
	if (op->what == SCOUT__L2_UNPIN) {
		scout__cat_unpin(&files->cat, op->digests, op->n, NULL);
	} else if (scout__files_is_stopping(files)) {
		cancel(files, op);
		return;
	} else if (files->probe_pool && op->n > 0) {
		scout__probe_pool_ask(files, op);
		return;
	} else {
		scout__l2_moved(op);
		(void)scout__cat_exists(&files->cat, op->digests, op->n, op->pin, op->found);
	}
	op->result = SCOUT__L2_OK;
	scout__l2_complete(files->port, op);
}

static void *
names_main(void *arg)
{
	struct scout__files *files = arg;
	struct scout__l2_op *op;

	while ((op = scout__l2_queue_wait(&files->names)))
		answer_names(files, op);
	if (files->probe_pool)
		scout__probe_pool_stop(files);
	scout__files_thread_ends(files);
	return NULL;
}

static void *
disk_main(void *arg)
{
	struct scout__files_hand *hand = arg;
	struct scout__files *files = hand->files;
	struct scout__l2_op *op;

	while ((op = scout__l2_queue_wait(&files->disk))) {
		scout__l2_moved(op);
		hand->op = op;
		scout__files_do(hand, op);
		scout__l2_complete(files->port, op);
	}
	scout__files_thread_ends(files);
	return NULL;
}

static void *
scan_main(void *arg)
{
	struct scout__files *files = arg;

	scout__files_scan(files);
	scout__files_thread_ends(files);
	return NULL;
}

static int
start_hands(struct scout__files *files)
{
	files->hands = calloc(files->n_threads, sizeof(*files->hands));
	if (!files->hands)
		return SCOUT_ERR_NOMEM;
	while (files->n_hands_started < files->n_threads) {
		struct scout__files_hand *hand = &files->hands[files->n_hands_started];
		void *bounce;

		if (posix_memalign(&bounce, SCOUT__FILES_PAYLOAD, SCOUT__FILES_PIECE))
			return SCOUT_ERR_NOMEM;
		hand->files = files;
		hand->bounce = bounce;
		if (scout__files_thread_start(files, &hand->thread, "scout-l2-disk", disk_main, hand)) {
			free(bounce);
			return SCOUT_ERR_SYSTEM;
		}
		files->n_hands_started++;
	}
	return 0;
}

static int
start_threads(struct scout__files *files, uint32_t max_ops)
{
	int rc = start_hands(files);

	if (rc == 0 && files->shared)
		rc = scout__probe_pool_start(files, max_ops);
	if (rc)
		return rc;
	if (scout__files_thread_start(files, &files->names_thread, "scout-l2-names", names_main, files))
		return SCOUT_ERR_SYSTEM;
	files->has_names_thread = true;
	if (scout__files_thread_start(files, &files->scan_thread, "scout-l2-scan", scan_main, files))
		return SCOUT_ERR_SYSTEM;
	files->has_scan_thread = true;
	return 0;
}

/* ---- the adapter ---- */

static void
files_close(void *adapter)
{
	struct scout__files *files = adapter;

	for (uint32_t i = 0; i < files->n_hands_started; i++) {
		(void)pthread_join(files->hands[i].thread, NULL);
		free(files->hands[i].bounce);
	}
	if (files->probe_pool)
		scout__probe_pool_free(files);
	if (files->has_names_thread)
		(void)pthread_join(files->names_thread, NULL);
	if (files->has_scan_thread)
		(void)pthread_join(files->scan_thread, NULL);
	free(files->hands);
	scout__l2_queue_fini(&files->names);
	scout__l2_queue_fini(&files->disk);
	scout__cat_fini(&files->cat);
	scout__files_root_close(&files->root);
	(void)pthread_cond_destroy(&files->ended);
	(void)pthread_mutex_destroy(&files->mu);
	(void)pthread_mutex_destroy(&files->removing);
	free(files->path);
	free(files);
}

static void
ask_to_stop(struct scout__files *files)
{
	atomic_store_explicit(&files->stopping, true, memory_order_relaxed);
	scout__l2_queue_close(&files->names);
	scout__l2_queue_close(&files->disk);
	scout__cat_stop(&files->cat);
	if (files->probe_pool && !files->has_names_thread)
		scout__probe_pool_stop(files); /* otherwise that thread does so, when it has asked all */
}

static bool
files_stop(void *adapter, uint64_t deadline_us)
{
	struct scout__files *files = adapter;
	struct scout__l2_op *op;

	ask_to_stop(files);
	if (scout__files_threads_wait(files, deadline_us))
		return true;
	/* If all threads hang, no thread would end these. */
	while ((op = scout__l2_queue_try(&files->names)))
		cancel(files, op);
	while ((op = scout__l2_queue_try(&files->disk)))
		cancel(files, op);
	scout__log(files->log, SCOUT_LOG_ERROR, "files tier %s: the disk does not answer; a thread is left running",
		   files->path);
	return false;
}

/* Initialise first what cannot fail, then what can. */
static int
init(struct scout__files *files, const struct files_options *cfg, const struct scout__l2_open *args)
{
	pthread_condattr_t attr;
	int rc;

	files->port = args->port;
	files->log = args->log;
	files->max_bytes = cfg->max_bytes ? cfg->max_bytes : UINT64_MAX;
	files->n_threads = cfg->threads;
	files->timeout_us = (uint64_t)args->timeout_ms * 1000;
	files->direct = cfg->direct;
	files->sync = cfg->sync;
	files->shared = cfg->shared;
	files->remove_old = cfg->remove_old;
	/* These do not fail on Linux. */
	SCOUT_ASSERT(pthread_mutex_init(&files->mu, NULL) == 0 && pthread_mutex_init(&files->removing, NULL) == 0);
	SCOUT_ASSERT(pthread_condattr_init(&attr) == 0);
	SCOUT_ASSERT(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
	SCOUT_ASSERT(pthread_cond_init(&files->ended, &attr) == 0);
	SCOUT_ASSERT(pthread_condattr_destroy(&attr) == 0);
	files->path = strdup(args->url->path);
	if (!files->path)
		goto err_destroy;
	if (scout__cat_init(&files->cat, files->max_bytes) != 0)
		goto err_free_path;
	rc = scout__l2_queue_init(&files->names, args->max_ops, false);
	if (rc)
		goto err_fini_cat;
	rc = scout__l2_queue_init(&files->disk, args->max_ops, false);
	if (rc)
		goto err_fini_names;
	return 0;

err_fini_names:
	scout__l2_queue_fini(&files->names);
err_fini_cat:
	scout__cat_fini(&files->cat);
err_free_path:
	free(files->path);
err_destroy:
	(void)pthread_cond_destroy(&files->ended);
	(void)pthread_mutex_destroy(&files->mu);
	(void)pthread_mutex_destroy(&files->removing);
	return SCOUT_ERR_NOMEM;
}

static int
open_with(const struct scout__l2_open *args, const struct files_options *cfg, void **ret_adapter, char *err,
	  size_t err_len)
{
	struct scout__files *files;
	struct scout__files_root root;
	int rc;

	rc = scout__files_root_open(args->url->path, cfg->shared, cfg->direct, &root, err, err_len);
	if (rc)
		return rc;
	files = calloc(1, sizeof(*files));
	rc = files ? init(files, cfg, args) : SCOUT_ERR_NOMEM;
	if (rc) {
		scout__files_root_close(&root);
		free(files);
		return scout__fail(err, err_len, rc, "%s", scout_strerror(rc));
	}
	files->root = root;
	rc = start_threads(files, args->max_ops);
	if (rc) {
		ask_to_stop(files);
		files_close(files);
		return scout__fail(err, err_len, rc, "the threads cannot be started: %s", scout_strerror(rc));
	}
	*ret_adapter = files;
	return 0;
}

/* On success the caller ends @cfg. */
static int
read_url(const struct scout__l2_url *url, struct files_options *cfg, char *err, size_t err_len)
{
	int rc = scout__l2_url_need_folder(url, err, err_len);

	return rc ? rc : scout__l2_url_options(url, &table, cfg, err, err_len);
}

static int
files_check(const struct scout__l2_url *url, char *err, size_t err_len)
{
	struct files_options cfg;
	int rc = read_url(url, &cfg, err, err_len);

	if (rc == 0)
		scout__options_fini(&table, &cfg);
	return rc;
}

static int
files_open(const struct scout__l2_open *args, void **ret_adapter, char *err, size_t err_len)
{
	struct files_options cfg;
	int rc = read_url(args->url, &cfg, err, err_len);

	if (rc)
		return rc;
	rc = open_with(args, &cfg, ret_adapter, err, err_len);
	scout__options_fini(&table, &cfg);
	return rc;
}

static SCOUT_ON_LOOP bool
files_submit(void *adapter, struct scout__l2_op *op)
{
	struct scout__files *files = adapter;
	bool of_names = op->what == SCOUT__L2_EXISTS || op->what == SCOUT__L2_UNPIN;

	return scout__l2_queue_push(of_names ? &files->names : &files->disk, op);
}

static uint32_t
files_at_once(const void *adapter, enum scout__l2_side side)
{
	const struct scout__files *files = adapter;

	if (side == SCOUT__L2_READS)
		return 2 * files->n_threads;
	return files->n_threads > 1 ? files->n_threads - 1 : 1;
}

static void
files_gauges(void *adapter, struct scout__l2_gauges *ret_gauges)
{
	struct scout__files *files = adapter;
	/* In a folder that others write too, only what this server wrote is known. */
	bool knows = !files->shared;

	*ret_gauges = (struct scout__l2_gauges){
		.objects = knows ? atomic_load_explicit(&files->cat.n_objects, memory_order_relaxed) : UINT64_MAX,
		.bytes = knows ? atomic_load_explicit(&files->cat.bytes, memory_order_relaxed) : UINT64_MAX,
		.max_bytes = files->max_bytes,
		.evictions = atomic_load_explicit(&files->evictions, memory_order_relaxed),
		.pinned = atomic_load_explicit(&files->cat.n_pinned, memory_order_relaxed),
		.recovered = atomic_load_explicit(&files->recovered, memory_order_relaxed),
		.leftover = atomic_load_explicit(&files->leftover, memory_order_relaxed),
		.ready = atomic_load_explicit(&files->ready, memory_order_acquire),
	};
}

const struct scout__l2_adapter scout__l2_files = {
	.scheme = "fs",
	.keeps_records = true,
	.check = files_check,
	.open = files_open,
	.submit = files_submit,
	.at_once = files_at_once,
	.stop = files_stop,
	.close = files_close,
	.gauges = files_gauges,
};
