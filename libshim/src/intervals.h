/* Times as disjoint intervals, in the order of time. Where there are too many of them the nearest become one, which knows how
 * much of it is free, though no longer where.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_INTERVALS_H
#define AQ_INTERVALS_H

#include <stdbool.h>
#include <stdint.h>

#define AQ_INTERVALS 32

typedef struct {
  uint64_t from, to; /* nanoseconds of the host's clock; `to` is the first instant behind it */
  uint64_t free;     /* of that, somewhere in it */
} aq_interval;

typedef struct {
  aq_interval list[AQ_INTERVALS + 1]; /* the last place is for one that is being added */
  uint32_t count;
} aq_intervals;

/* The first part of [from, to) that is in none of them. False: there is none. */
bool aq_intervals_gap(const aq_intervals *all, uint64_t from, uint64_t to, aq_interval *gap);

/* Takes from each what is free of it in [from, to), as far as can be told: its free time counts as spread evenly over it. Returns
 * how much that is. */
uint64_t aq_intervals_take(aq_intervals *all, uint64_t from, uint64_t to);

/* Adds one. Where they become too many, what ended `since` then or before is forgotten; if that does not do, the two with the
 * least between them become one. */
void aq_intervals_add(aq_intervals *all, aq_interval added, uint64_t since);

#endif
