/* Batches: work that one thread submitted to one stream in one go, between two events.
 *
 * An open batch belongs to its thread, which alone records its events; the monitor takes over when the end event is
 * reached. Everything here is called under the one lock of compute.c. Events are made and destroyed under it too, which
 * is safe: no callback of the driver may submit work, so none can want the lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_BATCH_H
#define AQ_BATCH_H

#include "aliquot_pages.h"
#include "compute.h"

#define AQ_BATCH_COUNT 256
#define AQ_BATCH_MEMBERS 8

/* A context of the process, and where its events stand on the host's clock: host time = offset + time since `reference`.
 * The offset is the least that was seen, since an event is never seen before it happens. */
typedef struct {
  CUcontext handle; /* NULL: free */
  CUdevice device;
  int card;
  CUevent reference;
  bool referenced; /* the reference event was recorded */
  uint64_t offset_ns, fresh_offset_ns; /* UINT64_MAX: not seen yet; the fresh one replaces the other with the reference */
} aq_core_context;

typedef struct {
  const void *what;
  uint64_t cost; /* estimated, each */
  uint32_t count;
} aq_batch_member;

typedef enum { AQ_BATCH_FREE, AQ_BATCH_OPEN, AQ_BATCH_DONE } aq_batch_state;

typedef struct aq_batch {
  aq_batch_state state;
  uint64_t generation; /* changes when the batch stops being its thread's */
  aq_core_context *context;
  int card;
  CUstream stream;
  CUevent start, end;    /* of `events_of`, kept from batch to batch */
  CUcontext events_of;
  bool fresh;            /* the start event is still to be recorded */
  bool recorded;         /* the end event was recorded at least once */
  uint32_t in_call;      /* the owner is between begin and end */
  uint32_t submissions;
  uint64_t estimate;     /* nanoseconds of all its work */
  uint64_t unrecorded;   /* of these, what came after the latest end event */
  uint64_t last_ns;      /* when its latest submission began */
  uint64_t others_ns;    /* what other processes had charged when it was opened */
  bool abandoned;        /* the driver refused its only submission */
  uint64_t from_ns, to_ns; /* once done: when it ran, host time; from 0: not known, it took to_ns */
  uint32_t member_count;
  aq_batch_member members[AQ_BATCH_MEMBERS];
  struct aq_batch *next; /* in its card's queue, by age */
} aq_batch;

/* What is in flight on one card. */
typedef struct {
  aq_batch *oldest, *newest;
  uint64_t estimate;    /* nanoseconds in flight, as far as known */
  uint32_t count;       /* open batches */
  uint64_t ends_ns;     /* when all of it is expected to be over */
  uint64_t progress_ns; /* when one was last seen to finish */
  uint64_t charged_ns;        /* by this process, altogether */
  uint64_t charged_until_ns;  /* the end of its latest work that was charged */
  uint64_t others_charged_ns; /* by other processes, as this one last charged */
} aq_in_flight;

extern aq_in_flight aq_flights[AQ_MAX_CARDS];

/* The entry of the current context, made when it is new; NULL when there are too many, or it is of a card not ours. */
aq_core_context *aq_batch_context(CUcontext handle);

/* This thread's open batch if the submission can join it, else a new one; NULL when there is none to be had. */
aq_batch *aq_batch_join(aq_core_context *context, CUstream stream, const void *what, uint64_t now);

/* This thread's open batch if it has work behind its latest end event, else NULL. */
aq_batch *aq_batch_unrecorded(void);

/* Whether this thread ever had a batch. Needs no lock. */
bool aq_batch_any_mine(void);

/* Batches on this stream are nobody's from now on: none is joined, and the owner records nothing more. */
void aq_batch_disown(CUstream stream);

/* The batch ran in [from, to): teaches the costs, charges what is finished in the order of submission, frees it. */
void aq_batch_finish(aq_batch *batch, uint64_t from, uint64_t to);

/* Nobody will know when the batch ran: it is charged this much. */
void aq_batch_give_up(aq_batch *batch, uint64_t busy);

/* Whether the work submitted so far deserves an end event. */
bool aq_batch_wants_end(const aq_batch *batch);

/* Forgets a context that is gone, with its batches and events; or everything (after fork). Neither touches the driver. */
void aq_batch_forget(aq_core_context *context);
void aq_batch_reset(void);

/* All entries of contexts, free ones too. */
aq_core_context *aq_batch_contexts(size_t *count);

#endif
