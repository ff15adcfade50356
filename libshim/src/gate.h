/* The gate: what a submission to a metered card waits for. Everything here is called under the lock of compute.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_GATE_H
#define AQ_GATE_H

#include "compute.h"
#include "flight.h"

/* A submission at the gate. Begun by aq_gate_arrive. */
typedef struct {
  int card;
  const aq_core_context *context;
  CUstream stream;
  uint64_t cost;     /* 0: not known */
  uint64_t began_ns; /* when it first asked */
  uint64_t now_ns;   /* when it last asked; the rest is the answer */
  const aq_queue *queue; /* of its stream; NULL: nothing is in flight there */
  uint64_t until_ns; /* when it is worth asking again */
  uint32_t gate;     /* the word of the card's gate */
  bool leased;
  bool is_long;      /* it waits for more than room among what is in flight */
  bool for_lease;    /* it waits for the gate to change */
  bool waits;        /* it is counted among those that wait */
} aq_passage;

/* Work is about to be submitted to a context's card. */
aq_passage aq_gate_arrive(const aq_core_context *context, const aq_submission *submission);

/* Whether it must wait. False: it may go at once, under the lock that is held. */
bool aq_gate_keeps(aq_passage *passage);

/* Gives up the lock until it is worth asking again. */
void aq_gate_wait(aq_passage *passage);

/* It might go, or waits for something else, while the thread waits at another card's gate: an arbiter is to know that it
 * waits for both. */
void aq_gate_wait_too(aq_passage *passage);

/* The word by which the submission's ticket is good. */
void aq_gate_ticket(const aq_passage *passage, aq_submission *submission);

#endif
