/* Events do not tell slices apart, so of contexts that take turns each says that it used the others' time as well. What is said beyond
 * the time that has passed is taken off again, of each by how much it said beyond its turns: an equal part of the time in which it
 * had work in flight. Work that fits into a slice says no more than it used, so nothing is taken off it; work that goes on over
 * many says more. What is in flight for so long that a lease would not be waited for is a stray, which pays for its turns as
 * they pass.
 * SPDX-License-Identifier: Apache-2.0 */
#include "overlap.h"

#include <math.h>

#include "account.h"
#include "seats.h"

#define DISCOUNT_MOST_NS (100.0 * AQ_MS)
#define REMEMBERED 512 /* times that some was taken off, by which it is known what they said, and had by turns */

/* Beside a stray time is charged by turns. */
void aq_overlap_use(aq_seat *seat, double busy) {
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

static void find_flight(const aq_law *law, aq_tenant *tenant, aq_seat *seat, void *of) {
  (void)law;
  aq_flights *flights = of;
  if (!is_flight(tenant, seat)) return;
  flights->count++;
  if (flight_since(seat) < flights->since) flights->since = flight_since(seat);
}

static void take_turn(const aq_law *law, aq_tenant *tenant, aq_seat *seat, void *ns) {
  (void)law;
  if (is_flight(tenant, seat)) seat->turns_ns += *(double *)ns;
}

/* What is in flight will be said to have used no more than the time since it was last said. */
void aq_overlap_pass(const aq_law *law, aq_card *card, uint64_t now, double dt) {
  aq_flights flights = {.since = now};
  aq_seats_at(law, card, find_flight, &flights);
  card->overlap_ns = fmax(card->overlap_ns - dt, -(double)(now - flights.since));
  double turn = card->strays ? 0 : dt / fmax(1, flights.count);
  aq_seats_at(law, card, take_turn, &turn);
}

static double excess(const aq_seat *seat) { return fmax(0, seat->told_ns - seat->turns_ns); }

typedef struct {
  double overlap, excess;
} aq_sums;

static void add_excess(const aq_law *law, aq_tenant *tenant, aq_seat *seat, void *of) {
  (void)law, (void)tenant;
  ((aq_sums *)of)->excess += excess(seat);
}

static void take_off(const aq_law *law, aq_tenant *tenant, aq_seat *seat, void *of) {
  (void)law, (void)tenant;
  const aq_sums *sums = of;
  seat->discount_ns = fmin(DISCOUNT_MOST_NS, seat->discount_ns + sums->overlap * excess(seat) / sums->excess);
  seat->told_ns -= seat->told_ns / REMEMBERED;
  seat->turns_ns -= seat->turns_ns / REMEMBERED;
}

void aq_overlap_share(const aq_law *law, aq_card *card) {
  aq_sums sums = {.overlap = card->overlap_ns};
  if (sums.overlap <= 0) return;
  card->overlap_ns = 0;
  aq_seats_at(law, card, add_excess, &sums);
  if (sums.excess > 0) aq_seats_at(law, card, take_off, &sums);
}

/* ---- what goes on for long ---- */

static bool is_long(const aq_law *law, const aq_tenant *tenant, const aq_seat *seat) {
  return is_flight(tenant, seat) && law->now_ns >= flight_since(seat) + law->rules.drain_ns;
}

/* Until now others were charged for its turns as well. */
void aq_overlap_look(const aq_law *law, aq_tenant *tenant, aq_seat *seat) {
  if (!is_long(law, tenant, seat)) return;
  aq_flights flights = {.since = law->now_ns};
  aq_seats_at(law, seat->card, find_flight, &flights);
  if (flights.count > 1) seat->card->overlap_ns += (double)(law->now_ns - flight_since(seat)) / flights.count;
  tenant->stray = true;
}
