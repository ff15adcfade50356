/* What is in flight on each card, stream by stream, and when it is expected to be over. Under the lock of compute.c.
 *
 * Streams of a process run beside each other as far as their kernels leave room on the card. How much of what others have in flight is
 * in the way of a stream, from nothing to all of it, is learnt from how much longer work takes beside them than by itself. A stream
 * that waits for something else than the card is in nobody's way.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_FLIGHT_H
#define AQ_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "aliquot_pages.h"
#include "charge.h"
#include "core_context.h"

struct aq_batch;

#define AQ_WINDOW_NS UINT64_C(8000000) /* known work in flight that is in the way of what follows, where an arbiter does not say */
#define AQ_ANY_LAUNCHES UINT32_MAX

/* What is in flight on one stream. */
typedef struct aq_queue {
  struct aq_queue *next; /* of the card's */
  const aq_core_context *context;
  CUstream stream;
  struct aq_batch *oldest;
  uint32_t count;       /* open batches */
  uint64_t estimate;    /* nanoseconds in flight, as far as known */
  uint64_t spread;      /* by how much less it may be */
  uint32_t launches;    /* with what tickets are good for */
  uint64_t ends_ns;     /* when all of it is expected to be over, if nothing else is in its way */
  uint64_t progress_ns; /* when one was last seen to finish */
  uint64_t unknown_ns;  /* since when a batch of unknown length is open; 0: none is */
  bool waits;           /* what is oldest has not begun: it waits for the host, a word or another stream */
} aq_queue;

/* What is in flight on one card. Counted is what does not wait. */
typedef struct {
  struct aq_batch *oldest, *newest; /* of all */
  aq_queue *queues;
  uint64_t estimate;    /* nanoseconds in flight, as far as known */
  uint64_t spread;      /* by how much less it may be */
  uint32_t count;       /* open batches, */
  uint32_t streams;     /* and streams that have any */
  uint32_t launches;    /* in these, with what tickets are good for */
  uint32_t most_launches; /* that may be in flight; AQ_ANY_LAUNCHES: there is no lease */
  uint32_t distrust;    /* batches until there may be as many as ever, since one took much longer than was expected */
  int32_t in_the_way;   /* how much of what other streams have in flight delays a stream's work: nothing (0 or less) to all (AQ_ALL) */
  uint64_t ends_ns;     /* when all of it is expected to be over, one after the other */
  uint64_t progress_ns; /* when one was last seen to finish */
  uint64_t window_ns;   /* known work that may be in flight */
  int64_t lease_end_ns; /* no work is to go beyond it; INT64_MAX: there is no lease */
  bool leaves_gaps;     /* the batch that ended last may have left the card idle in between */
  uint32_t dice;
  uint32_t waiting;     /* submissions at the gate */
  uint32_t rung_for;    /* the gate's word for which the bell was last rung */
  aq_charges charges;
} aq_in_flight;

#define AQ_ALL 256 /* of in_the_way */

extern aq_in_flight aq_flights[AQ_MAX_CARDS];

/* The queue of a stream; NULL: nothing is in flight there. */
aq_queue *aq_queue_of(int card, const aq_core_context *context, CUstream stream);

/* The queue of a stream, with one batch more or less. The last one takes it with it. */
aq_queue *aq_queue_enter(int card, const aq_core_context *context, CUstream stream);
void aq_queue_leave(int card, aq_queue *queue);

/* Work goes into a queue at an instant, so many nanoseconds; or some of it will not come; or is over, as much as was estimated. */
void aq_queue_add(int card, aq_queue *queue, uint64_t ns, uint64_t now);
void aq_queue_take_back(int card, aq_queue *queue, uint64_t ns);
void aq_queue_pass(int card, aq_queue *queue, uint64_t ns, uint64_t ended);

/* So many launches more, or fewer by the number's complement; and so much more, or less, by which its work may be shorter. */
void aq_queue_add_launches(int card, aq_queue *queue, uint32_t launches);
void aq_queue_add_spread(int card, aq_queue *queue, uint64_t ns);

/* The queue's oldest batch is seen to wait for something else than the card, or no longer. */
void aq_queue_wait(int card, aq_queue *queue, bool waits, uint64_t now);

/* Of work that is submitted now to a stream (NULL: where nothing is in flight): nanoseconds of what is in its way, and when it begins. */
uint64_t aq_flight_ahead(const aq_in_flight *flight, const aq_queue *queue);
uint64_t aq_flight_begins_ns(const aq_in_flight *flight, const aq_queue *queue, uint64_t now);

/* When all that is in flight is expected to be over. */
uint64_t aq_flight_ends_ns(const aq_in_flight *flight);

/* How many other streams have something in flight that counts. */
uint32_t aq_flight_others(const aq_in_flight *flight, const aq_queue *queue);

/* Work that takes so long by itself took at least so long beside so many other streams. */
void aq_flight_learn(aq_in_flight *flight, uint32_t others, uint64_t took, uint64_t expected);

/* In the child of a fork. */
void aq_flights_forget(void);

#endif
