/* The core limit of a card as the control page has it now, and the words its time is counted in. AQ_GUARD only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CORE_LIMIT_H
#define AQ_CORE_LIMIT_H

#include "core_clock.h"
#include "tenant.h"

#define AQ_BASIS_POINTS 100 /* to the percent */

/* Whether an arbiter may lease the card: nobody does where nobody waits. */
static inline bool aq_core_leasable(int card) {
  return __atomic_load_n(&aq_slice.control->cards[card].core_share, __ATOMIC_RELAXED) && aq_enforcement() == AQ_ENFORCE_ENFORCE;
}

/* The share to which the tenant's own clock holds it while nobody leases the card, in hundredths of a percent. 0: no cap,
 * because there is none or limits are off; and then nothing is measured. */
static inline uint32_t aq_core_cap(int card) {
  if (aq_enforcement() == AQ_ENFORCE_OFF) return 0;
  uint32_t share = __atomic_load_n(&aq_slice.control->cards[card].core_share, __ATOMIC_RELAXED);
  if (share) return share;
  share = __atomic_load_n(&aq_slice.control->cards[card].core_percent, __ATOMIC_RELAXED) * AQ_BASIS_POINTS;
  return share >= AQ_WHOLE_CARD ? 0 : share;
}

static inline aq_usage_card *aq_core_usage(int card) { return &aq_slice.usage->cards[card]; }

#endif
