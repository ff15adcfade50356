/* The core limit's gate: every submission of work passes it, and submissions of a capped tenant are measured.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_COMPUTE_H
#define AQ_COMPUTE_H

#include <stdbool.h>

#include "aliquot_pages.h"
#include "cuda_abi.h"

struct aq_batch;
struct aq_ticket;

#define AQ_GATE_CLOSED UINT32_MAX /* odd: no page that holds still has this number */

/* One submission between aq_submit_begin and aq_submit_end. */
typedef struct {
  struct aq_batch *batch;   /* NULL: not measured */
  struct aq_ticket *ticket; /* of the thread for that stream */
  CUstream stream;
  bool elsewhere; /* the stream's context is not the one that is current, as a copy's may be */
  uint64_t key;   /* of the work on the stream */
  CUevent reference, start, end; /* to be recorded before the work, and after it; NULL: not this time */
  uint64_t began_ns;             /* when the start event was */
  const void *what;
  const uint32_t *word; /* the gate's word, */
  uint32_t epoch;       /* and its value when it was passed; AQ_GATE_CLOSED: no ticket comes of it */
} aq_submission;

/* The control page's sequence number, which changes with every limit. Where a card may be leased its gate has a word of its
 * own (lease.h), which changes with every lease. */
typedef struct {
  const uint32_t *word;
  uint32_t free_at; /* the word at which no card of ours had a cap */
} aq_gate;

/* Before anybody looked `free_at` is no word's value, and where there are no limits both are zero for ever. Relaxed: a
 * stale answer is one submission old. */
extern aq_gate aq_gate_now __attribute__((visibility("hidden"))); /* no way around by a table */

/* Nothing to wait for and nothing to measure. */
static inline bool aq_gate_free(void) {
  const uint32_t *word = __atomic_load_n(&aq_gate_now.word, __ATOMIC_RELAXED);
  return __atomic_load_n(word, __ATOMIC_RELAXED) == __atomic_load_n(&aq_gate_now.free_at, __ATOMIC_RELAXED);
}

/* Before `what` (a function or graph handle) goes to a stream, as it is named in a flavour: waits while the tenant owes time, and opens the measurement.
 * Never waits in a capture. Always followed by aq_submit_end with the driver's answer. */
void aq_submit_begin(aq_submission *submission, const void *what, CUstream name, int flavour);
void aq_submit_end(aq_submission *submission, CUresult result);

/* Work that begins on several cards at once, between aq_joint_begin and aq_joint_end: a submission for each card that is metered. */
typedef struct {
  aq_submission parts[AQ_MAX_CARDS];
  uint32_t count;
} aq_joint;

/* The same for a kernel on each of several streams: waits until it may go to all cards, and has nothing in flight on any
 * meanwhile, so that two that wait for each other's cards both get on. */
void aq_joint_begin(aq_joint *joint, const CUDA_LAUNCH_PARAMS *launches, unsigned int count);
void aq_joint_end(aq_joint *joint, CUresult result);

/* Before the program waits for work: what this thread submitted last gets an end event, if it has none yet. */
void aq_submit_flush(void);

/* Before the stream, as it is named in a flavour, waits for something else than its own work: the same of what this thread
 * submitted to it. */
void aq_submit_stream_waits(CUstream name, int flavour);

/* Before a stream is destroyed: the same of all, and no event of ours is recorded on it any more. */
void aq_submit_stream_ends(CUstream stream);

/* Around a driver call that may destroy a context: in between nothing of ours touches an event from another thread. */
void aq_compute_pause(void);
void aq_compute_resume(void);

/* While paused: a context is gone, or every context of a device. */
void aq_compute_drop_context(CUcontext context);
void aq_compute_drop_device(CUdevice device);

#endif
