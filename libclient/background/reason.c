/* SPDX-License-Identifier: Apache-2.0 */
/* The reasons of answers: their names, and which error gives which reason. Any thread; no state. */
#include "client_internal.h"

int
scout__reason_of(int error)
{
	switch (error) {
	case SCOUT_ERR_TIMEOUT:
		return SCOUT_REASON_TIMEOUT;
	case SCOUT_ERR_UNREACHABLE:
	case SCOUT_ERR_EPOCH:
		return SCOUT_REASON_UNREACHABLE;
	case SCOUT_ERR_CLOSED:
		return SCOUT_REASON_CLOSED;
	default:
		return SCOUT_REASON_REFUSED;
	}
}

static const char *const reason_names[] = {"none",        "hit",     "miss",   "timeout",
					   "unreachable", "refused", "closed", "limited"};

const char *
scout_reason_name(int reason)
{
	if (reason < 0 || (size_t)reason >= sizeof(reason_names) / sizeof(reason_names[0]))
		return "unknown";
	return reason_names[reason];
}
