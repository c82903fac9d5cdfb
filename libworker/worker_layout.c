/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "copy_backends.h"
#include "cpus.h"
#include "lazy.h"
#include "numa.h"
#include "utf8.h"

/*
 * DESIGN
 *
 * Purpose: the engine's pages, on the caller's thread: check the page table, take it over, open the copy engine on it.
 *
 * The courier starts before the pages are known, the copy engine with them. So the courier is given an epoll
 * descriptor to wait on, and the engine's own goes into that one when it is opened.
 */

/* In the copy engine at once; its rings have room for so many. Further jobs wait in the worker. */
#define MAX_BATCHES 4096u

/* One table of our one group. */
static int
check_group(const struct scout_table *table, size_t n_tables, char *err, size_t err_len)
{
	if (table->group >= SCOUT__WORKER_GROUPS)
		return scout__fail(err, err_len, SCOUT_ERR_GROUP,
				   "table.group = %u: must be below %u, the number of groups in the key group",
				   (unsigned)table->group, SCOUT__WORKER_GROUPS);
	if (n_tables > SCOUT__WORKER_GROUPS)
		return scout__fail(err, err_len, SCOUT_ERR_GROUP,
				   "%zu tables: must be one for each group, and the key group names %u", n_tables,
				   SCOUT__WORKER_GROUPS);
	return 0;
}

static bool
is_tag(const char *tag)
{
	size_t len = tag ? strnlen(tag, SCOUT_MAX_NAME + 1) : 0;

	return len <= SCOUT_MAX_NAME && (len == 0 || scout__utf8_is_name(tag, len));
}

int
scout__worker_check_tables(const struct scout_worker *w, const struct scout_table *table, size_t n_tables, char *err,
			   size_t err_len)
{
	int rc = check_group(table, n_tables, err, err_len);

	if (rc)
		return rc;
	if (table->dtype > SCOUT_DTYPE_LAST)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "table.dtype = %u: must be a SCOUT_DTYPE_*, 0..%d",
				   (unsigned)table->dtype, SCOUT_DTYPE_LAST);
	if (table->block_tokens == 0 || w->cfg.chunk_tokens % table->block_tokens != 0)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "table.block_tokens = %u: must be 1 or more and divide chunk_tokens = %u",
				   (unsigned)table->block_tokens, (unsigned)w->cfg.chunk_tokens);
	if (table->n_planes == 0 || table->n_planes > SCOUT_MAX_PLANES || !table->planes)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "table.n_planes = %u: must be 1..%u, and table.planes not NULL",
				   (unsigned)table->n_planes, (unsigned)SCOUT_MAX_PLANES);
	if (table->null_block >= 0 && (uint64_t)table->null_block >= table->n_blocks)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "table.null_block = %lld: must be below table.n_blocks = %llu, or negative for none",
				   (long long)table->null_block, (unsigned long long)table->n_blocks);
	if (!is_tag(table->layout_tag))
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "table.layout_tag: must be UTF-8 of at most %u bytes, without control characters",
				   (unsigned)SCOUT_MAX_NAME);
	return 0;
}

int
scout__worker_take_table(struct scout_worker *w, const struct scout_table *table, char *err, size_t err_len)
{
	int rc;

	w->planes = calloc(table->n_planes, sizeof(*w->planes));
	if (!w->planes)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
	for (uint32_t i = 0; i < table->n_planes; i++)
		w->planes[i] = (struct scout__copy_plane){
			.base = table->planes[i].base,
			.stride = table->planes[i].stride,
			.block_bytes = table->planes[i].block_bytes,
		};
	w->layout = (struct scout__copy_layout){
		.planes = w->planes,
		.n_planes = table->n_planes,
		.blocks_per_chunk = w->cfg.chunk_tokens / table->block_tokens,
		.n_blocks = table->n_blocks,
	};
	rc = scout__copy_check_layout(&w->layout, err, err_len);
	if (rc)
		return rc;
	w->shard_bytes = scout__copy_shard_bytes(&w->layout);
	w->marks = calloc((size_t)(table->n_blocks / 64 + 1), sizeof(*w->marks));
	if (table->n_blocks <= SIZE_MAX / sizeof(*w->uses))
		w->uses = scout__lazy_alloc(table->n_blocks * sizeof(*w->uses));
	if (!w->marks || !w->uses)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
	w->block_tokens = table->block_tokens;
	w->dtype = (uint16_t)table->dtype;
	w->null_block = table->null_block;
	(void)snprintf(w->layout_tag, sizeof(w->layout_tag), "%s", table->layout_tag ? table->layout_tag : "");
	return 0;
}

static int
open_engine(struct scout_worker *w, char *err, size_t err_len)
{
	struct scout__copy_config cfg = {
		.layout = w->layout,
		.max_batches = w->cfg.max_jobs < MAX_BATCHES ? w->cfg.max_jobs : MAX_BATCHES,
		.device = w->cfg.device,
		.priority = -(int32_t)w->cfg.copy_priority, /* CUDA counts downwards */
		.method = w->cfg.copy_method,
		.stage_bytes = w->cfg.stage_bytes,
		.log = &w->log,
	};
	struct epoll_event event = {.events = EPOLLIN};
	int rc;

	if (w->may_use_cuda)
		w->copy = scout__copy_find("cuda");
	if (w->may_use_cuda && !w->copy->claims(&w->layout)) {
		w->copy = &scout__copy_host;
		scout__log(&w->log, SCOUT_LOG_INFO,
			   "the pages are not memory of a CUDA device: copying with the host backend");
	}
	rc = w->copy->open(&cfg, &w->engine, err, err_len);
	if (rc)
		return rc;
	/* The registration goes when the engine closes its descriptor. */
	if (epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->copy->fd(w->engine), &event) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "epoll_ctl failed (%s)", scout__errno_text(errno));
	return 0;
}

/* On the node of the pages, where `cpus` says auto. The courier follows when it hears of them. */
int
scout__worker_open_engine(struct scout_worker *w, char *err, size_t err_len)
{
	struct scout__cpus_scope cpus;
	int rc;

	(void)scout__numa_parse(w->cfg.numa_node, "", &w->numa); /* was checked at the start */
	w->has_node_cpus = w->numa > 0 && scout__numa_cpus(w->numa, "", &w->node_cpus);
	rc = scout__cpus_enter(&cpus, w->cfg.cpus, w->has_node_cpus ? &w->node_cpus : NULL, err, err_len);
	if (rc)
		return rc;
	rc = open_engine(w, err, err_len);
	scout__cpus_leave(&cpus);
	return rc;
}

void
scout__worker_drop_layout(struct scout_worker *w)
{
	if (w->engine)
		w->copy->close(w->engine);
	w->engine = NULL;
	free(w->planes);
	free(w->marks);
	scout__lazy_free(w->uses, w->layout.n_blocks * sizeof(*w->uses));
	w->planes = NULL;
	w->marks = NULL;
	w->uses = NULL;
}
