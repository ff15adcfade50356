/* One tenant's lease of its cards: shut, leased, draining, shut.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_LEASE_H
#define AQ_LEASE_H

#include "state.h"

void aq_lease_grant(aq_scheduler *sched, aq_tenant *tenant);

/* What a lease is in for at this moment: it may end early, be renewed, or end. */
void aq_lease_review(aq_scheduler *sched, aq_tenant *tenant);

/* A lease that was ended is over when nothing is in flight any more, or when that cannot be waited for. Meanwhile what is in
 * flight may need a partner on another card. */
void aq_lease_drain(const aq_scheduler *sched, aq_tenant *tenant);

/* The tenant has nothing leased, since some time ago; and what it has in flight is waited for as if it had. */
void aq_lease_withdraw(aq_tenant *tenant);
void aq_lease_interrupt(const aq_scheduler *sched, aq_tenant *tenant);

/* When to look at the tenant again. */
uint64_t aq_lease_next(const aq_scheduler *sched, const aq_tenant *tenant);

/* Whether whatever the tenant may ring for can wait until it is looked at again. */
bool aq_lease_is_expected(const aq_scheduler *sched, const aq_tenant *tenant);

bool aq_lease_is_suspect(const aq_scheduler *sched, const aq_tenant *tenant);

#endif
