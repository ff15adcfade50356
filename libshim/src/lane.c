/* Lanes, and whose they are. A lane outlives its thread: the monitor may still look at what is left in it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lane.h"

#include <pthread.h>
#include <stdlib.h>

#include "batch.h"
#include "monitor.h"
#include "ticket.h"

/* Of threads that have no lane. Nothing is ever paid from it, not even for a key that is 0. */
static aq_lane nobody = {.payer = {&aq_ticket_void}};

__thread aq_lane *aq_lane_mine __attribute__((tls_model("initial-exec"))) = &nobody;

static aq_lane *idle; /* under the lock */
static bool any;      /* relaxed: without lanes there are no tickets, and the lock is not touched */
static pthread_key_t key;

bool aq_lane_exists(void) { return aq_lane_mine != &nobody; }

bool aq_lane_any(void) { return __atomic_load_n(&any, __ATOMIC_RELAXED); }

static void thread_ends(void *lane) {
  aq_lane *own = lane;
  aq_lane_mine = &nobody;
  aq_monitor_lock();
  for (uint32_t i = 0; i < own->used; i++) {
    aq_ticket_settle(own, &own->tickets[i]);
    aq_batch_leave(&own->tickets[i]);
  }
  own->next = idle;
  idle = own;
  aq_monitor_unlock();
}

static void make_key(void) { pthread_key_create(&key, thread_ends); }

static aq_lane *take_idle(void) {
  aq_monitor_lock();
  aq_lane *lane = idle;
  if (lane) idle = lane->next;
  aq_monitor_unlock();
  return lane;
}

aq_lane *aq_lane_own(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (aq_lane_exists()) return aq_lane_mine;
  pthread_once(&once, make_key);
  __atomic_store_n(&any, true, __ATOMIC_RELAXED);
  aq_lane *lane = take_idle();
  if (!lane) lane = malloc(sizeof *lane);
  if (!lane) return NULL;
  *lane = nobody; /* its tickets, and what it knew */
  pthread_setspecific(key, lane);
  aq_lane_mine = lane;
  return lane;
}

void aq_lanes_forget(void) {
  if (aq_lane_exists()) pthread_setspecific(key, NULL);
  aq_lane_mine = &nobody;
  idle = NULL;
}

/* A ticket that has no batch is the first to go. */
static aq_ticket *least_missed(aq_lane *lane) {
  for (uint32_t i = 0; i < AQ_STREAMS; i++)
    if (!lane->tickets[i].batch) return &lane->tickets[i];
  return &lane->tickets[lane->next_out++ % AQ_STREAMS];
}

aq_ticket *aq_lane_ticket(aq_lane *lane, CUstream stream) {
  for (uint32_t i = 0; i < lane->used; i++)
    if (lane->tickets[i].stream == stream) return &lane->tickets[i];
  return lane->used < AQ_STREAMS ? &lane->tickets[lane->used++] : least_missed(lane);
}

void aq_lane_waits(aq_lane *lane, CUstream stream) {
  aq_ticket *ticket = aq_lane_ticket(lane, stream);
  if (ticket->stream != stream && ticket->batch) return;
  if (ticket->stream != stream) {
    aq_monitor_lock();
    aq_ticket_assign(lane, ticket, stream);
    aq_monitor_unlock();
  }
  ticket->waits = true;
}

uint64_t aq_lane_mark(const aq_lane *lane) {
  uint64_t mark = __atomic_load_n(&lane->visits, __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < AQ_STREAMS; i++)
    mark = mark * 31 + (uint64_t)__atomic_load_n(&lane->tickets[i].left, __ATOMIC_RELAXED);
  return mark;
}
