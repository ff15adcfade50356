/* A tenant's own time comes before time that is lent, then the higher priority, then who is furthest behind. So the card goes
 * first to those it is due to, and a high priority cannot have more of it than its share at the cost of others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "order.h"

#include <math.h>

#include "account.h"
#include "co_lease.h"

/* A holder that is between two pieces of work has not lost interest. */
static bool wants(const aq_scheduler *sched, const aq_tenant *tenant, const aq_entity *entity) {
  bool stray = tenant->stray && tenant->state == AQ_SHUT; /* it has all the card that it can have */
  return entity->said.waiting || (entity->said.in_flight && !stray) || (tenant->state == AQ_LEASED && tenant->started && sched->now_ns < entity->active_ns + sched->rules.idle_ns);
}

static void look(const aq_scheduler *sched, aq_tenant *tenant) {
  aq_co_lease_look(sched, tenant);
  tenant->wants = false;
  for (uint32_t i = 0; i < tenant->count && !tenant->exempt; i++) {
    const aq_entity *entity = &tenant->entities[i];
    if (wants(sched, tenant, entity)) tenant->wants = true;
  }
}

aq_order aq_order_of(const aq_scheduler *sched, const aq_tenant *tenant) {
  aq_order rank = {.claim = AQ_NOTHING, .priority = tenant->priority};
  if (!tenant->wants) return rank;
  double lag = aq_account_lag(sched, tenant);
  if (lag >= 0) rank.claim = AQ_OWN, rank.merit = aq_account_merit(sched, tenant);
  else if (aq_account_lent_in(tenant) <= 0) rank.claim = AQ_LENT, rank.merit = -tenant->lent_turn_ns;
  return rank;
}

void aq_order_all(aq_scheduler *sched) {
  for (aq_tenant *tenant = sched->tenants; tenant; tenant = tenant->next) look(sched, tenant);
  for (aq_tenant *tenant = sched->tenants; tenant; tenant = tenant->next) tenant->rank = aq_order_of(sched, tenant);
}

bool aq_order_before(const aq_order *rank, const aq_order *other) {
  if (rank->claim != other->claim) return rank->claim > other->claim;
  if (rank->priority != other->priority) return rank->priority > other->priority;
  return rank->merit > other->merit;
}

bool aq_order_displaces(const aq_order *rank, const aq_order *holder) {
  return rank->claim > holder->claim || (rank->claim == holder->claim && rank->priority > holder->priority);
}

static bool meet(const aq_tenant *one, const aq_tenant *other) {
  for (uint32_t i = 0; i < one->count; i++)
    for (uint32_t j = 0; j < other->count; j++)
      if (one->members >> i & other->members >> j & 1 && one->entities[i].card == other->entities[j].card) return true;
  return false;
}

bool aq_order_in_line(const aq_scheduler *sched, const aq_tenant *tenant) {
  return tenant->state == AQ_SHUT && tenant->rank.claim && sched->now_ns >= tenant->shunned_until_ns;
}

const aq_tenant *aq_order_rival(const aq_scheduler *sched, const aq_tenant *holder) {
  const aq_tenant *first = NULL;
  for (const aq_tenant *other = sched->tenants; other; other = other->next)
    if (other != holder && aq_order_in_line(sched, other) && (!first || aq_order_before(&other->rank, &first->rank)) && meet(other, holder))
      first = other;
  return first;
}

uint64_t aq_order_rises_at(const aq_scheduler *sched, const aq_tenant *tenant) {
  if (!tenant->wants || tenant->rank.claim == AQ_OWN) return UINT64_MAX;
  double in = -aq_account_lag(sched, tenant);
  if (tenant->rank.claim == AQ_NOTHING) in = fmin(in, aq_account_lent_in(tenant));
  return in < INFINITY ? sched->now_ns + (uint64_t)fmax(in, 0) + 1 : UINT64_MAX;
}
