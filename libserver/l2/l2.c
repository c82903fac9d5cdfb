/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "number.h"

/*
 * DESIGN
 *
 * Purpose: start and stop of L2 and its adapters; it owns struct scout__l2, one port for each adapter in it, and the
 * eventfd. What happens to operations meanwhile is l2_submit.c, lateness.c and switching.c;
 * store_state.c says how the store does.
 *
 * Each adapter has a ring for ended operations, with room for all that it can have at a time, so that completing never
 * fails. An adapter whose thread hangs in the kernel may complete something at any later time. So its port, and the
 * struct scout__l2 that the port points to, are never freed.
 *
 * Threads: the starting thread opens; the loop stops.
 */

#define STOP_MS_ON_ERROR 5000u

static const struct scout__l2_adapter *
find_adapter(const struct scout__l2_adapter *const *adapters, const char *scheme)
{
	for (uint32_t i = 0; adapters[i]; i++) {
		if (strcmp(adapters[i]->scheme, scheme) == 0)
			return adapters[i];
	}
	return NULL;
}

static int
fail_scheme(const struct scout__l2_adapter *const *adapters, const char *scheme, char *err, size_t err_len)
{
	char known[256] = "";
	size_t len = 0;

#ifndef HAVE_HIREDIS
	if (strcmp(scheme, "redis") == 0)
		return scout__fail(
			err, err_len, SCOUT_ERR_CONFIG_RANGE,
			"this build has no Redis: install hiredis (Debian: libhiredis-dev) and build with -Dredis=enabled, or use fs://");
#endif
	if (strcmp(scheme, "rediss") == 0)
		return scout__fail(
			err, err_len, SCOUT_ERR_CONFIG_RANGE,
			"no TLS to Redis in this build: install OpenSSL 3 and hiredis (Debian: libssl-dev, libhiredis-dev) and build with -Dtls=enabled, or run a tunnel on this host (stunnel, for example) and use redis:// to it");
	for (uint32_t i = 0; adapters[i] && len + 32 < sizeof(known); i++) {
		int n = snprintf(known + len, sizeof(known) - len, "%s%.29s", len ? ", " : "", adapters[i]->scheme);

		len += n > 0 ? (size_t)n : 0;
	}
	return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE, "scheme \"%.32s\": must be one of %s", scheme, known);
}

/* The option of every store, whatever it is. */
struct write_timeout {
	uint32_t size;
	uint32_t timeout_ms;
	void *owned;
};

#define FIELD(name) offsetof(struct write_timeout, name)

static const struct scout__option options[] = {
	SCOUT__OPTION(U32, timeout_ms, .def = 0, .min = 1, .max = 600000, .doc = "A write without progress is late"),
};

static const struct scout__option_table table =
	SCOUT__OPTION_TABLE(write_timeout, options, .env_prefix = NULL); /* in a URL */

/* Take timeout_ms out of @url: adapters do not know it. 0: it is not there. */
static int
take_timeout(struct scout__l2_url *url, uint32_t *ret_timeout_ms, char *err, size_t err_len)
{
	*ret_timeout_ms = 0;
	for (uint32_t i = 0; i < url->n_options; i++) {
		struct scout__l2_url own = {.options = &url->options[i], .n_options = 1};
		struct write_timeout cfg;
		int rc;

		if (strcmp(url->options[i].name, options[0].name) != 0)
			continue;
		rc = scout__l2_url_options(&own, &table, &cfg, err, err_len);
		if (rc)
			return rc;
		*ret_timeout_ms = cfg.timeout_ms;
		scout__options_fini(&table, &cfg);
		free(url->options[i].name);
		free(url->options[i].value);
		url->options[i] = url->options[--url->n_options];
		return 0;
	}
	return 0;
}

static int
check_url(const struct scout__l2_adapter *const *adapters, struct scout__l2_url *url, char *err, size_t err_len)
{
	const struct scout__l2_adapter *adapter = find_adapter(adapters, url->scheme);
	uint32_t timeout_ms;
	int rc = adapter ? take_timeout(url, &timeout_ms, err, err_len)
			 : fail_scheme(adapters, url->scheme, err, err_len);

	return rc ? rc : adapter->check(url, err, err_len);
}

static int
open_adapter(struct scout__l2_port *port, uint32_t timeout_ms, char *err, size_t err_len)
{
	struct scout__l2_open args = {
		.url = &port->url,
		.port = port,
		.log = port->l2->log,
		.max_ops = port->l2->max_ops + 1,
		.timeout_ms = timeout_ms,
	};
	int rc;

	port->ops = find_adapter(port->l2->adapters, port->url.scheme);
	if (!port->ops)
		return fail_scheme(port->l2->adapters, port->url.scheme, err, err_len);
	rc = take_timeout(&port->url, &args.write_timeout_ms, err, err_len);
	if (rc)
		return rc;
	if (!args.write_timeout_ms)
		args.write_timeout_ms = (uint32_t)scout__max(timeout_ms, port->ops->write_timeout_ms);
	port->store = (struct scout__l2_store){.name = port->url.shown,
					       .scheme = port->ops->scheme,
					       .keeps_records = port->ops->keeps_records,
					       .write_timeout_us = UINT64_C(1000) * args.write_timeout_ms};
	rc = port->ops->open(&args, &port->adapter, err, err_len);
	for (unsigned side = SCOUT__L2_READS; !rc && side <= SCOUT__L2_WRITES; side++)
		port->store.at_once[side] =
			port->ops->at_once ? port->ops->at_once(port->adapter, (enum scout__l2_side)side) : UINT32_MAX;
	return rc;
}

static int
init_port(struct scout__l2_port *port, struct scout__l2 *l2, const char *text, uint32_t timeout_ms, char *err,
	  size_t err_len)
{
	uint64_t seed = scout__now_ns() ^ (uint64_t)getpid() << 32;
	int rc;

	*port = (struct scout__l2_port){.l2 = l2, .due_us = UINT64_MAX, .unpins_us = UINT64_MAX};
	scout__list_init(&port->running);
	scout__list_init(&port->waiting[SCOUT__L2_READS]);
	scout__list_init(&port->waiting[SCOUT__L2_WRITES]);
	scout__list_init(&port->unpins);
	scout__l2_switch_init(&port->sides[SCOUT__L2_READS], seed + UINT64_C(2) * l2->n);
	scout__l2_switch_init(&port->sides[SCOUT__L2_WRITES], seed + UINT64_C(2) * l2->n + 1);
	rc = scout__l2_url_parse(text, &port->url, err, err_len);
	if (rc)
		return rc;
	if (scout__ring_init(&port->done, l2->max_ops + 1) != 0) {
		rc = scout__fail_no_memory(err, err_len);
		goto err_free_url;
	}
	SCOUT_ASSERT(pthread_mutex_init(&port->mu, NULL) == 0);
	rc = open_adapter(port, timeout_ms, err, err_len);
	if (rc)
		goto err_destroy_mutex;
	return 0;

err_destroy_mutex:
	(void)pthread_mutex_destroy(&port->mu);
	scout__ring_fini(&port->done);
err_free_url:
	scout__l2_url_fini(&port->url);
	return rc;
}

/* @message: what is wrong with @text. */
static int
fail_url(const char *text, int rc, const char *message, char *err, size_t err_len)
{
	char *shown = scout__l2_url_mask(text);

	rc = scout__fail(err, err_len, rc, "l2 = \"%.300s\": %s", shown ? shown : "?", message);
	free(shown);
	return rc;
}

static int
add_port(struct scout__l2 *l2, const char *text, uint32_t timeout_ms, char *err, size_t err_len)
{
	char message[512] = "";
	int rc = init_port(&l2->ports[l2->n], l2, text, timeout_ms, message, sizeof(message));

	if (rc)
		return fail_url(text, rc, message, err, err_len);
	l2->n++;
	return 0;
}

static int
fail_count(uint32_t n, char *err, size_t err_len)
{
	return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE, "l2 has %u URLs: must be 1..%u", n,
			   SCOUT__L2_MAX_ADAPTERS);
}

int
scout__l2_check(const struct scout__l2_adapter *const *adapters, const char *const *urls, uint32_t n, char *err,
		size_t err_len)
{
	int rc = n > 0 && n <= SCOUT__L2_MAX_ADAPTERS ? 0 : fail_count(n, err, err_len);

	for (uint32_t i = 0; i < n && !rc; i++) {
		char message[512] = "";
		struct scout__l2_url url;

		rc = scout__l2_url_parse(urls[i], &url, message, sizeof(message));
		if (rc)
			return fail_url(urls[i], rc, message, err, err_len);
		rc = check_url(adapters, &url, message, sizeof(message));
		if (rc)
			(void)fail_url(urls[i], rc, message, err, err_len);
		scout__l2_url_fini(&url);
	}
	return rc;
}

int
scout__l2_new(const struct scout__l2_adapter *const *adapters, const char *const *urls, uint32_t n, uint32_t timeout_ms,
	      uint32_t max_ops, const struct scout__log *log, struct scout__l2 **ret_l2, char *err, size_t err_len)
{
	struct scout__l2 *l2;
	int rc = 0;

	SCOUT_ASSERT(max_ops > 0 && timeout_ms > 0);
	if (n == 0 || n > SCOUT__L2_MAX_ADAPTERS)
		return fail_count(n, err, err_len);
	l2 = calloc(1, sizeof(*l2));
	if (!l2)
		return scout__fail_no_memory(err, err_len);
	l2->adapters = adapters;
	l2->log = log;
	l2->timeout_us = UINT64_C(1000) * timeout_ms;
	l2->max_ops = max_ops;
	if (!scout__doorbell_open(&l2->bell)) {
		free(l2);
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "no eventfd for L2");
	}
	scout__park(&l2->bell.parked);
	scout__list_init(&l2->ended);
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = add_port(l2, urls[i], timeout_ms, err, err_len);
	if (rc) {
		/* The loop does not run yet: this thread is in its place. */
		scout__enter_loop();
		(void)scout__l2_stop(l2, STOP_MS_ON_ERROR);
		scout__l2_free(l2);
		return rc;
	}
	*ret_l2 = l2;
	return 0;
}

bool
scout__l2_stop(struct scout__l2 *l2, uint32_t timeout_ms)
{
	uint64_t deadline_us = scout__now_us() + UINT64_C(1000) * timeout_ms;
	bool hangs = false;

	l2->is_stopped = true;
	for (uint32_t i = 0; i < l2->n; i++) {
		struct scout__l2_port *port = &l2->ports[i];
		struct scout__l2_op *op;

		port->hangs = !port->ops->stop(port->adapter, deadline_us);
		if (port->hangs)
			scout__log(l2->log, SCOUT_LOG_ERROR, "L2 %s hangs: %u operations did not end within %u ms",
				   port->url.shown, port->store.n_running, (unsigned)timeout_ms);
		hangs |= port->hangs;
		while ((op = scout__l2_pop(&port->unpins)))
			scout__l2_end(l2, op, SCOUT__L2_CANCELLED);
		scout__l2_end_waiting(port, SCOUT__L2_READS, SCOUT__L2_CANCELLED);
		scout__l2_end_waiting(port, SCOUT__L2_WRITES, SCOUT__L2_CANCELLED);
	}
	while (scout__l2_reap(l2, UINT32_MAX, scout__now_us()))
		;
	for (uint32_t i = 0; i < l2->n; i++)
		SCOUT_ASSERT(l2->ports[i].hangs || l2->ports[i].store.n_running == 0);
	return !hangs;
}

void
scout__l2_free(struct scout__l2 *l2)
{
	bool hangs = false;

	if (!l2)
		return;
	SCOUT_ASSERT(l2->is_stopped);
	for (uint32_t i = 0; i < l2->n; i++) {
		struct scout__l2_port *port = &l2->ports[i];

		hangs |= port->hangs;
		if (port->hangs)
			continue;
		port->ops->close(port->adapter);
		(void)pthread_mutex_destroy(&port->mu);
		scout__ring_fini(&port->done);
		scout__l2_url_fini(&port->url);
		free(port->trial.buffer);
	}
	if (hangs)
		return;
	scout__doorbell_close(&l2->bell);
	free(l2);
}

int
scout__l2_fd(const struct scout__l2 *l2)
{
	return l2->bell.fd;
}

const struct scout__l2_store *
scout__l2_store_of(const struct scout__l2 *l2, uint32_t adapter)
{
	return &l2->ports[adapter].store;
}

void
scout__l2_gauges_of(const struct scout__l2 *l2, uint32_t adapter, struct scout__l2_gauges *ret_gauges)
{
	const struct scout__l2_port *port = &l2->ports[adapter];

	port->ops->gauges(port->adapter, ret_gauges);
}
