/* A tenant's own time comes before time that is lent, then the higher priority, then who is furthest behind. So the card goes
 * first to those it is due to, and a high priority cannot have more of it than its share at the cost of others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rank.h"

#include <math.h>

#include "account.h"
#include "party.h"

/* A holder that is between two pieces of work has not lost interest. */
static bool wants(const aq_law *law, const aq_tenant *tenant, const aq_seat *seat) {
  bool stray = tenant->stray && tenant->state == AQ_SHUT; /* it has all the card that it can have */
  return seat->said.waiting || (seat->said.in_flight && !stray) || (tenant->state == AQ_LEASED && tenant->started && law->now_ns < seat->active_ns + law->rules.idle_ns);
}

static void look(const aq_law *law, aq_tenant *tenant) {
  aq_party_look(law, tenant);
  tenant->wants = false;
  for (uint32_t i = 0; i < tenant->count && !tenant->exempt; i++) {
    const aq_seat *seat = &tenant->seats[i];
    if (wants(law, tenant, seat)) tenant->wants = true;
  }
}

aq_rank aq_rank_of(const aq_law *law, const aq_tenant *tenant) {
  aq_rank rank = {.claim = AQ_NOTHING, .priority = tenant->priority};
  if (!tenant->wants) return rank;
  double lag = aq_account_lag(law, tenant);
  if (lag >= 0) rank.claim = AQ_OWN, rank.merit = aq_account_merit(law, tenant);
  else if (aq_account_lent_in(tenant) <= 0) rank.claim = AQ_LENT, rank.merit = -tenant->lent_turn_ns;
  return rank;
}

void aq_rank_all(aq_law *law) {
  for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next) look(law, tenant);
  for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next) tenant->rank = aq_rank_of(law, tenant);
}

bool aq_rank_before(const aq_rank *rank, const aq_rank *other) {
  if (rank->claim != other->claim) return rank->claim > other->claim;
  if (rank->priority != other->priority) return rank->priority > other->priority;
  return rank->merit > other->merit;
}

bool aq_rank_displaces(const aq_rank *rank, const aq_rank *holder) {
  return rank->claim > holder->claim || (rank->claim == holder->claim && rank->priority > holder->priority);
}

static bool meet(const aq_tenant *one, const aq_tenant *other) {
  for (uint32_t i = 0; i < one->count; i++)
    for (uint32_t j = 0; j < other->count; j++)
      if (one->members >> i & other->members >> j & 1 && one->seats[i].card == other->seats[j].card) return true;
  return false;
}

bool aq_rank_in_line(const aq_law *law, const aq_tenant *tenant) {
  return tenant->state == AQ_SHUT && tenant->rank.claim && law->now_ns >= tenant->shunned_until_ns;
}

const aq_tenant *aq_rank_rival(const aq_law *law, const aq_tenant *holder) {
  const aq_tenant *first = NULL;
  for (const aq_tenant *other = law->tenants; other; other = other->next)
    if (other != holder && aq_rank_in_line(law, other) && (!first || aq_rank_before(&other->rank, &first->rank)) && meet(other, holder))
      first = other;
  return first;
}

uint64_t aq_rank_rises_at(const aq_law *law, const aq_tenant *tenant) {
  if (!tenant->wants || tenant->rank.claim == AQ_OWN) return UINT64_MAX;
  double in = -aq_account_lag(law, tenant);
  if (tenant->rank.claim == AQ_NOTHING) in = fmin(in, aq_account_lent_in(tenant));
  return in < INFINITY ? law->now_ns + (uint64_t)fmax(in, 0) + 1 : UINT64_MAX;
}
