/* What a process has charged for its work on a card: when that ran, and what other processes of the tenant have charged beside it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CHARGE_H
#define AQ_CHARGE_H

#include "intervals.h"

struct aq_batch;

typedef struct {
  uint64_t charged_ns;      /* by this process, altogether */
  aq_intervals charged;     /* when that ran; of what an open batch may have been on the card beside */
  aq_intervals passed_over; /* by the clock, as idle */
  uint64_t others_charged_ns; /* by other processes, of time that is accounted for, */
  uint64_t others_seen_ns;    /* and altogether, when this process charged last */
  uint64_t others_until_ns;   /* the latest end of what they may have charged by then, */
  uint64_t covered_ns;        /* and of what anybody had */
} aq_charges;

/* What other processes of the tenant have charged on a card so far. */
uint64_t aq_charge_others(int card);

/* Of what other processes have charged by now, keeps apart from each open batch what is of time before it. */
void aq_charge_hear_others(void);

/* Charges a batch that is still in flight for what of the time in which it ran no other was charged for, and no more than that
 * time less what is said to be free of it: there the card had nothing to do. */
void aq_charge_batch(const struct aq_batch *batch, aq_interval ran);

/* Charges work of which it is not known when it ran, but for its length; it was submitted at `since`. */
void aq_charge_estimate(int card, uint64_t busy, uint64_t since);

#endif
