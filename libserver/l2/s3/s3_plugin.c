/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/l2_plugin.h>

#include "clock.h"
#include "s3_index.h"
#include "thread.h"

/*
 * DESIGN
 *
 * Purpose: the calls of kvscout/l2_plugin.h, over s3_store.c and, with lookup=index, s3_index.c.
 *
 * A bucket has no owner here: several servers store into it and remove what they find damaged. So an index is a guess:
 * what it has and the bucket has not shows at the load, as a miss, and leaves the index.
 *
 * Threads: those of the server; with lookup=index one of our own, which lists.
 */

#define LIST_S_DEFAULT 300u
#define LIST_AGAIN_S 10u /* after a listing that failed */

struct s3_store {
	struct scout__s3_client client;
	struct scout__s3_index index;
	bool has_index; /* const after open */
	uint32_t list_s;
	scout_log_fn log; /* or NULL */
	void *log_user;
	pthread_t thread;
	pthread_mutex_t mu;
	pthread_cond_t end;
	atomic_bool ends;
};

/* What both sides count: bytes and requests. */
static struct scout__s3_watch
watch_of(const struct scout_l2_watch *watch)
{
	return (struct scout__s3_watch){.goes_on = watch->goes_on, .user = watch->user};
}

/* ---- listings ---- */

static bool
list_goes_on(void *user, uint64_t moved)
{
	const struct s3_store *s = user;

	(void)moved;
	return !s->ends;
}

/* Returns how long to wait for the next one. */
static uint32_t
list(struct s3_store *s)
{
	struct scout__s3_watch watch = {.goes_on = list_goes_on, .user = s};
	char why[SCOUT__S3_SENTENCE] = "", text[SCOUT__S3_SENTENCE + 128];
	bool was_listed = s->index.is_listed;
	enum scout_l2_outcome result = scout__s3_index_list(&s->index, &s->client, &watch, why);

	if (result == SCOUT_L2_DONE)
		(void)snprintf(text, sizeof(text), "the bucket was listed, it has %llu objects of ours%s",
			       (unsigned long long)s->index.n_listed,
			       s->index.n_listed < s->index.max
				       ? ""
				       : " or more: an index has no more, and others are misses");
	else
		(void)snprintf(text, sizeof(text), "the bucket cannot be listed, and the index stays as it was: %s",
			       *why ? why : "the store does not answer");
	if (s->log && !s->ends && (result != SCOUT_L2_DONE || !was_listed))
		s->log(s->log_user, result == SCOUT_L2_DONE ? SCOUT_LOG_INFO : SCOUT_LOG_WARN, text);
	return result != SCOUT_L2_DONE && s->list_s > LIST_AGAIN_S ? LIST_AGAIN_S : s->list_s;
}

static void *
list_main(void *arg)
{
	struct s3_store *s = arg;

	while (!s->ends) {
		uint64_t until_us = UINT64_C(1000000) * list(s) + scout__now_us();

		(void)pthread_mutex_lock(&s->mu);
		while (!s->ends && scout__cond_wait_until(&s->end, &s->mu, until_us) != ETIMEDOUT)
			;
		(void)pthread_mutex_unlock(&s->mu);
	}
	return NULL;
}

static bool
start_index(struct s3_store *s)
{
	scout__cond_init(&s->end);
	return scout__s3_index_init(&s->index) && pthread_mutex_init(&s->mu, NULL) == 0 &&
	       pthread_create(&s->thread, NULL, list_main, s) == 0;
}

static void
stop_index(struct s3_store *s)
{
	(void)pthread_mutex_lock(&s->mu);
	s->ends = true;
	(void)pthread_cond_signal(&s->end);
	(void)pthread_mutex_unlock(&s->mu);
	(void)pthread_join(s->thread, NULL);
	(void)pthread_cond_destroy(&s->end);
	(void)pthread_mutex_destroy(&s->mu);
	scout__s3_index_fini(&s->index);
}

/* ---- the calls ---- */

/* An option that is not of the client's. */
static bool
set_own(struct s3_store *s, const char *name, const char *value)
{
	if (strcmp(name, "lookup") == 0) {
		s->has_index = strcmp(value, "index") == 0;
		return s->has_index || strcmp(value, "head") == 0;
	}
	if (strcmp(name, "list_s") == 0) {
		char *end;
		unsigned long seconds = strtoul(value, &end, 10);

		s->list_s = (uint32_t)seconds;
		return *value >= '0' && *value <= '9' && *end == '\0' && seconds >= 1 && seconds <= 86400;
	}
	return false;
}

static int
read_options(struct s3_store *s, const struct scout_l2_open *args, char *why)
{
	struct scout__s3_options options = {.timeout_ms = args->timeout_ms};

	s->list_s = LIST_S_DEFAULT;
	for (uint32_t i = 0; i < args->n_options; i++) {
		const struct scout_l2_option *o = &args->options[i];

		if (set_own(s, o->name, o->value) || scout__s3_option_set(&options, o->name, o->value))
			continue;
		(void)snprintf(why, SCOUT_L2_WHY_BYTES,
			       "option %.64s: there are endpoint=URL, region=NAME, style=path or host, "
			       "lookup=head or index, list_s=1 to 86400, payload=hash or unsigned, credentials=FILE, "
			       "ca=FILE, threads=N",
			       o->name);
		return SCOUT_ERR_CONFIG_KEY;
	}
	return scout__s3_client_init(&s->client, &options, why, SCOUT_L2_WHY_BYTES) ? 0 : SCOUT_ERR_CONFIG_RANGE;
}

static int
s3_open(const struct scout_l2_open *args, void **ret_store, char *why)
{
	struct s3_store *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return SCOUT_ERR_NOMEM;
	s->log = args->log;
	s->log_user = args->log_user;
	rc = read_options(s, args, why);
	if (rc)
		goto err_free;
	if (s->has_index && !start_index(s)) {
		rc = SCOUT_ERR_NOMEM;
		goto err_fini;
	}
	*ret_store = s;
	return 0;

err_fini:
	scout__s3_client_fini(&s->client);
err_free:
	free(s);
	return rc;
}

static void
s3_close(void *store)
{
	struct s3_store *s = store;

	if (s->has_index)
		stop_index(s);
	scout__s3_client_fini(&s->client);
	free(s);
}

static int
s3_exists(void *store, const char *const *names, uint32_t n, uint32_t flags, uint8_t *found,
	  const struct scout_l2_watch *watch, char *why)
{
	struct s3_store *s = store;
	struct scout__s3_watch w = watch_of(watch);

	if (!s->has_index)
		return scout__s3_store_exists(&s->client, names, n, flags, found, &w, why);
	scout__s3_index_exists(&s->index, names, n, found);
	return SCOUT_L2_DONE;
}

/* The bucket has, or has not, the object @name. */
static void
note(struct s3_store *s, const char *name, uint32_t flags, bool has)
{
	if (!s->has_index || flags & SCOUT_L2_RECORD)
		return;
	if (has)
		scout__s3_index_add(&s->index, name);
	else
		scout__s3_index_remove(&s->index, name);
}

static int
s3_load(void *store, const char *name, uint32_t flags, const struct iovec *parts, uint32_t n_parts,
	const struct scout_l2_watch *watch, char *why)
{
	struct s3_store *s = store;
	struct scout__s3_watch w = watch_of(watch);
	int outcome = scout__s3_store_load(&s->client, name, flags, parts, n_parts, &w, why);

	if (outcome == SCOUT_L2_ABSENT)
		note(s, name, flags, false);
	return outcome;
}

static int
s3_store(void *store, const char *name, uint32_t flags, const struct iovec *parts, uint32_t n_parts,
	 const struct scout_l2_watch *watch, char *why)
{
	struct s3_store *s = store;
	struct scout__s3_watch w = watch_of(watch);
	int outcome = scout__s3_store_store(&s->client, name, flags, parts, n_parts, &w, why);

	if (outcome == SCOUT_L2_DONE || outcome == SCOUT_L2_PRESENT)
		note(s, name, flags, true);
	return outcome;
}

static int
s3_remove(void *store, const char *name, const struct scout_l2_watch *watch, char *why)
{
	struct s3_store *s = store;
	struct scout__s3_watch w = watch_of(watch);

	note(s, name, 0, false);
	return scout__s3_store_remove(&s->client, name, &w, why);
}

const struct scout_l2_plugin *
scout_l2_plugin(void)
{
	static const struct scout_l2_plugin plugin = {.size = sizeof(plugin),
						      .version = SCOUT_L2_PLUGIN_VERSION,
						      .open = s3_open,
						      .exists = s3_exists,
						      .load = s3_load,
						      .store = s3_store,
						      .remove = s3_remove,
						      .close = s3_close};

	return &plugin;
}
