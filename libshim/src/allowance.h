/* What a tenant may have of a card now, by the control page.
 *
 *   in use     = tally - aside + adjust  what its processes have, whether it was charged or only measured by the agent
 *   limit      = slice - host            what overflowed to the host is the slice's, too
 *   may be had = min(limit, grant) - in use
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ALLOWANCE_H
#define AQ_ALLOWANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "tenant.h"

/* One card's terms, from one moment of the control page; bytes. */
typedef struct {
  uint64_t slice;  /* as the program sees it */
  uint64_t limit;  /* of it, on the card: what is not on the host */
  uint64_t usable; /* of it, now: the grant where the slice is granted, else all */
  int64_t adjust;  /* in use beyond what the tally says */
  int64_t ahead;   /* in use beyond what the tally says with what checkpoints have put aside */
} aq_allowance;

/* AQ_GUARD only. */
aq_allowance aq_allowance_of(int card);

/* The same by one look, where the slice is not granted and nothing is put aside. False: it is, or the page was being written meanwhile.
 * Orders: every word is loaded with acquire, so that the second look at the number comes after all of them. */
static inline bool aq_allowance_glance(int index, aq_allowance *out) {
  const aq_control_page *page = aq_slice.control;
  const aq_control_card *card = &page->cards[index];
  uint32_t before = __atomic_load_n(&page->sequence, __ATOMIC_ACQUIRE);
  out->slice = out->limit = out->usable = __atomic_load_n(&card->memory_limit, __ATOMIC_ACQUIRE);
  out->adjust = out->ahead = __atomic_load_n(&card->memory_adjust, __ATOMIC_ACQUIRE);
  bool granted = __atomic_load_n(&card->flags, __ATOMIC_ACQUIRE) & AQ_CARD_BURST;
  return !granted && !(before & 1) && __atomic_load_n(&page->sequence, __ATOMIC_RELAXED) == before;
}

/* a + b between 0 and AQ_MEMORY_MAX. The page is the agent's, but a sum must not overflow whatever it says. */
static inline uint64_t aq_allowance_sum(uint64_t a, int64_t b) {
  const int64_t most = (int64_t)AQ_MEMORY_MAX;
  if (a > AQ_MEMORY_MAX) a = AQ_MEMORY_MAX;
  int64_t sum = (int64_t)a + (b > most ? most : b < -most ? -most : b);
  return sum < 0 ? 0 : sum < most ? (uint64_t)sum : AQ_MEMORY_MAX;
}

/* Bytes in use where the tally says `tally` without what is put aside; never negative. */
static inline uint64_t aq_allowance_in_use(const aq_allowance *allowance, uint64_t tally) {
  return aq_allowance_sum(tally, allowance->adjust);
}

/* The largest tally, with what is put aside, with which `bytes` are in use; never negative. */
uint64_t aq_allowance_tally(const aq_allowance *allowance, uint64_t bytes);

#endif
