/* What a checkpoint has put aside: memory that a process of the tenant is charged for and that is not on the card.
 *
 * Only a process itself changes its slot's tally, and one that is checkpointed runs nothing. So who checkpoints it writes down
 * beside the tallies, in an entry of the usage page's file, how much of the slot's charge is not in use. An entry counts while the
 * slot belongs to the process that it names: with the process it ends, however that ends.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ASIDE_H
#define AQ_ASIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "tenant.h"

/* By card, bytes of a process that are put aside, or that it is charged. */
typedef struct {
  uint64_t bytes[AQ_MAX_CARDS];
} aq_aside_sums;

/* A process of this pid namespace was checkpointed: what it is charged is not in use any more. */
void aq_aside_put(int pid);

/* What is put aside of it; and the same taken away, so that of two processes only one gets it: it is in use again. */
aq_aside_sums aq_aside_of(int pid);
aq_aside_sums aq_aside_take(int pid);

#endif
