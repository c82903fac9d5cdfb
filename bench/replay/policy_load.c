/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workloads for eviction policies. The synthetic ones are extremes, each the friend of one policy and the enemy of
 * another, so that a policy that is only good at one trace is found out. Ids: as in a trace, an id stands for the block
 * and all before it.
 */
#include "policy_load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mix.h"
#include "say.h"
#include "trace.h"

static void *
grow(void *p, size_t *cap, size_t used, size_t size)
{
	if (used < *cap)
		return p;
	*cap = *cap ? *cap * 2 : 4096;
	p = realloc(p, *cap * size);
	if (!p)
		die("out of memory");
	return p;
}

static void
begin(struct policy_load *load)
{
	load->first = grow(load->first, &load->cap_requests, load->n_requests + 1, sizeof(*load->first));
	load->first[load->n_requests++] = load->n_ids;
	load->first[load->n_requests] = load->n_ids;
}

static void
add(struct policy_load *load, uint64_t id)
{
	load->ids = grow(load->ids, &load->cap_ids, load->n_ids, sizeof(*load->ids));
	load->ids[load->n_ids++] = id;
	load->first[load->n_requests] = load->n_ids;
}

void
load_free(struct policy_load *load)
{
	free(load->ids);
	free(load->first);
	free(load->ms);
	*load = (struct policy_load){0};
}

void
load_trace(struct policy_load *load, const char *path)
{
	struct trace_request request;
	struct trace *trace;
	char err[512];
	int more = trace_open(path, &trace, err, sizeof(err));

	if (more == 0) {
		while ((more = trace_next(trace, &request, err, sizeof(err))) > 0) {
			begin(load);
			load->ms = realloc(load->ms, load->cap_requests * sizeof(*load->ms));
			if (!load->ms)
				die("out of memory");
			load->ms[load->n_requests - 1] = request.timestamp_ms;
			for (size_t i = 0; i < request.n; i++)
				add(load, request.ids[i]);
		}
		trace_close(trace);
	}
	if (more < 0)
		die("%s", err);
}

/* ---- synthetic ---- */

struct load_source {
	struct policy_load *load;
	uint64_t random;
	uint32_t n_requests;
};

static uint64_t
draw(struct load_source *s, uint64_t below)
{
	return mix_next(&s->random) % below;
}

static double
draw_unit(struct load_source *s)
{
	return (double)draw(s, UINT64_C(1) << 52) / (double)(UINT64_C(1) << 52);
}

/* 0 .. n - 1, the smaller the likelier: a continuous power law with exponent @skew != 1, rounded down. */
static uint64_t
zipf(struct load_source *s, uint64_t n, double skew)
{
	double top = pow((double)n + 1, 1 - skew);
	double x = pow(1 + draw_unit(s) * (top - 1), 1 / (1 - skew));
	uint64_t i = (uint64_t)x - 1;

	return i < n ? i : n - 1;
}

/* Blocks @from .. @to - 1 of document @doc. */
static void
add_blocks(struct load_source *s, uint64_t doc, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++)
		add(s->load, doc << 20 | i);
}

/* A length that belongs to @doc for good. */
static uint32_t
length_of(uint64_t doc, uint32_t min, uint32_t max)
{
	uint64_t x = (doc + 1) * UINT64_C(0xd1342543de82ef95);

	return min + (uint32_t)((x >> 33) % (max - min + 1));
}

static void
whole_doc(struct load_source *s, uint64_t doc, uint32_t min, uint32_t max)
{
	begin(s->load);
	add_blocks(s, doc, 0, length_of(doc, min, max));
}

/* Four of five prompts are long and come once; the fifth is one of 300. */
static void
make_scan(struct load_source *s)
{
	for (uint32_t i = 0; i < s->n_requests; i++)
		whole_doc(s, draw(s, 5) ? 1000 + i : zipf(s, 300, 0.6), 5, 40);
}

/* 16 system prompts of 4 to 24 blocks, before one of 20000 user prompts; both by popularity. */
static void
make_zipf(struct load_source *s)
{
	for (uint32_t i = 0; i < s->n_requests; i++) {
		uint64_t system = zipf(s, 16, 0.9);
		uint64_t user = 100 + zipf(s, 20000, 0.8) * 16 + system;

		begin(s->load);
		add_blocks(s, system, 0, length_of(system, 4, 24));
		add_blocks(s, user, 0, length_of(user, 2, 30));
	}
}

struct load_talk {
	uint64_t doc;
	uint32_t due; /* request */
	uint32_t blocks;
};

/*
 * @n_talks conversations at a time; each turn repeats all before it and adds @min to @max blocks; after it the next one
 * comes with @again percent, @idle requests later on average. @system: blocks that all begin with.
 */
static void
make_talks(struct load_source *s, uint32_t n_talks, uint32_t again, uint32_t idle, uint32_t min, uint32_t max,
	   uint32_t system)
{
	struct load_talk *talks = calloc(n_talks, sizeof(*talks));
	uint64_t next_doc = 10;

	if (!talks)
		die("out of memory");
	for (uint32_t i = 0; i < s->n_requests; i++) {
		struct load_talk *talk = &talks[0];

		/* The one that is most overdue. */
		for (uint32_t t = 1; t < n_talks; t++)
			if (talks[t].doc && (!talk->doc || talks[t].due < talk->due))
				talk = &talks[t];
		if (!talk->doc || talk->due > i) {
			for (uint32_t t = 0; t < n_talks; t++)
				if (!talks[t].doc)
					talk = &talks[t];
			if (talk->doc == 0)
				*talk = (struct load_talk){.doc = next_doc++,
							   .blocks = min + (uint32_t)draw(s, (uint64_t)max * 3)};
		}
		begin(s->load);
		add_blocks(s, 1, 0, system);
		add_blocks(s, talk->doc, 0, talk->blocks);
		talk->blocks += min + (uint32_t)draw(s, max - min + 1);
		talk->due = i + 1 + (uint32_t)(-log(1 - draw_unit(s)) * idle);
		if (draw(s, 100) >= again)
			talk->doc = 0;
	}
	free(talks);
}

static void
make_chat(struct load_source *s)
{
	make_talks(s, 1500, 55, 500, 1, 8, 1);
}

/* Tools answer at once: many turns, all of them soon. */
static void
make_agents(struct load_source *s)
{
	make_talks(s, 40, 93, 20, 1, 5, 12);
}

static void
make_uniform(struct load_source *s)
{
	for (uint32_t i = 0; i < s->n_requests; i++)
		whole_doc(s, draw(s, 1500), 5, 40);
}

static void
make_loop(struct load_source *s)
{
	for (uint32_t i = 0; i < s->n_requests; i++)
		whole_doc(s, i % 1000, 5, 40);
}

/* Popular today, forgotten tomorrow: every 1500 requests other 3000 documents. */
static void
make_shift(struct load_source *s)
{
	for (uint32_t i = 0; i < s->n_requests; i++)
		whole_doc(s, zipf(s, 3000, 0.8) + (uint64_t)(i / 1500) * 1700, 5, 40);
}

/* Long documents, each asked about a few times in a row among a dozen others, then never again. */
static void
make_documents(struct load_source *s)
{
	uint64_t open[12];
	uint64_t next = 0;

	for (uint32_t i = 0; i < 12; i++)
		open[i] = next++;
	for (uint32_t i = 0; i < s->n_requests / 4; i++) {
		uint64_t *doc = &open[draw(s, 12)];

		whole_doc(s, *doc, 60, 250);
		add_blocks(s, UINT64_C(1) << 40 | i, 0, 2);
		if (draw(s, 5) == 0)
			*doc = next++;
	}
}

/* Single documents that come back exactly once, after a time that LRU can just bridge or not. */
static void
make_twice(struct load_source *s)
{
	for (uint32_t i = 0; i < s->n_requests; i++)
		whole_doc(s, i % 2 || i < 600 ? i : i - 299, 5, 40);
}

/* One after the other of the above, so that whatever was learned is wrong again soon. */
static void
make_phases(struct load_source *s)
{
	uint32_t all = s->n_requests;

	s->n_requests = all / 6;
	make_chat(s);
	make_loop(s);
	make_shift(s);
	make_agents(s);
	make_scan(s);
	make_twice(s);
	s->n_requests = all;
}

static const struct {
	const char *name;
	void (*make)(struct load_source *s);
} makers[] = {
	{"scan", make_scan},       {"zipf", make_zipf},     {"chat", make_chat},   {"agents", make_agents},
	{"uniform", make_uniform}, {"loop", make_loop},     {"shift", make_shift}, {"documents", make_documents},
	{"twice", make_twice},     {"phases", make_phases},
};

bool
load_synthetic(struct policy_load *load, const char *name, uint64_t seed, uint32_t n_requests)
{
	struct load_source s = {.load = load, .random = seed * UINT64_C(0x2545f4914f6cdd1d), .n_requests = n_requests};

	for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
		if (strcmp(makers[i].name, name) == 0) {
			makers[i].make(&s);
			return true;
		}
	}
	return false;
}
