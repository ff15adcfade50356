/* Who there is: a tenant has an entity at each of its cards. Entities join a tenant and leave it while it holds leases; a card is
 * there as long as somebody has an entity at it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "entities.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- cards ---- */

static aq_card *find_card(const aq_scheduler *sched, const char *uuid) {
  aq_card *card = sched->cards;
  while (card && strncmp(card->uuid, uuid, sizeof card->uuid)) card = card->next;
  return card;
}

static aq_card *take_card(aq_scheduler *sched, const char *uuid) {
  aq_card *card = find_card(sched, uuid);
  if (!card) {
    card = calloc(1, sizeof *card);
    if (!card) return NULL;
    memcpy(card->uuid, uuid, sizeof card->uuid);
    card->next = sched->cards;
    sched->cards = card;
  }
  card->entities++;
  return card;
}

static void leave_card(aq_scheduler *sched, aq_card *card) {
  if (--card->entities) return;
  aq_card **link = &sched->cards;
  while (*link != card) link = &(*link)->next;
  *link = card->next;
  free(card);
}

/* ---- entities ---- */

static bool has_card(const aq_tenant *tenant, const aq_card *card) {
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->entities[i].card == card) return true;
  return false;
}

static bool has_any(const aq_tenant *tenant, const aq_entity *entities, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (has_card(tenant, entities[i].card)) return true;
  return false;
}

static bool has_room(const aq_tenant *tenant, uint32_t count) { return tenant->count + count <= AQ_MAX_CARDS; }

static uint32_t remove_bit(uint32_t entities, uint32_t index) {
  uint32_t below = (1u << index) - 1;
  return (entities & below) | (entities >> 1 & ~below);
}

static void remove_entity(aq_scheduler *sched, aq_tenant *tenant, uint32_t index) {
  leave_card(sched, tenant->entities[index].card);
  tenant->count--;
  memmove(&tenant->entities[index], &tenant->entities[index + 1], (tenant->count - index) * sizeof tenant->entities[0]);
  tenant->entities[tenant->count] = (aq_entity){0};
  tenant->open = remove_bit(tenant->open, index);
  tenant->leaving = remove_bit(tenant->leaving, index);
  tenant->partners = remove_bit(tenant->partners, index);
  tenant->members = remove_bit(tenant->members, index);
}

static void remove_entities(aq_scheduler *sched, aq_tenant *tenant, uint32_t first, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) remove_entity(sched, tenant, first);
}

static bool add_entities(aq_scheduler *sched, aq_tenant *tenant, const aq_terms *terms, uint32_t count) {
  for (; tenant->count < count; tenant->count++) {
    tenant->entities[tenant->count].card = take_card(sched, terms[tenant->count].card);
    if (!tenant->entities[tenant->count].card) return false;
  }
  return true;
}

void aq_entities_at(const aq_scheduler *sched, const aq_card *card, aq_entity_visit visit, void *of) {
  for (aq_tenant *tenant = sched->tenants; tenant; tenant = tenant->next)
    for (uint32_t i = 0; i < tenant->count; i++)
      if (tenant->entities[i].card == card) visit(sched, tenant, &tenant->entities[i], of);
}

/* What a tenant's entities say together. */
static void sum_up(aq_tenant *tenant) {
  tenant->priority = 0;
  tenant->trust = AQ_TRUSTED;
  for (uint32_t i = 0; i < tenant->count; i++) {
    const aq_entity *entity = &tenant->entities[i];
    if (entity->priority > tenant->priority) tenant->priority = entity->priority;
    if (entity->trust > tenant->trust) tenant->trust = entity->trust;
  }
}

/* ---- tenants ---- */

static aq_tenant *new_tenant(aq_scheduler *sched) {
  aq_tenant *tenant = calloc(1, sizeof *tenant);
  if (!tenant) return NULL;
  tenant->kind = AQ_OWN;
  tenant->next = sched->tenants;
  sched->tenants = tenant;
  return tenant;
}

static void remove_tenant(aq_scheduler *sched, aq_tenant *tenant) {
  aq_tenant **link = &sched->tenants;
  while (*link != tenant) link = &(*link)->next;
  *link = tenant->next;
  free(tenant);
}

aq_tenant *aq_scheduler_enter(aq_scheduler *sched, const aq_terms *terms, uint32_t count) {
  assert(count && count <= AQ_MAX_CARDS);
  aq_tenant *tenant = new_tenant(sched);
  if (!tenant) return NULL;
  if (!add_entities(sched, tenant, terms, count)) {
    aq_scheduler_leave(sched, tenant, 0, tenant->count);
    return NULL;
  }
  aq_scheduler_change(tenant, 0, terms, count);
  return tenant;
}

/* What runs without a lease goes on doing so, and is charged as before. */
static void copy_entities(aq_tenant *to, const aq_tenant *from, uint32_t first, uint32_t count) {
  memcpy(&to->entities[to->count], &from->entities[first], count * sizeof to->entities[0]);
  for (uint32_t i = 0; i < count; i++, to->count++) to->entities[to->count].card->entities++;
  to->stray |= from->stray;
  sum_up(to);
}

aq_tenant *aq_scheduler_move(aq_scheduler *sched, aq_tenant *tenant, uint32_t *first, uint32_t count, aq_tenant *to) {
  if (to && (!has_room(to, count) || has_any(to, &tenant->entities[*first], count))) return NULL;
  aq_tenant *owner = to ? to : new_tenant(sched);
  if (!owner) return NULL;
  owner->lent_turn_ns = fmax(owner->lent_turn_ns, tenant->lent_turn_ns);
  uint32_t place = owner->count;
  copy_entities(owner, tenant, *first, count);
  aq_scheduler_leave(sched, tenant, *first, count);
  *first = place;
  return owner;
}

void aq_scheduler_leave(aq_scheduler *sched, aq_tenant *tenant, uint32_t first, uint32_t count) {
  remove_entities(sched, tenant, first, count);
  if (tenant->count) sum_up(tenant);
  else remove_tenant(sched, tenant);
}

void aq_scheduler_change(aq_tenant *tenant, uint32_t first, const aq_terms *terms, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    aq_entity *entity = &tenant->entities[first + i];
    entity->share = terms[i].share_bp / 10000.0;
    entity->most = terms[i].most_percent / 100.0;
    entity->priority = terms[i].priority;
  }
  sum_up(tenant);
}

void aq_scheduler_trust(aq_tenant *tenant, uint32_t first, uint32_t count, aq_trust trust) {
  for (uint32_t i = 0; i < count; i++) tenant->entities[first + i].trust = trust;
  sum_up(tenant);
}

void aq_scheduler_absent(aq_tenant *tenant, uint32_t first, uint32_t count, uint32_t absent) {
  for (uint32_t i = 0; i < count; i++) tenant->entities[first + i].absent = absent >> i & 1;
}

int aq_scheduler_quantum(aq_scheduler *sched, const char *uuid, uint64_t lease_ns) {
  aq_card *card = find_card(sched, uuid);
  if (card) card->quantum_ns = lease_ns;
  return card != NULL;
}
