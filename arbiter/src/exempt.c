/* An exempt tenant's work is on the card beside that of whoever has the lease, and contexts take turns in slices: it never waits for
 * a lease to end, as the ranks of a job on several nodes must not. It is kept out of a card while it is ahead of what is due to
 * it there and somebody with a claim wants the card.
 * SPDX-License-Identifier: Apache-2.0 */
#include "exempt.h"

#include <math.h>

#include "lease.h"
#include "overlap.h"

#define BEHIND_NS (2.0 * AQ_MS)   /* of lag with which it is let in again */
#define LAG_MOST_NS (150.0 * AQ_MS) /* of what it did not have in its slices it makes up for no more */
#define LOOK_NS AQ_MS /* so exactly it is known when both have work in flight */
#define SILENT_NS (2 * AQ_MS) /* work that begins so soon after other work does not ring */
#define TERM_NS (1000 * AQ_MS) /* a gate without a lease is open for so long, and renewed at half of it */

void aq_scheduler_exempt(aq_tenant *tenant, int exempt) { tenant->wishes_exempt = exempt; }

void aq_exempt_settle(const aq_scheduler *sched, aq_tenant *tenant) {
  bool exempt = tenant->wishes_exempt && tenant->trust == AQ_TRUSTED;
  if (exempt == tenant->exempt) return;
  tenant->exempt = exempt;
  tenant->window_ns = sched->rules.window_ns;
  if (exempt) aq_lease_withdraw(tenant);
  else aq_lease_interrupt(sched, tenant);
  for (uint32_t i = 0; i < tenant->count; i++) tenant->entities[i].let_in = false;
  tenant->serial++;
}

static bool has_claim(const aq_entity *entity) {
  bool wanted = entity->card->claims || entity->card->owned;
  double least = entity->let_in ? 0 : BEHIND_NS;
  return entity->due_ns >= entity->share * least || (!wanted && entity->room_ns >= entity->most * least);
}

void aq_exempt_review(const aq_scheduler *sched, aq_tenant *tenant) {
  for (uint32_t i = 0; i < tenant->count; i++) {
    aq_entity *entity = &tenant->entities[i];
    entity->due_ns = fmin(entity->due_ns, entity->share * LAG_MOST_NS);
    bool let_in = has_claim(entity);
    aq_overlap_look(sched, tenant, entity);
    entity->serial += let_in != entity->let_in;
    entity->let_in = let_in;
  }
  if (tenant->lease_end_ns < sched->now_ns + TERM_NS / 2) tenant->lease_end_ns = sched->now_ns + TERM_NS;
}

uint64_t aq_exempt_next(const aq_scheduler *sched, const aq_tenant *tenant) {
  uint64_t renew = tenant->lease_end_ns - TERM_NS / 2;
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->entities[i].said.waiting || sched->now_ns < tenant->entities[i].active_ns + SILENT_NS) return sched->now_ns + LOOK_NS;
  return renew;
}
