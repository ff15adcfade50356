/* Charges that are an estimate, until the agent has measured what the tenant's processes really have on the card.
 *
 * A driver says what is free on the card, not who took it, so what a neighbour allocates while code is loaded looks like code.
 * The usage page tells the agent how much was charged that way: so much less may be in use than the tally says. A request that
 * only an estimate keeps from fitting waits for the agent's next looks, as one that a grant refuses does (grant.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ESTIMATE_H
#define AQ_ESTIMATE_H

#include "quota.h"

/* A charge that was just taken is an estimate; and it was given back. */
void aq_estimate_add(const aq_charge *charge);
void aq_estimate_subtract(const aq_charge *charge);

/* After a refusal of `bytes` on a device, with no lock held: where only estimates are in the way which the agent may still
 * correct, waits for it. True: try again. False: no hope, no agent that looks, or it has had the time. `tries` is 0 at first. */
bool aq_estimate_await(CUdevice device, uint64_t bytes, unsigned *tries);

#endif
