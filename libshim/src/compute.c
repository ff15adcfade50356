/* The gate. A submission of a capped tenant waits here while the tenant owes time, and while so much of unknown or
 * known length is in flight that closing the gate would mean nothing. It never waits in a capture and never without a
 * bound: work that waits for other work of the same process (a spinning kernel, a collective) gets its partner.
 * SPDX-License-Identifier: Apache-2.0 */
#include "compute.h"

#include <pthread.h>

#include "batch.h"
#include "core_limit.h"
#include "cost.h"
#include "loader.h"
#include "monitor.h"

#define WINDOW_NS UINT64_C(8000000)  /* known work in flight, on one card by one process */
#define STALL_NS UINT64_C(100000000) /* nothing finished for so long: let one more in */
#define LOOK_NS UINT64_C(20000000)   /* look again at a limit that may have changed */

#define CLOSED 1 /* odd: no page that holds still has this number */

static const uint32_t nothing;
const uint32_t *aq_gate_sequence = &nothing;
uint32_t aq_gate_free_at = CLOSED;

/* ---- is there anything to do ---- */

static bool any_cap(void) {
  for (int card = 0; card < AQ_MAX_CARDS; card++)
    if (aq_core_cap(card)) return true;
  return false;
}

static void set_gate(const uint32_t *sequence, uint32_t free_at) {
  __atomic_store_n(&aq_gate_free_at, free_at, __ATOMIC_RELAXED);
  __atomic_store_n(&aq_gate_sequence, sequence, __ATOMIC_RELAXED);
}

static void forget_gate(void) { set_gate(&nothing, CLOSED); }

static void prepare(void) { pthread_atfork(NULL, NULL, forget_gate); }

/* Where there are no limits the fast path is open for ever; limits that could not be read yet may come. */
static void open_for_good(void) {
  if (__atomic_load_n(&aq_tenant_decided, __ATOMIC_ACQUIRE) != AQ_UNDECIDED) set_gate(&nothing, nothing);
}

/* Whether a card has a cap as the control page stands now; if none has, the fast path is open until the page changes.
 * A thread that reads one of the gate's words old and one new takes the slow path, or the fast one once more. */
static bool is_metered(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, prepare);
  if (aq_tenant_mode() != AQ_GUARD) {
    open_for_good();
    return false;
  }
  const uint32_t *sequence = &aq_slice.control->sequence;
  uint32_t seen = __atomic_load_n(sequence, __ATOMIC_ACQUIRE);
  bool metered = any_cap();
  set_gate(sequence, metered || seen % 2 ? CLOSED : seen);
  return metered;
}

static bool is_capturing(CUstream stream) {
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!AQ_CUDA(cuStreamIsCapturing)) return false;
  return AQ_CUDA(cuStreamIsCapturing)(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- waiting ---- */

/* The instant at which work of this cost may join what is in flight: none at all beside work of unknown length, a window
 * of short work, or one long kernel when the one before it is nearly over. */
static uint64_t room_at(const aq_in_flight *flight, uint64_t cost, uint64_t now) {
  uint64_t together = flight->estimate + cost;
  if (!flight->count || (cost && together <= WINDOW_NS)) return now;
  if (!cost || together > 2 * cost) return UINT64_MAX;
  return flight->ends_ns > WINDOW_NS ? flight->ends_ns - WINDOW_NS : now;
}

/* The instant to look again, or 0: go. `began` is when this submission first asked. */
static uint64_t wait_until(int card, const void *what, uint64_t now, uint64_t began) {
  const aq_in_flight *flight = &aq_flights[card];
  uint64_t open_at = aq_clock_open_at(aq_core_usage(card));
  if (open_at > now) return open_at < now + LOOK_NS ? open_at : now + LOOK_NS;
  uint64_t stalled_at = (flight->progress_ns > began ? flight->progress_ns : began) + STALL_NS;
  uint64_t room = room_at(flight, aq_cost(what), now);
  if (room > stalled_at) room = stalled_at;
  return room > now ? room : 0;
}

/* Under the lock, which is given up while it waits. */
static void pass_gate(int card, const void *what) {
  uint64_t began = aq_now_ns(), now = began, until;
  while (aq_enforcement() == AQ_ENFORCE_ENFORCE && aq_core_cap(card) && (until = wait_until(card, what, now, began))) {
    aq_monitor_wait(until);
    now = aq_now_ns();
  }
  if (now > began) __atomic_fetch_add(&aq_core_usage(card)->throttled_ns, now - began, __ATOMIC_RELAXED);
}

/* ---- one submission ---- */

static aq_core_context *current_context(void) {
  CUcontext handle = NULL;
  if (!AQ_CUDA(cuCtxGetCurrent) || AQ_CUDA(cuCtxGetCurrent)(&handle) != CUDA_SUCCESS || !handle) return NULL;
  return aq_batch_context(handle);
}

/* Copies the events to record, so that they are looked up under the lock and recorded without it. */
static void take_events(aq_submission *submission, aq_batch *batch) {
  aq_core_context *context = batch->context;
  if (batch->fresh) submission->start = batch->start;
  if (batch->fresh && !context->referenced) submission->reference = context->reference;
  if (aq_batch_wants_end(batch)) submission->end = batch->end;
  context->referenced = true;
  batch->fresh = false;
}

static void enter(aq_submission *submission, const void *what) {
  aq_core_context *context = current_context();
  if (!context || !aq_core_cap(context->card)) return;
  pass_gate(context->card, what);
  submission->batch = aq_batch_join(context, submission->stream, what, aq_now_ns());
  if (submission->batch) take_events(submission, submission->batch);
}

static bool record(CUevent event, CUstream stream) { return AQ_CUDA(cuEventRecord)(event, stream) == CUDA_SUCCESS; }

void aq_submit_begin(aq_submission *submission, const void *what, CUstream stream) {
  *submission = (aq_submission){.stream = stream};
  if (!is_metered() || is_capturing(stream) || !aq_monitor_start()) return;
  aq_monitor_lock();
  enter(submission, what);
  aq_monitor_unlock();
  if (submission->reference) record(submission->reference, stream);
  if (submission->start && !record(submission->start, stream)) aq_submit_end(submission, CUDA_ERROR_INVALID_VALUE);
}

void aq_submit_end(aq_submission *submission, CUresult result) {
  aq_batch *batch = submission->batch;
  if (!batch) return;
  bool recorded = result == CUDA_SUCCESS && submission->end && record(submission->end, submission->stream);
  aq_monitor_lock();
  batch->in_call = 0;
  if (recorded) {
    batch->recorded = true;
    batch->unrecorded = 0;
  } else if (result != CUDA_SUCCESS && batch->state == AQ_BATCH_OPEN && batch->submissions == 1) {
    batch->abandoned = true; /* the monitor may be looking at it */
  }
  submission->batch = NULL;
  aq_monitor_unlock();
}

void aq_submit_flush(void) {
  aq_submission submission = {.batch = NULL};
  if (aq_gate_free() || !aq_batch_any_mine()) return;
  aq_monitor_lock();
  aq_batch *batch = aq_batch_unrecorded();
  if (batch) {
    submission = (aq_submission){.batch = batch, .stream = batch->stream, .end = batch->end};
    batch->in_call = 1;
  }
  aq_monitor_unlock();
  if (batch && is_capturing(batch->stream)) submission.end = NULL;
  aq_submit_end(&submission, CUDA_SUCCESS);
}

void aq_submit_stream_ends(CUstream stream) {
  aq_submit_flush();
  if (aq_gate_free()) return;
  aq_monitor_lock();
  aq_batch_disown(stream);
  aq_monitor_unlock();
}
