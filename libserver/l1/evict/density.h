/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * How soon do chunks come back? For each class of chunks and each age since the last touch: how many were touched again
 * at that age, and how much time all spent at it. From that comes an index: how many hits for each chunk of time a slot
 * can still give at best, with a chunk of that class and age. The chunk with the least index is evicted.
 *
 * Time is counted in the caller's units; ages fall into SCOUT__AGES buckets with the edges 0 and 2^((i-1)/4) units.
 * Loop thread.
 */

#define SCOUT__AGES 80u
#define SCOUT__TOUCH_CLASSES 4u
#define SCOUT__CLASSES 32u /* the lowest two bits: touches, the higher bit for more of them */

/* What was seen of one class; each relearning multiplies it by FORGET (density.c). */
struct scout__reuse_counts {
	float hits[SCOUT__AGES];   /* touched again at that age */
	float ended[SCOUT__AGES];  /* records that ended at that age: a touch, or not seen any more */
	float within[SCOUT__AGES]; /* units that these records spent in the bucket in which they ended */
};

struct scout__density {
	struct scout__reuse_counts counts[SCOUT__CLASSES];
	/* For the relearning that runs: the records that are still open, by class and age. */
	float open[SCOUT__CLASSES][SCOUT__AGES];
	float open_within[SCOUT__CLASSES][SCOUT__AGES];
	float pooled[SCOUT__AGES];       /* hits for a unit of time, over all classes */
	float pooled_index[SCOUT__AGES]; /* of a class that was not seen */
	bool was_seen[SCOUT__CLASSES];   /* the class has counts, or open records */
	float index[SCOUT__CLASSES][SCOUT__AGES];
	float edges[SCOUT__AGES + 1]; /* in units */
};

/* No class is known: the index falls with age, as LRU orders. */
void scout__density_init(struct scout__density *density);

/* The bucket of an age. 3 ns. */
uint32_t scout__density_age(float units);

/* A record of @class ended after @units: it was touched again, or else not seen for that long. */
void scout__density_ended(struct scout__density *density, uint32_t class, float units, bool touched);

/*
 * Relearning in slices, in this order: begin; open for each record that has not ended; pool; learn for each class from
 * 0 on, which puts its index in force. Each is bounded; learn takes 2 us.
 */
void scout__density_begin(struct scout__density *density);
void scout__density_open(struct scout__density *density, uint32_t class, float units);
void scout__density_pool(struct scout__density *density);
void scout__density_learn(struct scout__density *density, uint32_t class);

/* The unit becomes 2^(@steps/4) times as long. Nothing relearns. */
void scout__density_rescale(struct scout__density *density, int steps);
