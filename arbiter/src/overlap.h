/* Time of a card that several tenants say to have used.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_OVERLAP_H
#define AQ_OVERLAP_H

#include "state.h"

/* All of this is about cards that an exempt tenant has an entity at. */

/* An entity says to have used so much of its card. */
void aq_overlap_use(aq_entity *entity, double busy);

/* Time passes. */
void aq_overlap_pass(const aq_scheduler *sched, aq_card *card, uint64_t now, double dt);

/* What was said beyond the time that has passed is taken off what is said next. */
void aq_overlap_share(const aq_scheduler *sched, aq_card *card);

/* Takes what an entity has had in flight for long for a stray. */
void aq_overlap_look(const aq_scheduler *sched, aq_tenant *tenant, aq_entity *entity);

#endif
