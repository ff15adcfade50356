/* An exempt tenant's work is on the card beside that of whoever has the lease, and contexts take turns in slices: it never waits for
 * a lease to end, as the ranks of a job on several nodes must not. It is kept out of a
 * card while it is ahead of what is due to it there and somebody with a claim wants the card.
 *
 * Events do not tell slices apart, so both say to have used the time that they had in turns. What is said beyond the time that has
 * passed is taken off again. Of the time in which both had work in flight each had half. Work that fits into a slice says no more
 * than it used, so nothing is taken off it; work that goes on over many says twice that.
 * SPDX-License-Identifier: Apache-2.0 */
#include "exempt.h"

#include <math.h>

#include "lease.h"

#define BEHIND_NS (2.0 * AQ_MS)   /* of lag with which it is let in again */
#define LAG_MOST_NS (150.0 * AQ_MS) /* of what it did not have in its slices it makes up for no more */
#define DISCOUNT_MOST_NS (100.0 * AQ_MS)
#define MEMORY 64 /* reports, by which it is known how long both had work in flight and what they said to have used */
#define LOOK_NS AQ_MS /* so exactly it is known when both have work in flight */
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

void aq_exempt_use(aq_seat *seat, double busy) {
  if (!seat->card->exempts) return;
  seat->card->overlap_ns += busy;
  seat->told_ns += fmin(busy, seat->card->both_ns - seat->both_seen_ns);
  seat->both_seen_ns = seat->card->both_ns;
}

typedef struct {
  bool any[2];    /* of those with leases and of those without: work in flight */
  uint64_t since; /* the first of it, as far as it was not said to have been used */
} aq_flights;

static void find_flight(aq_tenant *tenant, aq_seat *seat, void *of) {
  aq_flights *flights = of;
  uint64_t since = seat->paid_ns > seat->flies_ns ? seat->paid_ns : seat->flies_ns;
  if (!seat->said.in_flight) return;
  flights->any[tenant->exempt] = true;
  if (since < flights->since) flights->since = since;
}

/* What is in flight will be said to have used no more than the time since it was last said. */
void aq_exempt_pass(const aq_law *law, aq_card *card, uint64_t now, double dt) {
  aq_flights flights = {.since = now};
  visit(law, card, find_flight, &flights);
  card->overlap_ns = fmax(card->overlap_ns - dt, -(double)(now - flights.since));
  if (flights.any[false] && flights.any[true]) card->both_ns += dt, card->both_lately_ns += dt;
}

static void add_told(aq_tenant *tenant, aq_seat *seat, void *of) {
  double *told = of;
  told[tenant->exempt] += seat->told_ns;
}

typedef struct {
  double told[2], overlap[2]; /* of those with leases and of those without */
} aq_sides;

static void take_off(aq_tenant *tenant, aq_seat *seat, void *of) {
  const aq_sides *sides = of;
  seat->discount_ns = fmin(DISCOUNT_MOST_NS, seat->discount_ns + sides->overlap[tenant->exempt] * seat->told_ns / sides->told[tenant->exempt]);
  seat->told_ns -= seat->told_ns / MEMORY;
}

void aq_exempt_share(const aq_law *law, aq_card *card) {
  aq_sides sides = {0};
  double overlap = card->overlap_ns;
  if (overlap <= 0) return;
  card->overlap_ns = 0;
  visit(law, card, add_told, sides.told);
  if (sides.told[false] <= 0 || sides.told[true] <= 0) return;
  sides.overlap[true] = overlap * fmin(0.5, fmax(0, 1 - card->both_lately_ns / 2 / sides.told[true]));
  sides.overlap[false] = overlap - sides.overlap[true];
  card->both_lately_ns -= card->both_lately_ns / MEMORY;
  visit(law, card, take_off, &sides);
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
    seat->serial += let_in != seat->let_in;
    seat->let_in = let_in;
  }
  if (tenant->lease_end_ns < law->now_ns + TERM_NS / 2) tenant->lease_end_ns = law->now_ns + TERM_NS;
}

uint64_t aq_exempt_next(const aq_law *law, const aq_tenant *tenant) {
  uint64_t renew = tenant->lease_end_ns - TERM_NS / 2;
  for (uint32_t i = 0; i < tenant->count; i++)
    if (tenant->seats[i].said.waiting || tenant->seats[i].said.in_flight) return law->now_ns + LOOK_NS;
  return renew;
}
