/* Opens and ends batches of one process on one card at the instants that it is told, on the interceptor's own accounts:
 *   batch_steps SHARE      hundredths of a percent
 * A line is "open NUMBER STREAM AT" or "end NUMBER FROM TO AT", in nanoseconds. At the end of the input it prints what was charged,
 * and the instant until which the clock is paid.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "core_limit.h"
#include "cost.h"
#include "lease.h"
#include "ticket.h"
#include "work.h"

#define MOST 100000

aq_tenant aq_slice;

static aq_core_context context = {.handle = (CUcontext)1};
static aq_batch *batches_of[MOST];
static uint64_t now_ns, cost_ns = 1000;
static uint32_t share;

/* ---- what batch.c asks of others ---- */

uint64_t aq_now_ns(void) { return now_ns; }
uint32_t aq_lease_price(int card) { return (void)card, share; }
void aq_lease_ring(int card) { (void)card; }
void aq_work_publish(int card, uint32_t state, uint64_t end) { (void)card, (void)state, (void)end; }
uint64_t aq_cost(const void *what) { return (void)what, cost_ns; }
uint64_t aq_cost_soonest(const void *what) { return (void)what, cost_ns; }
void aq_cost_learn(const void *what, uint64_t took, bool counted) { (void)what, (void)took, (void)counted; }
void aq_cost_forget(const void *what) { (void)what; }
void aq_ticket_take_back(aq_batch *batch) { (void)batch; }
uint64_t aq_lane_mark(const aq_lane *lane) { return (void)lane, 0; }
void aq_core_contexts_forget(void) {}

aq_core_context *aq_core_contexts(size_t *count) {
  *count = 1;
  return &context;
}

/* ---- the program ---- */

static void open_one(unsigned number, uintptr_t stream) {
  aq_ticket ticket = {0};
  aq_submission submission = {.ticket = &ticket, .what = &context, .stream = (CUstream)stream};
  while (aq_batch_is_lacking(&submission, &context)) {
    aq_events had, events = {(CUevent)1, (CUevent)1};
    aq_batch *batch = aq_batch_take_blank(&had);
    if (!batch) exit(3);
    aq_batch_equip(batch, &context, &events);
  }
  aq_flights[0].most_launches = AQ_ANY_LAUNCHES;
  aq_batch *batch = batches_of[number] = aq_batch_join(NULL, &submission, &context, now_ns);
  batch->unmeasured = 0; /* its end event is recorded */
  aq_batch_call_ends(batch);
}

int main(int argc, char **argv) {
  char line[128];
  unsigned number;
  uint64_t stream, from, to;
  static aq_usage_page usage;
  static aq_control_page control;
  if (argc != 2) return 2;
  share = (uint32_t)atoi(argv[1]);
  aq_slice.usage = &usage;
  aq_slice.control = &control;
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "open %u %" SCNu64 " %" SCNu64, &number, &stream, &now_ns) == 3) open_one(number, stream);
    else if (sscanf(line, "end %u %" SCNu64 " %" SCNu64 " %" SCNu64, &number, &from, &to, &now_ns) == 4)
      aq_batch_finish(batches_of[number], from, to);
    else return 4;
  }
  printf("%" PRIu64 " %" PRIu64 "\n", usage.cards[0].busy_ns, aq_clock_open_at(&usage.cards[0]));
  return 0;
}
