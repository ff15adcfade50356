/* Memory beyond the grant: the wish for it, and the wait for the agent.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_GRANT_H
#define AQ_GRANT_H

#include <stdbool.h>
#include <stdint.h>

/* How long one request has waited: all zero at its first call. */
typedef struct {
  uint64_t until_ns;  /* there is a second at least */
  uint64_t looked_ns; /* the agent's latest look that was seen */
  uint32_t looks;     /* how many were seen: an agent that was held up gets its time */
  uint32_t tries;     /* how often it would have fitted */
} aq_grant_wait;

/* A request of `bytes` was refused. Where the slice holds it and only the grant does not, tells the agent and waits
 * until it would fit. True: try again. False: no hope, or no agent that looks, or it has had the time to answer.
 * AQ_GUARD only; with no lock held, and never while a stream is captured. */
bool aq_grant_await(int card, uint64_t bytes, aq_grant_wait *wait);

#endif
