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
 * Purpose: the engine's pages, on the caller's thread: check the page tables, copy them, open the copy engine on them.
 *
 * The courier starts before the pages are known, the copy engine after that. So the courier waits on an epoll
 * descriptor, to which the engine's descriptor is added when the engine is opened.
 */

/* The most batches in the copy engine at once; its rings have room for so many. Further jobs wait in the worker. */
#define MAX_BATCHES 4096u

/* How a sentence begins: with the only table, or with one of several. */
static const char *
name_of(size_t i, size_t n_tables, char *buf, size_t len)
{
	(void)(n_tables == 1 ? snprintf(buf, len, "table") : snprintf(buf, len, "tables[%zu]", i));
	return buf;
}

/* Check that each table is of another group, and that we have the group. */
static int
check_groups(const struct scout_worker *w, const struct scout_table *tables, size_t n_tables, char *err, size_t err_len)
{
	uint32_t seen = 0;
	char name[32];

	if (n_tables > w->groups.n)
		return scout__fail(err, err_len, SCOUT_ERR_GROUP,
				   "%zu tables: must be one for each group, and the key group names %u", n_tables,
				   (unsigned)w->groups.n);
	for (size_t i = 0; i < n_tables; i++) {
		(void)name_of(i, n_tables, name, sizeof(name));
		if (tables[i].group >= w->groups.n)
			return scout__fail(err, err_len, SCOUT_ERR_GROUP,
					   "%s.group = %u: must be below %u, the number of groups in the key group",
					   name, (unsigned)tables[i].group, (unsigned)w->groups.n);
		if (seen & 1u << tables[i].group)
			return scout__fail(err, err_len, SCOUT_ERR_GROUP,
					   "%s.group = %u: another table is of this group, too; a group has one", name,
					   (unsigned)tables[i].group);
		seen |= 1u << tables[i].group;
	}
	return 0;
}

static bool
is_tag(const char *tag)
{
	size_t len = tag ? strnlen(tag, SCOUT_MAX_NAME + 1) : 0;

	return len <= SCOUT_MAX_NAME && (len == 0 || scout__utf8_is_name(tag, len));
}

static int
check_table(const struct scout_worker *w, const struct scout_table *table, const char *name, char *err, size_t err_len)
{
	uint32_t unit_tokens = w->groups.group[table->group].unit_tokens;

	if (table->dtype > SCOUT_DTYPE_LAST)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "%s.dtype = %u: must be a SCOUT_DTYPE_*, 0..%d",
				   name, (unsigned)table->dtype, SCOUT_DTYPE_LAST);
	if (table->block_tokens == 0 || unit_tokens % table->block_tokens != 0)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "%s.block_tokens = %u: must be 1 or more and divide the unit of group %u, %u tokens",
				   name, (unsigned)table->block_tokens, (unsigned)table->group, (unsigned)unit_tokens);
	if (table->n_planes == 0 || table->n_planes > SCOUT_MAX_PLANES || !table->planes)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "%s.n_planes = %u: must be 1..%u, and %s.planes not NULL", name,
				   (unsigned)table->n_planes, (unsigned)SCOUT_MAX_PLANES, name);
	if (table->n_blocks == 0 || table->n_blocks > INT64_MAX)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "%s.n_blocks = %llu: must be 1..2^63-1", name,
				   (unsigned long long)table->n_blocks);
	if (table->null_block >= 0 && (uint64_t)table->null_block >= table->n_blocks)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "%s.null_block = %lld: must be below %s.n_blocks = %llu, or negative for none", name,
				   (long long)table->null_block, name, (unsigned long long)table->n_blocks);
	if (!is_tag(table->layout_tag))
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "%s.layout_tag: must be UTF-8 of at most %u bytes, without control characters", name,
				   (unsigned)SCOUT_MAX_NAME);
	return 0;
}

int
scout__worker_check_tables(const struct scout_worker *w, const struct scout_table *tables, size_t n_tables, char *err,
			   size_t err_len)
{
	int rc = check_groups(w, tables, n_tables, err, err_len);
	uint64_t n_planes = 0;
	char name[32];

	for (size_t i = 0; i < n_tables && rc == 0; i++) {
		rc = check_table(w, &tables[i], name_of(i, n_tables, name, sizeof(name)), err, err_len);
		n_planes += tables[i].n_planes;
	}
	if (rc == 0 && n_planes > SCOUT_MAX_PLANES)
		rc = scout__fail(err, err_len, SCOUT_ERR_INVALID, "%llu planes in all tables: must be at most %u",
				 (unsigned long long)n_planes, (unsigned)SCOUT_MAX_PLANES);
	return rc;
}

/*
 * Whether blocks of the planes share bytes; @a begins first. Planes with one stride may lie in each other's gaps, as the layers of one
 * tensor do.
 */
static bool
overlap(const struct scout__copy_plane *a, const struct scout__copy_plane *b, uint64_t n_blocks)
{
	uint64_t gap = (uint64_t)((uintptr_t)b->base - (uintptr_t)a->base), blocks = gap / a->stride;

	if (a->stride != b->stride || gap < a->block_bytes)
		return gap < a->block_bytes;
	gap -= blocks * a->stride;
	return (blocks < n_blocks && gap < a->block_bytes) ||
	       (blocks + 1 < n_blocks && gap + b->block_bytes > a->stride);
}

/* Check that no two planes of a table are the same memory: a load would write one over the other. */
static int
check_apart(const struct scout__copy_layout *layout, const char *name, char *err, size_t err_len)
{
	for (uint32_t i = 0; i < layout->n_planes; i++)
		for (uint32_t k = 0; k < i; k++) {
			const struct scout__copy_plane *a = &layout->planes[i], *b = &layout->planes[k];
			bool is_first = (uintptr_t)a->base < (uintptr_t)b->base;

			if (overlap(is_first ? a : b, is_first ? b : a, layout->n_blocks))
				return scout__fail(err, err_len, SCOUT_ERR_INVALID,
						   "%splanes[%u] and planes[%u] share memory: must be apart", name,
						   (unsigned)k, (unsigned)i);
		}
	return 0;
}

/* Copy one table; its planes go to @planes. */
static int
take_table(struct scout_worker *w, const struct scout_table *from, struct scout__copy_plane *planes,
	   struct scout__table *table, char *err, size_t err_len)
{
	uint64_t n_blocks = from->n_blocks;
	char text[200], name[SCOUT__COPY_NAME_BYTES];
	int rc;

	for (uint32_t i = 0; i < from->n_planes; i++)
		planes[i] = (struct scout__copy_plane){
			.base = from->planes[i].base,
			.stride = from->planes[i].stride,
			.block_bytes = from->planes[i].block_bytes,
		};
	table->group = (uint16_t)from->group;
	table->dtype = (uint16_t)from->dtype;
	table->block_tokens = from->block_tokens;
	table->unit_tokens = w->groups.group[from->group].unit_tokens;
	table->null_block = from->null_block;
	table->layout = (struct scout__copy_layout){
		.planes = planes,
		.n_planes = from->n_planes,
		.blocks_per_chunk = table->unit_tokens / from->block_tokens,
		.n_blocks = n_blocks,
		.group = from->group,
	};
	scout__copy_name_table(&table->layout, w->groups.n, name);
	rc = scout__copy_check_layout(&table->layout, text, sizeof(text));
	if (rc)
		return scout__fail(err, err_len, rc, "%s%s", name, text);
	rc = check_apart(&table->layout, name, err, err_len);
	if (rc)
		return rc;
	table->shard_bytes = scout__copy_shard_bytes(&table->layout);
	table->marks = calloc((size_t)(n_blocks / 64 + 1), sizeof(*table->marks));
	if (n_blocks <= SIZE_MAX / sizeof(*table->uses))
		table->uses = scout__lazy_alloc(n_blocks * sizeof(*table->uses));
	if (!table->marks || !table->uses)
		return scout__fail_no_memory(err, err_len);
	(void)snprintf(table->layout_tag, sizeof(table->layout_tag), "%s", from->layout_tag ? from->layout_tag : "");
	return 0;
}

int
scout__worker_take_tables(struct scout_worker *w, const struct scout_table *tables, size_t n_tables, char *err,
			  size_t err_len)
{
	uint32_t n_planes = 0;
	int rc = 0;

	for (size_t i = 0; i < n_tables; i++)
		n_planes += tables[i].n_planes;
	w->planes = calloc(n_planes, sizeof(*w->planes));
	w->tables = calloc(n_tables, sizeof(*w->tables));
	if (!w->planes || !w->tables)
		return scout__fail_no_memory(err, err_len);
	n_planes = 0;
	/* Sort by group: the caller's tables may come in any order. */
	for (uint32_t group = 0; group < w->groups.n && rc == 0; group++)
		for (size_t i = 0; i < n_tables && rc == 0; i++) {
			if (tables[i].group != group)
				continue;
			rc = take_table(w, &tables[i], w->planes + n_planes, &w->tables[w->n_tables++], err, err_len);
			n_planes += tables[i].n_planes;
		}
	return rc;
}

/* Choose the backend, now that the pages are known. */
static void
choose_copy(struct scout_worker *w)
{
	if (!w->may_use_cuda)
		return;
	w->copy = scout__copy_find("cuda");
	if (w->copy->claims(&w->tables[0].layout))
		return;
	w->copy = &scout__copy_host;
	scout__log(&w->log, SCOUT_LOG_INFO, "the pages are not memory of a CUDA device: copying with the host backend");
}

/* "auto": the node of the device, or else of the CPU that this thread runs on. */
static uint16_t
choose_node(const struct scout_worker *w)
{
	char id[32];
	uint16_t node = 0;

	if (strcmp(w->cfg.numa_node, "auto") == 0 && w->copy->bus_id &&
	    w->copy->bus_id(&w->tables[0].layout, id, sizeof(id)))
		node = scout__numa_of_device(id, "");
	if (node == 0)
		(void)scout__numa_parse(w->cfg.numa_node, "", &node); /* was checked at the start */
	return node;
}

static int
open_engine(struct scout_worker *w, char *err, size_t err_len)
{
	struct scout__copy_layout more[SCOUT__GROUPS_MAX];
	struct scout__copy_config cfg = {
		.layout = w->tables[0].layout,
		.more = more,
		.n_more = w->n_tables - 1,
		.max_batches = w->cfg.max_jobs < MAX_BATCHES ? w->cfg.max_jobs : MAX_BATCHES,
		.method = w->cfg.copy_method,
		.stage_bytes = w->cfg.stage_bytes,
		.n_pinning = w->cfg.kv_ranks * w->cfg.readers, /* all of them map the pool that is on this host */
		.log = &w->log,
	};
	struct epoll_event event = {.events = EPOLLIN};
	int rc;

	for (uint32_t t = 1; t < w->n_tables; t++)
		more[t - 1] = w->tables[t].layout;
	rc = w->copy->open(&cfg, &w->engine, err, err_len);
	if (rc)
		return rc;
	/* The entry in epoll ends when the engine closes its descriptor. */
	if (epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->copy->fd(w->engine), &event) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "epoll_ctl failed (%s)", scout__errno_text(errno));
	return 0;
}

/* Run on the node of the pages if `cpus` is auto. The courier follows when it hears of the pages. */
int
scout__worker_open_engine(struct scout_worker *w, char *err, size_t err_len)
{
	struct scout__cpus_scope cpus;
	int rc;

	choose_copy(w);
	w->numa = choose_node(w);
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
	for (uint32_t t = 0; t < w->n_tables; t++) {
		struct scout__table *table = &w->tables[t];

		free(table->marks);
		scout__lazy_free(table->uses, table->layout.n_blocks * sizeof(*table->uses));
	}
	free(w->tables);
	free(w->planes);
	w->tables = NULL;
	w->n_tables = 0;
	w->planes = NULL;
}
