/* The pool of batches, and the queue of those in flight on each card.
 *
 * A card's batches are charged in the order in which they were submitted: with the clock's rule that every instant is
 * charged once, a short batch that overtakes a long one on another stream hides nothing of it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "batch.h"

#include <string.h>

#include "core_limit.h"
#include "cost.h"
#include "lease.h"
#include "loader.h"
#include "ticket.h"
#include "work.h"

#define BATCH_NS UINT64_C(1000000) /* a batch takes no more work than this */
#define OVERDUE_NS UINT64_C(10000000)

aq_in_flight aq_flights[AQ_MAX_CARDS];

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

/* A batch with a tail is joined even when it is full: the end event of what joins it is the tail's as well. */
bool aq_batch_can_join(const aq_batch *batch, const aq_core_context *context, const void *what) {
  return batch && batch->context == context && aq_cost(what) && (batch->estimate < BATCH_NS || batch->unmeasured) && batch->member_count < AQ_BATCH_MEMBERS;
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

static void enqueue(aq_batch *batch) {
  aq_in_flight *flight = &aq_flights[batch->card];
  if (flight->newest) flight->newest->next = batch;
  else flight->oldest = batch;
  flight->newest = batch;
  flight->count++;
}

/* What other processes of the tenant have charged on a card so far. */
static uint64_t others_charged(int card) {
  return __atomic_load_n(&aq_core_usage(card)->busy_ns, __ATOMIC_RELAXED) - aq_flights[card].charged_ns;
}

/* Clears all but its events and the members, of which there are none. */
static void renew(aq_batch *batch) {
  aq_events events = batch->events;
  CUcontext events_of = batch->events_of;
  memset(batch, 0, offsetof(aq_batch, members));
  batch->events = events;
  batch->events_of = events_of;
}

static aq_batch *open_batch(aq_lane *lane, const aq_submission *submission, aq_core_context *context) {
  aq_ticket *ticket = submission->ticket;
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
  batch->others_ns = others_charged(context->card);
  ticket->batch = batch;
  enqueue(batch);
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

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void add_work(aq_batch *batch, uint64_t estimate, uint64_t now) {
  aq_in_flight *flight = &aq_flights[batch->card];
  batch->estimate += estimate;
  flight->estimate += estimate;
  flight->ends_ns = later(now, flight->ends_ns) + estimate;
}

aq_batch *aq_batch_join(aq_lane *lane, const aq_submission *submission, aq_core_context *context, uint64_t now) {
  const void *what = submission->what;
  uint64_t cost = aq_cost(what);
  aq_batch *batch = aq_batch_of(submission->ticket);
  if (!aq_batch_can_join(batch, context, what)) batch = open_batch(lane, submission, context);
  if (!batch) return NULL;
  aq_batch_add_members(batch, what, cost, 1);
  batch->in_call = 1;
  batch->submissions++;
  batch->unmeasured += cost;
  batch->last_ns = now;
  add_work(batch, cost ? cost : BATCH_NS, now); /* nothing joins work of unknown length */
  return batch;
}

static uint32_t work_state(const aq_in_flight *flight, bool enters) {
  return (flight->waiting ? AQ_WORK_WAITING : 0) | (flight->count || enters ? AQ_WORK_IN_FLIGHT : 0);
}

void aq_batch_publish(int card, bool enters) {
  const aq_in_flight *flight = &aq_flights[card];
  aq_work_publish(card, work_state(flight, enters), flight->ends_ns);
}

void aq_batch_publish_overdue(uint64_t now) {
  for (int card = 0; card < AQ_MAX_CARDS; card++) {
    const aq_in_flight *flight = &aq_flights[card];
    if (flight->count && now > flight->ends_ns + OVERDUE_NS) aq_work_publish(card, work_state(flight, false), now);
  }
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
bool aq_batch_goes_on(aq_batch *batch) {
  if (!batch->owner || !(batch->unmeasured + spent(batch))) return false;
  uint64_t before = batch->seen_mark;
  batch->seen_mark = aq_lane_mark(batch->owner);
  return batch->seen_mark != before;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t aq_batch_room(const aq_batch *batch) {
  int64_t in_batch = (int64_t)BATCH_NS - (int64_t)batch->estimate;
  const aq_in_flight *flight = &aq_flights[batch->card];
  int64_t in_flight = (int64_t)flight->window_ns - (int64_t)flight->estimate;
  int64_t in_lease = flight->lease_end_ns - (int64_t)flight->ends_ns;
  return least(in_batch, least(in_flight, in_lease));
}

void aq_batch_reserve(aq_batch *batch, aq_ticket *ticket, int64_t worth) {
  aq_in_flight *flight = &aq_flights[batch->card];
  batch->ticket = ticket;
  batch->worth = worth;
  flight->estimate += (uint64_t)worth;
  flight->ends_ns += (uint64_t)worth;
}

void aq_batch_unreserve(aq_batch *batch, int64_t left) {
  aq_in_flight *flight = &aq_flights[batch->card];
  uint64_t used = (uint64_t)(batch->worth - left);
  batch->estimate += used;
  batch->unmeasured += used;
  flight->estimate -= (uint64_t)left;
  flight->ends_ns -= (uint64_t)left;
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

/* Spreads what a batch took over its members by what was expected of each. */
static void learn(const aq_batch *batch, uint64_t took) {
  uint64_t expected = batch->unnamed;
  for (uint32_t i = 0; i < batch->member_count; i++) expected += batch->members[i].cost * batch->members[i].count;
  for (uint32_t i = 0; i < batch->member_count; i++) {
    const aq_batch_member *member = &batch->members[i];
    if (!member->cost) aq_cost_learn(member->what, took); /* it was alone */
    else aq_cost_learn(member->what, (uint64_t)((double)took * (double)member->cost / (double)expected));
  }
}

/* Work of this process overlaps on several streams: only what came after its latest charge counts. What others charged
 * before the batch was opened, or is known to be of earlier time, has nothing to do with it. */
static uint64_t charge_interval(const aq_batch *batch, aq_in_flight *flight, aq_usage_card *card) {
  uint64_t from = later(batch->from_ns, flight->charged_until_ns), charged = others_charged(batch->card);
  uint64_t others = charged - later(batch->others_ns, flight->others_charged_ns);
  uint64_t busy = aq_clock_charge(card, aq_lease_price(batch->card), from, batch->to_ns, &others);
  flight->charged_until_ns = later(batch->to_ns, flight->charged_until_ns);
  flight->others_charged_ns = charged - others;
  return busy;
}

static void charge(const aq_batch *batch) {
  aq_in_flight *flight = &aq_flights[batch->card];
  aq_usage_card *card = aq_core_usage(batch->card);
  uint64_t busy = batch->to_ns;
  if (batch->from_ns) busy = charge_interval(batch, flight, card);
  else aq_clock_charge_estimate(card, aq_lease_price(batch->card), busy, batch->last_ns);
  flight->charged_ns += busy;
}

static void charge_finished(aq_in_flight *flight) {
  while (flight->oldest && flight->oldest->state == AQ_BATCH_DONE) {
    aq_batch *batch = flight->oldest;
    charge(batch);
    flight->oldest = batch->next;
    if (!flight->oldest) flight->newest = NULL;
    batch->state = AQ_BATCH_FREE;
    set_free(batch);
  }
}

/* Once everything is charged that is over. An arbiter that has closed the gate waits for the last of it. */
static void publish_progress(int card) {
  aq_batch_publish(card, false);
  if (!aq_flights[card].count && aq_core_leasable(card) && aq_lease_is_closed(aq_lease_gate(card))) aq_lease_ring(card);
}

/* The batch is no longer its thread's and no longer in flight. */
static void close_batch(aq_batch *batch, uint64_t ended) {
  aq_in_flight *flight = &aq_flights[batch->card];
  aq_ticket_take_back(batch);
  flight->estimate -= batch->estimate;
  flight->count--;
  flight->progress_ns = ended;
  flight->ends_ns = flight->progress_ns + flight->estimate;
  batch->state = AQ_BATCH_DONE;
  make_nobodys(batch);
}

void aq_batch_finish(aq_batch *batch, uint64_t from, uint64_t to) {
  uint64_t now = aq_now_ns();
  close_batch(batch, to < now ? to : now);
  batch->from_ns = from;
  batch->to_ns = to + batch->unmeasured;
  learn(batch, to > from ? to - from : 0);
  charge_finished(&aq_flights[batch->card]);
  publish_progress(batch->card);
}

void aq_batch_give_up(aq_batch *batch, uint64_t busy) {
  close_batch(batch, aq_now_ns());
  batch->from_ns = 0;
  batch->to_ns = busy;
  charge_finished(&aq_flights[batch->card]);
  publish_progress(batch->card);
}

/* ---- forgetting ---- */

void aq_batch_reset(void) {
  memset(batches, 0, sizeof batches);
  memset(aq_flights, 0, sizeof aq_flights);
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
