/* The queues of a card's streams.
 * SPDX-License-Identifier: Apache-2.0 */
#include "flight.h"

#include <string.h>

#include "batch.h"

#define WEIGHT 8 /* what is seen of one batch counts one part in so many */

aq_in_flight aq_flights[AQ_MAX_CARDS];

static aq_queue queues[AQ_BATCH_COUNT]; /* each has an open batch, or is idle */
static int queues_made;
static aq_queue *idle;

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* ---- which queue ---- */

aq_queue *aq_queue_of(int card, const aq_core_context *context, CUstream stream) {
  aq_queue *queue = aq_flights[card].queues;
  while (queue && (queue->stream != stream || queue->context != context)) queue = queue->next;
  return queue;
}

static aq_queue *blank(void) {
  aq_queue *queue = idle;
  if (!queue) return &queues[queues_made++];
  idle = queue->next;
  return queue;
}

aq_queue *aq_queue_enter(int card, const aq_core_context *context, CUstream stream) {
  aq_in_flight *flight = &aq_flights[card];
  aq_queue *queue = aq_queue_of(card, context, stream);
  if (!queue) {
    queue = blank();
    *queue = (aq_queue){.next = flight->queues, .context = context, .stream = stream};
    flight->queues = queue;
    flight->streams++;
  }
  queue->count++;
  if (!queue->waits) flight->count++;
  return queue;
}

void aq_queue_leave(int card, aq_queue *queue) {
  aq_in_flight *flight = &aq_flights[card];
  if (!queue->waits) flight->count--;
  if (--queue->count) return;
  if (!queue->waits) flight->streams--;
  aq_queue **link = &flight->queues;
  while (*link != queue) link = &(*link)->next;
  *link = queue->next;
  queue->next = idle;
  idle = queue;
}

/* ---- how much work ---- */

void aq_queue_add(int card, aq_queue *queue, uint64_t ns, uint64_t now) {
  aq_in_flight *flight = &aq_flights[card];
  queue->estimate += ns;
  queue->ends_ns = later(now, queue->ends_ns) + ns;
  if (queue->waits) return;
  flight->estimate += ns;
  flight->ends_ns = later(now, flight->ends_ns) + ns;
}

void aq_queue_take_back(int card, aq_queue *queue, uint64_t ns) {
  aq_in_flight *flight = &aq_flights[card];
  queue->estimate -= ns;
  queue->ends_ns -= ns;
  if (queue->waits) return;
  flight->estimate -= ns;
  flight->ends_ns -= ns;
}

void aq_queue_pass(int card, aq_queue *queue, uint64_t ns, uint64_t ended) {
  aq_in_flight *flight = &aq_flights[card];
  queue->estimate -= ns;
  queue->progress_ns = ended;
  queue->ends_ns = ended + queue->estimate;
  flight->progress_ns = ended;
  if (!queue->waits) flight->estimate -= ns;
  flight->ends_ns = ended + flight->estimate;
}

void aq_queue_wait(int card, aq_queue *queue, bool waits, uint64_t now) {
  aq_in_flight *flight = &aq_flights[card];
  if (queue->waits == waits) return;
  queue->waits = waits;
  flight->count += waits ? -queue->count : queue->count;
  flight->streams += waits ? -1u : 1;
  flight->estimate += waits ? -queue->estimate : queue->estimate;
  flight->spread += waits ? -queue->spread : queue->spread;
  flight->launches += waits ? -queue->launches : queue->launches;
  flight->ends_ns = now + flight->estimate;
  queue->ends_ns = now + queue->estimate;
}

void aq_queue_add_launches(int card, aq_queue *queue, uint32_t launches) {
  queue->launches += launches;
  if (!queue->waits) aq_flights[card].launches += launches;
}

void aq_queue_add_spread(int card, aq_queue *queue, uint64_t ns) {
  queue->spread += ns;
  if (!queue->waits) aq_flights[card].spread += ns;
}

/* ---- what is in the way ---- */

static uint64_t in_the_way(const aq_in_flight *flight) { return flight->in_the_way > 0 ? (uint64_t)flight->in_the_way : 0; }

/* Between what a stream has by itself and what all have, as far as these are in each other's way. */
static uint64_t between(const aq_in_flight *flight, uint64_t own, uint64_t all) {
  return all > own ? own + (all - own) * in_the_way(flight) / AQ_ALL : own;
}

uint64_t aq_flight_ahead(const aq_in_flight *flight, const aq_queue *queue) {
  return between(flight, queue ? queue->estimate : 0, flight->estimate);
}

uint64_t aq_flight_begins_ns(const aq_in_flight *flight, const aq_queue *queue, uint64_t now) {
  return between(flight, later(now, queue ? queue->ends_ns : 0), flight->ends_ns);
}

uint64_t aq_flight_ends_ns(const aq_in_flight *flight) {
  uint64_t latest = 0;
  for (const aq_queue *queue = flight->queues; queue; queue = queue->next)
    if (!queue->waits) latest = later(latest, queue->ends_ns);
  return latest ? between(flight, latest, flight->ends_ns) : flight->ends_ns;
}

uint32_t aq_flight_others(const aq_in_flight *flight, const aq_queue *queue) {
  return flight->streams - !queue->waits;
}

/* By how much each of the others delayed it, in parts of what they took; less than nothing where it took less than expected. */
static int32_t delay(uint64_t took, uint64_t expected, uint32_t others) {
  double each = ((double)took - (double)expected) / ((double)expected * others);
  return each >= 1 ? AQ_ALL : each <= -1 ? -AQ_ALL : (int32_t)(each * AQ_ALL);
}

void aq_flight_learn(aq_in_flight *flight, uint32_t others, uint64_t took, uint64_t expected) {
  flight->in_the_way = (flight->in_the_way * (WEIGHT - 1) + delay(took, expected, others)) / WEIGHT;
}

void aq_flights_forget(void) {
  memset(aq_flights, 0, sizeof aq_flights);
  queues_made = 0;
  idle = NULL;
}
