/* A step: account for the time that has passed, see what has drained, review leases, grant new ones in the order of rank.
 * SPDX-License-Identifier: Apache-2.0 */
#include "scheduler.h"

#include <stdlib.h>

#include "account.h"
#include "exempt.h"
#include "lease.h"
#include "overlap.h"
#include "co_lease.h"
#include "order.h"

#define SOONEST_NS UINT64_C(20000) /* between two steps that nothing else asked for */
#define UNHURRIED_NS (100 * AQ_MS) /* a lease that nobody waits for keeps no work out */
#define WAKE_NS (20 * AQ_MS)       /* who had no work for so long is new to the others */

aq_rules aq_scheduler_rules(void) {
  return (aq_rules){
      .lease_ns = 10 * AQ_MS,
      .least_ns = 3 * AQ_MS,
      .lent_ns = 10 * AQ_MS,
      .idle_ns = 500000,
      .apart_ns = 3 * AQ_MS,
      .start_ns = 2 * AQ_MS,
      .drain_ns = 80 * AQ_MS,
      .window_ns = 2 * AQ_MS,
      .alone_window_ns = 8 * AQ_MS,
      .priority_window_ns = 1 * AQ_MS,
  };
}

/* ---- its life ---- */

aq_scheduler *aq_scheduler_new(const aq_rules *rules, uint64_t now) {
  aq_scheduler *sched = calloc(1, sizeof *sched);
  if (!sched) return NULL;
  sched->rules = *rules;
  sched->now_ns = now;
  return sched;
}

void aq_scheduler_free(aq_scheduler *sched) {
  while (sched->tenants) aq_scheduler_leave(sched, sched->tenants, 0, sched->tenants->count);
  free(sched);
}

/* ---- time ---- */

static void pass_time(aq_scheduler *sched, uint64_t now) {
  double dt = now > sched->now_ns ? (double)(now - sched->now_ns) : 0;
  for (aq_tenant *tenant = sched->tenants; tenant; tenant = tenant->next)
    for (uint32_t i = 0; i < tenant->count; i++) aq_account_pass(tenant, &tenant->entities[i], now, dt);
  for (aq_card *card = sched->cards; card; card = card->next)
    if (card->exempts) aq_overlap_pass(sched, card, now, dt);
  if (dt > 0) sched->now_ns = now;
}

/* ---- what they say ---- */

static bool has_work(const aq_report *said) { return said->waiting || said->in_flight; }

/* At another entity, or with NULL at any. */
static bool any_in_flight(const aq_tenant *tenant, const aq_entity *but) {
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->entities[i].said.in_flight && &tenant->entities[i] != but) return true;
  return false;
}

void aq_scheduler_report(aq_scheduler *sched, aq_tenant *tenant, uint32_t index, const aq_report *report, uint64_t now) {
  aq_entity *entity = &tenant->entities[index];
  bool ended = !tenant->stray; /* at the report before, after which the last of its time may have been said */
  pass_time(sched, now);
  aq_report said = entity->trust == AQ_BLIND ? (aq_report){.waiting = 1} : *report;
  bool wakes = has_work(&said) && !has_work(&entity->said) && (!entity->wanted_ns || now > entity->wanted_ns + WAKE_NS);
  if (said.used_ns) aq_account_use(tenant, entity, (double)said.used_ns), entity->paid_ns = now;
  if (said.used_ns || (said.in_flight && (said.moving || !tenant->stray))) entity->active_ns = now;
  if (has_work(&said)) entity->wanted_ns = now;
  if (said.waiting && !entity->said.waiting) entity->waits_ns = now;
  if (said.in_flight && !entity->said.in_flight) entity->flies_ns = now;
  if (said.used_ns) aq_overlap_use(entity, (double)said.used_ns);
  entity->said = said;
  entity->seen = true;
  if (wakes) aq_account_wake(sched, tenant);
  if (ended) entity->overrun_ns = 0;
  bool told_all = said.used_ns && entity->overrun_ns <= 0; /* it was on the card all the time, and is over */
  if (!any_in_flight(tenant, told_all ? entity : NULL)) tenant->stray = false;
}

void aq_scheduler_rang(aq_tenant *tenant) {
  tenant->no_shows = 0;
  tenant->shunned_until_ns = 0;
}

/* ---- a step ---- */

static void count_entity(const aq_scheduler *sched, const aq_tenant *tenant, uint32_t index, uint32_t *busy) {
  const aq_entity *entity = &tenant->entities[index];
  aq_card *card = entity->card;
  bool held = tenant->state != AQ_SHUT && (tenant->open | tenant->leaving) >> index & 1;
  bool stray = aq_account_strays(tenant, entity);
  if (held && !stray) card->holders++;
  if ((held || tenant->exempt) && !stray) card->runners += entity->said.in_flight;
  if (held && tenant->kind == AQ_OWN) card->owned = true;
  if (tenant->members >> index & 1 && tenant->rank.claim == AQ_OWN && aq_order_in_line(sched, tenant)) card->claims++;
  if (stray && !entity->absent) card->strays++;
  if (tenant->exempt) card->exempts++;
  if (entity->wanted_ns && sched->now_ns < entity->wanted_ns + 100 * AQ_MS) (*busy)++;
  if (tenant->priority > card->highest) card->highest = tenant->priority;
}

static void count_cards(aq_scheduler *sched) {
  for (aq_card *card = sched->cards; card; card = card->next) {
    uint32_t busy = 0;
    card->holders = card->runners = card->strays = card->claims = card->highest = card->exempts = 0;
    card->reserved = card->owned = false;
    for (aq_tenant *tenant = sched->tenants; tenant; tenant = tenant->next)
      for (uint32_t i = 0; i < tenant->count; i++)
        if (tenant->entities[i].card == card) count_entity(sched, tenant, i, &busy);
    card->contended = busy > 1;
  }
}

/* Beside a stray a card is not anybody's alone, whatever is done. */
static bool is_free(const aq_tenant *tenant) {
  for (uint32_t i = 0; i < tenant->count; i++) {
    const aq_card *card = tenant->entities[i].card;
    bool shared = card->strays && tenant->rank.claim == AQ_OWN;
    if (tenant->members >> i & 1 && ((card->holders && !shared) || card->reserved)) return false;
  }
  return true;
}

static void occupy(aq_tenant *tenant, bool granted) {
  for (uint32_t i = 0; i < tenant->count; i++) {
    if (!(tenant->members >> i & 1)) continue;
    if (granted) tenant->entities[i].card->holders++;
    else tenant->entities[i].card->reserved = true;
  }
}

static aq_tenant *next_in_line(const aq_scheduler *sched) {
  aq_tenant *first = NULL;
  for (aq_tenant *tenant = sched->tenants; tenant; tenant = tenant->next)
    if (!tenant->considered && aq_order_in_line(sched, tenant) && (!first || aq_order_before(&tenant->rank, &first->rank))) first = tenant;
  return first;
}

/* In the order of rank. Who waits for one of its cards keeps the others free: no tenant overtakes it for ever. */
static void grant(aq_scheduler *sched) {
  for (aq_tenant *tenant = sched->tenants; tenant; tenant = tenant->next) tenant->considered = false;
  for (aq_tenant *tenant; (tenant = next_in_line(sched));) {
    bool granted = is_free(tenant);
    tenant->considered = true;
    occupy(tenant, granted);
    if (granted) aq_lease_grant(sched, tenant);
  }
}

static uint64_t next_step(const aq_scheduler *sched) {
  uint64_t next = UINT64_MAX;
  for (const aq_tenant *tenant = sched->tenants; tenant; tenant = tenant->next) {
    uint64_t own = aq_lease_next(sched, tenant);
    if (own < next) next = own;
  }
  return next > sched->now_ns + SOONEST_NS ? next : sched->now_ns + SOONEST_NS;
}

void aq_scheduler_late(aq_scheduler *sched, uint64_t late_ns) { sched->late_ns = late_ns; }

uint64_t aq_scheduler_step(aq_scheduler *sched, uint64_t now) {
  pass_time(sched, now);
  for (aq_tenant *tenant = sched->tenants; tenant; tenant = tenant->next) {
    aq_exempt_settle(sched, tenant);
    if (tenant->exempt) continue;
    if (tenant->state != AQ_LEASED) aq_lease_drain(sched, tenant);
    else aq_co_lease_settle(tenant);
  }
  aq_order_all(sched);
  for (aq_tenant *tenant = sched->tenants; tenant; tenant = tenant->next)
    if (tenant->state == AQ_LEASED) aq_lease_review(sched, tenant);
  count_cards(sched);
  grant(sched);
  count_cards(sched);
  for (aq_card *card = sched->cards; card; card = card->next)
    if (card->exempts) aq_overlap_share(sched, card);
  for (aq_tenant *tenant = sched->tenants; tenant; tenant = tenant->next)
    if (tenant->exempt) aq_exempt_review(sched, tenant);
  for (const aq_card *card = sched->cards; card; card = card->next) aq_account_level(sched, card);
  return next_step(sched);
}

void aq_scheduler_interrupt(aq_scheduler *sched, uint64_t now) {
  for (aq_tenant *tenant = sched->tenants; tenant; tenant = tenant->next) aq_lease_withdraw(tenant);
  pass_time(sched, now);
  for (aq_tenant *tenant = sched->tenants; tenant; tenant = tenant->next) {
    if (tenant->exempt) tenant->serial++;
    else aq_lease_interrupt(sched, tenant);
  }
}

/* ---- what comes of it ---- */

aq_lease aq_scheduler_lease(const aq_tenant *tenant, uint32_t entity) {
  return (aq_lease){
      .open = tenant->exempt ? tenant->entities[entity].let_in : (tenant->state == AQ_LEASED ? tenant->open : tenant->partners) >> entity & 1,
      .serial = tenant->serial + tenant->entities[entity].serial,
      .end_ns = tenant->lease_end_ns + (tenant->unhurried ? UNHURRIED_NS : 0),
      .window_ns = tenant->window_ns,
  };
}

aq_account aq_scheduler_account(const aq_tenant *tenant, uint32_t index) {
  const aq_entity *entity = &tenant->entities[index];
  return (aq_account){
      .guaranteed_ns = (uint64_t)entity->guaranteed_ns,
      .used_ns = (uint64_t)entity->used_ns,
      .lent_ns = (uint64_t)entity->lent_ns,
      .held_ns = (uint64_t)entity->held_ns,
      .waiting = entity->said.waiting,
  };
}

int aq_scheduler_holds(const aq_tenant *tenant) { return tenant->state != AQ_SHUT || tenant->exempt; }

int aq_scheduler_expects(const aq_scheduler *sched, const aq_tenant *tenant) { return aq_lease_is_expected(sched, tenant); }

int aq_scheduler_suspect(const aq_scheduler *sched, const aq_tenant *tenant) { return aq_lease_is_suspect(sched, tenant); }
