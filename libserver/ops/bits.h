/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Maps with a bit for each object, the lowest of the first byte first. A map has whole words, SCOUT__BITS_BYTES(n): long maps
 * are read by words. @but and @with are maps of the same objects. Ranges are [from, to). Any thread.
 */

#define SCOUT__BITS_BYTES(n) (((size_t)(n) + 63) / 64 * 8)

static inline bool
scout__bit(const uint8_t *bits, uint32_t i)
{
	return bits[i / 8] >> i % 8 & 1;
}

static inline void
scout__bit_set(uint8_t *bits, uint32_t i)
{
	bits[i / 8] |= (uint8_t)(1u << i % 8);
}

static inline void
scout__bit_clear(uint8_t *bits, uint32_t i)
{
	bits[i / 8] &= (uint8_t) ~(1u << i % 8);
}

/* The word that begins with bit @i, a multiple of 64. */
static inline uint64_t
scout__bits_word(const uint8_t *bits, uint32_t i)
{
	uint64_t word;

	memcpy(&word, bits + i / 8, sizeof(word));
	return word;
}

/* The first bit of the range that is set in @bits and not in @but (NULL: none is); @to: there is none. */
static inline uint32_t
scout__bits_next(const uint8_t *bits, const uint8_t *but, uint32_t from, uint32_t to)
{
	uint32_t i = from;

	while (i < to && (!scout__bit(bits, i) || (but && scout__bit(but, i))))
		i += i % 64 == 0 && to - i >= 64 && !(scout__bits_word(bits, i) & ~(but ? scout__bits_word(but, i) : 0))
			     ? 64
			     : 1;
	return i < to ? i : to;
}

/* The first bit of the range that is not set; @to: there is none. */
static inline uint32_t
scout__bits_next_clear(const uint8_t *bits, uint32_t from, uint32_t to)
{
	uint32_t i = from;

	while (i < to && scout__bit(bits, i))
		i += i % 64 == 0 && to - i >= 64 && scout__bits_word(bits, i) == UINT64_MAX ? 64 : 1;
	return i < to ? i : to;
}

/* One more than the last bit of the range that is set; @from: there is none. */
static inline uint32_t
scout__bits_end(const uint8_t *bits, uint32_t from, uint32_t to)
{
	uint32_t i = to;

	while (i > from && !scout__bit(bits, i - 1))
		i -= i % 64 == 0 && i - from >= 64 && !scout__bits_word(bits, i - 64) ? 64 : 1;
	return i > from ? i : from;
}

/* Give every bit of the range the value @byte: 0 or 0xff. */
static inline void
scout__bits_fill(uint8_t *bits, uint32_t from, uint32_t to, uint8_t byte)
{
	for (uint32_t i = from; i < to; i++) {
		if (i % 8 == 0 && to - i >= 8) {
			memset(bits + i / 8, byte, (to - i) / 8);
			i += (to - i) / 8 * 8;
		}
		if (i < to && byte)
			scout__bit_set(bits, i);
		else if (i < to)
			scout__bit_clear(bits, i);
	}
}

/* Set in the first @n bits of @bits what is set in @with. */
static inline void
scout__bits_or(uint8_t *bits, const uint8_t *with, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += 64) {
		uint64_t word = scout__bits_word(bits, i) | scout__bits_word(with, i);

		memcpy(bits + i / 8, &word, sizeof(word));
	}
}

/* Clear in the first @n bits of @bits what is not set in @with. */
static inline void
scout__bits_and(uint8_t *bits, const uint8_t *with, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += 64) {
		uint64_t word = scout__bits_word(bits, i) & scout__bits_word(with, i);

		memcpy(bits + i / 8, &word, sizeof(word));
	}
}

/* How many bits of the range are set. */
static inline uint32_t
scout__bits_count(const uint8_t *bits, uint32_t from, uint32_t to)
{
	uint32_t n = 0;

	for (uint32_t i = from; i < to; i++) {
		for (; i % 64 == 0 && to - i >= 64; i += 64)
			n += (uint32_t)__builtin_popcountll(scout__bits_word(bits, i));
		n += i < to && scout__bit(bits, i);
	}
	return n;
}
