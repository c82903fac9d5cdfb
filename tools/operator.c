/* SPDX-License-Identifier: Apache-2.0 */
#include "operator.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include <kvscout/error.h>

#include "option_list.h"
#include "say.h"

/* See operator.h. */

static int
failed(const struct operator* op, int rc, const char *err)
{
	if (op->why)
		(void)snprintf(op->why, OPERATOR_WHY, "%s", err);
	else
		complain("%s", err);
	return rc == SCOUT_ERR_UNREACHABLE ? EXIT_NO_SERVER : EXIT_FAILED;
}

int
operator_open(struct operator* op, const struct cli *cli)
{
	char err[OPERATOR_WHY] = "";
	int rc;

	if (scout__list_check_one_endpoint("--endpoint", op->endpoint, err, sizeof(err)) != 0)
		return cli_usage_error(cli, "%s", err);
	if (!scout__instance_is_auto(op->endpoint) && strncmp(op->endpoint, "ipc://", 6) != 0 &&
	    strncmp(op->endpoint, "tcp://", 6) != 0)
		return cli_usage_error(
			cli, "--endpoint = \"%s\": must be ipc:///PATH, tcp://HOST:PORT, auto or auto:///FOLDER",
			op->endpoint);
	if (op->curve_server_key && !op->curve_secret_file)
		return cli_usage_error(cli, "--curve-server-key needs --curve-secret-file");
	if (op->curve_server_key && strlen(op->curve_server_key) != 40)
		return cli_usage_error(cli, "--curve-server-key: must be the 40 characters of a public key");
	rc = scout__status_client_open(&op->client, op->endpoint, op->curve_secret_file, op->curve_server_key, err,
				       sizeof(err));
	return rc ? failed(op, rc, err) : 0;
}

int
operator_ask(struct operator* op, struct scout__op *ret_op)
{
	char err[OPERATOR_WHY];
	int rc = scout__status_client_ask(&op->client, ret_op, err, sizeof(err));

	return rc ? failed(op, rc, err) : 0;
}

int operator_bad_reply(struct operator* op)
{
	char err[OPERATOR_WHY];

	return failed(op, scout__status_client_bad_reply(&op->client, err, sizeof(err)), err);
}

int
operator_tenants(struct operator* op, const char *ns, struct scout__list_reply *ret_tenants)
{
	const struct scout__str name = {ns, (uint16_t)strlen(ns)};
	struct scout__op reply;
	const char *field = "";
	int rc;

	scout__put_tenants(scout__status_client_begin(&op->client, SCOUT_OP_TENANTS), &name);
	rc = operator_ask(op, &reply);
	if (rc == 0 && scout__get_tenants_reply(&reply, ret_tenants, &field) != SCOUT_WIRE_OK)
		rc = operator_bad_reply(op);
	return rc;
}

void operator_close(struct operator* op)
{
	scout__status_client_close(&op->client);
}

void
operator_sleep(double seconds)
{
	struct timespec left = {.tv_sec = (time_t)seconds};

	left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		;
}
