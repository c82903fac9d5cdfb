/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvscout/l2_plugin.h>

/*
 * A store in memory, for tests of the plugin adapter: ?be=WORD makes it do as a bad store would. Names live in a small
 * table; the test uses it from one thread at a time, but for `slow` and `stuck`, which touch nothing.
 */

#define OBJECTS 64

struct object {
	char name[33];
	size_t bytes;
	char *data;
};

static struct object objects[OBJECTS];
static char be[32];
static scout_log_fn log_line;
static void *log_user;

static bool
is(const char *word)
{
	return strcmp(be, word) == 0;
}

static struct object *
find(const char *name)
{
	for (int i = 0; i < OBJECTS; i++)
		if (strcmp(objects[i].name, name) == 0)
			return &objects[i];
	return NULL;
}

static size_t
size_of(const struct iovec *parts, uint32_t n)
{
	size_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += parts[i].iov_len;
	return bytes;
}

/* Waits in steps of 10 ms until nobody does any more. `slow` reports 2,000 bytes with each, up to 60, `dripping` one, `boasting` ever more megabytes. */
static int
wait_for_nothing(const struct scout_l2_watch *watch)
{
	const struct timespec step = {.tv_nsec = 10000000};
	uint64_t each = is("slow") ? 2000 : is("dripping") ? 1 : is("boasting") ? 1 << 20 : 0;

	for (uint64_t i = 1; !is("slow") || i <= 60; i++) {
		if (!watch->goes_on(watch->user, i * each))
			return SCOUT_L2_GAVE_UP;
		(void)nanosleep(&step, NULL);
	}
	return SCOUT_L2_DONE;
}

static int
open_store(const struct scout_l2_open *args, void **ret_store, char *why)
{
	be[0] = '\0';
	if (args->n_options > 0 && strcmp(args->options[0].name, "be") != 0) {
		(void)snprintf(why, SCOUT_L2_WHY_BYTES, "option %s: there is only be", args->options[0].name);
		return SCOUT_ERR_CONFIG_KEY;
	}
	if (args->n_options > 0)
		(void)snprintf(be, sizeof(be), "%s", args->options[0].value);
	log_line = args->log;
	log_user = args->log_user;
	*ret_store = objects;
	return 0;
}

static int
exists(void *store, const char *const *names, uint32_t n, uint32_t flags, uint8_t *found,
       const struct scout_l2_watch *watch, char *why)
{
	(void)store, (void)why, (void)watch;
	for (uint32_t i = 0; i < n; i++)
		found[i] = find(names[i]) || (is("chain") && flags & SCOUT_L2_CHAIN) ? 7 : 0;
	return is("refusing") ? 99 : SCOUT_L2_DONE;
}

static int
load(void *store, const char *name, uint32_t flags, const struct iovec *parts, uint32_t n,
     const struct scout_l2_watch *watch, char *why)
{
	struct object *o = find(name);
	size_t at = 0;

	(void)store, (void)flags;
	if (is("refusing")) {
		(void)snprintf(why, SCOUT_L2_WHY_BYTES, "not today");
		return SCOUT_L2_FAILED;
	}
	if (is("talking"))
		log_line(log_user, 99, "\033[2Jred\nline\342\200\256");
	if (is("slow") || is("stuck") || is("dripping") || is("boasting")) {
		int outcome = wait_for_nothing(watch);

		if (outcome != SCOUT_L2_DONE)
			return outcome;
	}
	if (!o)
		return SCOUT_L2_ABSENT;
	if (is("short")) { /* says that all has come */
		memcpy(parts[0].iov_base, o->data, parts[0].iov_len);
		return SCOUT_L2_DONE;
	}
	if (o->bytes != size_of(parts, n))
		return SCOUT_L2_WRONG_SIZE;
	for (uint32_t i = 0; i < n; at += parts[i++].iov_len)
		memcpy(parts[i].iov_base, o->data + at, parts[i].iov_len);
	if (is("flip"))
		((char *)parts[n - 1].iov_base)[parts[n - 1].iov_len - 1] ^= 1;
	return SCOUT_L2_DONE;
}

static int
store_parts(void *store, const char *name, uint32_t flags, const struct iovec *parts, uint32_t n,
	    const struct scout_l2_watch *watch, char *why)
{
	struct object *o = find(name);
	size_t at = 0;

	(void)store, (void)watch, (void)why;
	if (is("full"))
		return SCOUT_L2_FULL;
	if (o && !(flags & SCOUT_L2_RECORD))
		return SCOUT_L2_PRESENT;
	if (!o)
		o = find("");
	if (!o)
		return SCOUT_L2_FULL;
	free(o->data);
	*o = (struct object){.bytes = size_of(parts, n)};
	o->data = malloc(o->bytes + 1);
	if (!o->data)
		return SCOUT_L2_FULL;
	memcpy(o->name, name, sizeof(o->name));
	for (uint32_t i = 0; i < n; at += parts[i++].iov_len)
		memcpy(o->data + at, parts[i].iov_base, parts[i].iov_len);
	return SCOUT_L2_DONE;
}

static int
remove_name(void *store, const char *name, const struct scout_l2_watch *watch, char *why)
{
	struct object *o = find(name);

	(void)store, (void)watch, (void)why;
	if (o) {
		free(o->data);
		*o = (struct object){.bytes = 0};
	}
	return SCOUT_L2_DONE;
}

static void
close_store(void *store)
{
	const struct timespec hour = {.tv_sec = 3600};

	(void)store;
	if (is("closing"))
		(void)nanosleep(&hour, NULL);
	for (int i = 0; i < OBJECTS; i++)
		free(objects[i].data);
	memset(objects, 0, sizeof(objects));
}

const struct scout_l2_plugin *
scout_l2_plugin(void)
{
	static struct scout_l2_plugin plugin = {
		sizeof(plugin), SCOUT_L2_PLUGIN_VERSION, open_store, exists, load, store_parts, remove_name,
		close_store};
	const char *odd = getenv("ODD_STORE");

	plugin.size = odd && strcmp(odd, "small") == 0 ? 16 : sizeof(plugin);
	plugin.version = odd && strcmp(odd, "version") == 0 ? 77 : SCOUT_L2_PLUGIN_VERSION;
	plugin.remove = odd && strcmp(odd, "lacks") == 0 ? NULL : remove_name;
	return odd && strcmp(odd, "null") == 0 ? NULL : &plugin;
}
