/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics_rig.h"

#include "waiting.h"

const char *
metrics_address(const struct scout_server *server)
{
	return scout__metrics_address(server->metrics);
}

void
metrics_up(struct rig *rig, uint32_t chunks)
{
	struct scout_server_config cfg = rig_config(chunks);

	cfg.metrics = "127.0.0.1:0";
	rig_up_with(rig, &cfg);
}

static bool
page_has_family(const struct page *page, const char *name)
{
	for (size_t i = 0; i < page->n_families; i++)
		if (strcmp(page->families[i], name) == 0)
			return true;
	return false;
}

/* A metric's or label's name at @p; its end. */
static const char *
page_name(const char *p)
{
	ck_assert_msg(isalpha((unsigned char)*p) || *p == '_', "%.60s", p);
	while (isalnum((unsigned char)*p) || *p == '_')
		p++;
	return p;
}

/* {a="b",c="d"} at @p; its end. */
static const char *
page_labels(const char *p)
{
	do {
		p = page_name(p + 1);
		ck_assert_msg(p[0] == '=' && p[1] == '"', "%.60s", p);
		for (p += 2; *p != '"'; p++) {
			ck_assert_msg(*p && *p != '\n', "%.60s", p);
			if (*p == '\\') {
				p++;
				ck_assert_msg(*p == '\\' || *p == '"' || *p == 'n', "%.60s", p);
			}
		}
		p++;
	} while (*p == ',');
	ck_assert_msg(*p == '}', "%.60s", p);
	return p + 1;
}

static bool
page_belongs(const char *name, size_t len, const char *family, const char *kind)
{
	static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
	size_t n = strlen(family);

	if (strcmp(kind, "histogram") != 0)
		return len == n && strncmp(name, family, n) == 0;
	for (size_t i = 0; i < 3; i++)
		if (len == n + strlen(suffixes[i]) && strncmp(name, family, n) == 0 &&
		    strncmp(name + n, suffixes[i], strlen(suffixes[i])) == 0)
			return true;
	return false;
}

static void
page_sample(struct page *page, const char *line, const char *family, const char *kind)
{
	const char *end = page_name(line);
	struct page_series *s = &page->series[page->n];
	char *rest;

	ck_assert_uint_lt(page->n, PAGE_SERIES);
	ck_assert_msg(page_belongs(line, (size_t)(end - line), family, kind), "%s is in family %s", line, family);
	if (*end == '{')
		end = page_labels(end);
	ck_assert_msg(*end == ' ', "%s", line);
	ck_assert_uint_lt((size_t)(end - line), sizeof(s->name));
	(void)snprintf(s->name, sizeof(s->name), "%.*s", (int)(end - line), line);
	s->value = strtod(end + 1, &rest);
	ck_assert_msg(rest != end + 1 && *rest == '\0' && s->value >= 0, "%s", line);
	s->grows = strcmp(kind, "gauge") != 0;
	for (size_t i = 0; i < page->n; i++)
		ck_assert_str_ne(page->series[i].name, s->name);
	page->n++;
}

/* Fails unless each line is what the format allows. Cuts @text into lines. */
static void
page_read(struct page *page, char *text)
{
	char family[128] = "", kind[16] = "", name[128];
	bool typed = true;
	char *next;

	page->n = page->n_families = 0;
	ck_assert_uint_gt(strlen(text), 0);
	ck_assert_int_eq(text[strlen(text) - 1], '\n');
	for (char *line = text; *line; line = next) {
		next = strchr(line, '\n') + 1;
		next[-1] = '\0';
		if (strncmp(line, "# HELP ", 7) == 0) {
			ck_assert(typed);
			ck_assert_int_eq(sscanf(line, "# HELP %127s", family), 1);
			ck_assert_msg(!page_has_family(page, family), "%s comes twice", family);
			ck_assert_msg(strncmp(family, "kvscout_", 8) == 0, "%s", family);
			ck_assert_msg(strlen(line) > 7 + strlen(family) + 5, "%s needs a sentence", family);
			(void)snprintf(page->families[page->n_families++], 128, "%s", family);
			typed = false;
		} else if (strncmp(line, "# TYPE ", 7) == 0) {
			ck_assert(!typed);
			ck_assert_int_eq(sscanf(line, "# TYPE %127s %15s", name, kind), 2);
			ck_assert_str_eq(name, family);
			ck_assert_msg(strcmp(kind, "counter") == 0 || strcmp(kind, "gauge") == 0 ||
					      strcmp(kind, "histogram") == 0,
				      "%s", line);
			ck_assert_msg((strcmp(kind, "counter") == 0) ==
					      (strlen(name) > 6 && strcmp(name + strlen(name) - 6, "_total") == 0),
				      "%s: counters end in _total", line);
			typed = true;
		} else {
			ck_assert(typed);
			page_sample(page, line, family, kind);
		}
	}
}

void
page_get(struct page *page, const char *address)
{
	char *text = http_get(address, "/metrics");

	page_read(page, text);
	free(text);
}

double
page_value(const struct page *page, const char *series)
{
	for (size_t i = 0; i < page->n; i++)
		if (strcmp(page->series[i].name, series) == 0)
			return page->series[i].value;
	return -1;
}

void
page_wait(struct page *page, const char *address, const char *series, double value)
{
	page_get(page, address);
	wait_until(page_value(page, series) == value)
		page_get(page, address);
}
