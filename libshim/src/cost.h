/* How long each kernel or graph takes on the card, learnt from what was measured.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_COST_H
#define AQ_COST_H

#include <stdint.h>

/* Nanoseconds that one submission of `what` (a function or graph handle) takes; 0: not known yet. */
uint64_t aq_cost(const void *what);

/* `what` took this long. Under the caller's lock, as aq_cost. */
void aq_cost_learn(const void *what, uint64_t ns);

#endif
