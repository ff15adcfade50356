/* What a batch's events say of it. Under the lock of compute.c.
 *
 * Between the two events lies what the card did for the batch, and gaps in which it had nothing to do, as the program was slower. When the
 * last of its works was submitted before the first began there are none: the stream was busy. Else there may be some until then.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_MEASUREMENT_H
#define AQ_MEASUREMENT_H

#include "batch.h"

typedef struct {
  uint64_t took; /* nanoseconds between its events, */
  uint64_t idle; /* for how long, of that, the card may have had nothing to do, */
  uint64_t work; /* and what was work, as far as is known */
} aq_measurement;

/* Of a batch that is open, whose events were reached at these instants. */
aq_measurement aq_measure(const aq_batch *batch, uint64_t from, uint64_t to);

/* Teaches what its works cost, and how much streams are in each other's way. */
void aq_measurement_teach(const aq_measurement *measured, const aq_batch *batch);

#endif
