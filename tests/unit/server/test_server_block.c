/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <string.h>

#include "block.h"

/* A block keeps its content when it grows or shrinks, from the heap to a mapping and back. */

#define SMALL ((size_t)1000)
#define LARGE ((size_t)1 << 20)

static void
write_all(uint8_t *block, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		block[i] = (uint8_t)(i * 31 + 7);
}

static void
check_all(const uint8_t *block, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (block[i] != (uint8_t)(i * 31 + 7))
			ck_abort_msg("byte %zu of %zu is lost", i, bytes);
}

START_TEST(a_block_keeps_what_fits)
{
	static const size_t sizes[] = {SMALL, 2 * SMALL, LARGE - 1, LARGE, 3 * LARGE, 2 * LARGE, SMALL, LARGE + 1, 1};
	size_t had = 0;
	uint8_t *block = NULL;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		block = scout__block_resize(block, had, sizes[i]);
		ck_assert_ptr_nonnull(block);
		check_all(block, had < sizes[i] ? had : sizes[i]);
		write_all(block, sizes[i]);
		had = sizes[i];
	}
	scout__block_free(block, had);
}
END_TEST

START_TEST(a_block_stays_when_there_is_no_memory_for_more)
{
	uint8_t *block = scout__block_resize(NULL, 0, LARGE);

	ck_assert_ptr_nonnull(block);
	write_all(block, LARGE);
	ck_assert_ptr_null(scout__block_resize(block, LARGE, (size_t)1 << 60));
	check_all(block, LARGE);
	scout__block_free(block, LARGE);
}
END_TEST
