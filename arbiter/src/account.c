/* due += share * dt - busy. Debt has no floor, so the long-run share is exact whatever a piece of work takes; a claim is
 * bounded where it could hurt others: after idleness, and where more is due than there is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "account.h"

#include <math.h>

#include "entities.h"

#define IDLE_NS (20 * AQ_MS)         /* without work for so long is idle */
#define IDLE_CREDIT_NS (100 * AQ_MS) /* of lag that an idle tenant keeps */
#define FINE_MOST_NS (150 * AQ_MS)   /* of lag that is given back */
#define GAPS 16                      /* for one part in so many of what it uses a holder may leave the card idle */
#define GAPS_SAVED_NS 5e6            /* what is used is reported late, and by the piece */
#define ROOM_NS (100 * AQ_MS)        /* of time that a bounded borrower may make up for */
#define LEVEL_NS (150 * AQ_MS)       /* all of a card's tenants lag by more: there is not enough of it */
#define LAG_MOST_NS (1000 * AQ_MS)   /* some lag by more: those of higher priority leave too little */

/* Among how many contexts the card's time goes: with a stray on it a holder has it only in turns. */
static double sharers(const aq_card *card) { return card->strays ? card->strays + card->runners : 1; }

/* What an exempt tenant has beyond its share is lent, where nobody else has or wants the card by right. */
static bool is_lent(const aq_tenant *tenant, const aq_entity *entity) {
  if (tenant->exempt) return entity->due_ns < 0 && entity->most > entity->share && !entity->card->claims && !entity->card->owned;
  return tenant->kind == AQ_LENT && !tenant->stray;
}

static void charge(const aq_tenant *tenant, aq_entity *entity, double ns) {
  entity->used_ns += ns;
  entity->room_ns -= ns;
  if (is_lent(tenant, entity)) entity->lent_ns += ns;
  else entity->due_ns -= ns, entity->contested_ns = fmax(-GAPS_SAVED_NS, entity->contested_ns - ns - ns / GAPS);
}

static bool has_work(const aq_entity *entity) { return entity->said.waiting || entity->said.in_flight; }

static bool is_held(const aq_tenant *tenant, const aq_entity *entity) {
  return tenant->state != AQ_SHUT && tenant->open >> (entity - tenant->entities) & 1;
}

static bool waits(const aq_tenant *tenant) {
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->entities[i].said.waiting) return true;
  return false;
}

static bool is_idle(const aq_tenant *tenant, const aq_entity *entity, uint64_t now) {
  return tenant->no_shows || (!has_work(entity) && now > entity->wanted_ns + IDLE_NS);
}

static void give_back(aq_entity *entity, double dt) {
  double ns = fmin(entity->fined_ns, dt);
  entity->fined_ns -= ns;
  entity->due_ns += ns;
}

bool aq_account_strays(const aq_tenant *tenant, const aq_entity *entity) {
  return tenant->stray && entity->trust == AQ_TRUSTED && entity->said.in_flight && entity->said.moving;
}

void aq_account_pass(const aq_tenant *tenant, aq_entity *entity, uint64_t now, double dt) {
  bool held = is_held(tenant, entity);
  entity->due_ns += entity->share * dt;
  entity->room_ns = fmin(entity->room_ns + entity->most * dt, entity->most * ROOM_NS);
  if (has_work(entity)) entity->guaranteed_ns += entity->share * dt;
  if (held) entity->held_ns += dt;
  if (held && tenant->kind == AQ_OWN && entity->card->claims) entity->contested_ns += dt / sharers(entity->card);
  if (!entity->card->claims && !entity->card->owned) give_back(entity, dt);
  if (waits(tenant) && entity->wanted_ns) entity->wanted_ns += (uint64_t)dt; /* it does not rest on its other cards meanwhile */
  if (is_idle(tenant, entity, now)) entity->due_ns = fmin(entity->due_ns, entity->wanted_ns ? entity->share * IDLE_CREDIT_NS : 0);
  if (entity->trust != AQ_TRUSTED && held) charge(tenant, entity, dt / sharers(entity->card));
  else if (aq_account_strays(tenant, entity)) {
    if (!entity->absent) charge(tenant, entity, dt / sharers(entity->card));
    entity->overrun_ns += dt;
  }
}

void aq_account_use(aq_tenant *tenant, aq_entity *entity, double busy) {
  if (entity->trust != AQ_TRUSTED) return;
  double ahead = fmin(busy, entity->overrun_ns);
  entity->overrun_ns -= ahead;
  double own = (busy - ahead) / sharers(entity->card), discount = fmin(entity->discount_ns, own), ns = own - discount;
  entity->discount_ns -= discount;
  charge(tenant, entity, ns);
  if (tenant->kind == AQ_LENT) tenant->lent_turn_ns += ns / entity->share;
}

/* What is in flight is not charged yet, but had. */
static double pending(const aq_tenant *tenant, const aq_entity *entity, uint64_t now) {
  if (!is_held(tenant, entity) || !entity->said.in_flight || tenant->kind != AQ_OWN || entity->trust != AQ_TRUSTED) return 0;
  return (double)(now - entity->paid_ns) / sharers(entity->card);
}

/* What it held in vain, as far as is known. */
static double gaps(const aq_scheduler *sched, const aq_tenant *tenant, const aq_entity *entity) {
  double had = pending(tenant, entity, sched->now_ns);
  return fmax(0, entity->contested_ns - had - had / GAPS);
}

void aq_account_fine(const aq_scheduler *sched, const aq_tenant *tenant, aq_entity *entity) {
  double ns = gaps(sched, tenant, entity);
  entity->contested_ns = 0;
  entity->fined_ns = fmin(entity->fined_ns + ns, entity->share * FINE_MOST_NS);
  entity->due_ns -= ns;
}

static double lag_at(const aq_scheduler *sched, const aq_tenant *tenant, const aq_entity *entity) {
  return (entity->due_ns - pending(tenant, entity, sched->now_ns)) / entity->share;
}

static double merit_at(const aq_scheduler *sched, const aq_tenant *tenant, const aq_entity *entity) {
  return lag_at(sched, tenant, entity) - gaps(sched, tenant, entity) / entity->share;
}

double aq_account_lag(const aq_scheduler *sched, const aq_tenant *tenant) {
  double least = INFINITY;
  for (uint32_t i = 0; i < tenant->count; i++) {
    const aq_entity *entity = &tenant->entities[i];
    if (tenant->members >> i & 1) least = fmin(least, lag_at(sched, tenant, entity) + entity->fined_ns / entity->share);
  }
  return least;
}

double aq_account_merit(const aq_scheduler *sched, const aq_tenant *tenant) {
  double least = INFINITY;
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->members >> i & 1) least = fmin(least, merit_at(sched, tenant, &tenant->entities[i]));
  return least;
}

double aq_account_lent_in(const aq_tenant *tenant) {
  double longest = 0;
  if (tenant->trust != AQ_TRUSTED) return INFINITY;
  for (uint32_t i = 0; i < tenant->count; i++) {
    const aq_entity *entity = &tenant->entities[i];
    if (!(tenant->members >> i & 1)) continue;
    if (entity->most <= entity->share) return INFINITY;
    longest = fmax(longest, -entity->room_ns / entity->most);
  }
  return longest;
}

static double least_turn(const aq_scheduler *sched, const aq_tenant *but) {
  double least = INFINITY;
  for (const aq_tenant *other = sched->tenants; other; other = other->next)
    if (other != but && other->wants) least = fmin(least, other->lent_turn_ns);
  return least;
}

void aq_account_wake(const aq_scheduler *sched, aq_tenant *tenant) {
  double turn = least_turn(sched, tenant);
  if (turn < INFINITY) tenant->lent_turn_ns = fmax(tenant->lent_turn_ns, turn);
}

/* ---- where more is due than there is ---- */

typedef struct {
  double least, most;
} aq_lags;

static void gather(const aq_scheduler *sched, aq_tenant *tenant, aq_entity *entity, void *of) {
  aq_lags *lags = of;
  if (!tenant->wants) return;
  double lag = lag_at(sched, tenant, entity);
  lags->least = fmin(lags->least, lag);
  lags->most = fmax(lags->most, lag);
}

static void shift(const aq_scheduler *sched, aq_tenant *tenant, aq_entity *entity, void *excess) {
  (void)sched;
  if (tenant->wants && entity->due_ns > 0) entity->due_ns = fmax(0, entity->due_ns - *(double *)excess * entity->share);
}

void aq_account_level(aq_scheduler *sched, const aq_card *card) {
  aq_lags lags = {.least = INFINITY};
  aq_entities_at(sched, card, gather, &lags);
  double short_by = lags.least < INFINITY ? lags.least - LEVEL_NS : 0;
  double excess = fmax(short_by, lags.most - fmax(LAG_MOST_NS, 4.0 * card->quantum_ns));
  if (excess > 0) aq_entities_at(sched, card, shift, &excess);
}
