/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>

#include <kvscout/error.h>

/* What a call of the library returns, or a job's status: a failure names both errors. */
#define assert_rc(call, expected)                                                                                      \
	do {                                                                                                           \
		int rc_ = (call), expected_ = (expected);                                                              \
                                                                                                                       \
		ck_assert_msg(rc_ == expected_, "%s is %s (%d), not %s (%d)", #call, scout_err_name(rc_), rc_,         \
			      scout_err_name(expected_), expected_);                                                   \
	} while (0)

#define assert_ok(call) assert_rc(call, 0)
