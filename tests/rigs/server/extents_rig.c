/* SPDX-License-Identifier: Apache-2.0 */
#include "checked_fork.h"
#include "extents_rig.h"

struct rig rig;

struct wire_peer status;

void
open_status(void)
{
	wire_open(&status, rig.endpoint);
	status.hello.hash_bytes = RIG_HASH;
	status.hello.chunk_tokens = rig.chunk_tokens;
	status.hello.name_space = (struct scout__str){"rig", 3};
	assert_wire(wire_hello(&status), SCOUT_WIRE_OK);
}

uint64_t
counter(const char *name)
{
	return wire_status(&status, name);
}

void
start_worker_in(struct rig *r, uint32_t i, const char *name_space)
{
	static const uint64_t bytes[2] = {61, 129}, padding[2] = {3, 0};
	struct scout_worker_config cfg;
	struct scout_table layout;
	char err[512] = "";
	int rc;

	rig_pages_init(&r->pages[i], 2, bytes, padding, 512);
	rig_worker_config(r, 0, &cfg);
	cfg.name_space = name_space;
	rc = scout_worker_new(&cfg, &r->workers[i], err, sizeof(err));
	ck_assert_msg(rc == 0, "worker: %s", err);
	rig_table(r, &r->pages[i], &layout);
	rc = scout_worker_register(r->workers[i], &layout, 1, wait_limit_ms(), err, sizeof(err));
	ck_assert_msg(rc == 0, "register: %s", err);
}

uint32_t
store_some(struct rig *r, uint32_t w, uint32_t prompt, size_t n)
{
	struct scout_done done = rig_wait(r->workers[w], rig_store(r, w, prompt, n, 1));

	ck_assert_int_eq(done.status, 0);
	return done.no_room;
}

void
expect_bytes(uint32_t w, uint32_t prompt, size_t n)
{
	int64_t *ids = rig_ids(200, 1, n * rig.bpc);
	struct scout_done done;
	struct scout_hit hit;
	char id[32];

	hit = rig_lookup(&rig, prompt, n, id);
	ck_assert_uint_eq(hit.tokens, n * rig.chunk_tokens);
	rig_pages_wipe(&rig.pages[w]);
	done = rig_wait(rig.workers[w], rig_retrieve(&rig, w, hit.ticket, 0, ids, n * rig.bpc, 0));
	ck_assert_int_eq(done.status, 0);
	for (size_t b = 0; b < n * rig.bpc; b++)
		ck_assert(rig_page_is(&rig.pages[w], ids[b], prompt, w, b));
	ck_assert_int_eq(scout_finish(rig.client, id), 0);
	free(ids);
}

uint32_t
count_mapped(pid_t pid, uint64_t *ret_bytes)
{
	char path[64] = "/proc/self/maps";
	char line[PATH_MAX + 256];
	uint32_t n = 0;
	FILE *file;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	if (ret_bytes)
		*ret_bytes = 0;
	while (fgets(line, sizeof(line), file)) {
		char *end;
		uint64_t from, to;

		if (!strstr(line, "memfd:kvscout "))
			continue;
		from = strtoull(line, &end, 16);
		to = strtoull(end + 1, NULL, 16);
		if (ret_bytes)
			*ret_bytes += to - from;
		n++;
	}
	(void)fclose(file);
	return n;
}

void
wait_mapped(uint32_t n)
{
	wait_until(count_mapped(0, NULL) == n)
		;
}

static void
helper_main(struct helper *h, int in, int out, const char *name_space)
{
	struct rig mine;
	char c;

	(void)h;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	mine = rig;
	while (read(in, &c, 1) == 1) {
		if (c == 's') { /* start, and fill the pool */
			start_worker_in(&mine, 3, name_space);
			if (store_some(&mine, 3, 7, CHUNKS) != 0)
				_exit(2);
		} else if (c == 'e') { /* end */
			scout_worker_free(mine.workers[3]);
		}
		if (write(out, &c, 1) != 1)
			_exit(3);
	}
	_exit(0);
}

struct helper
helper_fork(const char *name_space)
{
	struct helper h;
	int to[2], from[2];

	ck_assert_int_eq(pipe(to), 0);
	ck_assert_int_eq(pipe(from), 0);
	h.pid = checked_fork();
	if (h.pid == 0) {
		(void)close(to[1]);
		(void)close(from[0]);
		helper_main(&h, to[0], from[1], name_space);
	}
	(void)close(to[0]);
	(void)close(from[1]);
	h.to = to[1];
	h.from = from[0];
	return h;
}

void
helper_do(const struct helper *h, char c)
{
	char answer;

	ck_assert_int_eq(write(h->to, &c, 1), 1);
	ck_assert_msg(read(h->from, &answer, 1) == 1, "the helper process has ended");
}

void
helper_end(struct helper *h, int sig)
{
	int code;

	(void)close(h->to);
	(void)close(h->from);
	if (sig)
		(void)kill(h->pid, sig);
	(void)waitpid(h->pid, &code, 0);
}
