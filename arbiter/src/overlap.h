/* Time of a card that several tenants say to have used.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_OVERLAP_H
#define AQ_OVERLAP_H

#include "state.h"

/* All of this is about cards that an exempt tenant has a seat at. */

/* A seat says to have used so much of its card. */
void aq_overlap_use(aq_seat *seat, double busy);

/* Time passes. */
void aq_overlap_pass(const aq_law *law, aq_card *card, uint64_t now, double dt);

/* What was said beyond the time that has passed is taken off what is said next. */
void aq_overlap_share(const aq_law *law, aq_card *card);

/* Takes what a seat has had in flight for long for a stray. */
void aq_overlap_look(const aq_law *law, aq_tenant *tenant, aq_seat *seat);

#endif
