/* SPDX-License-Identifier: Apache-2.0 */
#include "web.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "clock.h"
#include "say.h"
#include "sha256.h"

/*
 * DESIGN
 *
 * Two answers: the page, which is part of the program, and /data/TIME, which has all points after TIME and the last answer of the server.
 * The time of the last point is all that a page must remember, so a page stays as it is when the command or the server is started anew.
 *
 * A page of another site in the same browser can send requests here, and must not read answers: there is no CORS header; a Host that is not
 * this address is refused, which is what a name that its owner makes resolve to 127.0.0.1 looks like; and no page may frame this one. What
 * names peers have chosen is text for the page, never HTML; the policy allows the two blocks of the page by their hashes, and no other
 * script, style, image or address, so that a mistake there has no effect.
 *
 * Threads: the HTTP thread; main for the start.
 */

static const char page[] = {
#include "web_page.inc"
};

uint64_t
web_now_ms(void)
{
	return scout__clock_ns(CLOCK_REALTIME) / 1000000;
}

static void
base64_of(const uint8_t *bytes, size_t n, char *ret)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < n; i += 3) {
		uint32_t three = (uint32_t)bytes[i] << 16 | (uint32_t)(i + 1 < n ? bytes[i + 1] : 0) << 8 |
				 (i + 2 < n ? bytes[i + 2] : 0);

		for (uint32_t j = 0; j < 4; j++)
			*ret++ = i + j <= n ? digits[three >> (18 - 6 * j) & 63] : '=';
	}
	*ret = '\0';
}

/* The policy's word for what is between <@tag> and </@tag> in the page. */
static void
hash_of(const char *tag, char ret[64])
{
	struct scout__sha256 sha;
	uint8_t digest[32];
	char begin[16], end[16];
	const char *from, *to;

	(void)snprintf(begin, sizeof(begin), "<%s>", tag);
	(void)snprintf(end, sizeof(end), "</%s>", tag);
	from = memmem(page, sizeof(page), begin, strlen(begin));
	to = memmem(page, sizeof(page), end, strlen(end));
	if (!from || !to || from > to)
		die("the page has no %s", begin);
	from += strlen(begin);
	if (scout__sha256_init(&sha) != 0 ||
	    scout__sha256_digest(&sha, (const uint8_t *)from, (size_t)(to - from), digest) != 0)
		die("libcrypto has no SHA-256");
	scout__sha256_fini(&sha);
	base64_of(digest, sizeof(digest), ret); /* 44 characters and the terminator */
}

void
web_answers_init(struct web *web, const char *address)
{
	const char *port = strrchr(address, ':') + 1;
	char script[64], style[64];

	(void)snprintf(web->hosts[0], sizeof(web->hosts[0]), "127.0.0.1:%s", port);
	(void)snprintf(web->hosts[1], sizeof(web->hosts[1]), "localhost:%s", port);
	(void)snprintf(web->hosts[2], sizeof(web->hosts[2]), "[::1]:%s", port);
	hash_of("script", script);
	hash_of("style", style);
	(void)snprintf(web->policy, sizeof(web->policy),
		       "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; connect-src 'self'; "
		       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		       script, style);
	web->headers[0] = (struct scout__http_header){"Content-Security-Policy", web->policy};
	web->headers[1] = (struct scout__http_header){"X-Content-Type-Options", "nosniff"};
	web->headers[2] = (struct scout__http_header){"Referrer-Policy", "no-referrer"};
}

static void
add_points(const struct web *web, uint64_t after_ms, struct scout__text *text)
{
	uint64_t i = web->n_points > WEB_POINTS ? web->n_points - WEB_POINTS : 0;
	const char *comma = "";

	for (; i < web->n_points; i++) {
		const struct web_point *p = &web->points[i % WEB_POINTS];

		if (p->at_ms <= after_ms)
			continue;
		scout__text_add(text,
				"%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
				",%" PRIu64 ",%" PRIu64 ",%u,%u]",
				comma, p->at_ms, p->ms, p->lookups, p->asked, p->hit, p->hit_l2, p->known, p->ceiling,
				p->pool_bytes, (unsigned)p->p50_us, (unsigned)p->p99_us);
		comma = ",\n";
	}
}

static void
get_data(struct web *web, uint64_t after_ms, struct scout__text *text)
{
	(void)pthread_mutex_lock(&web->mu);
	scout__text_add(text, "{\"now_ms\":%" PRIu64 ",\"interval_ms\":%" PRIu64 ",\"points_most\":%u,\"why\":\"",
			web_now_ms(), web->interval_ms, WEB_POINTS);
	scout__text_json(text, web->why, strlen(web->why));
	scout__text_add(text, "\",\"since_ms\":%" PRIu64 ",\"points\":[", web->since_ms);
	add_points(web, after_ms, text);
	scout__text_add(text, "],\n\"server\":%.*s}\n", web->server.len ? (int)web->server.len : 4,
			web->server.len ? web->server.p : "null");
	(void)pthread_mutex_unlock(&web->mu);
}

static bool
is_for_us(const struct web *web, const char *host)
{
	for (size_t i = 0; host && i < sizeof(web->hosts) / sizeof(web->hosts[0]); i++)
		if (strcasecmp(host, web->hosts[i]) == 0)
			return true;
	return false;
}

void
web_get(void *user, const char *path, const char *host, struct scout__http_answer *answer)
{
	struct web *web = user;
	uint64_t after_ms;
	char *end;

	if (!is_for_us(web, host)) {
		const char *port = strrchr(web->hosts[0], ':') + 1;

		answer->status = 421;
		scout__text_add(
			&answer->text,
			"the Host of this request is not this page's: open http://%s/; from another machine, use the "
			"same port: ssh -L %s:127.0.0.1:%s MACHINE\n",
			web->hosts[0], port, port);
	} else if (strcmp(path, "/") == 0) {
		answer->type = "text/html; charset=utf-8";
		scout__text_add(&answer->text, "%.*s", (int)sizeof(page), page);
	} else if (strncmp(path, "/data/", 6) == 0 && path[6] >= '0' && path[6] <= '9' &&
		   (after_ms = strtoull(path + 6, &end, 10), !*end)) {
		answer->type = "application/json";
		get_data(web, after_ms, &answer->text);
	} else {
		answer->status = 404;
		scout__text_add(&answer->text, "there are / and /data/MILLISECONDS\n");
	}
}
