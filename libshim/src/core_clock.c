/* The debt clock: paid_until moves on by busy / share, and time that passes pays.
 *
 * Idle time is credited up to AQ_CREDIT_NS, so that a late wake-up costs nothing and a pause buys only a small burst;
 * debt has no bound, so the long-run share is exact whatever the length of a kernel.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core_clock.h"

#include <time.h>

#define FUTURE_NS UINT64_C(1000000000) /* clocks of processes of one boot differ by nothing; work is never charged ahead */

uint64_t aq_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t before(uint64_t instant, uint64_t by) { return instant > by ? instant - by : 0; }

/* Relaxed: the word is all there is. */
uint64_t aq_clock_cover(aq_usage_card *card, uint64_t end) {
  uint64_t covered = __atomic_load_n(&card->core_covered_until_ns, __ATOMIC_RELAXED);
  do {
    if (end <= covered) break;
  } while (!__atomic_compare_exchange_n(&card->core_covered_until_ns, &covered, end, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return covered;
}

aq_interval aq_clock_charge(aq_usage_card *card, uint32_t share, uint64_t busy, uint64_t since, uint64_t back) {
  if (!busy) return (aq_interval){0};
  uint64_t price = before(busy * AQ_WHOLE_CARD / (share ? share : AQ_WHOLE_CARD), back), credited = before(since, AQ_CREDIT_NS);
  uint64_t paid = __atomic_load_n(&card->core_paid_until_ns, __ATOMIC_RELAXED);
  uint64_t wanted;
  do {
    wanted = later(paid, credited) + price;
  } while (!__atomic_compare_exchange_n(&card->core_paid_until_ns, &paid, wanted, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  __atomic_fetch_add(&card->busy_ns, busy, __ATOMIC_RELAXED);
  return (aq_interval){.from = paid, .to = credited, .free = before(credited, paid)};
}

uint64_t aq_clock_open_at(const aq_usage_card *card) { return __atomic_load_n(&card->core_paid_until_ns, __ATOMIC_RELAXED); }

void aq_clock_check(aq_usage_card *card, uint64_t now) {
  if (__atomic_load_n(&card->core_covered_until_ns, __ATOMIC_RELAXED) <= now + FUTURE_NS) return;
  __atomic_store_n(&card->core_covered_until_ns, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&card->core_paid_until_ns, 0, __ATOMIC_RELAXED);
}
