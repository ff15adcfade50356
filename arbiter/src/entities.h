/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ENTITIES_H
#define AQ_ENTITIES_H

#include "state.h"

typedef void (*aq_entity_visit)(const aq_scheduler *sched, aq_tenant *tenant, aq_entity *entity, void *of);

/* Visits all entities at a card. */
void aq_entities_at(const aq_scheduler *sched, const aq_card *card, aq_entity_visit visit, void *of);

#endif
