/* SPDX-License-Identifier: Apache-2.0 */
#include "verifier.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "doorbell.h"
#include "kv_compare.h"
#include "page.h"

/*
 * DESIGN
 *
 * Purpose: compares what a slot of the pool holds with what an engine computed itself.
 *
 * The copy engine gathers the pages of one chunk into the scratch, in the layout of a slot. From then on the pages are not
 * needed: a thread compares scratch and slot, and the courier takes the result. The courier holds the slot on the server until
 * then, and looks at its generation word afterwards.
 *
 * Threads: the courier hands one task over and takes it back. The thread is made for the first one: most workers never have one. It
 * has a low priority, with which it still gets CPU time on a busy host; so there is no lock that it could hold while the courier
 * waits. It wakes the courier by the descriptor of the mappings.
 *
 * Rejected: comparing pages in place. Pages of a GPU cannot be read, and pages of the host would be kept from the engine for as long
 * as the comparison takes.
 */

#define NICENESS 15

static struct scout_verified
compare(const struct scout__verifier_task *task, const uint8_t *scratch)
{
	struct scout_verified worst = {.norm_error = -1};
	const uint8_t *slot = task->slot;

	for (uint32_t p = 0; p < task->layout->n_planes; p++) {
		size_t bytes = (size_t)task->layout->planes[p].block_bytes;

		for (uint32_t b = 0; b < task->layout->blocks_per_chunk; b++, scratch += bytes, slot += bytes) {
			struct scout__kv_measure m;

			if (task->ids[b] < 0)
				continue;
			m = scout__kv_compare(task->dtype, scratch, slot, bytes);
			worst.differs |= m.differs;
			worst.share = m.share > worst.share ? m.share : worst.share;
			worst.plane = m.norm_error > worst.norm_error ? p : worst.plane;
			worst.norm_error = m.norm_error > worst.norm_error ? m.norm_error : worst.norm_error;
		}
	}
	return worst;
}

static void *
verify_main(void *arg)
{
	struct scout__verifier *v = arg;

	(void)setpriority(PRIO_PROCESS, 0, NICENESS); /* of this thread; it compares without that, too */
	for (;;) {
		while (sem_wait(&v->todo) != 0)
			;
		if (v->stop)
			return NULL;
		v->result = compare(&v->task, v->scratch);
		(void)sem_post(&v->done);
		scout__eventfd_raise(v->fd);
	}
}

static bool SCOUT_ON_COURIER
make_thread(struct scout__verifier *v, int fd)
{
	v->fd = fd;
	(void)sem_init(&v->todo, 0, 0);
	(void)sem_init(&v->done, 0, 0);
	v->has_thread = scout__thread_start(&v->thread, "scout-verify", verify_main, v) == 0;
	return v->has_thread;
}

int
scout__verifier_prepare(struct scout__verifier *v, const struct scout__mappings *mappings, uint64_t bytes)
{
	uint64_t page = scout__page_bytes();
	struct scout__copy_memory memory = {.bytes = (bytes + page - 1) / page * page};
	int rc;

	if (!v->has_thread && !make_thread(v, mappings->fd))
		return SCOUT_ERR_SYSTEM;
	if (v->scratch)
		return 0;
	memory.base = mmap(NULL, memory.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory.base == MAP_FAILED)
		return SCOUT_ERR_NOMEM;
	(void)madvise(memory.base, memory.bytes, MADV_DONTFORK); /* as the pool's memory: a GPU may write there */
	memory.stride = memory.bytes;
	rc = mappings->copy->add_memory(mappings->engine, &memory);
	if (rc) {
		(void)munmap(memory.base, memory.bytes);
		return rc;
	}
	v->scratch = memory.base;
	v->bytes = memory.bytes;
	return 0;
}

void
scout__verifier_start(struct scout__verifier *v, const struct scout__verifier_task *task)
{
	v->task = *task;
	v->runs = true;
	(void)sem_post(&v->todo);
}

bool
scout__verifier_take(struct scout__verifier *v, bool wait)
{
	bool over = v->runs && sem_trywait(&v->done) == 0;

	while (v->runs && wait && !over)
		over = sem_wait(&v->done) == 0;
	v->runs = v->runs && !over;
	return over;
}

void
scout__verifier_forget(struct scout__verifier *v, const struct scout__mappings *mappings)
{
	if (!v->scratch)
		return;
	mappings->copy->remove_memory(mappings->engine, v->scratch);
	(void)munmap(v->scratch, v->bytes);
	v->scratch = NULL;
}

void
scout__verifier_fini(struct scout__verifier *v, const struct scout__mappings *mappings)
{
	if (v->has_thread) {
		v->stop = true;
		(void)sem_post(&v->todo);
		(void)pthread_join(v->thread, NULL);
	}
	scout__verifier_forget(v, mappings);
}
