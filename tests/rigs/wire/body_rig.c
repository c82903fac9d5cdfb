/* SPDX-License-Identifier: Apache-2.0 */
#include "body_rig.h"

struct fixture f;

void
begin(uint8_t opcode, uint8_t kind)
{
	const struct golden *g = golden_of(opcode, kind);

	ck_assert_ptr_nonnull(g);
	f.w = (struct scout__writer){.buf = f.buf, .cap = sizeof(f.buf)};
	f.body = malloc(g->len > 0 ? g->len : 1);
	ck_assert_ptr_nonnull(f.body);
	memcpy(f.body, g->body, g->len);
	f.op = (struct scout__op){.opcode = opcode, .kind = kind, .length = g->len, .body = f.body};
	f.field = NULL;
}

void
end(void)
{
	ck_assert(!f.w.bad);
	ck_assert_uint_eq(f.w.len, f.op.length);
	ck_assert_mem_eq(f.buf, f.body, f.op.length);
	ck_assert_ptr_null(f.field);
	free(f.body);
}

struct scout__str
str(const char *text)
{
	return (struct scout__str){.p = text, .len = (uint16_t)strlen(text)};
}

void
check_str(struct scout__str got, const char *expected)
{
	ck_assert_uint_eq(got.len, strlen(expected));
	ck_assert_mem_eq(got.p, expected, got.len);
}
