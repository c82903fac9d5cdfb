/* SPDX-License-Identifier: Apache-2.0 */
/* How large the pool of a server is that an engine has started. */
#include "check_main.h"

#include <string.h>

#include "pool_share.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

static char text[256];

static uint64_t
share_of(uint64_t machine, uint64_t cgroup)
{
	const struct scout__memory memory = {.machine_available = machine, .cgroup_available = cgroup};

	return scout__pool_share(&memory, text, sizeof(text));
}

START_TEST(it_is_the_smaller_of_a_quarter_and_a_half)
{
	ck_assert_uint_eq(share_of(64 * GIB, UINT64_MAX), 16 * GIB);
	ck_assert_msg(strstr(text, "16384 MiB: 25 % of the 65536 MiB that this machine"), "%s", text);
	ck_assert_uint_eq(share_of(64 * GIB, 10 * GIB), 5 * GIB);
	ck_assert_msg(strstr(text, "5120 MiB: 50 % of the 10240 MiB that the memory limit"), "%s", text);
	ck_assert_uint_eq(share_of(64 * GIB, 40 * GIB), 16 * GIB);
	ck_assert_msg(strstr(text, "this machine"), "%s", text);
	ck_assert_uint_eq(share_of(64 * GIB + 5, UINT64_MAX), 16 * GIB);
	ck_assert_uint_eq(share_of(64 * GIB, 10 * GIB + 3 * MIB), 5 * GIB + MIB);
}
END_TEST

START_TEST(it_is_never_less_than_the_least)
{
	ck_assert_uint_eq(share_of(64 * MIB, UINT64_MAX), SCOUT__POOL_SHARE_MIN);
	ck_assert_msg(strstr(text, "little memory"), "%s", text);
	ck_assert_uint_eq(share_of(64 * GIB, 0), SCOUT__POOL_SHARE_MIN);
	ck_assert_uint_eq(share_of(UINT64_MAX, UINT64_MAX), SCOUT__POOL_SHARE_MIN);
	ck_assert_msg(strstr(text, "does not say"), "%s", text);
	ck_assert_uint_eq(share_of(UINT64_MAX, 10 * GIB), 5 * GIB);
}
END_TEST
