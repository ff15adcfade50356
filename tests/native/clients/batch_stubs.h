/* What batch.c and charge.c ask of the rest of the interceptor, for programs that say themselves what time it is (linked with
 * --wrap=aq_now_ns) and what work costs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "batch.h"
#include "core_limit.h"
#include "cost.h"
#include "lease.h"
#include "ticket.h"
#include "work.h"

uint64_t __wrap_aq_now_ns(void);

aq_tenant aq_slice;

static uint64_t now_ns, cost_ns;
static uint32_t share = AQ_WHOLE_CARD;
static aq_control_page control;

uint64_t __wrap_aq_now_ns(void) { return now_ns; }
uint32_t aq_lease_price(int card) { return (void)card, share; }
void aq_lease_ring(int card) { (void)card; }
void aq_work_publish(int card, uint32_t state, uint64_t end) { (void)card, (void)state, (void)end; }
uint64_t aq_cost(const void *what) { return (void)what, cost_ns; }
uint64_t aq_cost_mean(const void *what) { return (void)what, cost_ns; }
uint64_t aq_cost_soonest(const void *what) { return (void)what, cost_ns; }
void aq_cost_learn(const void *what, uint64_t took, uint64_t work, bool alone, bool counted) {
  (void)what, (void)took, (void)work, (void)alone, (void)counted;
}
void aq_cost_forget(const void *what) { (void)what; }
void aq_ticket_take_back(aq_batch *batch) { (void)batch; }
uint64_t aq_lane_mark(const aq_lane *lane) { return (void)lane, 0; }

/* A batch of the context's whose end event is recorded, submitted now. */
static aq_batch *submit(aq_core_context *context, uintptr_t stream, CUevent (*new_event)(void)) {
  aq_ticket ticket = {0};
  aq_submission submission = {.ticket = &ticket, .what = &control, .stream = (CUstream)stream};
  while (aq_batch_is_lacking(&submission, context)) {
    aq_events had, events = {new_event(), new_event()};
    aq_batch_equip(aq_batch_take_blank(&had), context, &events);
  }
  aq_flights[0].most_launches = AQ_ANY_LAUNCHES;
  aq_batch *batch = aq_batch_join(NULL, &submission, context, now_ns);
  aq_batch_is_recorded(batch, now_ns);
  aq_batch_call_ends(batch);
  return batch;
}
