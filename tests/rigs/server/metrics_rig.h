/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <ctype.h>
#include <stdbool.h>

#include "http.h"
#include "metrics.h"
#include "server_core.h"
#include "server_rig.h"

/* A server with an HTTP endpoint, and a strict reader of what /metrics says. */

#define PAGE_SERIES 2048u

const char *metrics_address(const struct scout_server *server);
void metrics_up(struct rig *rig, uint32_t chunks);

/* ---- the text format ---- */

struct page_series {
	char name[512]; /* with its labels */
	double value;
	bool grows;
};

struct page {
	struct page_series series[PAGE_SERIES];
	size_t n;
	char families[512][128];
	size_t n_families;
};

void page_get(struct page *page, const char *address);

/* -1: there is none. */
double page_value(const struct page *page, const char *series);

/* Scrape until the series has this value: values may be 20 ms old. */
void page_wait(struct page *page, const char *address, const char *series, double value);
