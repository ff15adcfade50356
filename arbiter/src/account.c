/* due += share * dt - busy. Debt has no floor, so the long-run share is exact whatever a piece of work takes; a claim is
 * bounded where it could hurt others: after idleness, and where more is due than there is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "account.h"

#include <math.h>

#define IDLE_NS (20 * AQ_MS)         /* without work for so long is idle */
#define IDLE_CREDIT_NS (100 * AQ_MS) /* of lag that an idle tenant keeps */
#define ROOM_NS (100 * AQ_MS)        /* of time that a bounded borrower may make up for */
#define LEVEL_NS (20 * AQ_MS)        /* all of a card's tenants lag by more: there is not enough of it */
#define LAG_MOST_NS (1000 * AQ_MS)   /* some lag by more: those of higher priority leave too little */

/* Among how many contexts the card's time goes: with a stray on it a holder has it only in turns. */
static double sharers(const aq_card *card) {
  return card->strays ? card->strays + (card->holders ? card->holders : 1) : 1;
}

static void charge(const aq_tenant *tenant, aq_seat *seat, double ns) {
  seat->used_ns += ns;
  seat->room_ns -= ns;
  if (tenant->kind == AQ_LENT && !tenant->stray) seat->lent_ns += ns;
  else seat->due_ns -= ns;
}

static bool has_work(const aq_seat *seat) { return seat->said.waiting || seat->said.in_flight; }

static bool is_held(const aq_tenant *tenant, const aq_seat *seat) {
  return tenant->state != AQ_SHUT && tenant->open >> (seat - tenant->seats) & 1;
}

static bool is_idle(const aq_tenant *tenant, const aq_seat *seat, uint64_t now) {
  return tenant->no_shows || (!has_work(seat) && now > seat->wanted_ns + IDLE_NS);
}

void aq_account_pass(const aq_tenant *tenant, aq_seat *seat, uint64_t now, double dt) {
  bool held = is_held(tenant, seat), stray = tenant->stray && seat->said.in_flight && seat->said.moving;
  seat->due_ns += seat->share * dt;
  seat->room_ns = fmin(seat->room_ns + seat->most * dt, seat->most * ROOM_NS);
  if (has_work(seat)) seat->guaranteed_ns += seat->share * dt;
  if (held) seat->held_ns += dt;
  if (is_idle(tenant, seat, now)) seat->due_ns = fmin(seat->due_ns, seat->share * IDLE_CREDIT_NS);
  if (tenant->trust != AQ_TRUSTED && held) charge(tenant, seat, dt / sharers(seat->card));
  else if (tenant->trust == AQ_TRUSTED && stray) {
    charge(tenant, seat, dt / sharers(seat->card));
    seat->overrun_ns += dt;
  }
}

void aq_account_use(aq_tenant *tenant, aq_seat *seat, double busy) {
  if (tenant->trust != AQ_TRUSTED) return;
  double ahead = fmin(busy, seat->overrun_ns);
  seat->overrun_ns -= ahead;
  double ns = (busy - ahead) / sharers(seat->card);
  charge(tenant, seat, ns);
  if (tenant->kind == AQ_LENT) tenant->lent_turn_ns += ns / seat->share;
}

void aq_account_waste(aq_seat *seat, double ns) {
  if (ns > 0) seat->due_ns -= ns;
}

/* What is in flight is not charged yet, but had. */
static double pending(const aq_tenant *tenant, const aq_seat *seat, uint64_t now) {
  if (!is_held(tenant, seat) || !seat->said.in_flight || tenant->kind != AQ_OWN || tenant->trust != AQ_TRUSTED) return 0;
  return (double)(now - seat->paid_ns) / sharers(seat->card);
}

double aq_account_lag(const aq_law *law, const aq_tenant *tenant) {
  double least = INFINITY;
  for (uint32_t i = 0; i < tenant->count; i++) {
    const aq_seat *seat = &tenant->seats[i];
    if (tenant->members >> i & 1) least = fmin(least, (seat->due_ns - pending(tenant, seat, law->now_ns)) / seat->share);
  }
  return least;
}

double aq_account_lent_in(const aq_tenant *tenant) {
  double longest = 0;
  if (tenant->trust != AQ_TRUSTED) return INFINITY;
  for (uint32_t i = 0; i < tenant->count; i++) {
    const aq_seat *seat = &tenant->seats[i];
    if (!(tenant->members >> i & 1)) continue;
    if (seat->most <= seat->share) return INFINITY;
    longest = fmax(longest, -seat->room_ns / seat->most);
  }
  return longest;
}

static bool sits_at(const aq_tenant *tenant, const aq_card *card) {
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->seats[i].card == card) return true;
  return false;
}

/* The least of others with work at a card; INFINITY: there are none. */
static double least_lag(const aq_law *law, const aq_tenant *but, const aq_card *card) {
  double least = INFINITY;
  for (const aq_tenant *other = law->tenants; other; other = other->next)
    if (other != but && other->wants && sits_at(other, card)) least = fmin(least, aq_account_lag(law, other));
  return least;
}

static double least_turn(const aq_law *law, const aq_tenant *but) {
  double least = INFINITY;
  for (const aq_tenant *other = law->tenants; other; other = other->next)
    if (other != but && other->wants) least = fmin(least, other->lent_turn_ns);
  return least;
}

/* Debt is kept: nobody gets rid of it by a rest. */
void aq_account_wake(const aq_law *law, aq_tenant *tenant) {
  double turn = least_turn(law, tenant);
  if (turn < INFINITY) tenant->lent_turn_ns = fmax(tenant->lent_turn_ns, turn);
  for (uint32_t i = 0; i < tenant->count; i++) {
    aq_seat *seat = &tenant->seats[i];
    double least = least_lag(law, tenant, seat->card);
    if (seat->due_ns >= 0 && least < INFINITY) seat->due_ns = fmax(seat->due_ns, seat->share * least);
  }
}

/* Takes `excess` from the lag of those that lag. */
static void shift(const aq_law *law, const aq_card *card, double excess) {
  for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next)
    for (uint32_t i = 0; i < tenant->count; i++) {
      aq_seat *seat = &tenant->seats[i];
      if (seat->card == card && seat->due_ns > 0) seat->due_ns = fmax(0, seat->due_ns - excess * seat->share);
    }
}

void aq_account_level(const aq_law *law, const aq_card *card) {
  double least = INFINITY, most = 0;
  for (const aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next)
    for (uint32_t i = 0; i < tenant->count; i++) {
      const aq_seat *seat = &tenant->seats[i];
      if (seat->card != card || !tenant->wants) continue;
      least = fmin(least, seat->due_ns / seat->share);
      most = fmax(most, seat->due_ns / seat->share);
    }
  double excess = fmax(most - fmax(LAG_MOST_NS, 4.0 * card->quantum_ns), least < INFINITY ? least - LEVEL_NS : 0);
  if (excess > 0) shift(law, card, excess);
}
