/* A batch is charged when it ends, in whatever order batches do, for what of its time no other was charged for: a short one that
 * overtakes a long one on another stream hides no more than itself of it, and one that waits for the host holds up nobody's charge.
 * SPDX-License-Identifier: Apache-2.0 */
#include "charge.h"

#include "batch.h"
#include "core_limit.h"
#include "lease.h"

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t less(uint64_t a, uint64_t by) { return a > by ? a - by : 0; }

/* ---- what others charge ---- */

uint64_t aq_charge_others(int card) {
  return __atomic_load_n(&aq_core_usage(card)->busy_ns, __ATOMIC_RELAXED) - aq_flights[card].charges.charged_ns;
}

/* While all that is charged on a card is of time before a batch was opened, so is what others have charged. */
void aq_charge_hear_others(void) {
  for (int card = 0; card < AQ_MAX_CARDS; card++) {
    if (!aq_flights[card].oldest) continue;
    uint64_t charged = aq_charge_others(card); /* first: what is charged in between is of the time after it */
    uint64_t until = __atomic_load_n(&aq_core_usage(card)->core_covered_until_ns, __ATOMIC_ACQUIRE);
    for (aq_batch *batch = aq_flights[card].oldest; batch; batch = batch->next)
      if (batch->opened_ns >= until) batch->others_ns = charged;
  }
}

/* Until when others may have charged, of which there are `others` nanoseconds in all. The instant that all processes share is theirs
 * if it is not where this process left it, or if they have charged since. */
static uint64_t others_until(aq_charges *charges, uint64_t covered, uint64_t end, uint64_t others) {
  if (covered > charges->covered_ns || others != charges->others_seen_ns) charges->others_until_ns = covered;
  charges->covered_ns = later(covered, end);
  charges->others_seen_ns = others;
  return charges->others_until_ns;
}

/* Whether nothing that is in flight on another stream can have run before the batch ended. */
static bool is_first(const aq_batch *batch, uint64_t ended) {
  if (batch != aq_flights[batch->card].oldest) return false;
  for (const aq_batch *other = batch->next; other; other = other->next)
    if (other->stream != batch->stream && other->opened_ns < ended) return false;
  return true;
}

/* ---- a batch ---- */

/* What of an interval neither an earlier charge was for nor other processes', of which there are `others` nanoseconds of time up to
 * `until`; what is not used up of these is left. A long kernel lies under many short ones of theirs, which all end before it
 * does and leave gaps that only it can fill. */
static uint64_t own_time(aq_intervals *charged, aq_interval ran, uint64_t until, uint64_t *others) {
  uint64_t busy = aq_intervals_take(charged, ran.from, ran.to);
  aq_interval gap = {.to = ran.from};
  while (aq_intervals_gap(charged, gap.to, ran.to, &gap)) {
    uint64_t under_others = sooner(less(sooner(until, gap.to), gap.from), *others);
    *others -= under_others;
    busy += gap.to - gap.from - under_others;
  }
  return busy;
}

/* The clock passes over time in which nothing was charged, as idle. A batch that ran in that time and ends later gets it back. */
static void pay(const aq_batch *batch, aq_interval ran, uint64_t busy) {
  aq_in_flight *flight = &aq_flights[batch->card];
  aq_intervals *passed_over = &flight->charges.passed_over;
  uint32_t price = aq_lease_price(batch->card);
  uint64_t back = aq_intervals_take(passed_over, less(ran.from, AQ_CREDIT_NS), ran.to);
  aq_interval idle = aq_clock_charge(aq_core_usage(batch->card), price, busy, less(ran.to, busy), back);
  if (idle.free) aq_intervals_add(passed_over, idle, flight->oldest->opened_ns);
}

/* What others charged before the batch was opened, or is known to be of earlier time, has nothing to do with it. Of what is not
 * used up the part that they may have charged of time after the batch counts against later ones, whose work ended later and was
 * charged sooner; all of it while another is in flight which may have run before. */
void aq_charge_batch(const aq_batch *batch, aq_interval ran) {
  const aq_batch *oldest = aq_flights[batch->card].oldest;
  aq_charges *charges = &aq_flights[batch->card].charges;
  if (ran.from >= ran.to) return;
  uint64_t charged = aq_charge_others(batch->card), heard = later(batch->others_ns, charges->others_charged_ns);
  uint64_t covered = aq_clock_cover(aq_core_usage(batch->card), ran.to), others = charged - heard;
  uint64_t until = others_until(charges, covered, ran.to, charged);
  uint64_t own = own_time(&charges->charged, ran, until, &others), busy = sooner(own, ran.to - ran.from - ran.free);
  pay(batch, ran, busy);
  aq_intervals_add(&charges->charged, (aq_interval){.from = ran.from, .to = ran.to, .free = own - busy}, oldest->opened_ns);
  if (is_first(batch, ran.to)) charges->others_charged_ns = charged - sooner(others, less(until, ran.to));
  else charges->others_charged_ns = later(charges->others_charged_ns, oldest->others_ns) + charged - heard - others;
  charges->charged_ns += busy;
}

void aq_charge_estimate(int card, uint64_t busy, uint64_t since) {
  aq_clock_charge(aq_core_usage(card), aq_lease_price(card), busy, since, 0);
  aq_flights[card].charges.charged_ns += busy;
}
