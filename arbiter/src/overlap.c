/* Events do not tell slices apart, so of contexts that take turns each says that it used the others' time as well. What is said beyond
 * the time that has passed is taken off again, of each by how much it said beyond its turns: an equal part of the time in which it
 * had work in flight. Work that fits into a slice says no more than it used, so nothing is taken off it; work that goes on over
 * many says more. What is in flight for so long that a lease would not be waited for is a stray, which pays for its turns as
 * they pass.
 * SPDX-License-Identifier: Apache-2.0 */
#include "overlap.h"

#include <math.h>

#include "account.h"
#include "entities.h"

#define DISCOUNT_MOST_NS (100.0 * AQ_MS)
#define REMEMBERED 512 /* times that some was taken off, by which it is known what they said, and had by turns */

/* Beside a stray time is charged by turns. */
void aq_overlap_use(aq_entity *entity, double busy) {
  if (!entity->card->exempts || entity->card->strays) return;
  entity->card->overlap_ns += busy;
  entity->told_ns += busy;
}

static uint64_t flight_since(const aq_entity *entity) { return entity->paid_ns > entity->flies_ns ? entity->paid_ns : entity->flies_ns; }

static bool is_flight(const aq_tenant *tenant, const aq_entity *entity) {
  return entity->said.in_flight && entity->said.moving && !aq_account_strays(tenant, entity);
}

typedef struct {
  uint32_t count; /* of entities with work in flight */
  uint64_t since; /* the first of it, as far as it was not said to have been used */
} aq_flights;

static void find_flight(const aq_scheduler *sched, aq_tenant *tenant, aq_entity *entity, void *of) {
  (void)sched;
  aq_flights *flights = of;
  if (!is_flight(tenant, entity)) return;
  flights->count++;
  if (flight_since(entity) < flights->since) flights->since = flight_since(entity);
}

static void take_turn(const aq_scheduler *sched, aq_tenant *tenant, aq_entity *entity, void *ns) {
  (void)sched;
  if (is_flight(tenant, entity)) entity->turns_ns += *(double *)ns;
}

/* What is in flight will be said to have used no more than the time since it was last said. */
void aq_overlap_pass(const aq_scheduler *sched, aq_card *card, uint64_t now, double dt) {
  aq_flights flights = {.since = now};
  aq_entities_at(sched, card, find_flight, &flights);
  card->overlap_ns = fmax(card->overlap_ns - dt, -(double)(now - flights.since));
  double turn = card->strays ? 0 : dt / fmax(1, flights.count);
  aq_entities_at(sched, card, take_turn, &turn);
}

static double excess(const aq_entity *entity) { return fmax(0, entity->told_ns - entity->turns_ns); }

typedef struct {
  double overlap, excess;
} aq_sums;

static void add_excess(const aq_scheduler *sched, aq_tenant *tenant, aq_entity *entity, void *of) {
  (void)sched, (void)tenant;
  ((aq_sums *)of)->excess += excess(entity);
}

static void take_off(const aq_scheduler *sched, aq_tenant *tenant, aq_entity *entity, void *of) {
  (void)sched, (void)tenant;
  const aq_sums *sums = of;
  entity->discount_ns = fmin(DISCOUNT_MOST_NS, entity->discount_ns + sums->overlap * excess(entity) / sums->excess);
  entity->told_ns -= entity->told_ns / REMEMBERED;
  entity->turns_ns -= entity->turns_ns / REMEMBERED;
}

void aq_overlap_share(const aq_scheduler *sched, aq_card *card) {
  aq_sums sums = {.overlap = card->overlap_ns};
  if (sums.overlap <= 0) return;
  card->overlap_ns = 0;
  aq_entities_at(sched, card, add_excess, &sums);
  if (sums.excess > 0) aq_entities_at(sched, card, take_off, &sums);
}

/* ---- what goes on for long ---- */

static bool is_long(const aq_scheduler *sched, const aq_tenant *tenant, const aq_entity *entity) {
  return is_flight(tenant, entity) && sched->now_ns >= flight_since(entity) + sched->rules.drain_ns;
}

/* Until now others were charged for its turns as well. */
void aq_overlap_look(const aq_scheduler *sched, aq_tenant *tenant, aq_entity *entity) {
  if (!is_long(sched, tenant, entity)) return;
  aq_flights flights = {.since = sched->now_ns};
  aq_entities_at(sched, entity->card, find_flight, &flights);
  if (flights.count > 1) entity->card->overlap_ns += (double)(sched->now_ns - flight_since(entity)) / flights.count;
  tenant->stray = true;
}
