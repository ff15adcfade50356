/* A step: account for the time that has passed, see what has drained, review leases, grant new ones in the order of rank.
 * SPDX-License-Identifier: Apache-2.0 */
#include "law.h"

#include <stdlib.h>

#include "account.h"
#include "exempt.h"
#include "lease.h"
#include "overlap.h"
#include "party.h"
#include "rank.h"

#define SOONEST_NS UINT64_C(20000) /* between two steps that nothing else asked for */
#define UNHURRIED_NS (100 * AQ_MS) /* a lease that nobody waits for keeps no work out */
#define WAKE_NS (20 * AQ_MS)       /* who had no work for so long is new to the others */

aq_rules aq_law_rules(void) {
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

aq_law *aq_law_new(const aq_rules *rules, uint64_t now) {
  aq_law *law = calloc(1, sizeof *law);
  if (!law) return NULL;
  law->rules = *rules;
  law->now_ns = now;
  return law;
}

void aq_law_free(aq_law *law) {
  while (law->tenants) aq_law_leave(law, law->tenants, 0, law->tenants->count);
  free(law);
}

/* ---- time ---- */

static void pass_time(aq_law *law, uint64_t now) {
  double dt = now > law->now_ns ? (double)(now - law->now_ns) : 0;
  for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next)
    for (uint32_t i = 0; i < tenant->count; i++) aq_account_pass(tenant, &tenant->seats[i], now, dt);
  for (aq_card *card = law->cards; card; card = card->next)
    if (card->exempts) aq_overlap_pass(law, card, now, dt);
  if (dt > 0) law->now_ns = now;
}

/* ---- what they say ---- */

static bool has_work(const aq_report *said) { return said->waiting || said->in_flight; }

/* At another seat, or with NULL at any. */
static bool any_in_flight(const aq_tenant *tenant, const aq_seat *but) {
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->seats[i].said.in_flight && &tenant->seats[i] != but) return true;
  return false;
}

void aq_law_report(aq_law *law, aq_tenant *tenant, uint32_t index, const aq_report *report, uint64_t now) {
  aq_seat *seat = &tenant->seats[index];
  bool ended = !tenant->stray; /* at the report before, after which the last of its time may have been said */
  pass_time(law, now);
  aq_report said = seat->trust == AQ_BLIND ? (aq_report){.waiting = 1} : *report;
  bool wakes = has_work(&said) && !has_work(&seat->said) && (!seat->wanted_ns || now > seat->wanted_ns + WAKE_NS);
  if (said.used_ns) aq_account_use(tenant, seat, (double)said.used_ns), seat->paid_ns = now;
  if (said.used_ns || (said.in_flight && (said.moving || !tenant->stray))) seat->active_ns = now;
  if (has_work(&said)) seat->wanted_ns = now;
  if (said.waiting && !seat->said.waiting) seat->waits_ns = now;
  if (said.in_flight && !seat->said.in_flight) seat->flies_ns = now;
  if (said.used_ns) aq_overlap_use(seat, (double)said.used_ns);
  seat->said = said;
  seat->seen = true;
  if (wakes) aq_account_wake(law, tenant);
  if (ended) seat->overrun_ns = 0;
  bool told_all = said.used_ns && seat->overrun_ns <= 0; /* it was on the card all the time, and is over */
  if (!any_in_flight(tenant, told_all ? seat : NULL)) tenant->stray = false;
}

void aq_law_rang(aq_tenant *tenant) {
  tenant->no_shows = 0;
  tenant->shunned_until_ns = 0;
}

/* ---- a step ---- */

static void count_seat(const aq_law *law, const aq_tenant *tenant, uint32_t index, uint32_t *busy) {
  const aq_seat *seat = &tenant->seats[index];
  aq_card *card = seat->card;
  bool held = tenant->state != AQ_SHUT && (tenant->open | tenant->leaving) >> index & 1;
  bool stray = aq_account_strays(tenant, seat);
  if (held && !stray) card->holders++;
  if ((held || tenant->exempt) && !stray) card->runners += seat->said.in_flight;
  if (held && tenant->kind == AQ_OWN) card->owned = true;
  if (tenant->members >> index & 1 && tenant->rank.claim == AQ_OWN && aq_rank_in_line(law, tenant)) card->claims++;
  if (stray && !seat->absent) card->strays++;
  if (tenant->exempt) card->exempts++;
  if (seat->wanted_ns && law->now_ns < seat->wanted_ns + 100 * AQ_MS) (*busy)++;
  if (tenant->priority > card->highest) card->highest = tenant->priority;
}

static void count_cards(aq_law *law) {
  for (aq_card *card = law->cards; card; card = card->next) {
    uint32_t busy = 0;
    card->holders = card->runners = card->strays = card->claims = card->highest = card->exempts = 0;
    card->reserved = card->owned = false;
    for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next)
      for (uint32_t i = 0; i < tenant->count; i++)
        if (tenant->seats[i].card == card) count_seat(law, tenant, i, &busy);
    card->contended = busy > 1;
  }
}

/* Beside a stray a card is not anybody's alone, whatever is done. */
static bool is_free(const aq_tenant *tenant) {
  for (uint32_t i = 0; i < tenant->count; i++) {
    const aq_card *card = tenant->seats[i].card;
    bool shared = card->strays && tenant->rank.claim == AQ_OWN;
    if (tenant->members >> i & 1 && ((card->holders && !shared) || card->reserved)) return false;
  }
  return true;
}

static void occupy(aq_tenant *tenant, bool granted) {
  for (uint32_t i = 0; i < tenant->count; i++) {
    if (!(tenant->members >> i & 1)) continue;
    if (granted) tenant->seats[i].card->holders++;
    else tenant->seats[i].card->reserved = true;
  }
}

static aq_tenant *next_in_line(const aq_law *law) {
  aq_tenant *first = NULL;
  for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next)
    if (!tenant->considered && aq_rank_in_line(law, tenant) && (!first || aq_rank_before(&tenant->rank, &first->rank))) first = tenant;
  return first;
}

/* In the order of rank. Who waits for one of its cards keeps the others free: no tenant overtakes it for ever. */
static void grant(aq_law *law) {
  for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next) tenant->considered = false;
  for (aq_tenant *tenant; (tenant = next_in_line(law));) {
    bool granted = is_free(tenant);
    tenant->considered = true;
    occupy(tenant, granted);
    if (granted) aq_lease_grant(law, tenant);
  }
}

static uint64_t next_step(const aq_law *law) {
  uint64_t next = UINT64_MAX;
  for (const aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next) {
    uint64_t own = aq_lease_next(law, tenant);
    if (own < next) next = own;
  }
  return next > law->now_ns + SOONEST_NS ? next : law->now_ns + SOONEST_NS;
}

void aq_law_late(aq_law *law, uint64_t late_ns) { law->late_ns = late_ns; }

uint64_t aq_law_step(aq_law *law, uint64_t now) {
  pass_time(law, now);
  for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next) {
    aq_exempt_settle(law, tenant);
    if (tenant->exempt) continue;
    if (tenant->state != AQ_LEASED) aq_lease_drain(law, tenant);
    else aq_party_settle(tenant);
  }
  aq_rank_all(law);
  for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next)
    if (tenant->state == AQ_LEASED) aq_lease_review(law, tenant);
  count_cards(law);
  grant(law);
  count_cards(law);
  for (aq_card *card = law->cards; card; card = card->next)
    if (card->exempts) aq_overlap_share(law, card);
  for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next)
    if (tenant->exempt) aq_exempt_review(law, tenant);
  for (const aq_card *card = law->cards; card; card = card->next) aq_account_level(law, card);
  return next_step(law);
}

void aq_law_interrupt(aq_law *law, uint64_t now) {
  for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next) aq_lease_withdraw(tenant);
  pass_time(law, now);
  for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next) {
    if (tenant->exempt) tenant->serial++;
    else aq_lease_interrupt(law, tenant);
  }
}

/* ---- what comes of it ---- */

aq_lease aq_law_lease(const aq_tenant *tenant, uint32_t seat) {
  return (aq_lease){
      .open = tenant->exempt ? tenant->seats[seat].let_in : (tenant->state == AQ_LEASED ? tenant->open : tenant->partners) >> seat & 1,
      .serial = tenant->serial + tenant->seats[seat].serial,
      .end_ns = tenant->lease_end_ns + (tenant->unhurried ? UNHURRIED_NS : 0),
      .window_ns = tenant->window_ns,
  };
}

aq_account aq_law_account(const aq_tenant *tenant, uint32_t index) {
  const aq_seat *seat = &tenant->seats[index];
  return (aq_account){
      .guaranteed_ns = (uint64_t)seat->guaranteed_ns,
      .used_ns = (uint64_t)seat->used_ns,
      .lent_ns = (uint64_t)seat->lent_ns,
      .held_ns = (uint64_t)seat->held_ns,
      .waiting = seat->said.waiting,
  };
}

int aq_law_holds(const aq_tenant *tenant) { return tenant->state != AQ_SHUT || tenant->exempt; }

int aq_law_expects(const aq_law *law, const aq_tenant *tenant) { return aq_lease_is_expected(law, tenant); }

int aq_law_suspect(const aq_law *law, const aq_tenant *tenant) { return aq_lease_is_suspect(law, tenant); }
