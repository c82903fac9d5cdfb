/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "number.h"
#include "option.h"
#include "plugin_internal.h"
#include "url.h"

/*
 * DESIGN
 *
 * The adapter for stores in shared libraries (kvscout/l2_plugin.h), over the threads of blocking.h: this file loads the library
 * and starts it, plugin_calls.c makes its calls. s3:// is a plugin of our own, whose library plugin_s3.c finds.
 *
 * The option `threads` is the server's; all others go to the plugin, which knows their names. The library is loaded by
 * open(), and not to check a configuration: to load it is to run it.
 *
 * Threads: open, stop and close run on the server's starter; submit on its loop; nothing here waits for the store.
 */

#define SYMBOL "scout_l2_plugin"
#define THREADS_DEFAULT 8
#define S3_TRIES 6u /* a request that failed is sent again: SCOUT__S3_TRIES */
#define V1_SIZE (offsetof(struct scout_l2_plugin, close) + sizeof(((struct scout_l2_plugin *)0)->close))

struct plugin_options {
	uint32_t size;
	uint32_t threads;
	void *owned;
};

#define FIELD(name) offsetof(struct plugin_options, name)

static const struct scout__option options[] = {
	SCOUT__OPTION(U32, threads, .def = THREADS_DEFAULT, .min = 1, .max = SCOUT__BLOCKING_THREADS_MAX,
		      .doc = "Calls at once"),
};

static const struct scout__option_table table =
	SCOUT__OPTION_TABLE(plugin_options, options, .env_prefix = NULL); /* in a URL */

/* The options of the URL that are the server's, and those that are the plugin's. */
struct split {
	struct scout__l2_url_option ours[SCOUT__L2_MAX_URL_OPTIONS];
	struct scout_l2_option theirs[SCOUT__L2_MAX_URL_OPTIONS + SCOUT__S3_URL_PARTS];
	uint32_t n_theirs;
	uint32_t threads;
};

static bool
is_s3(const struct scout__l2_url *url)
{
	return strcmp(url->scheme, scout__l2_s3.scheme) == 0;
}

static int
read_url(const struct scout__l2_url *url, struct split *ret, char *err, size_t err_len)
{
	struct scout__l2_url own = *url;
	struct plugin_options cfg;
	int rc;

	*ret = (struct split){.n_theirs = 0};
	rc = is_s3(url) ? scout__s3_url_parts(url, ret->theirs, &ret->n_theirs, err, err_len)
			: scout__l2_url_need_folder(url, err, err_len);
	if (rc)
		return rc;
	own.options = ret->ours;
	own.n_options = 0;
	for (uint32_t i = 0; i < url->n_options; i++) {
		if (strcmp(url->options[i].name, options[0].name) == 0)
			ret->ours[own.n_options++] = url->options[i];
		else
			ret->theirs[ret->n_theirs++] =
				(struct scout_l2_option){url->options[i].name, url->options[i].value};
	}
	rc = scout__l2_url_options(&own, &table, &cfg, err, err_len);
	if (rc)
		return rc;
	ret->threads = cfg.threads;
	scout__options_fini(&table, &cfg);
	return 0;
}

/* ---- the library ---- */

static int
take(struct scout__plugin *plugin, const struct scout_l2_plugin *of, char *err, size_t err_len)
{
	if (!of)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "the library's " SYMBOL "() returns NULL");
	if (of->version != SCOUT_L2_PLUGIN_VERSION)
		return scout__fail(
			err, err_len, SCOUT_ERR_VERSION,
			"the plugin has version %u, and this server needs %u: build it with this release's kvscout/l2_plugin.h",
			of->version, SCOUT_L2_PLUGIN_VERSION);
	if (of->size < V1_SIZE)
		return scout__fail(err, err_len, SCOUT_ERR_UNSUPPORTED,
				   "the plugin's structure has %u bytes, less than the %zu of its first version",
				   of->size, (size_t)V1_SIZE);
	memcpy(&plugin->of, of, of->size < sizeof(plugin->of) ? of->size : sizeof(plugin->of));
	if (!of->open || !of->exists || !of->load || !of->store || !of->remove || !of->close)
		return scout__fail(err, err_len, SCOUT_ERR_UNSUPPORTED,
				   "the plugin lacks one of open, exists, load, store, remove, close");
	return 0;
}

static int
load_library(struct scout__plugin *plugin, char *err, size_t err_len)
{
	const struct scout_l2_plugin *(*get)(void);
	void *symbol;
	int rc;

	plugin->library = dlopen(plugin->path, RTLD_NOW | RTLD_LOCAL);
	if (!plugin->library)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "the library cannot be loaded: %s%s", dlerror(),
				   plugin->hint);
	symbol = dlsym(plugin->library, SYMBOL);
	if (symbol) {
		memcpy(&get, &symbol, sizeof(get));
		rc = take(plugin, get(), err, err_len);
	} else {
		rc = scout__fail(err, err_len, SCOUT_ERR_SYSTEM,
				 "the library is no plugin of kvscout: it exports no " SYMBOL "()");
	}
	if (rc)
		(void)dlclose(plugin->library);
	return rc;
}

static int
code_of(int rc)
{
	switch (rc) {
	case 0:
	case SCOUT_ERR_CONFIG_KEY:
	case SCOUT_ERR_CONFIG_RANGE:
	case SCOUT_ERR_PERMISSION:
	case SCOUT_ERR_IN_USE:
	case SCOUT_ERR_NOMEM:
		return rc;
	default:
		return SCOUT_ERR_SYSTEM;
	}
}

/*
 * Lines of the plugin's own. They pass the server's gate and its cleaning like all others: a host that has called
 * scout_server_log_off() gets none, and no byte of a store reaches a terminal as it is. Any thread, until close() returns.
 */
static void
log_line(void *user, int level, const char *text)
{
	const struct scout__plugin *plugin = user;

	if (level < SCOUT_LOG_ERROR || level > SCOUT_LOG_DEBUG)
		level = SCOUT_LOG_WARN;
	scout__log(plugin->log, level, "plugin tier %s: %s", plugin->name, text ? text : "");
}

static int
open_store(struct scout__plugin *plugin, const struct scout__l2_open *args, const struct split *split, char *err,
	   size_t err_len)
{
	const struct scout_l2_open given = {.size = sizeof(given),
					    .n_options = split->n_theirs,
					    .options = split->theirs,
					    .timeout_ms =
						    (uint32_t)scout__max(args->timeout_ms, args->write_timeout_ms),
					    .threads = split->threads,
					    .log = log_line,
					    .log_user = plugin};
	char why[SCOUT_L2_WHY_BYTES] = "";
	int rc = code_of(plugin->of.open(&given, &plugin->store, why));

	why[sizeof(why) - 1] = '\0';
	return rc ? scout__fail(err, err_len, rc, "the plugin does not open: %s", why[0] ? why : scout_strerror(rc))
		  : 0;
}

/* ---- the adapter ---- */

static void
plugin_close(void *adapter)
{
	struct scout__plugin *plugin = adapter;

	scout__blocking_fini(&plugin->blocking);
	(void)dlclose(plugin->library);
	free(plugin->path);
	free(plugin->name);
	free(plugin);
}

static void *
closer_main(void *arg)
{
	struct scout__plugin *plugin = arg;

	plugin->of.close(plugin->store);
	scout__blocking_thread_ends(&plugin->blocking);
	return NULL;
}

/* close() may hang as any other call. */
static bool
plugin_stop(void *adapter, uint64_t deadline_us)
{
	struct scout__plugin *plugin = adapter;

	if (scout__blocking_stop(&plugin->blocking, deadline_us) &&
	    scout__blocking_thread_start(&plugin->blocking, &plugin->closer, "scout-l2-close", closer_main, plugin) ==
		    0) {
		if (scout__blocking_threads_wait(&plugin->blocking, deadline_us)) {
			(void)pthread_join(plugin->closer, NULL);
			return true;
		}
		(void)pthread_detach(plugin->closer);
	}
	scout__log(plugin->log, SCOUT_LOG_ERROR, "plugin tier %s: a call does not return; its thread is left running",
		   plugin->name);
	return false;
}

/* With the library loaded and its store open. */
static int
start(struct scout__plugin *plugin, const struct scout__l2_open *args, uint32_t threads)
{
	int rc = scout__blocking_init(&plugin->blocking, &scout__plugin_calls, plugin, args, threads);

	if (rc)
		return rc;
	rc = scout__blocking_start(&plugin->blocking, true);
	if (rc) {
		scout__blocking_cancel(&plugin->blocking);
		scout__blocking_fini(&plugin->blocking);
	}
	return rc;
}

static int
open_with(struct scout__plugin *plugin, const struct scout__l2_open *args, const struct split *split, char *err,
	  size_t err_len)
{
	int rc = load_library(plugin, err, err_len);

	if (rc)
		return rc;
	rc = open_store(plugin, args, split, err, err_len);
	if (rc)
		goto err_unload;
	rc = start(plugin, args, split->threads);
	if (rc) {
		(void)scout__fail(err, err_len, rc, "the threads cannot be started: %s", scout_strerror(rc));
		goto err_close_store;
	}
	return 0;

err_close_store:
	plugin->of.close(plugin->store);
err_unload:
	(void)dlclose(plugin->library);
	return rc;
}

static int
plugin_check(const struct scout__l2_url *url, char *err, size_t err_len)
{
	struct split split;

	return read_url(url, &split, err, err_len);
}

/* Which library, and what log lines call the store. */
static int
name_it(struct scout__plugin *plugin, const struct scout__l2_url *url, char *err, size_t err_len)
{
	int rc = 0;

	plugin->name = strdup(is_s3(url) ? url->shown : url->path);
	plugin->hint = is_s3(url) ? SCOUT__S3_HINT : "";
	if (is_s3(url))
		rc = scout__s3_library(&plugin->path, err, err_len);
	else
		plugin->path = strdup(url->path);
	if (rc || (plugin->name && plugin->path))
		return rc;
	return scout__fail_no_memory(err, err_len);
}

static int
plugin_open(const struct scout__l2_open *args, void **ret_adapter, char *err, size_t err_len)
{
	struct scout__plugin *plugin;
	struct split split;
	int rc = read_url(args->url, &split, err, err_len);

	if (rc)
		return rc;
	plugin = calloc(1, sizeof(*plugin));
	if (!plugin)
		return scout__fail_no_memory(err, err_len);
	plugin->log = args->log;
	plugin->tries = is_s3(args->url) ? S3_TRIES : 1;
	rc = name_it(plugin, args->url, err, err_len);
	if (!rc)
		rc = open_with(plugin, args, &split, err, err_len);
	if (rc) {
		free(plugin->path);
		free(plugin->name);
		free(plugin);
		return rc;
	}
	*ret_adapter = plugin;
	return 0;
}

static void
plugin_gauges(void *adapter, struct scout__l2_gauges *ret_gauges)
{
	(void)adapter;
	*ret_gauges = (struct scout__l2_gauges){
		.objects = UINT64_MAX, .bytes = UINT64_MAX, .max_bytes = UINT64_MAX, .ready = true};
}

#define ADAPTER(name, timeout_ms)                                                                                      \
	{                                                                                                              \
		.scheme = name, .keeps_records = true, .write_timeout_ms = timeout_ms, .check = plugin_check,          \
		.open = plugin_open, .submit = scout__blocking_submit, .at_once = scout__blocking_at_once,             \
		.stop = plugin_stop, .close = plugin_close, .gauges = plugin_gauges,                                   \
	}

const struct scout__l2_adapter scout__l2_plugin = ADAPTER("plugin", 5000);
const struct scout__l2_adapter scout__l2_s3 = ADAPTER("s3", 10000); /* it may think about a whole object */
