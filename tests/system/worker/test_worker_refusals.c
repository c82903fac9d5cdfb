/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker refuses at once, with its code. */
#include <sys/mman.h>

#include "worker_rig.h"

#include "check_main.h"

static struct rig rig;

static void
setup(void)
{
	rig_init(&rig);
}

static void
teardown(void)
{
	rig_stop(&rig);
}

#define REFUSED(code, field, value)                                                                                    \
	do {                                                                                                           \
		struct scout_retrieve r = good;                                                                        \
		r.field = value;                                                                                       \
		job = 99;                                                                                              \
		ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &r, &job), code);                               \
		ck_assert_uint_eq(job, 99);                                                                            \
	} while (0)

/* The same with a field of @blocks. */
#define REFUSED_BLOCKS(code, field, value)                                                                             \
	do {                                                                                                           \
		struct scout_blocks was = blocks;                                                                      \
		blocks.field = value;                                                                                  \
		REFUSED(code, blocks, &blocks);                                                                        \
		blocks = was;                                                                                          \
	} while (0)

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_wrong_retrieve_is_refused_with_its_code)
{
	int64_t ids[4] = {1, 2, 3, 4}, beyond[4] = {1, 2, 3, 512}, far[4] = {INT64_MAX, 1, 2, 3};
	struct scout_blocks blocks = {.first_token = 16, .ids = ids, .n = 4};
	struct scout_retrieve good = {.ticket = 5, .from_token = 16, .to_token = 80, .blocks = &blocks, .n_groups = 1};
	uint64_t job = 99;
	int dummy;

	rig_start(&rig);
	ck_assert_int_eq(scout_worker_retrieve(NULL, &good, &job), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], NULL, &job), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &good, NULL), SCOUT_ERR_INVALID);
	REFUSED(SCOUT_ERR_INVALID, ticket, 0);
	REFUSED(SCOUT_ERR_INVALID, from_token, 17);
	REFUSED(SCOUT_ERR_INVALID, from_token, 96);
	REFUSED(SCOUT_ERR_INVALID, to_token, 81);
	REFUSED(SCOUT_ERR_INVALID, to_token, UINT64_MAX);
	REFUSED(SCOUT_ERR_INVALID, blocks, NULL);
	REFUSED(SCOUT_ERR_INVALID, n_groups, 0);
	REFUSED(SCOUT_ERR_GROUP, n_groups, 2);
	REFUSED_BLOCKS(SCOUT_ERR_GROUP, group, 1);
	REFUSED_BLOCKS(SCOUT_ERR_GROUP, group, UINT32_MAX);
	REFUSED_BLOCKS(SCOUT_ERR_INVALID, n, 3);
	REFUSED_BLOCKS(SCOUT_ERR_INVALID, ids, NULL);
	REFUSED_BLOCKS(SCOUT_ERR_INVALID, first_token, 0);
	REFUSED_BLOCKS(SCOUT_ERR_INVALID, first_token, 8);
	REFUSED_BLOCKS(SCOUT_ERR_INVALID, first_token, 32);
	REFUSED_BLOCKS(SCOUT_ERR_INVALID, first_token, UINT64_MAX - 15);
	ck_assert_int_eq(scout_worker_retrieve_sized(rig.workers[0], &good, 3, sizeof(blocks), &job),
			 SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(scout_worker_retrieve_sized(rig.workers[0], &good, sizeof(good), 3, &job),
			 SCOUT_ERR_UNSUPPORTED);
	REFUSED_BLOCKS(SCOUT_ERR_BLOCK_ID, ids, beyond);
	REFUSED_BLOCKS(SCOUT_ERR_BLOCK_ID, ids, far);
	REFUSED(SCOUT_ERR_UNSUPPORTED, event, &dummy);
	good.to_token = 79; /* rounded up */
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &good, &job), 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, SCOUT_ERR_NO_SESSION);
}
END_TEST

#undef REFUSED

#define REFUSED(code, field, value)                                                                                    \
	do {                                                                                                           \
		struct scout_store s = good;                                                                           \
		s.field = value;                                                                                       \
		job = 99;                                                                                              \
		ck_assert_int_eq(scout_worker_store(rig.workers[0], &s, &job), code);                                  \
		ck_assert_uint_eq(job, 99);                                                                            \
	} while (0)

START_TEST(a_wrong_store_is_refused_with_its_code)
{
	int64_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8}, beyond[8] = {1, 2, 3, 4, 5, 6, 7, 512};
	int64_t twice[8] = {1, 2, 3, 4, 5, 6, 7, 1}, null_twice[8] = {1, 2, 3, 4, -1, -1, 7, 8};
	uint8_t *hashes = rig_hashes(1, 2);
	struct scout_blocks blocks = {.ids = ids, .n = 8};
	struct scout_store good = {
		.hashes = hashes, .hash_len = RIG_HASH, .n = 2, .blocks = &blocks, .n_groups = 1, .tenant = "a"};
	char tenant[257];
	uint64_t job = 99;
	int dummy;

	rig_start(&rig);
	memset(tenant, 'x', 256);
	tenant[256] = '\0';
	ck_assert_int_eq(scout_worker_store(NULL, &good, &job), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_store(rig.workers[0], NULL, &job), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &good, NULL), SCOUT_ERR_INVALID);
	REFUSED(SCOUT_ERR_HASH_LEN, hash_len, 16);
	REFUSED(SCOUT_ERR_HASH_LEN, hash_len, 33);
	REFUSED(SCOUT_ERR_INVALID, n, 3);
	REFUSED(SCOUT_ERR_INVALID, n, SIZE_MAX);
	REFUSED(SCOUT_ERR_INVALID, n_groups, 0);
	REFUSED(SCOUT_ERR_GROUP, n_groups, 2);
	REFUSED(SCOUT_ERR_INVALID, first_token, 32);
	REFUSED(SCOUT_ERR_INVALID, first_token, UINT64_MAX - 63);
	REFUSED_BLOCKS(SCOUT_ERR_GROUP, group, 1);
	REFUSED_BLOCKS(SCOUT_ERR_INVALID, n, 7);
	REFUSED_BLOCKS(SCOUT_ERR_INVALID, first_token, 16);
	REFUSED(SCOUT_ERR_INVALID, hashes, NULL);
	REFUSED(SCOUT_ERR_INVALID, blocks, NULL);
	REFUSED_BLOCKS(SCOUT_ERR_INVALID, ids, NULL);
	ck_assert_int_eq(scout_worker_store_sized(rig.workers[0], &good, 3, sizeof(blocks), &job),
			 SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(scout_worker_store_sized(rig.workers[0], &good, sizeof(good), 3, &job), SCOUT_ERR_UNSUPPORTED);
	REFUSED(SCOUT_ERR_TENANT, tenant, tenant);
	REFUSED(SCOUT_ERR_TENANT, tenant, "a\nb");
	REFUSED_BLOCKS(SCOUT_ERR_BLOCK_ID, ids, beyond);
	REFUSED(SCOUT_ERR_UNSUPPORTED, event, &dummy);
	REFUSED_BLOCKS(SCOUT_ERR_BLOCK_ID, ids, twice);
	REFUSED_BLOCKS(SCOUT_ERR_BLOCK_ID, ids, twice); /* the first refusal left no mark */
	blocks.ids = null_twice;
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &good, &job), 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).null_chunks, 1);
	good.n = 1; /* the job needs no other ids than the first four */
	blocks.ids = twice;
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &good, &job), 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, 0);
	good.n = 2;
	blocks.ids = ids;
	tenant[255] = '\0';
	good.tenant = tenant;
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &good, &job), 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, 0);
	free(hashes);
}
END_TEST

#undef REFUSED

START_TEST(nothing_goes_before_register_and_register_goes_once)
{
	struct scout_retrieve retrieve = {.ticket = 5};
	struct scout_store store = {.hash_len = RIG_HASH};
	struct scout_table layout;
	struct scout_worker *worker;
	struct scout_done done;
	uint64_t job;
	int64_t id = 3;

	rig_start(&rig);
	worker = rig_worker_new(&rig, 0);
	ck_assert_int_eq(scout_worker_retrieve(worker, &retrieve, &job), SCOUT_ERR_NOT_REGISTERED);
	ck_assert_int_eq(scout_worker_store(worker, &store, &job), SCOUT_ERR_NOT_REGISTERED);
	ck_assert_ptr_nonnull(strstr(scout_strerror(SCOUT_ERR_NOT_REGISTERED), "scout_worker_register() first"));
	ck_assert_int_eq(scout_worker_poll(worker, &done, 1), 0);
	ck_assert_int_eq(scout_worker_cancel(worker, 1), SCOUT_ERR_STATE);
	ck_assert_int_eq(scout_worker_fence(worker, 0, &id, 1, NULL), 0);
	ck_assert(!rig_is_readable(worker));
	scout_worker_free(worker);
	rig_table(&rig, &rig.pages[0], &layout);
	ck_assert_int_eq(scout_worker_register(rig.workers[0], &layout, 1, 1000, NULL, 0), SCOUT_ERR_STATE);
}
END_TEST

/* Register worker @cfg with @layout: the code, and the text for it. */
static int
try_register(const struct scout_worker_config *cfg, const struct scout_table *layout, uint32_t timeout_ms, char *err,
	     size_t err_len)
{
	struct scout_worker *worker;
	int rc = scout_worker_new(cfg, &worker, err, err_len);

	ck_assert_msg(rc == 0, "%s", err);
	rc = scout_worker_register(worker, layout, 1, timeout_ms, err, err_len);
	scout_worker_free(worker);
	return rc;
}

START_TEST(a_registration_that_does_not_fit_is_refused_at_once)
{
	struct scout_worker_config cfg;
	struct scout_table layout;
	struct rig_pages other;
	const uint64_t bytes[2] = {61, 130}, padding[2] = {0, 0}, huge[1] = {4u << 20}, none[1] = {0};
	char err[512] = "";

	rig_start(&rig);
	rig_pages_init(&other, 2, bytes, padding, 8);
	rig_worker_config(&rig, 0, &cfg);
	rig_table(&rig, &other, &layout);
	ck_assert_int_eq(try_register(&cfg, &layout, wait_limit_ms(), err, sizeof(err)), SCOUT_ERR_SHARD_BYTES);
	ck_assert_msg(strlen(err) > 10, "%s", err);
	rig_table(&rig, &rig.pages[0], &layout);
	cfg.chunk_tokens = 128;
	ck_assert_int_eq(try_register(&cfg, &layout, wait_limit_ms(), err, sizeof(err)), SCOUT_ERR_NAMESPACE);
	ck_assert_ptr_nonnull(strstr(err, "chunk_tokens"));
	rig_pages_fini(&other);
	/* A chunk of 4 blocks is 16 MiB, the pool 8. */
	rig_pages_init(&other, 1, huge, none, 2);
	rig_worker_config(&rig, 0, &cfg);
	cfg.name_space = "huge";
	rig_table(&rig, &other, &layout);
	ck_assert_int_eq(try_register(&cfg, &layout, wait_limit_ms(), err, sizeof(err)), SCOUT_ERR_NO_ROOM);
	rig_pages_fini(&other);
}
END_TEST

#define REFUSED(field, value)                                                                                          \
	do {                                                                                                           \
		struct scout_table l = good;                                                                           \
		l.field = value;                                                                                       \
		err[0] = '\0';                                                                                         \
		ck_assert_int_eq(scout_worker_register(worker, &l, 1, 1000, err, sizeof(err)), SCOUT_ERR_INVALID);     \
		ck_assert_msg(strlen(err) > 10, "%s", err);                                                            \
	} while (0)

START_TEST(a_wrong_layout_is_refused_and_the_right_one_still_taken)
{
	struct scout_plane narrow, big, empty, same[2];
	struct scout_table good, twice[2];
	struct scout_worker *worker;
	char err[512], long_tag[257];

	memset(long_tag, 'x', 256);
	long_tag[256] = '\0';
	rig_start(&rig);
	worker = rig_worker_new(&rig, 0);
	rig_table(&rig, &rig.pages[0], &good);
	narrow = big = empty = good.planes[0];
	narrow.stride = narrow.block_bytes - 1;
	big.stride = UINT64_MAX / 8;
	empty.block_bytes = 0;
	ck_assert_int_eq(scout_worker_register(worker, NULL, 1, 1000, NULL, 0), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_register(NULL, &good, 1, 1000, NULL, 0), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_register_sized(worker, &good, 1, sizeof(good) - 8, sizeof(*good.planes), 1000,
						     err, sizeof(err)),
			 SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(scout_worker_register_sized(worker, &good, 1, sizeof(good), sizeof(*good.planes) - 8, 1000,
						     err, sizeof(err)),
			 SCOUT_ERR_UNSUPPORTED);
	ck_assert_msg(strlen(err) > 10, "%s", err);
	ck_assert_int_eq(scout_worker_register(worker, &good, 0, 1000, err, sizeof(err)), SCOUT_ERR_INVALID);
	twice[0] = twice[1] = good;
	ck_assert_int_eq(scout_worker_register(worker, twice, 2, 1000, err, sizeof(err)), SCOUT_ERR_GROUP);
	ck_assert_msg(strstr(err, "2 tables") != NULL, "%s", err);
	good.group = 1;
	ck_assert_int_eq(scout_worker_register(worker, &good, 1, 1000, err, sizeof(err)), SCOUT_ERR_GROUP);
	ck_assert_msg(strstr(err, "table.group = 1") != NULL, "%s", err);
	good.group = 0;
	REFUSED(layout_tag, "N\nHD");
	REFUSED(layout_tag, long_tag);
	REFUSED(dtype, 99);
	REFUSED(block_tokens, 0);
	REFUSED(block_tokens, 24);
	REFUSED(n_planes, 0);
	REFUSED(n_planes, 100000);
	REFUSED(planes, NULL);
	REFUSED(n_blocks, 0);
	REFUSED(null_block, 512);
	good.n_planes = 1;
	REFUSED(planes, &narrow);
	REFUSED(planes, &big);
	REFUSED(planes, &empty);
	good.n_planes = 2;
	same[0] = same[1] = good.planes[1];
	REFUSED(planes, same);
	ck_assert_msg(strstr(err, "planes[0] and planes[1] share memory") != NULL, "%s", err);
	ck_assert_int_eq(scout_worker_register(worker, &good, 1, wait_limit_ms(), err, sizeof(err)), 0);
	scout_worker_free(worker);
}
END_TEST

#undef REFUSED

/* What a GPU's pages look like to a process without its driver: addresses that are taken, and cannot be read. */
START_TEST(pages_that_are_no_host_memory_are_refused_and_kill_nobody)
{
	struct scout_plane planes[2];
	struct scout_table layout;
	struct scout_worker *worker;
	size_t bytes;
	char err[512] = "";

	rig_start(&rig);
	worker = rig_worker_new(&rig, 0);
	rig_table(&rig, &rig.pages[0], &layout);
	planes[0] = layout.planes[0];
	planes[1] = layout.planes[1];
	layout.n_planes = 2;
	layout.planes = planes;
	bytes = (size_t)(planes[1].stride * layout.n_blocks);
	planes[1].base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert(planes[1].base != MAP_FAILED);
	ck_assert_int_eq(scout_worker_register(worker, &layout, 1, 1000, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_msg(strstr(err, "planes[1]") && strstr(err, "no GPU's"), "%s", err);
	/* All but its end. */
	ck_assert_int_eq(mprotect(planes[1].base, bytes / 2, PROT_READ | PROT_WRITE), 0);
	ck_assert_int_eq(scout_worker_register(worker, &layout, 1, 1000, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_int_eq(mprotect(planes[1].base, bytes, PROT_READ | PROT_WRITE), 0);
	ck_assert_msg(scout_worker_register(worker, &layout, 1, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	scout_worker_free(worker);
	(void)munmap(planes[1].base, bytes);
}
END_TEST

START_TEST(a_bad_configuration_makes_no_worker)
{
	struct scout_worker_config cfg;
	struct scout_worker *worker = (struct scout_worker *)&cfg;
	char err[256] = "";

	rig_start(&rig);
	ck_assert_int_eq(scout_worker_new(NULL, &worker, err, sizeof(err)), SCOUT_ERR_INVALID);
	rig_worker_config(&rig, 0, &cfg);
	cfg.backend = "abacus";
	ck_assert_int_eq(scout_worker_new(&cfg, &worker, err, sizeof(err)), SCOUT_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(err, "abacus"));
	rig_worker_config(&rig, 0, &cfg);
	cfg.kv_rank = 1;
	ck_assert_int_eq(scout_worker_new(&cfg, &worker, err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	rig_worker_config(&rig, 0, &cfg);
	cfg.endpoint = "pigeon://roof";
	ck_assert_int_eq(scout_worker_new(&cfg, &worker, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_ptr_eq(worker, &cfg);
	scout_worker_free(NULL);
}
END_TEST
