/* SPDX-License-Identifier: Apache-2.0 */
#include "operator.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "say.h"
#include "show.h"
#include "snapshot.h"

/*
 * DESIGN
 *
 * kvscout clear: DROP, and with L2 the same again under the same name until each store has recorded it, or WAIT_TURNS are
 * over. A DROP that was not answered may still be carried out, so it is not sent again then.
 *
 * Threads: main.
 */

#define WAIT_TURNS 50 /* of 0.2 s */

static uint64_t
draw_generation(void)
{
	uint64_t n = 0;

	while (n == 0 || n == SCOUT_GENERATION_ANY)
		if (getrandom(&n, sizeof(n), 0) != sizeof(n) && errno != EINTR)
			die("no random number from the kernel");
	return n;
}

static int
drop(struct operator* op, const struct scout__drop_msg *m, struct scout__drop_reply *ret)
{
	struct scout__op reply;
	const char *field = "";
	int rc;

	scout__put_drop(scout__status_client_begin(&op->client, SCOUT_OP_DROP), m);
	rc = operator_ask(op, &reply);
	if (rc)
		return rc;
	return scout__get_drop_reply(&reply, ret, &field) == SCOUT_WIRE_OK ? 0 : operator_bad_reply(op);
}

/* Whether the server lists the namespace now; a drop by name may be for one that it has not met. */
static int
is_met(struct operator* op, const char *name, bool *ret_met)
{
	struct snapshot s;
	int rc = snapshot_take(op, &s);

	*ret_met = false;
	for (uint32_t i = 0; rc == 0 && i < s.n_ns; i++)
		*ret_met |= strcmp(s.ns[i], name) == 0;
	if (rc == 0)
		snapshot_free(&s);
	return rc;
}

static int
carry_out(struct operator* op, const struct scout__drop_msg *m)
{
	struct scout__drop_reply first, now;
	char bytes[SHOWN];
	bool met;
	int rc = is_met(op, m->name_space.p, &met);

	if (rc == 0)
		rc = drop(op, m, &first);
	if (rc)
		return rc;
	now = first;
	for (int i = 0; now.pending > 0 && i < WAIT_TURNS && rc == 0; i++) {
		operator_sleep(0.2);
		rc = drop(op, m, &now);
	}
	if (rc)
		return rc;
	if ((m->flags & SCOUT_DROP_TENANT) && first.bytes == 0)
		say("nothing was cached of this tenant in the namespace; kvscout top lists tenants\n");
	else
		say("dropped %s from memory%s\n", show_bytes(bytes, (double)first.bytes),
		    now.stores > now.pending ? ", and everything in L2" : "");
	if (!met && first.stores > 0)
		say("no engine has named this namespace since the server's start: is the name right?\n");
	if (now.pending == 0)
		return EXIT_DONE;
	complain(
		"%u of %u L2 stores have not recorded this: the server does not use them for the namespace until they have, "
		"but if it ends before that, their old content comes back. Look at its log",
		(unsigned)now.pending, (unsigned)now.stores);
	return EXIT_FAILED;
}

int
cmd_clear(int argc, char **argv)
{
	struct operator op = OPERATOR_DEFAULTS;
	const char *name_space = NULL, *tenant = NULL;
	bool no_tenant = false;
	const struct cli_option options[] = {
		OPERATOR_OPTIONS(&op),
		CLI_TEXT("namespace", "NAME", &name_space, "the namespace, as kvscout status names it"),
		CLI_TEXT("tenant", "NAME", &tenant, "only what this tenant has stored"),
		CLI_SWITCH("no-tenant", &no_tenant, "only what requests without a tenant have stored"),
	};
	const struct cli cli = {
		.tool = "kvscout clear",
		.about = "Drops what a namespace has cached, in memory and in L2. Engines go on, and fill it anew.",
		.options = options,
		.n = N_OPERATOR_OPTIONS + 3,
		.notes =
			"An engine's own cache on the GPU is not cleared: reset the prefix cache of the engine as well, if its KV is\n"
			"wrong. One tenant can be cleared only at a server without L2. With L2, give the tenant another name.\n",
	};
	struct scout__drop_msg m;
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	if (!name_space)
		return cli_usage_error(&cli, "--namespace is missing");
	if (tenant && no_tenant)
		return cli_usage_error(&cli, "--tenant and --no-tenant exclude each other");
	if (strlen(name_space) > SCOUT_MAX_NAME || (tenant && strlen(tenant) > SCOUT_MAX_NAME))
		return cli_usage_error(&cli, "a name has at most %d bytes", SCOUT_MAX_NAME);
	m = (struct scout__drop_msg){
		.generation = draw_generation(),
		.flags = tenant || no_tenant ? SCOUT_DROP_TENANT : 0,
		.name_space = {name_space, (uint16_t)strlen(name_space)},
		.tenant = {tenant ? tenant : "", tenant ? (uint16_t)strlen(tenant) : 0},
	};
	status = operator_open(&op, &cli);
	if (status == 0)
		status = carry_out(&op, &m);
	operator_close(&op);
	return status;
}
