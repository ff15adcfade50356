/* Polls the events of what is in flight and hands finished batches back. It polls with cuEventQuery and never blocks in
 * the driver, holds no lock while it asks, and asks in relaxed capture mode: no capture of the program is disturbed.
 *
 * It sleeps until the oldest work may end, by what the like of it took at the least. Then it looks when it has run for a quarter
 * longer each time, and once it was expected to be over every tenth of a millisecond.
 * SPDX-License-Identifier: Apache-2.0 */
#include "monitor.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "aliquot_time_slice.h"
#include "batch.h"
#include "capture.h"
#include "core_clock.h"
#include "loader.h"
#include "quota.h"
#include "robust_list.h"
#include "tenant.h"
#include "ticket.h"

#define POLL_NS UINT64_C(100000)
#define LONGEST_SLEEP_NS UINT64_C(2000000)
#define SILENT_NS UINT64_C(5000000)       /* a batch without an end event is given up after so much silence */
#define REFERENCE_NS UINT64_C(4000000000) /* a float of milliseconds is exact to half a microsecond up to here */
#define EXIT_WAIT_NS UINT64_C(20000000)
#define LOOKS AQ_BATCH_COUNT
#define CLOSE_NS UINT64_C(300000) /* two bounds of an instant that are no further apart say when it was */

typedef enum {
  RUNNING,
  OVER,     /* and when it ran is known */
  UNKNOWN,  /* over, or lost: only its estimate is left */
  REFUSED,  /* it never ran */
} verdict;

/* What one batch looked like when its events were asked. */
typedef struct {
  aq_batch *batch;
  uint64_t generation;
  uint32_t submissions;
  verdict verdict;
  const aq_queue *queue; /* to tell those of one stream, which end one after the other */
  bool asks_start;       /* it may wait for something else than the card, and nothing of its stream is before it */
  bool begun;            /* then */
  uint64_t seen_ns;      /* when it was seen to be over, or not to be */
  CUevent reference;     /* the context's, then */
  double from_ms, to_ms; /* after that */
} look;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished, wanted; /* something finished or changed; the monitor has something to do */
static bool running;                            /* there is a thread; atomic, and changed under the lock */
static bool sleeping, asking, leaving;          /* of the thread, under the lock */
static int pauses;                              /* threads that may be destroying a context */
static uint64_t looked_ns;                      /* when the last look began */

void aq_monitor_lock(void) { pthread_mutex_lock(&lock); }

static bool has_work(void) {
  for (int card = 0; card < AQ_MAX_CARDS; card++)
    if (aq_flights[card].oldest) return true;
  return false;
}

/* Wakes the thread if it sleeps though there is work: once, until it has looked. */
static void wake(void) {
  if (!sleeping || !has_work()) return;
  sleeping = false;
  pthread_cond_signal(&wanted);
}

void aq_monitor_unlock(void) {
  wake();
  pthread_mutex_unlock(&lock);
}

uint64_t aq_monitor_looked_ns(void) { return looked_ns; }

static void wait_on(pthread_cond_t *condition, uint64_t until_ns) {
  struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};
  pthread_cond_timedwait(condition, &lock, &until);
}

void aq_monitor_wait(uint64_t until_ns) {
  int before; /* a thread that is cancelled here would leave the lock behind */
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  wake();
  wait_on(&finished, until_ns);
  pthread_setcancelstate(before, &before);
}

/* ---- asking: without the lock ---- */

static bool elapsed(CUevent from, CUevent to, double *ms) {
  float found;
  if (AQ_CUDA(cuEventElapsedTime)(&found, from, to) != CUDA_SUCCESS) return false;
  *ms = found;
  return true;
}

/* `current` is the thread's context, changed where it is another's turn. */
static void ask(look *at, CUcontext *current) {
  const aq_batch *batch = at->batch;
  if (at->verdict != RUNNING) return;
  if (*current != batch->events_of && AQ_CUDA(cuCtxSetCurrent)(batch->events_of) == CUDA_SUCCESS) *current = batch->events_of;
  CUresult result = AQ_CUDA(cuEventQuery)(batch->events.end);
  at->seen_ns = aq_now_ns();
  if (result == CUDA_ERROR_NOT_READY && at->asks_start) at->begun = AQ_CUDA(cuEventQuery)(batch->events.start) != CUDA_ERROR_NOT_READY;
  if (result == CUDA_ERROR_NOT_READY) return;
  CUevent reference = at->reference = batch->context->reference;
  bool known = result == CUDA_SUCCESS && elapsed(reference, batch->events.start, &at->from_ms) &&
               elapsed(reference, batch->events.end, &at->to_ms);
  at->verdict = known ? OVER : UNKNOWN;
}

/* Whether one before it in its stream is seen to go on. */
static bool is_behind(const look *looks, int at) {
  for (int i = at - 1; i >= 0; i--)
    if (looks[i].queue == looks[at].queue) return looks[i].verdict == RUNNING;
  return false;
}

/* ---- handing back: under the lock ---- */

/* What can be said without asking the driver; nothing is asked about work whose end event does not exist yet. */
static bool begin_look(aq_batch *batch, uint64_t now, look *at) {
  if (batch->state != AQ_BATCH_OPEN || batch->in_call) return false;
  *at = (look){.batch = batch, .generation = batch->generation, .submissions = batch->submissions, .queue = batch->queue, .verdict = RUNNING};
  if (batch->abandoned) at->verdict = REFUSED;
  else if (!batch->recorded && now > batch->last_ns + SILENT_NS) at->verdict = UNKNOWN;
  at->asks_start = batch->may_wait && !batch->begun && batch->queue->oldest == batch && now > batch->opened_ns + POLL_NS;
  return batch->recorded || at->verdict != RUNNING;
}

static int collect_looks(look *looks, uint64_t now) {
  int count = 0;
  for (int card = 0; card < AQ_MAX_CARDS; card++)
    for (aq_batch *batch = aq_flights[card].oldest; batch && count < LOOKS; batch = batch->next)
      count += begin_look(batch, now, &looks[count]);
  return count;
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t nanoseconds(double ms) { return ms > 0 ? (uint64_t)(ms * 1e6) : 0; }

static uint64_t moved(uint64_t instant, double ms) { return ms < 0 ? instant - nanoseconds(-ms) : instant + nanoseconds(ms); }

/* An idle stream reaches an event within microseconds of its recording, and a look sees it much later. Where the one bound is far from
 * the other no stream was idle. */
static uint64_t on_host(const aq_core_context *context, double ms) {
  const aq_offset *offset = &context->offset;
  bool close = offset->least <= offset->most && offset->most - offset->least < CLOSE_NS;
  return moved(close ? offset->least : offset->most, ms);
}

/* The clocks drift apart and floats lose digits: every few seconds the latest end becomes the reference. */
static void renew_reference(aq_core_context *context, aq_batch *batch, double ms) {
  CUevent reference = context->reference;
  aq_offset fresh = context->fresh_offset;
  context->reference = batch->events.end;
  batch->events.end = reference;
  context->offset = (aq_offset){.least = fresh.least ? moved(fresh.least, ms) : 0, .most = moved(fresh.most, ms)};
  context->fresh_offset = AQ_ANY_OFFSET;
}

/* Bounds of long ago may be wrong by what the clocks have drifted apart. */
static void narrow(aq_offset *offset, uint64_t least, uint64_t most) {
  if (least > offset->most) offset->most = most;
  if (most < offset->least) offset->least = least;
  offset->least = later(offset->least, least);
  offset->most = sooner(offset->most, most);
}

static void note_offset(const look *at) {
  uint64_t began = at->batch->began_ns, least = began ? moved(began, -at->from_ms) : 0, most = moved(at->seen_ns, -at->to_ms);
  narrow(&at->batch->context->offset, least, most);
  narrow(&at->batch->context->fresh_offset, least, most);
}

static bool goes_on(const look *at) {
  return aq_batch_goes_on(at->batch, on_host(at->batch->context, at->to_ms), at->seen_ns);
}

static void finish(const look *at) {
  aq_core_context *context = at->batch->context;
  uint64_t from = on_host(context, at->from_ms), to = on_host(context, at->to_ms);
  if (nanoseconds(at->to_ms) > REFERENCE_NS) renew_reference(context, at->batch, at->to_ms);
  aq_batch_finish(at->batch, from, to);
}

/* Acts on a look, unless the batch has changed since. */
static void settle(const look *at) {
  aq_batch *batch = at->batch;
  if (batch->generation != at->generation || batch->submissions != at->submissions || batch->in_call) return;
  if (at->verdict == OVER && at->reference != batch->context->reference) return; /* renewed by one before; it is looked at again */
  if (at->verdict == OVER) note_offset(at);
  if (at->verdict == OVER && !goes_on(at)) finish(at);
  else if (at->verdict == OVER) aq_batch_look(batch, true, at->seen_ns);
  else if (at->verdict == RUNNING && at->asks_start) aq_batch_look(batch, at->begun, at->seen_ns);
  else if (at->verdict != RUNNING) aq_batch_give_up(batch, at->verdict == REFUSED ? 0 : batch->estimate);
}

/* One look at everything in flight. */
static void poll(void) {
  look looks[LOOKS];
  CUcontext current = NULL;
  uint64_t now = aq_now_ns();
  int count = collect_looks(looks, now);
  aq_charge_hear_others();
  if (!count) {
    looked_ns = now;
    return;
  }
  asking = true;
  pthread_mutex_unlock(&lock);
  for (int i = 0; i < count; i++)
    if (!is_behind(looks, i)) ask(&looks[i], &current);
  if (current) AQ_CUDA(cuCtxSetCurrent)(NULL);
  pthread_mutex_lock(&lock);
  asking = false;
  for (int i = 0; i < count; i++) settle(&looks[i]);
  aq_batch_publish_overdue(now);
  looked_ns = now;
  pthread_cond_broadcast(&finished);
}

/* ---- the thread ---- */

/* When work should be looked at that began, as far as is known, with its latest submission, or when that before it was over. */
static uint64_t next_look(const aq_queue *queue, uint64_t now) {
  const aq_batch *oldest = queue->oldest;
  uint64_t began = later(oldest->last_ns, queue->progress_ns);
  uint64_t soonest = began + oldest->estimate - oldest->spread;
  if (queue->waits) return now + (now - began) / 4;
  if (now < soonest) return soonest;
  return sooner(now + (now - began) / 4, began + oldest->estimate);
}

/* When the oldest work of a stream may be over, but soon. */
static uint64_t next_poll(uint64_t now) {
  uint64_t next = now + LONGEST_SLEEP_NS;
  for (int card = 0; card < AQ_MAX_CARDS; card++)
    for (const aq_queue *queue = aq_flights[card].queues; queue; queue = queue->next) next = sooner(next, next_look(queue, now));
  return later(next, now + POLL_NS);
}

/* From now on the kernel says when this process has ended. */
static void begin_robust_list(void) {
  int slot = aq_quota_enter();
  aq_robust_list_begin();
  if (slot >= 0) aq_robust_list_mark(slot);
  aq_quota_exit();
}

static void *watch(void *unused) {
  (void)unused;
  aq_time_slice_shorten();
  prctl(PR_SET_NAME, "aliquot-core");
  aq_captures_relax();
  pthread_mutex_lock(&lock);
  begin_robust_list();
  while (!leaving) {
    sleeping = pauses || !has_work();
    if (sleeping) pthread_cond_wait(&wanted, &lock);
    else wait_on(&wanted, next_poll(aq_now_ns()));
    sleeping = false;
    if (!pauses && !leaving) poll();
  }
  __atomic_store_n(&running, false, __ATOMIC_RELEASE);
  pthread_cond_broadcast(&finished);
  pthread_mutex_unlock(&lock);
  for (;;) pause(); /* the end of this thread is the end of the process, for whoever reads its page */
  return NULL;
}

static void init_conditions(void) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&finished, &monotonic);
  pthread_cond_init(&wanted, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

/* In the child of a fork there is no monitor, and no batch of its parent's is its own. */
static void after_fork(void) {
  pthread_mutex_init(&lock, NULL);
  init_conditions();
  running = sleeping = asking = leaving = false;
  pauses = 0;
  aq_batch_reset();
  aq_lanes_forget();
}

/* Whether the lock could be had soon: a program may call exit in a signal handler, on a thread that holds it. */
static bool lock_soon(void) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += (long)EXIT_WAIT_NS;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  return !pthread_mutex_timedlock(&lock, &until);
}

/* Before the driver takes itself down: one last look, unless a context is ending, and nobody asks any more. */
static void at_exit(void) {
  uint64_t until = aq_now_ns() + EXIT_WAIT_NS;
  if (!lock_soon()) return;
  while (asking && aq_now_ns() < until) wait_on(&finished, until);
  if (running && !asking && !pauses) poll();
  leaving = true;
  pthread_cond_signal(&wanted);
  while (running && aq_now_ns() < until) wait_on(&finished, until);
  pthread_mutex_unlock(&lock);
}

static void init(void) {
  init_conditions();
  pthread_atfork(NULL, NULL, after_fork);
  atexit(at_exit);
}

/* With all signals blocked: the program's handlers never run on our thread. */
static bool start_thread(void) {
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&thread, NULL, watch, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!failed) pthread_detach(thread);
  return !failed;
}

bool aq_monitor_start(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (__atomic_load_n(&running, __ATOMIC_ACQUIRE)) return true;
  pthread_once(&once, init);
  pthread_mutex_lock(&lock);
  bool wanted_now = !running && !leaving;
  if (wanted_now) __atomic_store_n(&running, start_thread(), __ATOMIC_RELEASE);
  bool runs = running;
  pthread_mutex_unlock(&lock);
  if (wanted_now && !runs) aq_tenant_note("the core limit is off: no thread could be started to watch it");
  return runs;
}

/* ---- contexts that go ---- */

void aq_compute_pause(void) {
  pthread_mutex_lock(&lock);
  pauses++;
  while (asking) wait_on(&finished, aq_now_ns() + LONGEST_SLEEP_NS);
  pthread_mutex_unlock(&lock);
}

void aq_compute_resume(void) {
  pthread_mutex_lock(&lock);
  pauses--;
  pthread_cond_signal(&wanted);
  pthread_mutex_unlock(&lock);
}

static void drop(CUcontext handle, CUdevice device) {
  size_t count;
  pthread_mutex_lock(&lock);
  aq_core_context *contexts = aq_core_contexts(&count);
  for (size_t i = 0; i < count; i++)
    if (contexts[i].handle && (handle ? contexts[i].handle == handle : contexts[i].device == device)) aq_batch_forget(&contexts[i]);
  pthread_mutex_unlock(&lock);
}

void aq_compute_drop_context(CUcontext context) {
  if (context) drop(context, 0);
}

void aq_compute_drop_device(CUdevice device) { drop(NULL, device); }
