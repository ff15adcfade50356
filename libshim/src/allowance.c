/* Reads the words of one card under the page's sequence lock: a grant that is half there would refuse what fits.
 * A page whose writer died half-way is taken as it stands, until an agent writes it again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "allowance.h"

#include "aliquot_usage.h"
#include "ledger.h"

#define TRIES 100

/* What the tenant has on the host in this card's stead. Where there are more cards than the lower half, none overflows. */
static uint64_t on_host(int card) {
  if (card >= AQ_OVERFLOW_CARDS || aq_slice.control->card_count > AQ_OVERFLOW_CARDS) return 0;
  return aq_ledger_used(aq_slice.usage, AQ_OVERFLOW_CARDS + card);
}

static int64_t less(int64_t from, uint64_t bytes) {
  int64_t rest;
  return __builtin_sub_overflow(from, bytes, &rest) ? INT64_MIN : rest;
}

static inline void read_words(int index, aq_allowance *out) {
  const aq_control_card *card = &aq_slice.control->cards[index];
  out->slice = __atomic_load_n(&card->memory_limit, __ATOMIC_ACQUIRE);
  out->adjust = __atomic_load_n(&card->memory_adjust, __ATOMIC_ACQUIRE);
  uint64_t grant = __atomic_load_n(&card->memory_grant, __ATOMIC_ACQUIRE);
  bool granted = __atomic_load_n(&card->flags, __ATOMIC_ACQUIRE) & AQ_CARD_BURST;
  uint64_t host = granted ? on_host(index) : 0;
  out->limit = host < out->slice ? out->slice - host : 0;
  out->usable = granted && grant < out->limit ? grant : out->limit;
  out->ahead = less(out->adjust, aq_usage_aside_of(aq_slice.usage, index, -1));
}

/* Orders: every word is loaded with acquire, so that the second look at the number comes after all of them. */
aq_allowance aq_allowance_of(int card) {
  const aq_control_page *page = aq_slice.control;
  aq_allowance out;
  for (int i = 0; i < TRIES; i++) {
    uint32_t before = __atomic_load_n(&page->sequence, __ATOMIC_ACQUIRE);
    read_words(card, &out);
    if (!(before & 1) && __atomic_load_n(&page->sequence, __ATOMIC_RELAXED) == before) break;
  }
  return out;
}

uint64_t aq_allowance_tally(const aq_allowance *allowance, uint64_t bytes) {
  return aq_allowance_sum(bytes, allowance->ahead == INT64_MIN ? INT64_MAX : -allowance->ahead);
}
