/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that uses all installed libraries: an embedded server, and a client and a worker that find it by scout_server_endpoint().
 * In the other tests there is only one copy of what the libraries have in common. As consumer_local, it links none and loads those that
 * it is given, in that order, each with names of its own (RTLD_LOCAL).
 */
#include <stdio.h>

#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#ifdef LOAD
#include <dlfcn.h>
#include <string.h>

static void *libraries[3];

/* Of whichever library has it. */
static void
look_up(const char *name, void *ret_call, size_t size)
{
	void *symbol = NULL;

	for (int i = 0; i < 3 && !symbol; i++)
		symbol = dlsym(libraries[i], name);
	memcpy(ret_call, &symbol, size);
}

/* Each library exports a copy of these, and all answer alike. */
static int
compare_copies(void)
{
	__typeof__(scout_version) *version;
	__typeof__(scout_strerror) *text;
	void *symbols[2];

	for (int i = 0; i < 3; i++) {
		symbols[0] = dlsym(libraries[i], "scout_version");
		symbols[1] = dlsym(libraries[i], "scout_strerror");
		if (!symbols[0] || !symbols[1])
			return -1;
		memcpy(&version, &symbols[0], sizeof(version));
		memcpy(&text, &symbols[1], sizeof(text));
		if (strcmp(version(), SCOUT_VERSION_STRING) != 0 ||
		    strcmp(text(SCOUT_ERR_BIND), "the endpoint cannot be bound") != 0)
			return -1;
	}
	return 0;
}

#define CALL(name)                                                                                                     \
	__extension__({                                                                                                \
		__typeof__(name) *call;                                                                                \
		look_up(#name, &call, sizeof(call));                                                                   \
		call;                                                                                                  \
	})
#else
#define CALL(name) name
#endif

static int
fail(const char *what, const char *text)
{
	(void)fprintf(stderr, "%s: %s\n", what, text);
	return 1;
}

static int
use(void)
{
	struct scout_server_config server_cfg;
	struct scout_client_config client_cfg;
	struct scout_worker_config worker_cfg;
	struct scout_server *server;
	struct scout_client *client;
	struct scout_worker *worker;
	char err[256] = "";
	int rc;

	CALL(scout_server_config_init_sized)(&server_cfg, sizeof(server_cfg));
	server_cfg.l1_bytes = 1 << 20;
	if (CALL(scout_server_start)(&server_cfg, &server, err, sizeof(err)) != 0)
		return fail("server", err);
	CALL(scout_client_config_init_sized)(&client_cfg, sizeof(client_cfg));
	client_cfg.endpoint = CALL(scout_server_endpoint)(server);
	if (CALL(scout_client_new)(&client_cfg, &client, err, sizeof(err)) != 0)
		return fail("client", err);
	CALL(scout_worker_config_init_sized)(&worker_cfg, sizeof(worker_cfg));
	worker_cfg.endpoint = CALL(scout_server_endpoint)(server);
	if (CALL(scout_worker_new)(&worker_cfg, &worker, err, sizeof(err)) != 0)
		return fail("worker", err);
	rc = CALL(scout_client_wait_ready)(client, 10000, err, sizeof(err)) ? fail("wait", err) : 0;
	CALL(scout_worker_free)(worker);
	CALL(scout_server_stop)(server);
	CALL(scout_client_free)(client);
	return rc;
}

int
main(int argc, char **argv)
{
#ifdef LOAD
	for (int i = 0; i < 3; i++) {
		libraries[i] = argc == 4 ? dlopen(argv[1 + i], RTLD_NOW | RTLD_LOCAL) : NULL;
		if (!libraries[i])
			return fail("dlopen", argc == 4 ? dlerror() : "usage: consumer_local LIBRARY LIBRARY LIBRARY");
	}
	if (compare_copies() != 0)
		return fail("a library", "no copy of scout_version() and scout_strerror(), or another one");
#else
	(void)argc;
	(void)argv;
#endif
	return use();
}
