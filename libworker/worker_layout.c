/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "copy_backends.h"
#include "cpus.h"
#include "lazy.h"
#include "numa.h"

/*
 * DESIGN
 *
 * Purpose: the engine's pages, on the caller's thread: check the layout, take it over, open the copy engine on it.
 *
 * The courier starts before the pages are known, the copy engine with them. So the courier is given an epoll
 * descriptor to wait on, and the engine's own goes into that one when it is opened.
 */

/* In the copy engine at once; its rings have room for so many. Further jobs wait in the worker. */
#define MAX_BATCHES 4096u

int
scout__worker_check_layout(const struct scout_worker *w, const struct scout_layout *layout, char *err, size_t err_len)
{
	if (layout->dtype > SCOUT_DTYPE_LAST)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "layout.dtype = %u: must be a SCOUT_DTYPE_*, 0..%d",
				   (unsigned)layout->dtype, SCOUT_DTYPE_LAST);
	if (layout->block_tokens == 0 || w->cfg.chunk_tokens % layout->block_tokens != 0)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "layout.block_tokens = %u: must be 1 or more and divide chunk_tokens = %u",
				   (unsigned)layout->block_tokens, (unsigned)w->cfg.chunk_tokens);
	if (layout->n_planes == 0 || layout->n_planes > SCOUT_MAX_PLANES || !layout->planes)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "layout.n_planes = %u: must be 1..%u, and layout.planes not NULL",
				   (unsigned)layout->n_planes, (unsigned)SCOUT_MAX_PLANES);
	if (layout->null_block >= 0 && (uint64_t)layout->null_block >= layout->n_blocks)
		return scout__fail(
			err, err_len, SCOUT_ERR_INVALID,
			"layout.null_block = %lld: must be below layout.n_blocks = %llu, or negative for none",
			(long long)layout->null_block, (unsigned long long)layout->n_blocks);
	return 0;
}

int
scout__worker_take_layout(struct scout_worker *w, const struct scout_layout *layout, char *err, size_t err_len)
{
	int rc;

	w->planes = calloc(layout->n_planes, sizeof(*w->planes));
	if (!w->planes)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
	for (uint32_t i = 0; i < layout->n_planes; i++)
		w->planes[i] = (struct scout__copy_plane){
			.base = layout->planes[i].base,
			.stride = layout->planes[i].stride,
			.block_bytes = layout->planes[i].block_bytes,
		};
	w->layout = (struct scout__copy_layout){
		.planes = w->planes,
		.n_planes = layout->n_planes,
		.blocks_per_chunk = w->cfg.chunk_tokens / layout->block_tokens,
		.n_blocks = layout->n_blocks,
	};
	rc = scout__copy_check_layout(&w->layout, err, err_len);
	if (rc)
		return rc;
	w->shard_bytes = scout__copy_shard_bytes(&w->layout);
	w->marks = calloc((size_t)(layout->n_blocks / 64 + 1), sizeof(*w->marks));
	if (layout->n_blocks <= SIZE_MAX / sizeof(*w->uses))
		w->uses = scout__lazy_alloc(layout->n_blocks * sizeof(*w->uses));
	if (!w->marks || !w->uses)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
	w->block_tokens = layout->block_tokens;
	w->dtype = (uint16_t)layout->dtype;
	w->null_block = layout->null_block;
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
