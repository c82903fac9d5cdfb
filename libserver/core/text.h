/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A text that grows, for what is written to people and their tools. Without memory, or beyond SCOUT__TEXT_MAX, it
 * latches `failed` and stays as it is. One thread.
 */
#define SCOUT__TEXT_MAX (UINT32_C(8) << 20)

struct scout__text {
	char *p; /* malloc; not terminated */
	size_t len, cap;
	bool failed;
};

__attribute__((format(printf, 2, 3))) void scout__text_add(struct scout__text *text, const char *fmt, ...);
/* @value / @per_unit as a decimal fraction with a point, whatever the locale; per_unit: 1 (or 0), 1000, 1000000. */
void scout__text_number(struct scout__text *text, uint64_t value, uint32_t per_unit);
/*
 * @len bytes that a peer or an operator has chosen, as the inside of a quoted string, or as a part of a line. Bytes
 * that are not UTF-8, and control characters, are written as \xNN (JSON: \uNNNN where there is one), so that all
 * formats stay readable, and a name cannot make a line of its own or speak to a terminal.
 */
void scout__text_label(struct scout__text *text, const char *bytes, size_t len); /* Prometheus */
void scout__text_json(struct scout__text *text, const char *bytes, size_t len);
void scout__text_line(struct scout__text *text, const char *bytes, size_t len); /* kvscoutd --status */
void scout__text_fini(struct scout__text *text);
