/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
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
 * Its threads are those of blocking.h. The names thread answers from the catalogue what exists and touches no disk: a
 * disk that hangs delays no answer. A load or store is plain pread and pwrite on a transfer thread. With shared=1 only
 * the file system can say what exists, and on a parallel one each question is a round trip: question threads ask. With
 * eviction (max_bytes) too, the keys are pinned before they are looked for, and missing keys are unpinned afterwards:
 * nothing is evicted in between.
 *
 * One more thread rebuilds the catalogue, at the start, and looks every few seconds, and when a file is missing, whether the
 * folder is still ours (files_root.c). Meanwhile only the objects known so far exist: an
 * object that is not known yet is a miss, which costs a computation and is right; a wait could cost every lookup its
 * deadline. The gauge `ready` says when the rebuild is over.
 *
 * Clocks (l2.h): a transfer reports progress after each piece of SCOUT__FILES_PIECE that it reads or writes, and after
 * each file that it removes to make room. With sync=1 written data is sent to the disk every few pieces, so that the
 * last flush has little left to do and a slow disk shows as slow.
 *
 * Ending: every thread sees `stopping` within one operation. A thread that hangs in the kernel is left alone: stop()
 * says so, nothing is freed, and the memory that it uses stays mapped.
 *
 * Threads: open, stop and close run on the server's starter; submit on its loop; other functions as they say. Only
 * transfers, the scan and questions with shared=1 ever wait for a disk.
 */

#define THREADS_DEFAULT 4
#define LOOK_US UINT64_C(5000000) /* between two looks at the marker, if nothing is missing */

struct files_options {
	uint32_t size;
	uint32_t threads;
	uint32_t direct, sync, shared, remove_old;
	uint64_t max_bytes;
	void *owned;
};

#define FIELD(name) offsetof(struct files_options, name)

static const struct scout__option options[] = {
	SCOUT__OPTION(
		SIZE, max_bytes, .max = UINT64_C(1) << 60, .def_text = "no limit",
		.doc = "Disk space of the objects, in whole blocks of the file system; beyond it the least recently used are removed; "
		       "0: no limit"),
	SCOUT__OPTION(U32, threads, .def = THREADS_DEFAULT, .min = 1, .max = SCOUT__BLOCKING_THREADS_MAX,
		      .doc = "Loads and stores that run at once"),
	SCOUT__OPTION(BOOL, direct, .max = 1, .doc = "Direct I/O, around the page cache"),
	SCOUT__OPTION(BOOL, sync, .max = 1, .doc = "A store ends when it is on the disk, not in the page cache"),
	SCOUT__OPTION(BOOL, shared, .max = 1,
		      .doc = "Other servers write to this folder too; each question goes to the file system"),
	SCOUT__OPTION(
		BOOL, remove_old, .max = 1,
		.doc = "Remove, at the start, the objects of other formats that an upgrade has left; without it they stay unused "
		       "and are removed first when max_bytes is reached"),
};

static const struct scout__option_table table =
	SCOUT__OPTION_TABLE(files_options, options, .env_prefix = NULL); /* in a URL */

int
scout__files_options_row(size_t i, struct scout_config_row *ret_row)
{
	return scout__options_row(&table, i, ret_row, sizeof(*ret_row));
}

/* ---- threads ---- */

/* With eviction, pin before looking, so that nothing is evicted in between. False: out of memory. */
static bool
pin_before_asking(struct scout__files *files, struct scout__l2_op *op)
{
	uint32_t n;

	if (!op->pin || !scout__files_evicts(files))
		return true;
	n = scout__cat_pin(&files->cat, op->digests, op->n);
	if (n == op->n)
		return true;
	scout__cat_unpin(&files->cat, op->digests, n, NULL);
	op->result = SCOUT__L2_ERROR;
	op->detail = ENOMEM;
	return false;
}

static bool
answer(void *store, struct scout__l2_op *op)
{
	struct scout__files *files = store;

	if (op->what == SCOUT__L2_UNPIN) {
		scout__cat_unpin(&files->cat, op->digests, op->n, NULL);
		return true;
	}
	if (files->shared && op->n > 0)
		return !pin_before_asking(files, op);
	scout__l2_moved(op);
	(void)scout__cat_exists(&files->cat, op->digests, op->n, op->pin, op->found);
	return true;
}

/* A file with the right name and length counts; only the load shows whether it is good. */
static bool
is_file(const struct scout__files *files, struct scout__l2_digest digest, int *ret_errnum)
{
	char path[SCOUT__FILES_PATH];
	struct stat st;

	scout__files_object_path(digest, path);
	if (fstatat(files->root.fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return S_ISREG(st.st_mode) && st.st_size >= (off_t)SCOUT__FILES_PAYLOAD;
	if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE)
		*ret_errnum = errno;
	return false;
}

static int
ask(void *store, struct scout__l2_op *op, uint32_t first, uint32_t n)
{
	struct scout__files *files = store;
	int errnum = 0;

	for (uint32_t i = first; i < first + n; i++) {
		if (scout__files_is_stopping(files))
			return ECANCELED;
		op->found[i] = is_file(files, op->digests[i], &errnum);
	}
	return errnum;
}

/* Only the answer that an object is there gives a pin. */
static void
asked(void *store, struct scout__l2_op *op)
{
	struct scout__files *files = store;

	if (op->pin && scout__files_evicts(files))
		scout__cat_unpin(&files->cat, op->digests, op->n, op->result == SCOUT__L2_OK ? op->found : NULL);
}

/* With others on the file system, the names that are claimed are not all that are stored. */
static void
begin(void *store, const struct scout__l2_op *op)
{
	struct scout__files *files = store;

	if (op->what == SCOUT__L2_STORE && !files->shared)
		scout__cat_await(&files->cat, op->key->digest, op->after);
}

static void
transfer(void *store, uint32_t number, struct scout__l2_op *op)
{
	struct scout__files *files = store;

	(void)pthread_mutex_lock(&files->look_mu);
	(void)snprintf(op->why, sizeof(op->why), "%.*s", (int)sizeof(op->why) - 1, files->lost);
	(void)pthread_mutex_unlock(&files->look_mu);
	if (op->why[0]) {
		op->result = SCOUT__L2_ERROR;
		return;
	}
	files->hands[number].op = op;
	scout__files_do(&files->hands[number], op);
}

static const struct scout__blocking_calls calls = {
	.answer = answer,
	.ask = ask,
	.asked = asked,
	.begin = begin,
	.transfer = transfer,
	.slice = 16,
};

/* The folder is not ours any more: take it anew, and forget what was in it. */
static void
take_again(struct scout__files *files)
{
	char why[sizeof(files->lost)] = "";
	bool is_lost = scout__files_root_take_again(&files->root, files->path, files->shared, files->direct, why,
						    sizeof(why)) != 0;
	uint64_t n = scout__cat_clear(&files->cat);
	bool is_news;

	(void)pthread_mutex_lock(&files->look_mu);
	is_news = strcmp(files->lost, why) != 0;
	memcpy(files->lost, why, sizeof(files->lost));
	(void)pthread_mutex_unlock(&files->look_mu);
	if (is_lost && is_news)
		scout__log(files->log, SCOUT_LOG_WARN,
			   "files tier %s: the folder was emptied or removed, and cannot be used again: %s",
			   files->path, why);
	if (is_lost)
		return;
	atomic_store_explicit(&files->ready, false, memory_order_release);
	scout__log(files->log, SCOUT_LOG_WARN,
		   "files tier %s: the folder was emptied or removed: %" PRIu64
		   " objects are forgotten, and it is set up anew",
		   files->path, n);
	scout__files_scan(files);
}

/* Until something is not there that should be, or for LOOK_US. */
static void
wait_for_doubt(struct scout__files *files)
{
	uint64_t end_us = scout__now_us() + LOOK_US;

	(void)pthread_mutex_lock(&files->look_mu);
	while (!files->doubtful && !scout__files_is_stopping(files) &&
	       scout__cond_wait_until(&files->look, &files->look_mu, end_us) != ETIMEDOUT)
		;
	files->doubtful = false;
	(void)pthread_mutex_unlock(&files->look_mu);
}

static void *
scan_main(void *arg)
{
	struct scout__files *files = arg;

	scout__files_scan(files);
	while (!scout__files_is_stopping(files)) {
		wait_for_doubt(files);
		if (!scout__files_is_stopping(files) && !scout__files_root_is_ours(&files->root))
			take_again(files);
	}
	scout__blocking_thread_ends(&files->blocking);
	return NULL;
}

static int
make_hands(struct scout__files *files, uint32_t n)
{
	files->hands = calloc(n, sizeof(*files->hands));
	if (!files->hands)
		return SCOUT_ERR_NOMEM;
	for (; files->n_hands < n; files->n_hands++) {
		void *bounce;

		if (posix_memalign(&bounce, SCOUT__FILES_PAYLOAD, SCOUT__FILES_PIECE))
			return SCOUT_ERR_NOMEM;
		files->hands[files->n_hands].files = files;
		files->hands[files->n_hands].bounce = bounce;
	}
	return 0;
}

static int
start_threads(struct scout__files *files, uint32_t n)
{
	int rc = make_hands(files, n);

	if (rc == 0)
		rc = scout__blocking_start(&files->blocking, files->shared);
	if (rc)
		return rc;
	if (scout__blocking_thread_start(&files->blocking, &files->scan_thread, "scout-l2-scan", scan_main, files))
		return SCOUT_ERR_SYSTEM;
	files->has_scan_thread = true;
	return 0;
}

/* ---- the adapter ---- */

static void
files_close(void *adapter)
{
	struct scout__files *files = adapter;

	scout__blocking_fini(&files->blocking);
	if (files->has_scan_thread)
		(void)pthread_join(files->scan_thread, NULL);
	for (uint32_t i = 0; i < files->n_hands; i++)
		free(files->hands[i].bounce);
	free(files->hands);
	scout__cat_fini(&files->cat);
	scout__files_root_close(&files->root);
	(void)pthread_mutex_destroy(&files->removing);
	(void)pthread_mutex_destroy(&files->look_mu);
	(void)pthread_cond_destroy(&files->look);
	free(files->path);
	free(files);
}

static void
cancel(struct scout__files *files)
{
	scout__blocking_cancel(&files->blocking);
	scout__files_doubt(files);
	scout__cat_stop(&files->cat);
}

static bool
files_stop(void *adapter, uint64_t deadline_us)
{
	struct scout__files *files = adapter;

	cancel(files);
	if (scout__blocking_stop(&files->blocking, deadline_us))
		return true;
	scout__log(files->log, SCOUT_LOG_ERROR, "files tier %s: the disk does not answer; a thread is left running",
		   files->path);
	return false;
}

/* Initialise first what cannot fail, then what can. */
static int
init(struct scout__files *files, const struct files_options *cfg, const struct scout__l2_open *args)
{
	files->log = args->log;
	files->max_bytes = cfg->max_bytes ? cfg->max_bytes : UINT64_MAX;
	files->timeout_us = (uint64_t)args->timeout_ms * 1000;
	files->direct = cfg->direct;
	files->sync = cfg->sync;
	files->shared = cfg->shared;
	files->remove_old = cfg->remove_old;
	/* This does not fail on Linux. */
	SCOUT_ASSERT(pthread_mutex_init(&files->removing, NULL) == 0);
	SCOUT_ASSERT(pthread_mutex_init(&files->look_mu, NULL) == 0);
	scout__cond_init(&files->look);
	files->path = strdup(args->url->path);
	if (!files->path)
		goto err_destroy;
	if (scout__cat_init(&files->cat, files->max_bytes) != 0)
		goto err_free_path;
	if (scout__blocking_init(&files->blocking, &calls, files, args, cfg->threads) != 0)
		goto err_fini_cat;
	return 0;

err_fini_cat:
	scout__cat_fini(&files->cat);
err_free_path:
	free(files->path);
err_destroy:
	(void)pthread_cond_destroy(&files->look);
	(void)pthread_mutex_destroy(&files->look_mu);
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
	rc = start_threads(files, cfg->threads);
	if (rc) {
		cancel(files);
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
	.submit = scout__blocking_submit,
	.at_once = scout__blocking_at_once,
	.stop = files_stop,
	.close = files_close,
	.gauges = files_gauges,
};
