/* SPDX-License-Identifier: Apache-2.0 */
#include "web.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvscout/error.h>

#include "peer_list.h"
#include "say.h"
#include "sheet.h"
#include "show.h"
#include "snapshot.h"

/*
 * DESIGN
 *
 * kvscout web: one page for a browser on this machine. The main thread asks the server every few seconds, as `kvscout top` does, whether or
 * not a page is open, so that a page has the last hour from its first moment on. It keeps the answer as JSON, and one point of each
 * interval. The HTTP thread of libserver/http answers from these, so a server that hangs keeps no page waiting.
 *
 * A server that is not there, ends, or hangs is asked again at each turn over a new connection; the page says since when, and why.
 *
 * Threads: main; the HTTP thread in web_get().
 */

#define WEB_PORT 9571u
#define PEERS_MOST 64u   /* the slowest */
#define NS_MOST 16u      /* whose tenants are asked for */
#define TENANTS_MOST 8u  /* of each, the largest */
#define RECENT_MS 300000 /* what needs attention is told for so long, at least */

struct sampler {
	struct operator op;
	bool is_open;
	struct snapshot now, before;
	struct snapshot early, late; /* of RECENT_MS ago or more, and of less */
	uint64_t late_ms;
};

/* ---- the server's answer as JSON ---- */

static void
add_quoted(struct scout__text *text, const char *before, const char *bytes, size_t len)
{
	scout__text_add(text, "%s\"", before);
	scout__text_json(text, bytes, len);
	scout__text_add(text, "\"");
}

/* [namespace, how many tenants it has, [name, bytes]...], after a comma. */
static int
add_tenants(struct operator* op, const char *ns, const char *comma, struct scout__text *text)
{
	struct scout__tenant_item item;
	struct scout__list_reply m;
	int rc = operator_tenants(op, ns, &m);

	if (rc)
		return rc;
	scout__text_add(text, "%s[", comma);
	add_quoted(text, "", ns, strlen(ns));
	scout__text_add(text, ",%u", (unsigned)m.head);
	for (uint32_t i = 0; i < m.n && i < TENANTS_MOST && scout__get_tenant_item(&m.items, &item); i++) {
		add_quoted(text, ",[", item.tenant.p, item.tenant.len);
		scout__text_add(text, ",%llu]", (unsigned long long)item.bytes);
	}
	scout__text_add(text, "]");
	return 0;
}

static int
add_all_tenants(struct operator* op, const struct snapshot *s, struct scout__text *text)
{
	uint32_t asked = 0;
	int rc = 0;

	scout__text_add(text, ",\n\"tenants\":[");
	for (uint32_t i = 0; rc == 0 && i < s->n_ns && asked < NS_MOST; i++)
		if (snapshot_ns(s, s->ns[i], "tenants") > 0)
			rc = add_tenants(op, s->ns[i], asked++ ? "," : "", text);
	scout__text_add(text, "]");
	return rc;
}

static int
add_peers(struct operator* op, struct scout__text *text)
{
	struct peer_list list;
	int rc = peers_take(op, &list);

	if (rc == 0) {
		scout__text_add(text, ",\n\"peers_all\":%u,\"peers\":", (unsigned)list.n);
		peers_json(&list, PEERS_MOST, text);
	}
	free(list.rows);
	return rc;
}

static void
add_line(void *user, const char *line)
{
	struct scout__text *text = user;

	add_quoted(text, text->p[text->len - 1] == '[' ? "" : ",", line, strlen(line));
}

static int
add_server(struct sampler *sampler, struct scout__text *text)
{
	struct operator* op = & sampler->op;
	const struct snapshot *s = &sampler->now;
	int rc;

	add_quoted(text, "{\"endpoint\":", op->client.endpoint, strlen(op->client.endpoint));
	scout__text_add(text, ",\"at_ms\":%llu,\"attention_s\":%.0f,\"attention\":[", (unsigned long long)web_now_ms(),
			snapshot_seconds(s, &sampler->early));
	if (!text->failed)
		sheet_attention_lines(s, &sampler->early, SHOW_LONG, add_line, text);
	scout__text_add(text, "],\n\"namespaces\":[");
	for (uint32_t i = 0; i < s->n_ns; i++)
		add_quoted(text, i ? "," : "", s->ns[i], strlen(s->ns[i]));
	scout__text_add(text, "],\n\"status\":{\"\":0");
	snapshot_json(s, text);
	scout__text_add(text, "}");
	rc = add_all_tenants(op, s, text);
	if (rc == 0)
		rc = add_peers(op, text);
	scout__text_add(text, "}");
	return rc;
}

/* ---- one turn ---- */

/* Chunks that a cache without end would have hit, and hits where the server does not tell. 0: it tells nowhere. */
static uint64_t
ceiling_of(const struct snapshot *s, const struct snapshot *before)
{
	uint64_t sum = 0;
	bool is_told = false;

	for (uint32_t i = 0; i < s->n_ns; i++) {
		uint64_t ceiling = snapshot_ns_since(s, before, s->ns[i], "ceiling_chunks");
		uint64_t hit = snapshot_ns_since(s, before, s->ns[i], "hit_chunks");

		is_told = is_told || ceiling > 0;
		sum += ceiling > hit ? ceiling : hit;
	}
	return is_told ? sum : 0;
}

static struct web_point
point_of(const struct snapshot *s, const struct snapshot *before)
{
	return (struct web_point){.ms = (uint64_t)(snapshot_seconds(s, before) * 1000),
				  .lookups = snapshot_since(s, before, "lookups.full") +
					     snapshot_since(s, before, "lookups.partial") +
					     snapshot_since(s, before, "lookups.none"),
				  .asked = snapshot_since(s, before, "lookups.asked_chunks"),
				  .hit = snapshot_since(s, before, "lookups.hit_chunks"),
				  .hit_l2 = snapshot_since(s, before, "l2.hit_chunks"),
				  .known = snapshot_since(s, before, "lookups.known_chunks"),
				  .ceiling = ceiling_of(s, before),
				  .pool_bytes = snapshot_value(s, "l1.bytes_used"),
				  .p50_us = snapshot_within_us(s, before, 0.5),
				  .p99_us = snapshot_within_us(s, before, 0.99)};
}

/* Ask all. Returns 0 or an exit status; then op.why says why. */
static int
ask(struct sampler *sampler, const struct cli *cli, struct scout__text *text)
{
	int status = 0;

	if (!sampler->is_open)
		status = operator_open(&sampler->op, cli);
	sampler->is_open = true;
	if (status == 0)
		status = snapshot_take(&sampler->op, &sampler->now);
	if (status == 0)
		status = add_server(sampler, text);
	if (status == 0 && !text->failed)
		return 0;
	if (status == 0)
		(void)snprintf(sampler->op.why, OPERATOR_WHY,
			       "its numbers are more than this page takes: kvscout status shows them");
	operator_close(&sampler->op);
	sampler->is_open = false;
	return status ? status : EXIT_FAILED;
}

/* What page and points show from now on. Takes the text. */
static void
publish(struct web *web, struct sampler *sampler, struct scout__text *text)
{
	struct web_point point = point_of(&sampler->now, &sampler->before);
	bool is_first = sampler->before.n == 0; /* what was before is no point of the curve */

	(void)pthread_mutex_lock(&web->mu);
	scout__text_fini(&web->server);
	web->server = *text;
	web->why[0] = '\0';
	web->since_ms = 0;
	point.at_ms = web_now_ms();
	if (web->n_points > 0 && point.at_ms <= web->points[(web->n_points - 1) % WEB_POINTS].at_ms)
		point.at_ms = web->points[(web->n_points - 1) % WEB_POINTS].at_ms + 1; /* the clock was set back */
	if (!is_first)
		web->points[web->n_points++ % WEB_POINTS] = point;
	(void)pthread_mutex_unlock(&web->mu);
}

static void
publish_failure(struct web *web, const char *why)
{
	(void)pthread_mutex_lock(&web->mu);
	(void)snprintf(web->why, sizeof(web->why), "%s", *why ? why : "the server does not answer");
	if (!web->since_ms) {
		web->since_ms = web_now_ms();
		complain("%s", web->why);
	}
	(void)pthread_mutex_unlock(&web->mu);
}

/* The numbers become those before, and each RECENT_MS those that attention is counted from. */
static void
age(struct sampler *sampler)
{
	uint64_t now_ms = web_now_ms();

	if (sampler->before.n > 0 && sampler->now.n > 0 && now_ms - sampler->late_ms >= RECENT_MS) {
		snapshot_free(&sampler->early);
		sampler->early = sampler->late;
		sampler->late = sampler->before;
		sampler->late_ms = now_ms;
		memset(&sampler->before, 0, sizeof(sampler->before));
	}
	snapshot_next(&sampler->now, &sampler->before);
}

static int
turn(struct web *web, struct sampler *sampler, const struct cli *cli)
{
	struct scout__text text = {0};
	int status = ask(sampler, cli, &text);

	if (status == 0) {
		publish(web, sampler, &text);
		age(sampler);
	} else {
		scout__text_fini(&text);
		snapshot_free(&sampler->now);
		publish_failure(web, sampler->op.why);
	}
	return status;
}

/* ---- the command ---- */

/* Listen where only this machine reaches it. Returns 0 or an exit status. */
static int
listen_here(const struct cli *cli, const char *address, uint64_t port, int *ret_fd, char *ret_address)
{
	bool is_v6 = strcmp(address, "::1") == 0, is_private;
	char place[64], err[512];
	int rc;

	if (!is_v6 && strcmp(address, "127.0.0.1") != 0) {
		unsigned at = port ? (unsigned)port : WEB_PORT;

		return cli_usage_error(
			cli,
			"--address = \"%s\": must be 127.0.0.1 or ::1, because the page asks nobody for a password; "
			"for a browser on another machine, run ssh -L %u:127.0.0.1:%u THIS_MACHINE there, and "
			"open http://127.0.0.1:%u/",
			address, at, at, at);
	}
	(void)snprintf(place, sizeof(place), is_v6 ? "[%s]:%llu" : "%s:%llu", address, (unsigned long long)port);
	rc = scout__http_listen("the page on", place, ret_fd, ret_address, &is_private, err, sizeof(err));
	if (rc)
		complain("%s (--port N, 0..65535)", err);
	return rc ? EXIT_FAILED : 0;
}

/* Until SIGINT or SIGTERM, which are blocked. Returns an exit status. */
static int
watch(struct web *web, struct sampler *sampler, const struct cli *cli, const sigset_t *ends)
{
	const struct timespec pause = {.tv_sec = (time_t)(web->interval_ms / 1000),
				       .tv_nsec = (long)(web->interval_ms % 1000) * 1000000};

	do {
		int status = turn(web, sampler, cli);

		if (status == EXIT_USAGE)
			return status; /* said */
	} while (sigtimedwait(ends, NULL, &pause) < 0);
	return EXIT_DONE;
}

/* Serve the page while the server is asked. Takes @fd. */
static int
serve(struct web *web, struct sampler *sampler, const struct cli *cli, int fd, const char *address)
{
	const struct scout__log log = {NULL};
	const struct scout__http_service service = {
		.name = "web", .headers = web->headers, .log = &log, .user = web, .get = web_get};
	struct scout__http *http;
	char err[512];
	sigset_t ends;
	int status;

	(void)sigemptyset(&ends);
	(void)sigaddset(&ends, SIGINT);
	(void)sigaddset(&ends, SIGTERM);
	(void)pthread_sigmask(SIG_BLOCK, &ends, NULL); /* cannot fail: the numbers are right */
	web_answers_init(web, address);
	if (scout__http_start(&service, fd, &http, err, sizeof(err)) != 0) {
		complain("%s", err);
		return EXIT_FAILED;
	}
	say("http://%s/\n", address);
	say_flush();
	status = watch(web, sampler, cli, &ends);
	scout__http_stop(http);
	return status;
}

int
cmd_web(int argc, char **argv)
{
	struct sampler sampler = {.op = OPERATOR_DEFAULTS};
	const char *address = "127.0.0.1";
	uint64_t port = WEB_PORT;
	double interval = 2;
	const struct cli_option options[] = {
		OPERATOR_OPTIONS(&sampler.op),
		CLI_NUMBER("port", &port, 0, 65535, "of the page; 0: one that the kernel chooses"),
		CLI_TEXT("address", "ADDRESS", &address, "of the page: 127.0.0.1 or ::1"),
		CLI_FRACTION("interval", &interval, 0.5, 60, "seconds from one question to the next"),
	};
	const struct cli cli = {
		.tool = "kvscout web",
		.about =
			"Serves one page for a browser on this machine: what top shows, with its last hour. Ctrl-C ends it.",
		.options = options,
		.n = N_OPERATOR_OPTIONS + 3,
		.notes =
			"Prints the address of the page. It starts before the server, and stays through its pauses and restarts. The last\n"
			"1,800 intervals are kept, in memory: an hour of 2 s. On another machine: ssh -L 9571:127.0.0.1:9571 THIS_MACHINE.\n",
	};
	char why[OPERATOR_WHY] = "", at[SCOUT__HTTP_ADDRESS];
	struct web *web = calloc(1, sizeof(*web));
	int status, fd = -1;

	if (!web)
		die("out of memory");
	if (cli_parse(&cli, argc, argv, &status))
		status = listen_here(&cli, address, port, &fd, at);
	if (fd >= 0) {
		sampler.op.why = why;
		web->interval_ms = (uint64_t)(interval * 1000);
		(void)pthread_mutex_init(&web->mu, NULL); /* cannot fail on Linux */
		status = serve(web, &sampler, &cli, fd, at);
		if (sampler.is_open)
			operator_close(&sampler.op);
		(void)pthread_mutex_destroy(&web->mu);
	}
	snapshot_free(&sampler.now);
	snapshot_free(&sampler.before);
	snapshot_free(&sampler.early);
	snapshot_free(&sampler.late);
	scout__text_fini(&web->server);
	free(web);
	return status;
}
