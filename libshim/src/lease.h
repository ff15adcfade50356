/* Leases: an arbiter's word, on the control page, of when the tenant may submit work to a card that it shares.
 *
 * The gate's word is another number with every change; odd is closed. What is submitted while it is even is submitted under
 * that lease. A process announces itself in work.h's words before it reads the gate, and the arbiter closes the gate before
 * it reads those: so either the process finds the gate closed, or the arbiter finds the process.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_LEASE_H
#define AQ_LEASE_H

#include <stdbool.h>

#include "core_limit.h"

/* The word of a card's gate: a ticket for a card that may be leased is good for one value of it. */
static inline const uint32_t *aq_lease_word(int card) { return &aq_slice.control->cards[card].gate; }

/* Sequentially consistent, after the announcement. */
static inline uint32_t aq_lease_gate(int card) { return __atomic_load_n(aq_lease_word(card), __ATOMIC_SEQ_CST); }

static inline bool aq_lease_is_closed(uint32_t gate) { return gate % 2; }

/* Whether an arbiter leases the card, and is there; else the tenant's own clock holds it to its share. */
bool aq_lease_holds(int card, uint32_t gate, uint64_t now);

/* The share at which work is charged to the tenant's own clock, as aq_core_cap; under a lease that clock only counts. */
uint32_t aq_lease_price(int card);

/* The terms of the open lease: how much may be in flight, and until when. */
uint64_t aq_lease_window_ns(int card);
int64_t aq_lease_end_ns(int card);

/* Waits for the gate to become another number than `gate`, no longer than until `until_ns`. */
void aq_lease_wait(int card, uint32_t gate, uint64_t until_ns);

/* Wakes the arbiter: there is something to see on the usage page. */
void aq_lease_ring(int card);

#endif
