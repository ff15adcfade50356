/* What is due to a tenant, and what it has had.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ACCOUNT_H
#define AQ_ACCOUNT_H

#include "state.h"

/* Time passes for a seat: what is due to it grows, and what it does without a report is charged. */
void aq_account_pass(const aq_tenant *tenant, aq_seat *seat, uint64_t now, double dt);

/* It was on the card for so long, as it says. */
void aq_account_use(aq_tenant *tenant, aq_seat *seat, double busy);

/* It kept the card from others for so long without using it. */
void aq_account_waste(aq_seat *seat, double ns);

/* How far the tenant is behind what is due to it, in nanoseconds of time; negative: ahead. */
double aq_account_lag(const aq_law *law, const aq_tenant *tenant);

/* How long until it may be lent time, if at all; not positive: now. */
double aq_account_lent_in(const aq_tenant *tenant);

/* A tenant that had no work for a while, or is new, is as far behind as the others are. */
void aq_account_wake(const aq_law *law, aq_tenant *tenant);

/* Where more is due than a card has, it is missing to all alike. */
void aq_account_level(const aq_law *law, const aq_card *card);

#endif
