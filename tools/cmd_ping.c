/* SPDX-License-Identifier: Apache-2.0 */
#include "operator.h"

#include "clock.h"
#include "say.h"

/* kvscout ping: PING and its reply, which the server's loop sends before anything else. Main thread. */

int
cmd_ping(int argc, char **argv)
{
	struct operator op = OPERATOR_DEFAULTS;
	uint64_t count = 1, least_us = UINT64_MAX, most_us = 0;
	const struct cli_option options[] = {
		OPERATOR_OPTIONS(&op),
		CLI_NUMBER("count", &count, 1, 1000000, "pings, one each second"),
	};
	const struct cli cli = {
		.tool = "kvscout ping",
		.about = "Asks whether the server answers, and how fast. Exit status 3: it does not.",
		.options = options,
		.n = N_OPERATOR_OPTIONS + 1,
	};
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	status = operator_open(&op, &cli);
	for (uint64_t i = 0; status == 0 && i < count; i++) {
		struct scout__op reply;
		uint64_t begin_us, us;

		if (i > 0)
			operator_sleep(1);
		begin_us = scout__now_us();
		(void)scout__status_client_begin(&op.client, SCOUT_OP_PING);
		status = operator_ask(&op, &reply);
		if (status)
			break;
		us = scout__now_us() - begin_us;
		least_us = us < least_us ? us : least_us;
		most_us = us > most_us ? us : most_us;
		say("%s answered in %.2f ms%s\n", op.client.endpoint, (double)us / 1e3,
		    i == 0 ? " (with the connection)" : "");
		say_flush();
	}
	if (status == 0 && count > 1)
		say("%llu answers: %.2f to %.2f ms\n", (unsigned long long)count, (double)least_us / 1e3,
		    (double)most_us / 1e3);
	operator_close(&op);
	return status;
}
