/* An exempt tenant's work is on the card beside that of whoever has the lease, and contexts take turns in slices: it never waits for
 * a lease to end, as the ranks of a job on several nodes must not. It is kept out of a card while it is ahead of what is due to
 * it there and somebody with a claim wants the card.
 *
 * Events do not tell slices apart, so all say to have used the time that they had in turns. What is said beyond the time that has
 * passed is taken off again, of each by how much it said beyond its turns: an equal part of the time in which it had work in
 * flight. Work that fits into a slice says no more than it used, so nothing is taken off it; work that goes on over many says
 * more. What is in flight for so long that a lease would not be waited for is a stray, which pays for its turns as they pass.
 * SPDX-License-Identifier: Apache-2.0 */
#include "exempt.h"

#include <math.h>

#include "account.h"
#include "lease.h"

#define BEHIND_NS (2.0 * AQ_MS)   /* of lag with which it is let in again */
#define LAG_MOST_NS (150.0 * AQ_MS) /* of what it did not have in its slices it makes up for no more */
#define DISCOUNT_MOST_NS (100.0 * AQ_MS)
#define MEMORY 512 /* shares, by which it is known what they said to have used, and had by turns */
#define LOOK_NS AQ_MS /* so exactly it is known when both have work in flight */
#define SILENT_NS (2 * AQ_MS) /* work that begins so soon after other work does not ring */
#define TERM_NS (1000 * AQ_MS) /* a gate without a lease is open for so long, and renewed at half of it */

void aq_exempt_settle(const aq_law *law, aq_tenant *tenant) {
  bool exempt = tenant->wishes_exempt && tenant->trust == AQ_TRUSTED;
  if (exempt == tenant->exempt) return;
  tenant->exempt = exempt;
  tenant->window_ns = law->rules.window_ns;
  if (exempt) aq_lease_withdraw(tenant);
  else aq_lease_interrupt(law, tenant);
  for (uint32_t i = 0; i < tenant->count; i++) tenant->seats[i].let_in = false;
  tenant->serial++;
}

/* ---- time that several say to have used ---- */

typedef void (*aq_at_card)(aq_tenant *tenant, aq_seat *seat, void *of);

static void visit(const aq_law *law, const aq_card *card, aq_at_card seen, void *of) {
  for (aq_tenant *tenant = law->tenants; tenant; tenant = tenant->next)
    for (uint32_t i = 0; i < tenant->count; i++)
      if (tenant->seats[i].card == card) seen(tenant, &tenant->seats[i], of);
}

/* Beside a stray time is charged by turns. */
void aq_exempt_use(aq_seat *seat, double busy) {
  if (!seat->card->exempts || seat->card->strays) return;
  seat->card->overlap_ns += busy;
  seat->told_ns += busy;
}

static uint64_t flight_since(const aq_seat *seat) { return seat->paid_ns > seat->flies_ns ? seat->paid_ns : seat->flies_ns; }

static bool is_flight(const aq_tenant *tenant, const aq_seat *seat) {
  return seat->said.in_flight && seat->said.moving && !aq_account_strays(tenant, seat);
}

typedef struct {
  uint32_t count; /* of seats with work in flight */
  uint64_t since; /* the first of it, as far as it was not said to have been used */
} aq_flights;

static void find_flight(aq_tenant *tenant, aq_seat *seat, void *of) {
  aq_flights *flights = of;
  if (!is_flight(tenant, seat)) return;
  flights->count++;
  if (flight_since(seat) < flights->since) flights->since = flight_since(seat);
}

static void take_turn(aq_tenant *tenant, aq_seat *seat, void *ns) {
  if (is_flight(tenant, seat)) seat->turns_ns += *(double *)ns;
}

/* What is in flight will be said to have used no more than the time since it was last said. */
void aq_exempt_pass(const aq_law *law, aq_card *card, uint64_t now, double dt) {
  aq_flights flights = {.since = now};
  visit(law, card, find_flight, &flights);
  card->overlap_ns = fmax(card->overlap_ns - dt, -(double)(now - flights.since));
  double turn = card->strays ? 0 : dt / fmax(1, flights.count);
  visit(law, card, take_turn, &turn);
}

static double excess(const aq_seat *seat) { return fmax(0, seat->told_ns - seat->turns_ns); }

typedef struct {
  double overlap, excess;
} aq_sums;

static void add_excess(aq_tenant *tenant, aq_seat *seat, void *of) {
  (void)tenant;
  ((aq_sums *)of)->excess += excess(seat);
}

static void take_off(aq_tenant *tenant, aq_seat *seat, void *of) {
  (void)tenant;
  const aq_sums *sums = of;
  seat->discount_ns = fmin(DISCOUNT_MOST_NS, seat->discount_ns + sums->overlap * excess(seat) / sums->excess);
  seat->told_ns -= seat->told_ns / MEMORY;
  seat->turns_ns -= seat->turns_ns / MEMORY;
}

void aq_exempt_share(const aq_law *law, aq_card *card) {
  aq_sums sums = {.overlap = card->overlap_ns};
  if (sums.overlap <= 0) return;
  card->overlap_ns = 0;
  visit(law, card, add_excess, &sums);
  if (sums.excess > 0) visit(law, card, take_off, &sums);
}

/* ---- what goes on for long ---- */

/* Until now others were charged for its turns as well. */
static void stray(const aq_law *law, aq_tenant *tenant, aq_seat *seat) {
  aq_flights flights = {.since = law->now_ns};
  visit(law, seat->card, find_flight, &flights);
  if (flights.count > 1) seat->card->overlap_ns += (double)(law->now_ns - flight_since(seat)) / flights.count;
  tenant->stray = true;
}

static bool is_long(const aq_law *law, const aq_tenant *tenant, const aq_seat *seat) {
  return is_flight(tenant, seat) && law->now_ns >= flight_since(seat) + law->rules.drain_ns;
}

/* ---- when it is let in ---- */

static bool has_claim(const aq_seat *seat) {
  bool wanted = seat->card->claims || seat->card->owned;
  double least = seat->let_in ? 0 : BEHIND_NS;
  return seat->due_ns >= seat->share * least || (!wanted && seat->room_ns >= seat->most * least);
}

void aq_exempt_review(const aq_law *law, aq_tenant *tenant) {
  for (uint32_t i = 0; i < tenant->count; i++) {
    aq_seat *seat = &tenant->seats[i];
    seat->due_ns = fmin(seat->due_ns, seat->share * LAG_MOST_NS);
    bool let_in = has_claim(seat);
    if (is_long(law, tenant, seat)) stray(law, tenant, seat);
    seat->serial += let_in != seat->let_in;
    seat->let_in = let_in;
  }
  if (tenant->lease_end_ns < law->now_ns + TERM_NS / 2) tenant->lease_end_ns = law->now_ns + TERM_NS;
}

uint64_t aq_exempt_next(const aq_law *law, const aq_tenant *tenant) {
  uint64_t renew = tenant->lease_end_ns - TERM_NS / 2;
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->seats[i].said.waiting || law->now_ns < tenant->seats[i].active_ns + SILENT_NS) return law->now_ns + LOOK_NS;
  return renew;
}
