/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "matrix_rig.h"

#include <stdio.h>
#include <sys/mman.h>

#include "worker_rig.h"

/*
 * DESIGN
 *
 * The fault matrix: each row is a case of its own, in a process of its own, and the table of all is printed at the end as TAP
 * comments. The rows' results are in memory that the forked cases share with the runner.
 *
 * The rows of long waits run with KVSCOUT_LONG=1. KVSCOUT_MATRIX_ROW=NAME runs one row.
 *
 * Half of the time, 20 of 40 s, goes by until a client connects again after a refusal (1 s each) and while a peer stands still.
 */

#define MAX_ROWS 256

struct result {
	uint64_t worst_ms, deadline_ms, longest_step_us, left;
	bool ran, works, passed;
};

static const struct matrix_row *rows[MAX_ROWS];
static TTest tests[MAX_ROWS];
static unsigned n_rows;
static struct result *results;

static void
run_row(int i)
{
	/* Too large for a stack; a case is a process, and its last one is this. */
	static struct matrix m;
	struct result *result = &results[i];

	result->ran = true;
	memset(&m, 0, sizeof(m));
	rows[i]->run(&m, rows[i]);
	*result = (struct result){.worst_ms = m.worst_us / 1000,
				  .deadline_ms = m.timeout_ms,
				  .longest_step_us = m.longest_step_us,
				  .left = m.left,
				  .ran = true,
				  .works = m.works,
				  .passed = true};
	ck_assert(m.works);
	ck_assert_uint_eq(m.left, 0);
}

static void
collect(TCase *tc, const struct matrix_row *table)
{
	bool real_only = rig_transport() == SCOUT_LOCAL_SOCKET; /* all others use the socket in any case */
	const char *one = getenv("KVSCOUT_MATRIX_ROW");

	for (; table->name; table++) {
		if ((table->is_long && !is_long()) || (table->is_scripted && real_only) ||
		    (one && strcmp(one, table->name) != 0) || n_rows == MAX_ROWS)
			continue;
		rows[n_rows] = table;
		tests[n_rows] = (TTest){table->name, run_row, __FILE__, __LINE__};
		_tcase_add_test(tc, &tests[n_rows], 0, 0, (int)n_rows, (int)n_rows + 1);
		n_rows++;
	}
}

static void
print_table(void)
{
	uint64_t slowest_ms = 0, longest_us = 0, left = 0;
	unsigned passed = 0, ran = 0;

	printf("# %-46s | answered by its deadline (ms) | longest step (us) | left | works again\n", "fault");
	for (unsigned i = 0; i < n_rows; i++) {
		const struct result *r = &results[i];

		ran += r->ran;
		passed += r->passed;
		if (!r->passed) {
			printf("# %-46s | %s\n", rows[i]->name, r->ran ? "FAILED" : "did not run");
			continue;
		}
		printf("# %-46s | yes, %5llu of %-5llu           | %17llu | %4llu | %s\n", rows[i]->name,
		       (unsigned long long)r->worst_ms, (unsigned long long)r->deadline_ms,
		       (unsigned long long)r->longest_step_us, (unsigned long long)r->left, r->works ? "yes" : "NO");
		slowest_ms = r->worst_ms > slowest_ms ? r->worst_ms : slowest_ms;
		longest_us = r->longest_step_us > longest_us ? r->longest_step_us : longest_us;
		left += r->left;
	}
	printf("# %u faults, %u as they should be: slowest answer %llu ms, longest step %llu us, left %llu\n", ran,
	       passed, (unsigned long long)slowest_ms, (unsigned long long)longest_us, (unsigned long long)left);
}

int
main(void)
{
	Suite *suite = suite_create("fault_matrix");
	TCase *tc = tcase_create("matrix");
	int rc;

	results = mmap(NULL, MAX_ROWS * sizeof(*results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (results == MAP_FAILED) {
		perror("mmap");
		return EXIT_FAILURE;
	}
	fault_make_home();
	tcase_set_timeout(tc, is_long() ? 600 : 120);
	if (rig_transport() ==
	    SCOUT_LOCAL_SHM) { /* these peers and proxies speak through the socket only, whatever the client wants */
		collect(tc, matrix_scripted_rows);
		collect(tc, matrix_proxy_rows);
	}
	collect(tc, matrix_server_rows);
	collect(tc, matrix_worker_rows);
	collect(tc, matrix_local_rows);
	collect(tc, matrix_process_rows);
	collect(tc, matrix_limits_rows);
	suite_add_tcase(suite, tc);
	rc = run_suite(suite);
	print_table();
	return rc;
}
