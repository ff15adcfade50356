/* Work on several cards may be parts of one piece that wait for each other. So the cards that a tenant has used lately are
 * leased together, until one of them stands idle while the tenant works on another: then it uses them in turn, and each is
 * leased by itself. If it turns out to wait for one of them with work in flight on another, they belong together after
 * all, and that is remembered the longer the sooner it turned out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "co_lease.h"

#include "order.h"

#define TOGETHER_NS (1000 * AQ_MS) /* a card that the tenant has not touched for so long is not leased with its others */
#define DOUBLES 6                  /* of the time for which it is remembered */
#define LOOK_NS UINT64_C(100000)

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

static bool has_work(const aq_entity *entity) { return entity->said.waiting || entity->said.in_flight; }

static bool is_open(const aq_tenant *tenant, uint32_t entity) { return tenant->open >> entity & 1; }

/* ---- which there are ---- */

static bool is_contended(const aq_tenant *tenant) {
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->entities[i].card->contended) return true;
  return false;
}

static bool used_lately(const aq_scheduler *sched, const aq_entity *entity) {
  return has_work(entity) || (entity->wanted_ns && sched->now_ns < entity->wanted_ns + TOGETHER_NS);
}

static bool is_member(const aq_scheduler *sched, const aq_tenant *tenant, uint32_t index) {
  const aq_entity *entity = &tenant->entities[index];
  if (entity->card->entities == 1) return true;
  if (!tenant->apart) return used_lately(sched, entity);
  return has_work(entity) || (tenant->state == AQ_LEASED && is_open(tenant, index));
}

void aq_co_lease_look(const aq_scheduler *sched, aq_tenant *tenant) {
  if (tenant->apart && !is_contended(tenant)) tenant->apart = false;
  tenant->members = 0;
  for (uint32_t i = 0; i < tenant->count; i++)
    if (is_member(sched, tenant, i)) tenant->members |= 1u << i;
}

/* ---- cards that are used in turn ---- */

static bool works(const aq_tenant *tenant) {
  for (uint32_t i = 0; i < tenant->count; i++)
    if (is_open(tenant, i) && tenant->entities[i].said.in_flight) return true;
  return false;
}

static bool is_awaited(const aq_scheduler *sched, const aq_tenant *holder, const aq_card *card) {
  for (const aq_tenant *other = sched->tenants; other; other = other->next)
    for (uint32_t i = 0; i < other->count && other != holder; i++)
      if (other->entities[i].card == card && other->members >> i & 1 && aq_order_in_line(sched, other)) return true;
  return false;
}

/* When an idle card of a lease is others'. */
static uint64_t release_at(const aq_scheduler *sched, const aq_tenant *tenant, uint32_t index) {
  const aq_entity *entity = &tenant->entities[index];
  bool may = is_open(tenant, index) && !has_work(entity) && !entity->card->quantum_ns && is_awaited(sched, tenant, entity->card);
  return may ? later(entity->active_ns + sched->rules.apart_ns, tenant->together_until_ns) : UINT64_MAX;
}

static void release(const aq_scheduler *sched, aq_tenant *tenant, uint32_t index) {
  if (!tenant->apart) tenant->apart_since_ns = sched->now_ns;
  tenant->apart = true;
  tenant->open &= ~(1u << index);
  tenant->members &= ~(1u << index);
  tenant->leaving |= 1u << index;
  tenant->entities[index].seen = false;
  tenant->entities[index].serial++;
}

void aq_co_lease_release(const aq_scheduler *sched, aq_tenant *tenant) {
  if (tenant->trust == AQ_BLIND || !works(tenant)) return;
  for (uint32_t i = 0; i < tenant->count; i++)
    if (sched->now_ns >= release_at(sched, tenant, i)) release(sched, tenant, i);
}

static void settle(aq_tenant *tenant, uint32_t index) {
  aq_entity *entity = &tenant->entities[index];
  tenant->leaving &= ~(1u << index);
  if (!has_work(entity)) return;
  tenant->open |= 1u << index;
  entity->serial++;
}

void aq_co_lease_settle(aq_tenant *tenant) {
  if (tenant->state != AQ_LEASED) return;
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->leaving >> i & 1 && tenant->entities[i].seen) settle(tenant, i);
}

/* ---- cards that belong together ---- */

static void join(const aq_scheduler *sched, aq_tenant *tenant) {
  bool was_right = sched->now_ns > tenant->apart_since_ns + TOGETHER_NS;
  tenant->apart = false;
  tenant->joins = was_right ? 0 : tenant->joins + (tenant->joins < DOUBLES);
  tenant->together_until_ns = sched->now_ns + (TOGETHER_NS << tenant->joins);
}

/* The entities at cards that it has work for and no lease of, though it works on others; since when. */
static uint64_t lacks_since(const aq_tenant *tenant) {
  uint64_t since = UINT64_MAX;
  uint32_t wanted = tenant->members & ~(tenant->open | tenant->leaving);
  for (uint32_t i = 0; i < tenant->count; i++)
    if (wanted >> i & 1 && has_work(&tenant->entities[i])) since = sooner(since, tenant->entities[i].waits_ns);
  return since;
}

bool aq_co_lease_breaks(const aq_scheduler *sched, aq_tenant *tenant) {
  if (!tenant->apart) return tenant->members & ~(tenant->open | tenant->leaving);
  uint64_t since = lacks_since(tenant);
  if (since == UINT64_MAX) return false;
  if (!works(tenant)) return true;
  if (sched->now_ns < since + sched->rules.apart_ns) return false;
  join(sched, tenant);
  return true;
}

uint64_t aq_co_lease_next(const aq_scheduler *sched, const aq_tenant *tenant) {
  uint64_t next = UINT64_MAX;
  for (uint32_t i = 0; i < tenant->count && works(tenant); i++) next = sooner(next, release_at(sched, tenant, i));
  return tenant->apart && lacks_since(tenant) < UINT64_MAX ? sooner(next, sched->now_ns + LOOK_NS) : next;
}
