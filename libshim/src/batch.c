/* The pool of batches, and the queue of those in flight on each card.
 * SPDX-License-Identifier: Apache-2.0 */
#include "batch.h"

#include <string.h>

#include "core_limit.h"
#include "cost.h"
#include "lease.h"
#include "loader.h"
#include "measurement.h"
#include "stream.h"
#include "ticket.h"
#include "work.h"

#define OVERDUE_NS UINT64_C(10000000)
#define SAMPLED 8  /* of so many batches of a program that leaves gaps, one is a sample */

static aq_batch batches[AQ_BATCH_COUNT];
static int batches_made; /* the others were never used */
static aq_batch *blank; /* batches without events; the others that are idle are their contexts' */
static uint64_t generations;

/* ---- joining ---- */

static aq_batch_member *member_of(aq_batch *batch, const void *what) {
  for (uint32_t i = 0; i < batch->member_count; i++)
    if (batch->members[i].what == what) return &batch->members[i];
  return NULL;
}

aq_batch *aq_batch_of(const aq_ticket *ticket) {
  aq_batch *batch = ticket->batch;
  return batch && batch->generation == ticket->generation && batch->state == AQ_BATCH_OPEN ? batch : NULL;
}

static bool is_full(const aq_batch *batch) {
  return batch->estimate >= AQ_BATCH_NS || batch->launches >= batch->most_launches;
}

/* A batch with a tail is joined even when it is full: the end event of what joins it is the tail's as well. */
bool aq_batch_can_join(const aq_batch *batch, const aq_core_context *context, const void *what) {
  if (!batch || batch->sample || batch->context != context || !aq_cost(what)) return false;
  if (batch->member_count == AQ_BATCH_MEMBERS) return false;
  return !is_full(batch) || batch->unmeasured;
}

static aq_batch *pop(aq_batch **list) {
  aq_batch *batch = *list;
  if (batch) *list = batch->next;
  return batch;
}

static void push(aq_batch **list, aq_batch *batch) {
  batch->next = *list;
  *list = batch;
}

/* A batch can be used again when neither its card's queue nor its thread has it. */
static void set_free(aq_batch *batch) {
  if (batch->state != AQ_BATCH_FREE || batch->in_call) return;
  push(batch->events_of ? &batch->context->idle : &blank, batch);
}

void aq_batch_call_ends(aq_batch *batch) {
  if (!batch->in_call) return;
  batch->in_call = 0;
  set_free(batch);
}

static aq_batch *idle_of_another(void) {
  size_t count;
  aq_core_context *contexts = aq_core_contexts(&count);
  for (size_t i = 0; i < count; i++)
    if (contexts[i].idle) return pop(&contexts[i].idle);
  return NULL;
}

bool aq_batch_is_lacking(const aq_submission *submission, const aq_core_context *context) {
  return !context->idle && !aq_batch_can_join(aq_batch_of(submission->ticket), context, submission->what);
}

bool aq_batch_any_is_left(void) {
  size_t count;
  aq_core_context *contexts = aq_core_contexts(&count);
  for (size_t i = 0; i < count; i++)
    if (contexts[i].idle) return true;
  return blank || batches_made < AQ_BATCH_COUNT;
}

aq_batch *aq_batch_take_blank(aq_events *had) {
  *had = (aq_events){NULL, NULL};
  if (!blank && batches_made < AQ_BATCH_COUNT) return &batches[batches_made++];
  aq_batch *batch = pop(&blank);
  if (batch || !(batch = idle_of_another())) return batch;
  *had = batch->events;
  batch->events_of = NULL;
  return batch;
}

void aq_batch_equip(aq_batch *batch, aq_core_context *context, const aq_events *events) {
  if (events) batch->events = *events;
  batch->events_of = events ? context->handle : NULL;
  batch->context = context;
  set_free(batch);
}

static void enqueue(aq_batch *batch, CUstream identity) {
  aq_in_flight *flight = &aq_flights[batch->card];
  if (flight->newest) flight->newest->next = batch;
  else flight->oldest = batch;
  flight->newest = batch;
  batch->queue = aq_queue_enter(batch->card, batch->context, identity);
  if (!batch->queue->oldest) batch->queue->oldest = batch;
}

/* Clears all but its events and the members, of which there are none. */
static void renew(aq_batch *batch) {
  aq_events events = batch->events;
  CUcontext events_of = batch->events_of;
  memset(batch, 0, offsetof(aq_batch, members));
  batch->events = events;
  batch->events_of = events_of;
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint32_t part(uint32_t launches) {
  return launches == AQ_ANY_LAUNCHES ? launches : (uint32_t)later(1, launches / AQ_PIPELINE);
}

/* At random, lest a program that does the same again and again has always the same of its works measured. */
static bool is_drawn(aq_in_flight *flight) {
  flight->dice = flight->dice * UINT32_C(1664525) + UINT32_C(1013904223);
  return (flight->dice >> 16) % SAMPLED == 0;
}

static aq_batch *open_batch(aq_lane *lane, const aq_submission *submission, aq_core_context *context, uint64_t now) {
  aq_ticket *ticket = submission->ticket;
  aq_in_flight *flight = &aq_flights[context->card];
  aq_batch *batch = pop(&context->idle);
  if (!batch) return NULL;
  renew(batch);
  batch->state = AQ_BATCH_OPEN;
  batch->context = context;
  batch->stream = submission->stream;
  batch->owner = lane;
  batch->fresh = true;
  batch->card = ticket->card = context->card;
  batch->generation = ticket->generation = ++generations;
  batch->others_ns = aq_charge_others(context->card);
  batch->opened_ns = now;
  batch->sample = flight->leaves_gaps && is_drawn(flight);
  batch->most_launches = part(flight->most_launches);
  batch->may_wait = ticket->waits;
  ticket->waits = false;
  ticket->batch = batch;
  enqueue(batch, aq_stream_identity(submission->stream, lane));
  batch->others = aq_flight_others(flight, batch->queue);
  return batch;
}

void aq_batch_add_members(aq_batch *batch, const void *what, uint64_t cost, uint32_t count) {
  aq_batch_member *member = member_of(batch, what);
  if (!member && batch->member_count == AQ_BATCH_MEMBERS) {
    batch->unnamed += cost * count;
    return;
  }
  if (!member) {
    member = &batch->members[batch->member_count++];
    *member = (aq_batch_member){.what = what, .cost = cost};
  }
  member->count += count;
}

static void add_work(aq_batch *batch, uint64_t estimate, uint64_t now) {
  batch->estimate += estimate;
  aq_queue_add(batch->card, batch->queue, estimate, now);
}

static void add_launches(aq_batch *batch, uint32_t launches) {
  batch->launches += launches;
  aq_queue_add_launches(batch->card, batch->queue, launches);
}

static void add_spread(aq_batch *batch, uint64_t spread) {
  batch->spread += spread;
  aq_queue_add_spread(batch->card, batch->queue, spread);
}

aq_batch *aq_batch_join(aq_lane *lane, const aq_submission *submission, aq_core_context *context, uint64_t now) {
  const void *what = submission->what;
  uint64_t cost = aq_cost(what), estimate = cost ? cost : AQ_BATCH_NS;
  aq_batch *batch = aq_batch_of(submission->ticket);
  if (!aq_batch_can_join(batch, context, what)) batch = open_batch(lane, submission, context, now);
  if (!batch) return NULL;
  aq_batch_add_members(batch, what, cost, 1);
  batch->in_call = 1;
  batch->submissions++;
  batch->unmeasured += cost;
  batch->last_ns = now;
  add_work(batch, estimate, now);
  add_launches(batch, 1);
  add_spread(batch, estimate - aq_cost_soonest(what));
  if (!cost) batch->unknown = true, batch->queue->unknown_ns = now; /* nothing joins it */
  return batch;
}

void aq_batch_is_recorded(aq_batch *batch, uint64_t submitted_ns) {
  batch->recorded = true;
  batch->unmeasured = 0;
  batch->submitted_ns = submitted_ns;
}

static uint32_t work_state(const aq_in_flight *flight, bool enters) {
  return (flight->waiting ? AQ_WORK_WAITING : 0) | (flight->count || enters ? AQ_WORK_IN_FLIGHT : 0);
}

void aq_batch_publish(int card, bool enters) {
  const aq_in_flight *flight = &aq_flights[card];
  aq_work_publish(card, work_state(flight, enters), aq_core_leasable(card) ? aq_flight_ends_ns(flight) : 0);
}

void aq_batch_publish_overdue(uint64_t now) {
  for (int card = 0; card < AQ_MAX_CARDS; card++) {
    const aq_in_flight *flight = &aq_flights[card];
    if (flight->count && now > aq_flight_ends_ns(flight) + OVERDUE_NS) aq_work_publish(card, work_state(flight, false), now);
  }
}

/* Once everything is charged that is over. An arbiter that has closed the gate waits for the last of it. */
static void publish_progress(int card) {
  aq_batch_publish(card, false);
  if (!aq_flights[card].count && aq_core_leasable(card) && aq_lease_is_closed(aq_lease_gate(card))) aq_lease_ring(card);
}

void aq_batch_look(aq_batch *batch, bool begun, uint64_t now) {
  aq_queue *queue = batch->queue;
  if (batch->state != AQ_BATCH_OPEN || queue->oldest != batch) return;
  batch->begun = begun;
  if (queue->waits == !begun) return;
  aq_queue_wait(batch->card, queue, !begun, now);
  publish_progress(batch->card);
}

/* ---- leaving ---- */

static void make_nobodys(aq_batch *batch) {
  batch->generation = ++generations;
  batch->owner = NULL;
}

void aq_batch_leave(aq_ticket *ticket) {
  aq_batch *batch = aq_batch_of(ticket);
  ticket->batch = NULL;
  if (batch) make_nobodys(batch);
}

void aq_batch_disown(CUstream stream) {
  for (int i = 0; i < batches_made; i++) {
    if (batches[i].state != AQ_BATCH_OPEN || batches[i].stream != stream) continue;
    aq_ticket_take_back(&batches[i]);
    make_nobodys(&batches[i]);
  }
}

/* ---- tickets ---- */

static uint64_t spent(const aq_batch *batch) {
  return batch->ticket ? (uint64_t)(batch->worth - __atomic_load_n(&batch->ticket->left, __ATOMIC_RELAXED)) : 0;
}

/* A thread that submits to other streams comes the slow way before long, and then ends what it has left behind. */
bool aq_batch_goes_on(aq_batch *batch, uint64_t to, uint64_t now) {
  uint64_t tail = batch->unmeasured + spent(batch), before = batch->seen_mark;
  if (batch->owner) batch->seen_mark = aq_lane_mark(batch->owner);
  if (batch->seen_mark != before) batch->moved_ns = now;
  if (to <= batch->submitted_ns + AQ_SURPRISE_NS) batch->caught_up_ns = now;
  return tail && now < later(to, batch->moved_ns) + tail;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* With a ticket that is out for it as if it were spent. */
uint64_t aq_batch_late_ns(const aq_queue *queue) {
  const aq_batch *oldest = queue->oldest;
  uint64_t expected = oldest->estimate + (uint64_t)oldest->worth;
  return later(later(oldest->opened_ns, oldest->caught_up_ns), queue->progress_ns) + 2 * expected + AQ_SURPRISE_NS;
}

int64_t aq_batch_room(const aq_batch *batch) {
  if (batch->sample) return 0;
  int64_t in_batch = (int64_t)AQ_BATCH_NS - (int64_t)batch->estimate;
  const aq_in_flight *flight = &aq_flights[batch->card];
  int64_t in_flight = (int64_t)flight->window_ns - (int64_t)aq_flight_ahead(flight, batch->queue);
  int64_t in_lease = flight->lease_end_ns - (int64_t)aq_flight_begins_ns(flight, batch->queue, 0);
  return least(in_batch, least(in_flight, in_lease));
}

uint32_t aq_batch_room_for_launches(const aq_batch *batch) {
  const aq_in_flight *flight = &aq_flights[batch->card];
  if (!aq_batch_is_counted(batch)) return AQ_ANY_LAUNCHES;
  int64_t in_batch = (int64_t)batch->most_launches - batch->launches;
  int64_t in_flight = (int64_t)flight->most_launches - flight->launches;
  int64_t room = least(in_batch, in_flight);
  return room > 0 ? (uint32_t)room : 0;
}

void aq_batch_reserve(aq_batch *batch, aq_ticket *ticket, int64_t worth, uint32_t launches) {
  batch->ticket = ticket;
  batch->worth = worth;
  batch->ticket_launches = launches;
  aq_queue_add_launches(batch->card, batch->queue, launches);
  aq_queue_add(batch->card, batch->queue, (uint64_t)worth, 0);
}

/* At the most: each costs as much as its part of the ticket, or more. */
static uint32_t launches_for(const aq_batch *batch, uint64_t used) {
  uint64_t worth = (uint64_t)batch->worth;
  return worth ? (uint32_t)((used * batch->ticket_launches + worth - 1) / worth) : 0;
}

void aq_batch_unreserve(aq_batch *batch, int64_t left) {
  uint64_t used = (uint64_t)(batch->worth - left);
  batch->estimate += used;
  batch->unmeasured += used;
  aq_queue_take_back(batch->card, batch->queue, (uint64_t)left);
  aq_queue_add_launches(batch->card, batch->queue, -batch->ticket_launches);
  add_launches(batch, launches_for(batch, used));
  batch->ticket = NULL;
  batch->worth = 0;
}

void aq_batch_add_unmeasured(aq_batch *batch, uint64_t ns) {
  add_work(batch, ns, aq_now_ns());
  batch->unmeasured += ns;
}

void aq_batch_recall(void) {
  for (int i = 0; i < batches_made; i++)
    if (batches[i].state == AQ_BATCH_OPEN) aq_ticket_take_back(&batches[i]);
}

/* ---- finishing ---- */

static void leave_queue(aq_batch *batch) {
  aq_in_flight *flight = &aq_flights[batch->card];
  aq_batch **link = &flight->oldest, *older = NULL;
  for (; *link != batch; link = &older->next) older = *link;
  *link = batch->next;
  if (flight->newest == batch) flight->newest = older;
  batch->state = AQ_BATCH_FREE;
  set_free(batch);
}

static void leave_stream(aq_batch *batch, uint64_t ended) {
  aq_queue *queue = batch->queue;
  aq_batch *next = batch->next;
  while (next && next->queue != queue) next = next->next;
  if (queue->oldest == batch) aq_queue_wait(batch->card, queue, false, ended), queue->oldest = next;
  if (batch->unknown) queue->unknown_ns = 0;
  aq_queue_add_spread(batch->card, queue, -batch->spread);
  aq_queue_add_launches(batch->card, queue, -batch->launches);
  aq_queue_pass(batch->card, queue, batch->estimate, ended);
  aq_queue_leave(batch->card, queue);
  batch->queue = NULL;
}

/* The batch is no longer its thread's and no longer in flight. */
static void close_batch(aq_batch *batch, uint64_t ended) {
  aq_ticket_take_back(batch);
  leave_stream(batch, ended);
  make_nobodys(batch);
}

/* It has been charged. */
static void free_batch(aq_batch *batch) {
  leave_queue(batch);
  publish_progress(batch->card);
}

void aq_batch_finish(aq_batch *batch, uint64_t from, uint64_t to) {
  uint64_t now = aq_now_ns();
  aq_measurement measured = aq_measure(batch, from, to);
  aq_measurement_teach(&measured, batch);
  close_batch(batch, to < now ? to : now);
  aq_charge_batch(batch, (aq_interval){.from = from, .to = to + batch->unmeasured, .free = measured.took - measured.work});
  free_batch(batch);
}

void aq_batch_give_up(aq_batch *batch, uint64_t busy) {
  close_batch(batch, aq_now_ns());
  aq_charge_estimate(batch->card, busy, batch->last_ns);
  free_batch(batch);
}

/* ---- forgetting ---- */

void aq_batch_reset(void) {
  memset(batches, 0, sizeof batches);
  aq_flights_forget();
  batches_made = 0;
  blank = NULL;
  aq_core_contexts_forget();
}

void aq_batch_forget(aq_core_context *context) {
  for (int i = 0; i < batches_made; i++) {
    aq_batch *batch = &batches[i];
    if (batch->state == AQ_BATCH_OPEN && batch->context == context) aq_batch_give_up(batch, batch->estimate);
    if (batch->events_of == context->handle) batch->events_of = NULL;
  }
  for (aq_batch *batch; (batch = pop(&context->idle));) push(&blank, batch);
  *context = (aq_core_context){.handle = NULL};
}
