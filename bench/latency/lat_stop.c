/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the user ends kvscout-latency: the first signal ends the run, the second the process. Handlers run on the main
 * thread.
 */
#include "lat.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t stop_signal;

static void
on_signal(int number)
{
	if (stop_signal) {
		(void)signal(number, SIG_DFL);
		(void)raise(number); /* takes effect on return: it is blocked here */
	}
	stop_signal = number;
}

void
lat_catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: waits must end */

	sigemptyset(&action.sa_mask);
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
}

int
lat_stop_signal(void)
{
	return stop_signal;
}

bool
lat_is_stopped(void)
{
	return stop_signal != 0;
}
