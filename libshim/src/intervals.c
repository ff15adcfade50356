/* Few at a time: what runs without a pause is one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "intervals.h"

#include <string.h>

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

bool aq_intervals_gap(const aq_intervals *all, uint64_t from, uint64_t to, aq_interval *gap) {
  uint32_t i = 0;
  for (; i < all->count && all->list[i].from <= from; i++) from = later(from, all->list[i].to);
  *gap = (aq_interval){.from = from, .to = i < all->count ? sooner(to, all->list[i].from) : to};
  return gap->from < gap->to;
}

static uint64_t free_in(const aq_interval *one, uint64_t from, uint64_t to) {
  from = later(from, one->from), to = sooner(to, one->to);
  if (!one->free || from >= to) return 0;
  return (uint64_t)((double)one->free * (double)(to - from) / (double)(one->to - one->from));
}

uint64_t aq_intervals_take(aq_intervals *all, uint64_t from, uint64_t to) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < all->count; i++) {
    uint64_t part = free_in(&all->list[i], from, to);
    all->list[i].free -= part;
    sum += part;
  }
  return sum;
}

/* Takes `count` of them out, from the one at `at` on. */
static void take_out(aq_intervals *all, uint32_t at, uint32_t count) {
  all->count -= count;
  memmove(&all->list[at], &all->list[at + count], (all->count - at) * sizeof *all->list);
}

static void put_in(aq_intervals *all, uint32_t at, const aq_interval *one) {
  memmove(&all->list[at + 1], &all->list[at], (all->count - at) * sizeof *all->list);
  all->list[at] = *one;
  all->count++;
}

static void forget(aq_intervals *all, uint64_t since) {
  uint32_t old = 0;
  while (old < all->count && all->list[old].to <= since) old++;
  take_out(all, 0, old);
}

static void join_nearest(aq_intervals *all) {
  uint32_t nearest = 0;
  uint64_t least = UINT64_MAX;
  for (uint32_t i = 0; i + 1 < all->count; i++) {
    uint64_t between = all->list[i + 1].from - all->list[i].to;
    if (between < least) least = between, nearest = i;
  }
  aq_interval *one = &all->list[nearest], *other = one + 1;
  one->free += least + other->free;
  one->to = other->to;
  take_out(all, nearest + 1, 1);
}

void aq_intervals_add(aq_intervals *all, aq_interval added, uint64_t since) {
  uint32_t at = 0, end;
  while (at < all->count && all->list[at].to < added.from) at++;
  for (end = at; end < all->count && all->list[end].from <= added.to; end++) {
    added.from = sooner(added.from, all->list[end].from);
    added.to = later(added.to, all->list[end].to);
    added.free += all->list[end].free;
  }
  take_out(all, at, end - at);
  put_in(all, at, &added);
  if (all->count > AQ_INTERVALS) forget(all, since);
  if (all->count > AQ_INTERVALS) join_nearest(all);
}
