/* Who there is: a tenant has a seat at each of its cards. Seats join a tenant and leave it while it holds leases; a card is
 * there as long as somebody has a seat at it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "seats.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- cards ---- */

static aq_card *find_card(const aq_law *law, const char *uuid) {
  aq_card *card = law->cards;
  while (card && strncmp(card->uuid, uuid, sizeof card->uuid)) card = card->next;
  return card;
}

static aq_card *take_card(aq_law *law, const char *uuid) {
  aq_card *card = find_card(law, uuid);
  if (!card) {
    card = calloc(1, sizeof *card);
    if (!card) return NULL;
    memcpy(card->uuid, uuid, sizeof card->uuid);
    card->next = law->cards;
    law->cards = card;
  }
  card->seats++;
  return card;
}

static void leave_card(aq_law *law, aq_card *card) {
  if (--card->seats) return;
  aq_card **link = &law->cards;
  while (*link != card) link = &(*link)->next;
  *link = card->next;
  free(card);
}

/* ---- seats ---- */

static bool has_card(const aq_tenant *tenant, const aq_card *card) {
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->seats[i].card == card) return true;
  return false;
}

static bool has_any(const aq_tenant *tenant, const aq_seat *seats, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (has_card(tenant, seats[i].card)) return true;
  return false;
}

static bool has_room(const aq_tenant *tenant, uint32_t count) { return tenant->count + count <= AQ_MAX_CARDS; }

static uint32_t remove_bit(uint32_t seats, uint32_t index) {
  uint32_t below = (1u << index) - 1;
  return (seats & below) | (seats >> 1 & ~below);
}

static void remove_seat(aq_law *law, aq_tenant *tenant, uint32_t index) {
  leave_card(law, tenant->seats[index].card);
  tenant->count--;
  memmove(&tenant->seats[index], &tenant->seats[index + 1], (tenant->count - index) * sizeof tenant->seats[0]);
  tenant->seats[tenant->count] = (aq_seat){0};
  tenant->open = remove_bit(tenant->open, index);
  tenant->leaving = remove_bit(tenant->leaving, index);
  tenant->partners = remove_bit(tenant->partners, index);
  tenant->members = remove_bit(tenant->members, index);
}

static void remove_seats(aq_law *law, aq_tenant *tenant, uint32_t first, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) remove_seat(law, tenant, first);
}

static bool add_seats(aq_law *law, aq_tenant *tenant, const aq_terms *terms, uint32_t count) {
  for (; tenant->count < count; tenant->count++) {
    tenant->seats[tenant->count].card = take_card(law, terms[tenant->count].card);
    if (!tenant->seats[tenant->count].card) return false;
  }
  return true;
}

void aq_seats_at(const aq_law *law, const aq_card *card, aq_seat_visit visit, void *of) {
  for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next)
    for (uint32_t i = 0; i < tenant->count; i++)
      if (tenant->seats[i].card == card) visit(law, tenant, &tenant->seats[i], of);
}

/* What a tenant's seats say together. */
static void sum_up(aq_tenant *tenant) {
  tenant->priority = 0;
  tenant->trust = AQ_TRUSTED;
  for (uint32_t i = 0; i < tenant->count; i++) {
    const aq_seat *seat = &tenant->seats[i];
    if (seat->priority > tenant->priority) tenant->priority = seat->priority;
    if (seat->trust > tenant->trust) tenant->trust = seat->trust;
  }
}

/* ---- tenants ---- */

static aq_tenant *new_tenant(aq_law *law) {
  aq_tenant *tenant = calloc(1, sizeof *tenant);
  if (!tenant) return NULL;
  tenant->kind = AQ_OWN;
  tenant->next = law->tenants;
  law->tenants = tenant;
  return tenant;
}

static void remove_tenant(aq_law *law, aq_tenant *tenant) {
  aq_tenant **link = &law->tenants;
  while (*link != tenant) link = &(*link)->next;
  *link = tenant->next;
  free(tenant);
}

aq_tenant *aq_law_enter(aq_law *law, const aq_terms *terms, uint32_t count) {
  assert(count && count <= AQ_MAX_CARDS);
  aq_tenant *tenant = new_tenant(law);
  if (!tenant) return NULL;
  if (!add_seats(law, tenant, terms, count)) {
    aq_law_leave(law, tenant, 0, tenant->count);
    return NULL;
  }
  aq_law_change(tenant, 0, terms, count);
  return tenant;
}

/* What runs without a lease goes on doing so, and is charged as before. */
static void copy_seats(aq_tenant *to, const aq_tenant *from, uint32_t first, uint32_t count) {
  memcpy(&to->seats[to->count], &from->seats[first], count * sizeof to->seats[0]);
  for (uint32_t i = 0; i < count; i++, to->count++) to->seats[to->count].card->seats++;
  to->stray |= from->stray;
  sum_up(to);
}

aq_tenant *aq_law_move(aq_law *law, aq_tenant *tenant, uint32_t *first, uint32_t count, aq_tenant *to) {
  if (to && (!has_room(to, count) || has_any(to, &tenant->seats[*first], count))) return NULL;
  aq_tenant *owner = to ? to : new_tenant(law);
  if (!owner) return NULL;
  owner->lent_turn_ns = fmax(owner->lent_turn_ns, tenant->lent_turn_ns);
  uint32_t place = owner->count;
  copy_seats(owner, tenant, *first, count);
  aq_law_leave(law, tenant, *first, count);
  *first = place;
  return owner;
}

void aq_law_leave(aq_law *law, aq_tenant *tenant, uint32_t first, uint32_t count) {
  remove_seats(law, tenant, first, count);
  if (tenant->count) sum_up(tenant);
  else remove_tenant(law, tenant);
}

void aq_law_change(aq_tenant *tenant, uint32_t first, const aq_terms *terms, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    aq_seat *seat = &tenant->seats[first + i];
    seat->share = terms[i].share_bp / 10000.0;
    seat->most = terms[i].most_percent / 100.0;
    seat->priority = terms[i].priority;
  }
  sum_up(tenant);
}

void aq_law_trust(aq_tenant *tenant, uint32_t first, uint32_t count, aq_trust trust) {
  for (uint32_t i = 0; i < count; i++) tenant->seats[first + i].trust = trust;
  sum_up(tenant);
}

void aq_law_absent(aq_tenant *tenant, uint32_t first, uint32_t count, uint32_t absent) {
  for (uint32_t i = 0; i < count; i++) tenant->seats[first + i].absent = absent >> i & 1;
}

int aq_law_quantum(aq_law *law, const char *uuid, uint64_t lease_ns) {
  aq_card *card = find_card(law, uuid);
  if (card) card->quantum_ns = lease_ns;
  return card != NULL;
}
