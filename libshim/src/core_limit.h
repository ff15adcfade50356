/* The core limit of a card as the control page has it now, and the words its time is counted in. AQ_GUARD only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CORE_LIMIT_H
#define AQ_CORE_LIMIT_H

#include "core_clock.h"
#include "tenant.h"

/* Percent of the card's time, 1 to 99; 0: no cap, because there is none or limits are off. */
static inline uint32_t aq_core_cap(int card) {
  uint32_t percent = __atomic_load_n(&aq_slice.control->cards[card].core_percent, __ATOMIC_RELAXED);
  return aq_enforcement() == AQ_ENFORCE_OFF || percent >= AQ_WHOLE_CARD ? 0 : percent;
}

static inline aq_usage_card *aq_core_usage(int card) { return &aq_slice.usage->cards[card]; }

#endif
