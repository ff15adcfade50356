/* Each free in stream order of memory that is no pool's is marked by an event behind it, and what it was charged is given
 * back when the event has happened: looked at when the program waits, frees, or is short of memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "returning.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "capture.h"
#include "core_clock.h"
#include "graph_memory.h"
#include "loader.h"
#include "lock.h"
#include "pool.h"
#include "stream.h"

#define LONGEST_NS UINT64_C(10000000000)
#define STANDSTILL_NS UINT64_C(200000000) /* nothing came back for so long */
#define PAUSE_NS 50000
#define PILE 256 /* marks that a program which never waits may leave lying before they are looked at */

typedef struct returning {
  struct returning *next;
  aq_charge charge;
  aq_ending ending;
  CUevent event;
  CUcontext context; /* of the event */
} returning;

static aq_lock changing; /* over the list */
static returning *list;  /* relaxed outside of the lock: a hint */
static uint32_t listed;  /* how many those are; likewise */
static uint32_t enough;  /* of them to look which are over, though nobody waits; relaxed */

/* Each is set before the other is looked at, so that of a thread that looks at events and one that ends their context at
 * least one sees the other. */
static int looking, pauses;

static bool any(void) { return __atomic_load_n(&list, __ATOMIC_RELAXED); }

/* Takes the whole list: the driver is asked without the lock. */
static returning *take_all(void) {
  aq_lock_acquire(&changing);
  returning *all = list;
  __atomic_store_n(&list, NULL, __ATOMIC_RELAXED);
  __atomic_store_n(&listed, 0, __ATOMIC_RELAXED);
  aq_lock_release(&changing);
  return all;
}

static void put(returning *one) {
  aq_lock_acquire(&changing);
  one->next = list;
  __atomic_store_n(&list, one, __ATOMIC_RELAXED);
  __atomic_store_n(&listed, listed + 1, __ATOMIC_RELAXED);
  aq_lock_release(&changing);
}

/* Looking costs as much as there are, so it is put off until there are twice as many as were left the last time. */
static void look_at_pile(void) {
  if (__atomic_load_n(&listed, __ATOMIC_RELAXED) < __atomic_load_n(&enough, __ATOMIC_RELAXED)) return;
  aq_returns_collect();
  uint32_t left = __atomic_load_n(&listed, __ATOMIC_RELAXED);
  __atomic_store_n(&enough, left > PILE / 2 ? 2 * left : PILE, __ATOMIC_RELAXED);
}

bool aq_return_later(const aq_charge *charge, aq_ending ending, CUstream stream) {
  returning *one = malloc(sizeof *one);
  CUcontext context = NULL;
  int mode = aq_captures_relax();
  CUevent event = one ? aq_stream_mark(stream, &context) : NULL;
  aq_captures_restore(mode);
  if (!event) {
    free(one);
    return false;
  }
  *one = (returning){.charge = *charge, .ending = ending, .event = event, .context = context};
  put(one);
  look_at_pile();
  return true;
}

/* Puts back those whose time has not come; returns the others. */
static returning *take_finished(void) {
  returning *finished = NULL;
  for (returning *one = take_all(), *next; one; one = next) {
    next = one->next;
    if (AQ_CUDA(cuEventQuery)(one->event) == CUDA_ERROR_NOT_READY) {
      put(one);
      continue;
    }
    AQ_CUDA(cuEventDestroy_v2)(one->event);
    one->next = finished;
    finished = one;
  }
  return finished;
}

static void end(returning *one, bool lives) {
  if (one->ending.call) one->ending.call(one->ending.with, lives);
  aq_quota_give(&one->charge);
  free(one);
}

/* The calling thread may have no context. */
static void end_in_context(returning *one) {
  CUcontext before;
  bool enters = one->ending.call && AQ_CUDA(cuCtxPushCurrent_v2) && !AQ_CUDA(cuCtxPushCurrent_v2)(one->context);
  end(one, true);
  if (enters) AQ_CUDA(cuCtxPopCurrent_v2)(&before);
}

bool aq_returns_collect(void) {
  returning *finished = NULL;
  if (!any() || __atomic_exchange_n(&looking, 1, __ATOMIC_SEQ_CST)) return false;
  int mode = aq_captures_relax();
  if (!__atomic_load_n(&pauses, __ATOMIC_SEQ_CST)) finished = take_finished();
  __atomic_store_n(&looking, 0, __ATOMIC_RELEASE);
  bool some = finished;
  for (returning *next; finished; finished = next) {
    next = finished->next;
    end_in_context(finished);
  }
  aq_captures_restore(mode);
  return some;
}

void aq_returns_pause(void) {
  __atomic_fetch_add(&pauses, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&looking, __ATOMIC_SEQ_CST)) sched_yield();
}

void aq_returns_resume(void) { __atomic_fetch_sub(&pauses, 1, __ATOMIC_SEQ_CST); }

void aq_returns_end_context(CUcontext context) {
  for (returning *one = any() ? take_all() : NULL, *next; one; one = next) {
    next = one->next;
    if (one->context == context) end(one, false);
    else put(one);
  }
}

/* ---- waiting ---- */

static bool is_busy(const aq_patience *patience) {
  if (any() || aq_graph_memory_pending()) return true;
  if (!patience->has_stream || !AQ_CUDA(cuStreamQuery)) return false;
  return AQ_CUDA(cuStreamQuery)(patience->stream) == CUDA_ERROR_NOT_READY;
}

bool aq_returns_await(aq_patience *patience) {
  const struct timespec moment = {.tv_nsec = PAUSE_NS};
  uint64_t pending = aq_pools_pending() + aq_graph_memory_pending() + any(), now = aq_now_ns();
  int saved = errno;
  if (!pending) return false;
  if (!patience->until_ns) patience->until_ns = now + LONGEST_NS;
  if (!patience->moved_ns || pending < patience->pending) patience->moved_ns = now;
  patience->pending = pending;
  if (now >= patience->until_ns || (now - patience->moved_ns > STANDSTILL_NS && !is_busy(patience))) return false;
  nanosleep(&moment, NULL);
  errno = saved;
  return true;
}

void aq_returns_forget(void) {
  aq_lock_reset(&changing);
  list = NULL;
  listed = 0;
  looking = pauses = 0;
}
