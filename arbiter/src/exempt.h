/* Tenants that have no leases: they are let in beside those of others.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_EXEMPT_H
#define AQ_EXEMPT_H

#include "state.h"

/* It has leases no longer, or from now on, as it wishes and as far as it is believed. */
void aq_exempt_settle(const aq_scheduler *sched, aq_tenant *tenant);

/* Lets it in on each card to which it has a claim now, and keeps it out of the others. */
void aq_exempt_review(const aq_scheduler *sched, aq_tenant *tenant);

/* When to look at it again. */
uint64_t aq_exempt_next(const aq_scheduler *sched, const aq_tenant *tenant);

#endif
