/* A submission, from the question whether anything is metered to its end event. It never waits in a capture.
 * SPDX-License-Identifier: Apache-2.0 */
#include "compute.h"

#include <pthread.h>

#include "batch.h"
#include "cards.h"
#include "core_limit.h"
#include "cost.h"
#include "gate.h"
#include "loader.h"
#include "monitor.h"
#include "stream.h"
#include "ticket.h"

#define LOOK_NS UINT64_C(1000000)
#define LONG_NS UINT64_C(100000000)

static const uint32_t nothing;
static uint32_t metered_at = AQ_GATE_CLOSED; /* the gate's word at which a card had a cap; relaxed, a memory of any_cap */
aq_gate aq_gate_now = {&nothing, AQ_GATE_CLOSED};

/* ---- is there anything to do ---- */

static bool any_cap(void) {
  for (int card = 0; card < AQ_MAX_CARDS; card++)
    if (aq_core_cap(card)) return true;
  return false;
}

static void set_gate(const uint32_t *word, uint32_t free_at) {
  __atomic_store_n(&aq_gate_now.free_at, free_at, __ATOMIC_RELAXED);
  __atomic_store_n(&aq_gate_now.word, word, __ATOMIC_RELAXED);
}

static void forget_gate(void) {
  set_gate(&nothing, AQ_GATE_CLOSED);
  metered_at = AQ_GATE_CLOSED;
}

static void prepare(void) { pthread_atfork(NULL, NULL, forget_gate); }

/* Where there are no limits the fast path is open for ever; limits that could not be read yet may come. */
static void open_for_good(void) {
  if (__atomic_load_n(&aq_tenant_decided, __ATOMIC_ACQUIRE) != AQ_UNDECIDED) set_gate(&nothing, nothing);
}

/* Whether a card has a cap as the control page stands now; if none has, the fast path is open until the page changes.
 * A thread that reads one of the gate's words old and one new takes the slow path, or the fast one once more. The answer
 * is good for the gate's word and value that it leaves in the submission. */
static bool is_metered(aq_submission *submission) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (aq_tenant_mode() != AQ_GUARD) {
    open_for_good();
    return false;
  }
  const uint32_t *sequence = &aq_slice.control->sequence;
  uint32_t seen = __atomic_load_n(sequence, __ATOMIC_ACQUIRE);
  uint32_t epoch = seen % 2 ? AQ_GATE_CLOSED : seen;
  submission->word = sequence;
  submission->epoch = epoch;
  if (epoch != AQ_GATE_CLOSED && epoch == __atomic_load_n(&metered_at, __ATOMIC_RELAXED)) return true;
  pthread_once(&once, prepare);
  bool metered = any_cap();
  set_gate(sequence, metered ? AQ_GATE_CLOSED : epoch);
  __atomic_store_n(&metered_at, metered ? epoch : AQ_GATE_CLOSED, __ATOMIC_RELAXED);
  return metered;
}

static bool is_capturing(CUstream stream) {
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!AQ_CUDA(cuStreamIsCapturing)) return false;
  return AQ_CUDA(cuStreamIsCapturing)(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- one submission ---- */

static CUcontext current_context(void) {
  CUcontext handle = NULL;
  return AQ_CUDA(cuCtxGetCurrent) && AQ_CUDA(cuCtxGetCurrent)(&handle) == CUDA_SUCCESS ? handle : NULL;
}

/* Copies the events to record, so that they are looked up under the lock and recorded without it. */
static void take_events(aq_submission *submission, aq_batch *batch) {
  aq_core_context *context = batch->context;
  if (batch->fresh) submission->start = batch->events.start;
  if (batch->fresh && !context->referenced) submission->reference = context->reference;
  submission->end = batch->events.end;
  context->referenced = true;
  batch->fresh = false;
}

static bool record(CUevent event, CUstream stream) { return AQ_CUDA(cuEventRecord)(event, stream) == CUDA_SUCCESS; }

/* Batches that were left with work behind their end events, which are to be recorded again without the lock. */
typedef struct {
  aq_batch *batches[AQ_STREAMS];
  uint64_t recorded[AQ_STREAMS]; /* the instant of each recording; 0: there was none */
  uint32_t count;
} tails;

/* Under the lock: the thread turns away from a stream. */
static void leave(aq_lane *lane, aq_ticket *ticket, tails *left) {
  aq_ticket_settle(lane, ticket);
  aq_batch *batch = aq_batch_of(ticket);
  aq_batch_leave(ticket);
  if (!batch || !batch->unmeasured) return;
  batch->in_call = 1;
  left->batches[left->count++] = batch;
}

/* Records the end event of a batch that was left; never in a capture, nor on another context's default stream. Returns the
 * instant, or 0 where nothing was recorded. */
static uint64_t record_end(const aq_batch *batch, CUcontext current) {
  if (is_capturing(batch->stream) || current != batch->events_of) return 0;
  uint64_t now = aq_now_ns();
  return record(batch->events.end, batch->stream) ? now : 0;
}

static void record_ends(tails *left, CUcontext current) {
  for (uint32_t i = 0; i < left->count; i++) left->recorded[i] = record_end(left->batches[i], current);
}

/* Under the lock, after record_ends(). */
static void close_left(tails *left) {
  for (uint32_t i = 0; i < left->count; i++) {
    if (left->recorded[i]) aq_batch_is_recorded(left->batches[i], left->recorded[i]);
    aq_batch_call_ends(left->batches[i]);
  }
  left->count = 0;
}

/* Whether the thread has stopped submitting to a stream while it went on with others. */
static bool is_quiet(aq_ticket *ticket) {
  int64_t seen = ticket->seen;
  ticket->seen = __atomic_load_n(&ticket->left, __ATOMIC_RELAXED);
  return ticket->seen == seen && seen != ticket->worth;
}

/* Under the lock: the streams that the thread has turned away from, and what the submission cannot join. */
static void leave_others(aq_lane *lane, const aq_submission *submission, const aq_core_context *context, tails *left) {
  aq_ticket *own = submission->ticket;
  __atomic_store_n(&lane->visits, lane->visits + 1, __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < lane->used; i++)
    if (&lane->tickets[i] != own && lane->tickets[i].batch && is_quiet(&lane->tickets[i])) leave(lane, &lane->tickets[i], left);
  aq_ticket_settle(lane, own);
  if (own->stream != submission->stream || !aq_batch_can_join(aq_batch_of(own), context, submission->what)) leave(lane, own, left);
  if (own->stream != submission->stream) aq_ticket_assign(lane, own, submission->stream);
}

/* Under the lock, which is given up while it records. */
static void end_now(tails *left, CUcontext current) {
  if (!left->count) return;
  aq_monitor_unlock();
  record_ends(left, current);
  aq_monitor_lock();
  close_left(left);
}

/* ---- what takes the driver's word: under the lock, which is given up meanwhile ---- */

/* The entry of the current context, made when it is new; NULL: its work is not measured. */
static aq_core_context *know_context(CUcontext handle) {
  aq_core_context *context = aq_core_context_of(handle);
  if (context) return context->card < 0 ? NULL : context;
  aq_core_context made = {.handle = handle};
  aq_monitor_unlock();
  made.card = aq_current_device(&made.device) == CUDA_SUCCESS ? aq_card_of_device(made.device) : AQ_NO_CARD;
  made.reference = made.card < 0 ? NULL : aq_event_new();
  aq_monitor_lock();
  bool known = aq_core_context_of(handle); /* another thread was faster */
  if (!known && (made.reference || made.card < 0)) context = aq_core_context_add(&made);
  if (context && context->card >= 0) aq_clock_check(aq_core_usage(context->card), aq_now_ns());
  if (context) return context->card < 0 ? NULL : context;
  aq_monitor_unlock();
  aq_event_end(made.reference);
  aq_monitor_lock();
  return known ? know_context(handle) : NULL;
}

/* Gives a batch events of the context. False: there is none. */
static bool equip_batch(aq_core_context *context) {
  aq_events had, events;
  CUcontext handle = context->handle;
  aq_batch *batch = handle ? aq_batch_take_blank(&had) : NULL; /* none: it has ended meanwhile */
  if (!batch) return false;
  aq_monitor_unlock();
  aq_events_end(&had);
  bool made = aq_events_new(&events);
  aq_monitor_lock();
  bool lives = made && context->handle == handle;
  aq_batch_equip(batch, context, lives ? &events : NULL);
  return lives;
}

/* Before a thread waits for long, what it came by is to be measured. True: it waited, or did that. */
static bool waits_at_gate(aq_lane *lane, aq_submission *submission, const aq_core_context *context, aq_passage *passage) {
  tails left = {.count = 0};
  if (!aq_gate_keeps(passage)) return false;
  const aq_batch *own = aq_batch_of(submission->ticket);
  if (passage->is_long && own && own->unmeasured) {
    leave(lane, submission->ticket, &left);
    end_now(&left, context->handle);
  } else {
    aq_gate_wait(passage);
  }
  return true;
}

/* While all batches are in flight what they have is looked at; what makes no progress for long keeps nobody. */
static bool waits_for_batch(const aq_passage *passage) {
  if (aq_batch_any_is_left()) return false;
  uint64_t now = aq_now_ns();
  bool waits = now < passage->began_ns + LONG_NS;
  if (waits) aq_monitor_wait(now + LOOK_NS);
  return waits;
}

/* In the end there is a batch to join, and the gate is open, at the same moment, which is returned. */
static uint64_t pass_gate(aq_lane *lane, aq_submission *submission, aq_core_context *context) {
  aq_passage passage = aq_gate_arrive(context, submission);
  bool lacks;
  do {
    while ((lacks = aq_batch_is_lacking(submission, context)) && equip_batch(context)) continue;
  } while ((lacks && waits_for_batch(&passage)) || waits_at_gate(lane, submission, context, &passage));
  aq_gate_ticket(&passage, submission);
  return passage.now_ns;
}

/* Without a batch it is charged by its past. */
static void join(aq_lane *lane, aq_submission *submission, aq_core_context *context, uint64_t now) {
  submission->batch = aq_batch_join(lane, submission, context, now);
  if (submission->batch) {
    take_events(submission, submission->batch);
  } else {
    uint64_t cost = aq_cost(submission->what);
    aq_charge_estimate(context->card, cost ? cost : AQ_BATCH_NS, now);
  }
}

static void enter(aq_lane *lane, aq_submission *submission, CUcontext handle) {
  tails left = {.count = 0};
  aq_monitor_lock();
  aq_core_context *context = know_context(handle);
  leave_others(lane, submission, context, &left);
  end_now(&left, handle);
  if (context && aq_core_cap(context->card)) {
    join(lane, submission, context, pass_gate(lane, submission, context));
    aq_batch_publish(context->card, false);
  }
  aq_monitor_unlock();
}

static void record_begin(aq_submission *submission) {
  if (submission->reference) record(submission->reference, submission->stream);
  if (submission->start) submission->began_ns = aq_now_ns();
  if (submission->start && !record(submission->start, submission->stream)) aq_submit_end(submission, CUDA_ERROR_INVALID_VALUE);
}

/* Where the stream's own context is current, in which its events are; `program`: the one that the program has current. */
static void begin(aq_lane *lane, aq_submission *submission, CUcontext program) {
  CUcontext handle = submission->elsewhere ? current_context() : program;
  if (!handle) return;
  aq_ticket_switch(program);
  lane->context = program ? program : handle;
  submission->ticket = aq_lane_ticket(lane, submission->stream);
  enter(lane, submission, handle);
  record_begin(submission);
}

void aq_submit_begin(aq_submission *submission, const void *what, CUstream name, int flavour) {
  CUstream stream = aq_stream_named(name, flavour);
  *submission = (aq_submission){.stream = stream, .what = what, .key = aq_lane_key(what, name, flavour)};
  if (!is_metered(submission) || is_capturing(stream) || !aq_monitor_start()) return;
  aq_lane *lane = aq_lane_own();
  CUcontext current = current_context();
  if (!lane) return;
  submission->elsewhere = aq_stream_enter_other(stream, current);
  begin(lane, submission, current);
  if (submission->elsewhere) aq_stream_leave();
}

/* Under the lock. `recorded`: when its end event was; 0: it was not. */
static void close_submission(const aq_submission *submission, CUresult result, uint64_t recorded) {
  aq_batch *batch = submission->batch;
  if (recorded) {
    if (submission->start) batch->began_ns = submission->began_ns;
    aq_batch_is_recorded(batch, recorded);
    if (submission->epoch != AQ_GATE_CLOSED && aq_batch_of(submission->ticket) == batch)
      aq_ticket_hand_out(aq_lane_mine, submission);
  } else if (result != CUDA_SUCCESS && batch->state == AQ_BATCH_OPEN && batch->submissions == 1) {
    batch->abandoned = true; /* the monitor may be looking at it */
    if (submission->ticket) aq_batch_leave(submission->ticket); /* nothing joins what costs nothing */
  }
  aq_batch_call_ends(batch);
}

void aq_submit_end(aq_submission *submission, CUresult result) {
  if (!submission->batch) return;
  bool entered = submission->elsewhere && aq_stream_enter(submission->stream);
  uint64_t now = submission->end ? aq_now_ns() : 0;
  bool recorded = now && result == CUDA_SUCCESS && record(submission->end, submission->stream);
  if (entered) aq_stream_leave();
  aq_monitor_lock();
  close_submission(submission, result, recorded ? now : 0);
  submission->batch = NULL;
  aq_monitor_unlock();
}

/* ---- one that begins on several cards at once ---- */

/* The gate of each part. A part has a batch of its own: no ticket, and nothing that joins it. */
typedef struct {
  aq_joint *joint;
  aq_core_context *contexts[AQ_MAX_CARDS];
  aq_passage passages[AQ_MAX_CARDS];
  aq_ticket tickets[AQ_MAX_CARDS];
} joint_gate;

/* In the stream's own context: a part, if its card is metered. */
static void add_part(joint_gate *gate, const CUDA_LAUNCH_PARAMS *launch) {
  aq_joint *joint = gate->joint;
  uint32_t i = joint->count;
  const void *what = aq_kernel(launch->function, aq_width_and_height(launch->grid));
  aq_monitor_lock();
  aq_core_context *context = know_context(current_context());
  if (context && aq_core_cap(context->card)) {
    joint->parts[i] = (aq_submission){.stream = launch->stream, .what = what, .epoch = AQ_GATE_CLOSED, .ticket = &gate->tickets[i]};
    gate->contexts[i] = context;
    gate->passages[i] = aq_gate_arrive(context, &joint->parts[i]);
    joint->count++;
  }
  aq_monitor_unlock();
}

/* Under the lock, which is given up meanwhile: makes a batch that a part lacks. False: there is none to be had. */
static bool equip_part(joint_gate *gate, uint32_t i) {
  aq_monitor_unlock();
  bool entered = aq_stream_enter(gate->joint->parts[i].stream);
  aq_monitor_lock();
  bool made = equip_batch(gate->contexts[i]);
  aq_monitor_unlock();
  if (entered) aq_stream_leave();
  aq_monitor_lock();
  return made;
}

/* In the end each part has a batch to go into, at the same moment. */
static void equip_parts(joint_gate *gate) {
  for (uint32_t i = 0; i < gate->joint->count;)
    i = aq_batch_is_lacking(&gate->joint->parts[i], gate->contexts[i]) && equip_part(gate, i) ? 0 : i + 1;
}

/* The part that may not go, or -1. All are asked, lest one go that was the last to be kept. */
static int kept(joint_gate *gate) {
  int found = -1;
  for (uint32_t i = 0; i < gate->joint->count; i++)
    if (aq_gate_keeps(&gate->passages[i])) found = (int)i;
  return found;
}

/* All gates are open at the same moment, in the end. */
static void pass_gates(joint_gate *gate) {
  equip_parts(gate);
  for (int keeps; (keeps = kept(gate)) >= 0; equip_parts(gate)) {
    for (int i = 0; i < (int)gate->joint->count; i++)
      if (i != keeps) aq_gate_wait_too(&gate->passages[i]);
    aq_gate_wait(&gate->passages[keeps]);
  }
}

static void join_parts(joint_gate *gate) {
  aq_monitor_lock();
  pass_gates(gate);
  for (uint32_t i = 0; i < gate->joint->count; i++) {
    aq_submission *part = &gate->joint->parts[i];
    part->batch = aq_batch_join(NULL, part, gate->contexts[i], aq_now_ns());
    aq_batch_publish(gate->contexts[i]->card, false);
    if (part->batch) take_events(part, part->batch);
    part->ticket = NULL;
  }
  aq_monitor_unlock();
}

static bool any_captures(const CUDA_LAUNCH_PARAMS *launches, unsigned int count) {
  for (unsigned int i = 0; i < count; i++)
    if (is_capturing(launches[i].stream)) return true;
  return false;
}

/* More parts than cards are those of a launch that names one twice, which the driver refuses. */
void aq_joint_begin(aq_joint *joint, const CUDA_LAUNCH_PARAMS *launches, unsigned int count) {
  aq_submission asked;
  joint_gate gate = {.joint = joint};
  joint->count = 0;
  if (!is_metered(&asked) || any_captures(launches, count) || !aq_monitor_start()) return;
  aq_submit_flush();
  for (unsigned int i = 0; i < count && joint->count < AQ_MAX_CARDS; i++) {
    bool entered = aq_stream_enter(launches[i].stream);
    add_part(&gate, &launches[i]);
    if (entered) aq_stream_leave();
  }
  join_parts(&gate);
  for (uint32_t i = 0; i < joint->count; i++) record_begin(&joint->parts[i]);
}

void aq_joint_end(aq_joint *joint, CUresult result) {
  for (uint32_t i = 0; i < joint->count; i++) aq_submit_end(&joint->parts[i], result);
}

/* Ends what the thread has in flight on a stream, or on all (AQ_NO_STREAM). */
static void end_batches(aq_lane *lane, CUstream stream) {
  tails left = {.count = 0};
  aq_monitor_lock();
  for (uint32_t i = 0; i < lane->used; i++)
    if (lane->tickets[i].batch && (stream == AQ_NO_STREAM || stream == lane->tickets[i].stream))
      leave(lane, &lane->tickets[i], &left);
  aq_monitor_unlock();
  if (!left.count) return;
  record_ends(&left, current_context());
  aq_monitor_lock();
  close_left(&left);
  aq_monitor_unlock();
}

void aq_submit_flush(void) {
  aq_lane *lane = aq_lane_mine;
  if (!lane->context) return;
  end_batches(lane, AQ_NO_STREAM);
  lane->context = NULL;
}

void aq_submit_stream_waits(CUstream name, int flavour) {
  if (!aq_lane_exists()) return;
  CUstream stream = aq_stream_named(name, flavour);
  if (aq_lane_mine->context) end_batches(aq_lane_mine, stream);
  aq_lane_waits(aq_lane_mine, stream);
}

void aq_submit_stream_ends(CUstream stream) {
  aq_submit_flush();
  if (aq_gate_free()) return;
  aq_monitor_lock();
  aq_batch_disown(stream);
  aq_monitor_unlock();
}
