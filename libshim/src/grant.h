/* Memory beyond the grant: the wish for it, and the wait for the agent.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_GRANT_H
#define AQ_GRANT_H

#include <stdbool.h>
#include <stdint.h>

/* A request of `bytes` was refused. Where the slice holds it and only the grant does not, tells the agent and waits
 * until it would fit. True: try again. False: no hope, or no agent that looks, or the time is over: a second from the
 * first call with `*until_ns` 0. AQ_GUARD only; with no lock held, and never while a stream is captured. */
bool aq_grant_await(int card, uint64_t bytes, uint64_t *until_ns);

#endif
