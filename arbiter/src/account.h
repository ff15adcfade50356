/* What is due to a tenant, and what it has had.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ACCOUNT_H
#define AQ_ACCOUNT_H

#include "state.h"

/* It runs on beside the leases of others, as it says: the card's slices go round among them, unless it is absent. */
bool aq_account_strays(const aq_tenant *tenant, const aq_entity *entity);

/* Time passes for an entity: what is due to it grows, and what it does without a report is charged. */
void aq_account_pass(const aq_tenant *tenant, aq_entity *entity, uint64_t now, double dt);

/* It was on the card for so long, as it says. */
void aq_account_use(aq_tenant *tenant, aq_entity *entity, double busy);

/* When a lease begins: whoever held the card in vain in the last one, while another with a claim to it waited, pays for it.
 * For a while it is by its place in the line, not with its share, and it has it back when the card has time for all. */
void aq_account_fine(const aq_scheduler *sched, const aq_tenant *tenant, aq_entity *entity);

/* How far the tenant is behind what is due to it, in nanoseconds of time; negative: ahead. */
double aq_account_lag(const aq_scheduler *sched, const aq_tenant *tenant);

/* The same, less what it was fined for: who is first of those who lag. */
double aq_account_merit(const aq_scheduler *sched, const aq_tenant *tenant);

/* How long until it may be lent time, if at all; not positive: now. */
double aq_account_lent_in(const aq_tenant *tenant);

/* A tenant that had no work for a while, or is new, has had its part of what was lent meanwhile. */
void aq_account_wake(const aq_scheduler *sched, aq_tenant *tenant);

/* Where more is due than a card has, it is missing to all alike. */
void aq_account_level(aq_scheduler *sched, const aq_card *card);

#endif
