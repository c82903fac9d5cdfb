/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of the public headers that programs were compiled with and that libabigail does not see, because no function names their
 * enum: a number that changes does not compile here. Error numbers are held by docs/errors.md, those of the wire by golden bytes.
 */
#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/types.h>
#include <kvscout/worker.h>

_Static_assert(SCOUT_LOG_ERROR == 1, "ABI");
_Static_assert(SCOUT_LOG_WARN == 2, "ABI");
_Static_assert(SCOUT_LOG_INFO == 3, "ABI");
_Static_assert(SCOUT_LOG_DEBUG == 4, "ABI");
_Static_assert(SCOUT_LOCAL_SHM == 0, "ABI");
_Static_assert(SCOUT_LOCAL_SOCKET == 1, "ABI");
_Static_assert(SCOUT_DTYPE_OPAQUE == 0, "ABI");
_Static_assert(SCOUT_DTYPE_F16 == 1, "ABI");
_Static_assert(SCOUT_DTYPE_BF16 == 2, "ABI");
_Static_assert(SCOUT_DTYPE_F32 == 3, "ABI");
_Static_assert(SCOUT_DTYPE_F8_E4M3 == 4, "ABI");
_Static_assert(SCOUT_DTYPE_F8_E5M2 == 5, "ABI");
_Static_assert(SCOUT_DTYPE_I8 == 6, "ABI");
_Static_assert(SCOUT_LOOKUP_ASYNC == 0, "ABI");
_Static_assert(SCOUT_LOOKUP_POLLED == 1, "ABI");
_Static_assert(SCOUT_REASON_NONE == 0, "ABI");
_Static_assert(SCOUT_REASON_HIT == 1, "ABI");
_Static_assert(SCOUT_REASON_MISS == 2, "ABI");
_Static_assert(SCOUT_REASON_TIMEOUT == 3, "ABI");
_Static_assert(SCOUT_REASON_UNREACHABLE == 4, "ABI");
_Static_assert(SCOUT_REASON_REFUSED == 5, "ABI");
_Static_assert(SCOUT_REASON_CLOSED == 6, "ABI");
_Static_assert(SCOUT_REASON_LIMITED == 7, "ABI");
_Static_assert(SCOUT_KEY_MISS == 0, "ABI");
_Static_assert(SCOUT_KEY_HIT == 1, "ABI");
_Static_assert(SCOUT_KEY_RETRY == 2, "ABI");
_Static_assert(SCOUT_KEYS_MAX == 16384, "ABI");
_Static_assert(SCOUT_NEVER == UINT32_MAX, "ABI");
_Static_assert(SCOUT_TO_END == INT64_MAX, "ABI");
_Static_assert(SCOUT_PREFETCH_ON_RETRIEVE == 0, "ABI");
_Static_assert(SCOUT_PREFETCH_ON_LOOKUP == 1, "ABI");
_Static_assert(SCOUT_PREFETCH_BEFORE_ANSWER == 2, "ABI");
_Static_assert(SCOUT_L2_RETAIN == 0, "ABI");
_Static_assert(SCOUT_L2_TEMPORARY == 1, "ABI");
_Static_assert(SCOUT_JOB_RETRIEVE == 1, "ABI");
_Static_assert(SCOUT_JOB_STORE == 2, "ABI");
_Static_assert(SCOUT_JOB_VERIFY == 3, "ABI");

int
main(void)
{
	return 0;
}
