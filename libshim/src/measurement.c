/* How a batch is measured, and what is learnt of it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "measurement.h"

#include "cost.h"

#define DISTRUST 3 /* so often are the launches in flight halved after a surprise */
#define PROMPT_NS UINT64_C(20000) /* a thread that was not held up submits a work in less */

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* ---- measuring ---- */

/* Nanoseconds that all of its works take back to back, by what each took before. */
static uint64_t work_of(const aq_batch *batch) {
  uint64_t work = batch->unnamed;
  for (uint32_t i = 0; i < batch->member_count; i++) {
    const aq_batch_member *member = &batch->members[i];
    uint64_t alone = aq_cost_mean(member->what);
    work += (alone ? alone : member->cost) * member->count;
  }
  return work;
}

/* Whether it is known of each what it takes by itself. */
static bool is_known(const aq_batch *batch) {
  bool known = !batch->unnamed;
  for (uint32_t i = 0; i < batch->member_count; i++) known = known && aq_cost_mean(batch->members[i].what);
  return known;
}

/* For how long the card may have had nothing to do between the events: until the last work was submitted, and no longer. */
static uint64_t most_idle(const aq_batch *batch, uint64_t from, uint64_t took) {
  return batch->submitted_ns > from ? sooner(batch->submitted_ns - from, took) : 0;
}

/* Work mostly begins before the call that submits it returns, and not long before. Where that leaves much open it was as much as was
 * expected. */
static uint64_t likely(uint64_t least, uint64_t open, uint64_t expected) {
  if (!expected) return least + open;
  if (open < expected / 2 && open < PROMPT_NS) return least + open / 4;
  return later(least, sooner(expected, least + open));
}

aq_measurement aq_measure(const aq_batch *batch, uint64_t from, uint64_t to) {
  uint64_t took = to > from ? to - from : 0, idle = most_idle(batch, from, took);
  return (aq_measurement){.took = took, .idle = idle, .work = likely(took - idle, idle, work_of(batch))};
}

/* ---- teaching ---- */

static uint64_t expected_of(const aq_batch *batch) {
  uint64_t expected = batch->unnamed;
  for (uint32_t i = 0; i < batch->member_count; i++) expected += batch->members[i].cost * batch->members[i].count;
  return expected;
}

/* Whether more has changed than can be told from the batch: which of its works it was, and how often. */
static bool is_surprise(const aq_batch *batch, uint64_t took, uint64_t expected) {
  return aq_batch_is_counted(batch) && !batch->unknown && batch->launches > 1 && took > 2 * expected + AQ_SURPRISE_NS;
}

static void trust(aq_in_flight *flight, bool surprised) {
  flight->distrust = surprised ? DISTRUST : flight->distrust - !!flight->distrust;
}

/* What one of a batch's members had of what all had, by what was expected of each. */
static uint64_t part_of(const aq_batch_member *member, uint64_t of, uint64_t expected) {
  return member->cost ? (uint64_t)((double)of * (double)member->cost / (double)expected) : of; /* it was alone */
}

/* Spreads what it took by itself, and the work that was in it, over its works. */
static void teach_costs(const aq_batch *batch, uint64_t took, uint64_t work, bool alone) {
  uint64_t expected = expected_of(batch);
  bool surprised = is_surprise(batch, took, expected);
  trust(&aq_flights[batch->card], surprised);
  for (uint32_t i = 0; i < batch->member_count; i++) {
    const aq_batch_member *member = &batch->members[i];
    if (surprised) aq_cost_forget(member->what);
    else aq_cost_learn(member->what, part_of(member, took, expected), part_of(member, work, expected), alone, aq_batch_is_counted(batch));
  }
}

/* So many were in flight when it was opened or when it ended, whichever is more. */
static uint32_t others_beside(const aq_batch *batch) {
  uint32_t now = aq_flight_others(&aq_flights[batch->card], batch->queue);
  return now > batch->others ? now : batch->others;
}

/* Beside others a batch teaches how much they are in its way, and by itself what its works cost. What the events leave open teaches nothing
 * but its bounds. */
void aq_measurement_teach(const aq_measurement *measured, const aq_batch *batch) {
  aq_in_flight *flight = &aq_flights[batch->card];
  uint32_t others = others_beside(batch);
  uint64_t took = measured->took, idle = measured->idle, work = measured->work;
  bool exact = idle <= took / 2;
  flight->leaves_gaps = idle > took / 8;
  if (exact && others && is_known(batch)) aq_flight_learn(flight, others, took - idle, work_of(batch));
  if (exact) teach_costs(batch, took, work, !others);
  else if (!others && work != work_of(batch)) teach_costs(batch, work, work, true);
}
