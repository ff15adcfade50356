/* Whose turn it is.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ORDER_H
#define AQ_ORDER_H

#include "state.h"

/* Looks at all tenants: which of their cards go together, what they want and may claim. */
void aq_order_all(aq_scheduler *sched);

/* What a tenant may claim now, whether it is its turn or not. */
aq_order aq_order_of(const aq_scheduler *sched, const aq_tenant *tenant);

bool aq_order_before(const aq_order *rank, const aq_order *other);

/* Whether the tenant waits for a lease and may have one. */
bool aq_order_in_line(const aq_scheduler *sched, const aq_tenant *tenant);

/* Whether it is worth ending a lease early. */
bool aq_order_displaces(const aq_order *rank, const aq_order *holder);

/* Of the tenants that wait for a card that the holder has, the one whose turn is next; NULL: there is none. */
const aq_tenant *aq_order_rival(const aq_scheduler *sched, const aq_tenant *holder);

/* When a tenant that waits may claim more than it can now; UINT64_MAX: it depends on others. */
uint64_t aq_order_rises_at(const aq_scheduler *sched, const aq_tenant *tenant);

#endif
