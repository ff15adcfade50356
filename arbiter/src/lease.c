/* A lease ends at its time if another tenant is to have the next one, and early if the holder has nothing to do, if another
 * has a better claim, or if the tenant begins to work on a card that was not leased with the others. Then the gate is closed,
 * and nobody else is let in before nothing is in flight: contexts that share a card in slices cannot be told apart by
 * events. That wait is bounded. What outlasts it is a stray: it runs beside the leases of others, to whom the card is then
 * no longer leased one at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#include <math.h>

#include "account.h"
#include "exempt.h"
#include "co_lease.h"
#include "order.h"

#define RENEW_NS UINT64_C(500000)      /* so long before a lease's end it is decided who has the next */
#define BLIND_DRAIN_NS (5 * AQ_MS)     /* who says nothing that is believed has drained by then */
#define FARTHEST_END_NS (120 * AQ_MS)  /* expected ends beyond are not waited for */
#define PARTNER_NS (2 * AQ_MS) /* after a lease; what should be over by then may wait for another card */
#define SUSPECT_NS (2 * AQ_MS)
#define SHUN_NS (5 * AQ_MS) /* after the first no-show; then twice as long each time */
#define SHUN_DOUBLES 6
#define LATE_MOST_NS (6 * AQ_MS)      /* more work in flight than usual, where threads are woken late, */
#define LATE_HALF_NS UINT64_C(200000) /* half of it where they are so late; */
#define LATE_LEASE 5                  /* and so many times as much longer is a lease */
#define LOOK_NS (5 * AQ_MS) /* at those who should have rung */

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* ---- what a tenant's cards say together ---- */

static bool is_open(const aq_tenant *tenant, uint32_t entity) { return tenant->open >> entity & 1; }

static bool any_in_flight(const aq_tenant *tenant) {
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->entities[i].said.in_flight) return true;
  return false;
}

/* What is in flight of a process that was stopped is not going on, as far as anybody can tell. */
static bool is_busy(const aq_tenant *tenant) {
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->entities[i].said.in_flight && (tenant->entities[i].said.moving || !tenant->stray)) return true;
  return false;
}

static bool any_waiting(const aq_tenant *tenant) {
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->entities[i].said.waiting) return true;
  return false;
}

static bool all_seen(const aq_tenant *tenant) {
  for (uint32_t i = 0; i < tenant->count; i++)
    if (!tenant->entities[i].seen) return false;
  return true;
}

static uint64_t last_end(const aq_tenant *tenant) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->entities[i].said.in_flight) end = later(end, tenant->entities[i].said.ends_ns);
  return end;
}

static uint64_t last_active(const aq_tenant *tenant) {
  uint64_t active = tenant->since_ns;
  for (uint32_t i = 0; i < tenant->count; i++) active = later(active, tenant->entities[i].active_ns);
  return active;
}

static uint64_t quantum(const aq_tenant *tenant) {
  uint64_t longest = 0;
  for (uint32_t i = 0; i < tenant->count; i++)
    if (is_open(tenant, i)) longest = later(longest, tenant->entities[i].card->quantum_ns);
  return longest;
}

/* ---- terms of a lease ---- */

/* What a holder's threads may miss while they wait for a CPU: a card that has nothing in flight then is idle. */
static uint64_t allowance(const aq_scheduler *sched) { return LATE_MOST_NS * sched->late_ns / (sched->late_ns + LATE_HALF_NS); }

static uint64_t length(const aq_scheduler *sched, const aq_tenant *tenant) {
  uint64_t asked = quantum(tenant), usual = tenant->kind == AQ_OWN ? sched->rules.lease_ns : sched->rules.lent_ns;
  return asked ? asked : usual + LATE_LEASE * allowance(sched);
}

static uint64_t window(const aq_scheduler *sched, const aq_tenant *tenant) {
  uint64_t least = sched->rules.alone_window_ns;
  for (uint32_t i = 0; i < tenant->count; i++) {
    const aq_card *card = tenant->entities[i].card;
    if (card->contended) least = sooner(least, sched->rules.window_ns + allowance(sched));
    if (card->highest > tenant->priority) least = sooner(least, sched->rules.priority_window_ns);
  }
  return least;
}

static void set_terms(const aq_scheduler *sched, aq_tenant *tenant, aq_claim kind) {
  tenant->kind = kind;
  tenant->lease_end_ns = sched->now_ns + length(sched, tenant);
  tenant->window_ns = window(sched, tenant);
}

void aq_lease_grant(aq_scheduler *sched, aq_tenant *tenant) {
  tenant->state = AQ_LEASED;
  tenant->since_ns = sched->now_ns;
  tenant->started = is_busy(tenant) || tenant->trust == AQ_BLIND;
  tenant->open = tenant->members;
  tenant->unhurried = false;
  tenant->partners = 0;
  tenant->serial++;
  for (uint32_t i = 0; i < tenant->count; i++) tenant->entities[i].paid_ns = tenant->entities[i].active_ns = sched->now_ns;
  for (uint32_t i = 0; i < tenant->count; i++) aq_account_fine(sched, tenant, &tenant->entities[i]);
  set_terms(sched, tenant, tenant->rank.claim);
}

/* Who waits though its gate is open may wait for another end of the lease: it must be told. */
static void renew(const aq_scheduler *sched, aq_tenant *tenant) {
  if (any_waiting(tenant) && !tenant->unhurried) tenant->serial++;
  set_terms(sched, tenant, tenant->rank.claim ? tenant->rank.claim : tenant->kind);
}

static void shut(aq_tenant *tenant, uint64_t now) {
  tenant->state = AQ_SHUT;
  tenant->leaving = 0;
  tenant->since_ns = now;
}

static void end(const aq_scheduler *sched, aq_tenant *tenant) {
  tenant->state = AQ_DRAINING;
  tenant->since_ns = sched->now_ns;
  tenant->serial++;
  for (uint32_t i = 0; i < tenant->count; i++)
    if (is_open(tenant, i)) tenant->entities[i].seen = false;
  if (tenant->stray) shut(tenant, sched->now_ns);
}

void aq_lease_withdraw(aq_tenant *tenant) {
  shut(tenant, tenant->since_ns);
  tenant->open = tenant->partners = 0;
}

void aq_lease_interrupt(const aq_scheduler *sched, aq_tenant *tenant) {
  tenant->open = (1u << tenant->count) - 1;
  end(sched, tenant);
}

/* ---- while it is leased ---- */

static uint64_t idle_limit(const aq_scheduler *sched, const aq_tenant *tenant) {
  if (!tenant->started) return sched->rules.start_ns;
  return later(sched->rules.idle_ns, sooner(quantum(tenant) / 20, 50 * AQ_MS));
}

static bool is_idle(const aq_scheduler *sched, const aq_tenant *tenant) {
  return tenant->trust != AQ_BLIND && !is_busy(tenant) && sched->now_ns >= last_active(tenant) + idle_limit(sched, tenant);
}

/* It had the lease and did not begin: it may be stopped. */
static void miss(const aq_scheduler *sched, aq_tenant *tenant) {
  uint32_t doubles = tenant->no_shows < SHUN_DOUBLES ? tenant->no_shows : SHUN_DOUBLES;
  tenant->no_shows++;
  tenant->shunned_until_ns = sched->now_ns + (SHUN_NS << doubles);
}

/* Who works in short bursts need not wait for a whole lease of somebody who is not as far behind. */
static bool is_overdue(const aq_scheduler *sched, const aq_tenant *tenant, const aq_tenant *rival) {
  bool may = rival->gave_up && rival->rank.claim == AQ_OWN && sched->now_ns >= tenant->since_ns + sched->rules.least_ns;
  return may && rival->rank.merit > aq_account_merit(sched, tenant) + (double)sched->rules.lease_ns;
}

static bool is_displaced(const aq_scheduler *sched, const aq_tenant *tenant, const aq_tenant *rival) {
  aq_order held = {.claim = tenant->kind, .priority = tenant->priority};
  if (quantum(tenant)) return rival->rank.claim == AQ_OWN && rival->priority > tenant->priority;
  return aq_order_displaces(&rival->rank, &held) || (rival->priority == tenant->priority && is_overdue(sched, tenant, rival));
}

/* It is a little ahead, and nobody would be let in if it paused for that: it pauses once for longer, later. */
static bool may_go_on(const aq_scheduler *sched, const aq_tenant *tenant) {
  return tenant->wants && tenant->kind == AQ_OWN && aq_account_lag(sched, tenant) >= -(double)sched->rules.lease_ns;
}

static void review_end(const aq_scheduler *sched, aq_tenant *tenant, const aq_tenant *rival) {
  bool claims = tenant->rank.claim || (!rival && may_go_on(sched, tenant));
  bool keeps = claims && (!rival || !aq_order_before(&rival->rank, &tenant->rank));
  bool may_return = aq_account_lag(sched, tenant) >= 0 || aq_account_lent_in(tenant) <= 0;
  bool rests = !tenant->wants && !rival && may_return; /* its gate may as well be open when it does */
  if (keeps) renew(sched, tenant);
  else if (!rests && sched->now_ns >= tenant->lease_end_ns) end(sched, tenant);
}

void aq_lease_review(aq_scheduler *sched, aq_tenant *tenant) {
  const aq_tenant *rival = aq_order_rival(sched, tenant);
  bool idle = is_idle(sched, tenant);
  tenant->unhurried = !rival && (aq_account_lent_in(tenant) <= 0 || may_go_on(sched, tenant));
  if (is_busy(tenant) || (!any_waiting(tenant) && !tenant->stray)) tenant->started = true, tenant->no_shows = 0;
  if (idle && !tenant->started) miss(sched, tenant);
  bool moves_on = aq_co_lease_breaks(sched, tenant);
  tenant->gave_up = idle || (moves_on && tenant->apart);
  if ((rival && (idle || is_displaced(sched, tenant, rival))) || (idle && !tenant->started) || moves_on)
    end(sched, tenant);
  else if (sched->now_ns + RENEW_NS >= tenant->lease_end_ns) review_end(sched, tenant, rival);
  if (tenant->state == AQ_LEASED) aq_co_lease_release(sched, tenant);
}

/* ---- while it drains ---- */

static uint64_t drained_by(const aq_scheduler *sched, const aq_tenant *tenant) {
  uint64_t expected = sooner(last_end(tenant), tenant->since_ns + FARTHEST_END_NS);
  return later(tenant->since_ns, expected) + sched->rules.drain_ns;
}

static uint32_t lonely(const aq_tenant *tenant) {
  uint32_t entities = 0;
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->members >> i & 1 && tenant->entities[i].said.waiting && !tenant->entities[i].said.in_flight) entities |= 1u << i;
  return entities;
}

/* A collective that had begun on one card when the gates closed ends only when it has begun on the others. The end of the
 * lease lies in the past, so each process submits one piece of work and no more. */
static void let_partners_in(const aq_scheduler *sched, aq_tenant *tenant) {
  bool stuck = any_in_flight(tenant) && sched->now_ns >= tenant->since_ns + PARTNER_NS && last_end(tenant) <= sched->now_ns;
  uint32_t wanted = stuck || (tenant->stray && any_in_flight(tenant)) ? lonely(tenant) : 0;
  if (tenant->partners && sched->now_ns < tenant->partners_ns + sched->rules.start_ns) wanted &= tenant->partners;
  if (wanted == tenant->partners) return;
  tenant->partners = wanted;
  tenant->partners_ns = sched->now_ns;
  tenant->serial++;
}

/* Nothing is known of what is in flight of entities that are not believed. */
static bool has_drained(const aq_scheduler *sched, const aq_tenant *tenant) {
  bool blind = tenant->trust == AQ_BLIND && sched->now_ns < tenant->since_ns + BLIND_DRAIN_NS;
  return !blind && all_seen(tenant) && !any_in_flight(tenant);
}

static void drain(const aq_scheduler *sched, aq_tenant *tenant) {
  bool drained = has_drained(sched, tenant);
  if (!drained && sched->now_ns < drained_by(sched, tenant)) return;
  tenant->stray = !drained;
  shut(tenant, sched->now_ns);
}

void aq_lease_drain(const aq_scheduler *sched, aq_tenant *tenant) {
  if (tenant->state == AQ_DRAINING) drain(sched, tenant);
  let_partners_in(sched, tenant);
}

/* ---- when to look again ---- */

/* A holder that always had work is looked at less often the longer it has had. */
static uint64_t next_idle_look(const aq_scheduler *sched, const aq_tenant *tenant) {
  uint64_t limit = idle_limit(sched, tenant);
  if (!is_busy(tenant)) return last_active(tenant) + limit;
  return later(last_end(tenant), sched->now_ns) + later(limit, (sched->now_ns - tenant->since_ns) / 2);
}

/* A rival that is ahead stays ahead: the next lease is its own, and there is nothing to decide before the end. */
static uint64_t next_while_leased(const aq_scheduler *sched, const aq_tenant *tenant) {
  const aq_tenant *rival = aq_order_rival(sched, tenant);
  bool rests = !tenant->wants && tenant->lease_end_ns <= sched->now_ns + RENEW_NS;
  bool decided = rival && aq_order_before(&rival->rank, &tenant->rank);
  uint64_t decide = tenant->lease_end_ns - RENEW_NS;
  uint64_t next = rests ? UINT64_MAX : decide > sched->now_ns && !decided ? decide : tenant->lease_end_ns;
  next = sooner(next, aq_co_lease_next(sched, tenant));
  if (tenant->trust == AQ_BLIND || (!rival && tenant->started)) return next;
  if (rival && rival->gave_up) next = sooner(next, later(tenant->since_ns + sched->rules.least_ns, sched->now_ns + LOOK_NS / 5));
  return sooner(next, next_idle_look(sched, tenant));
}

uint64_t aq_lease_next(const aq_scheduler *sched, const aq_tenant *tenant) {
  if (tenant->exempt) return aq_exempt_next(sched, tenant);
  if (tenant->state == AQ_LEASED) return next_while_leased(sched, tenant);
  if (tenant->state == AQ_DRAINING) return sooner(drained_by(sched, tenant), sched->now_ns + (lonely(tenant) ? PARTNER_NS : LOOK_NS));
  if (tenant->stray && lonely(tenant)) return sched->now_ns + LOOK_NS;
  uint64_t rises = aq_order_rises_at(sched, tenant);
  return tenant->wants && tenant->shunned_until_ns > sched->now_ns ? later(rises == UINT64_MAX ? 0 : rises, tenant->shunned_until_ns) : rises;
}

/* A holder of one card rings when it begins, and when it waits for its next lease, which somebody else comes before. */
bool aq_lease_is_expected(const aq_scheduler *sched, const aq_tenant *tenant) {
  return tenant->state == AQ_LEASED && tenant->count == 1 && !tenant->no_shows && aq_order_rival(sched, tenant);
}

bool aq_lease_is_suspect(const aq_scheduler *sched, const aq_tenant *tenant) {
  if (tenant->no_shows || tenant->stray) return true;
  if (tenant->exempt && any_in_flight(tenant)) return sched->now_ns > last_end(tenant) + SUSPECT_NS;
  return tenant->state == AQ_DRAINING && sched->now_ns > later(tenant->since_ns, last_end(tenant)) + SUSPECT_NS;
}
