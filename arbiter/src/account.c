/* due += share * dt - busy. Debt has no floor, so the long-run share is exact whatever a piece of work takes; a claim is
 * bounded where it could hurt others: after idleness, and where more is due than there is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "account.h"

#include <math.h>

#include "seats.h"

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
static bool is_lent(const aq_tenant *tenant, const aq_seat *seat) {
  if (tenant->exempt) return seat->due_ns < 0 && seat->most > seat->share && !seat->card->claims && !seat->card->owned;
  return tenant->kind == AQ_LENT && !tenant->stray;
}

static void charge(const aq_tenant *tenant, aq_seat *seat, double ns) {
  seat->used_ns += ns;
  seat->room_ns -= ns;
  if (is_lent(tenant, seat)) seat->lent_ns += ns;
  else seat->due_ns -= ns, seat->contested_ns = fmax(-GAPS_SAVED_NS, seat->contested_ns - ns - ns / GAPS);
}

static bool has_work(const aq_seat *seat) { return seat->said.waiting || seat->said.in_flight; }

static bool is_held(const aq_tenant *tenant, const aq_seat *seat) {
  return tenant->state != AQ_SHUT && tenant->open >> (seat - tenant->seats) & 1;
}

static bool waits(const aq_tenant *tenant) {
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->seats[i].said.waiting) return true;
  return false;
}

static bool is_idle(const aq_tenant *tenant, const aq_seat *seat, uint64_t now) {
  return tenant->no_shows || (!has_work(seat) && now > seat->wanted_ns + IDLE_NS);
}

static void give_back(aq_seat *seat, double dt) {
  double ns = fmin(seat->fined_ns, dt);
  seat->fined_ns -= ns;
  seat->due_ns += ns;
}

bool aq_account_strays(const aq_tenant *tenant, const aq_seat *seat) {
  return tenant->stray && seat->trust == AQ_TRUSTED && seat->said.in_flight && seat->said.moving;
}

void aq_account_pass(const aq_tenant *tenant, aq_seat *seat, uint64_t now, double dt) {
  bool held = is_held(tenant, seat);
  seat->due_ns += seat->share * dt;
  seat->room_ns = fmin(seat->room_ns + seat->most * dt, seat->most * ROOM_NS);
  if (has_work(seat)) seat->guaranteed_ns += seat->share * dt;
  if (held) seat->held_ns += dt;
  if (held && tenant->kind == AQ_OWN && seat->card->claims) seat->contested_ns += dt / sharers(seat->card);
  if (!seat->card->claims && !seat->card->owned) give_back(seat, dt);
  if (waits(tenant) && seat->wanted_ns) seat->wanted_ns += (uint64_t)dt; /* it does not rest on its other cards meanwhile */
  if (is_idle(tenant, seat, now)) seat->due_ns = fmin(seat->due_ns, seat->wanted_ns ? seat->share * IDLE_CREDIT_NS : 0);
  if (seat->trust != AQ_TRUSTED && held) charge(tenant, seat, dt / sharers(seat->card));
  else if (aq_account_strays(tenant, seat)) {
    if (!seat->absent) charge(tenant, seat, dt / sharers(seat->card));
    seat->overrun_ns += dt;
  }
}

void aq_account_use(aq_tenant *tenant, aq_seat *seat, double busy) {
  if (seat->trust != AQ_TRUSTED) return;
  double ahead = fmin(busy, seat->overrun_ns);
  seat->overrun_ns -= ahead;
  double own = (busy - ahead) / sharers(seat->card), discount = fmin(seat->discount_ns, own), ns = own - discount;
  seat->discount_ns -= discount;
  charge(tenant, seat, ns);
  if (tenant->kind == AQ_LENT) tenant->lent_turn_ns += ns / seat->share;
}

/* What is in flight is not charged yet, but had. */
static double pending(const aq_tenant *tenant, const aq_seat *seat, uint64_t now) {
  if (!is_held(tenant, seat) || !seat->said.in_flight || tenant->kind != AQ_OWN || seat->trust != AQ_TRUSTED) return 0;
  return (double)(now - seat->paid_ns) / sharers(seat->card);
}

/* What it held in vain, as far as is known. */
static double gaps(const aq_law *law, const aq_tenant *tenant, const aq_seat *seat) {
  double had = pending(tenant, seat, law->now_ns);
  return fmax(0, seat->contested_ns - had - had / GAPS);
}

void aq_account_fine(const aq_law *law, const aq_tenant *tenant, aq_seat *seat) {
  double ns = gaps(law, tenant, seat);
  seat->contested_ns = 0;
  seat->fined_ns = fmin(seat->fined_ns + ns, seat->share * FINE_MOST_NS);
  seat->due_ns -= ns;
}

static double lag_at(const aq_law *law, const aq_tenant *tenant, const aq_seat *seat) {
  return (seat->due_ns - pending(tenant, seat, law->now_ns)) / seat->share;
}

static double merit_at(const aq_law *law, const aq_tenant *tenant, const aq_seat *seat) {
  return lag_at(law, tenant, seat) - gaps(law, tenant, seat) / seat->share;
}

double aq_account_lag(const aq_law *law, const aq_tenant *tenant) {
  double least = INFINITY;
  for (uint32_t i = 0; i < tenant->count; i++) {
    const aq_seat *seat = &tenant->seats[i];
    if (tenant->members >> i & 1) least = fmin(least, lag_at(law, tenant, seat) + seat->fined_ns / seat->share);
  }
  return least;
}

double aq_account_merit(const aq_law *law, const aq_tenant *tenant) {
  double least = INFINITY;
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->members >> i & 1) least = fmin(least, merit_at(law, tenant, &tenant->seats[i]));
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

static double least_turn(const aq_law *law, const aq_tenant *but) {
  double least = INFINITY;
  for (const aq_tenant *other = law->tenants; other; other = other->next)
    if (other != but && other->wants) least = fmin(least, other->lent_turn_ns);
  return least;
}

void aq_account_wake(const aq_law *law, aq_tenant *tenant) {
  double turn = least_turn(law, tenant);
  if (turn < INFINITY) tenant->lent_turn_ns = fmax(tenant->lent_turn_ns, turn);
}

/* ---- where more is due than there is ---- */

typedef struct {
  double least, most;
} aq_lags;

static void gather(const aq_law *law, aq_tenant *tenant, aq_seat *seat, void *of) {
  aq_lags *lags = of;
  if (!tenant->wants) return;
  double lag = lag_at(law, tenant, seat);
  lags->least = fmin(lags->least, lag);
  lags->most = fmax(lags->most, lag);
}

static void shift(const aq_law *law, aq_tenant *tenant, aq_seat *seat, void *excess) {
  (void)law;
  if (tenant->wants && seat->due_ns > 0) seat->due_ns = fmax(0, seat->due_ns - *(double *)excess * seat->share);
}

void aq_account_level(aq_law *law, const aq_card *card) {
  aq_lags lags = {.least = INFINITY};
  aq_seats_at(law, card, gather, &lags);
  double short_by = lags.least < INFINITY ? lags.least - LEVEL_NS : 0;
  double excess = fmax(short_by, lags.most - fmax(LAG_MOST_NS, 4.0 * card->quantum_ns));
  if (excess > 0) aq_seats_at(law, card, shift, &excess);
}
