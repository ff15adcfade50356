/* Which of a tenant's cards are leased together.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CO_LEASE_H
#define AQ_CO_LEASE_H

#include "state.h"

/* Finds the cards that the tenant's next lease is of. */
void aq_co_lease_look(const aq_scheduler *sched, aq_tenant *tenant);

/* Closes the gates of leased cards that stand idle while the tenant works on another and somebody waits for them. */
void aq_co_lease_release(const aq_scheduler *sched, aq_tenant *tenant);

/* Once a tenant has answered, a card whose gate was closed is others', or, if it had begun there, its own again. */
void aq_co_lease_settle(aq_tenant *tenant);

/* Whether the lease must end, because the tenant works on a card that is not leased with the others. */
bool aq_co_lease_breaks(const aq_scheduler *sched, aq_tenant *tenant);

/* When to look at a leased tenant again for any of that; UINT64_MAX: not before something else happens. */
uint64_t aq_co_lease_next(const aq_scheduler *sched, const aq_tenant *tenant);

#endif
