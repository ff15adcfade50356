/* How long each work takes on the card, learnt from what was measured. Estimates decide how much may be in flight.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_COST_H
#define AQ_COST_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Stands for a kernel: its function, and the width of its grid with what lies beyond that in the register or in memory (the
 * height, if anything). What a kernel takes varies mostly with these, and more would be more instructions in each launch
 * than may be spent. Should eight times the distance of two functions' handles be the difference of two of their widths,
 * one is taken for the other, and measured all the same. */
static inline const void *aq_kernel(const void *function, uint64_t grid) { return (const void *)((uintptr_t)function * 8 + grid); }

static inline uint64_t aq_width_and_height(const uint32_t grid[2]) {
  uint64_t both;
  memcpy(&both, grid, sizeof both);
  return both;
}

/* Nanoseconds that one submission of `what` (a kernel, a graph's handle, a class of copies) takes; 0: not known. */
uint64_t aq_cost(const void *what);

/* What it takes at the least, by what was measured of late, and no more than aq_cost; 0: not known. */
uint64_t aq_cost_soonest(const void *what);

/* How much work it is on average, by the measurements of late while nothing else was in flight; 0: not known. */
uint64_t aq_cost_mean(const void *what);

/* `what` took this long, of which so much was work, by itself or beside others; the latter says nothing where the former is known.
 * `cautious`: what takes longer than before is believed at once, what takes less by and by. Under the caller's lock, as aq_cost. */
void aq_cost_learn(const void *what, uint64_t ns, uint64_t work, bool alone, bool cautious);

/* It is not known any more: it is to be measured by itself. */
void aq_cost_forget(const void *what);

#endif
