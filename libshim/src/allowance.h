/* The law of memory: what a tenant may have of a card now, by the control page.
 *
 *   in use     = tally + adjust          what its processes have, whether it was charged or only measured by the agent
 *   limit      = slice - host            what overflowed to the host is the slice's, too
 *   may be had = min(limit, grant) - in use
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ALLOWANCE_H
#define AQ_ALLOWANCE_H

#include <stdint.h>

/* One card's terms, from one moment of the control page; bytes. */
typedef struct {
  uint64_t slice;  /* as the program sees it */
  uint64_t limit;  /* of it, on the card: what is not on the host */
  uint64_t usable; /* of it, now: the grant where the slice is granted, else all */
  int64_t adjust;  /* in use beyond what the tally says */
} aq_allowance;

/* AQ_GUARD only. */
aq_allowance aq_allowance_of(int card);

/* Bytes in use where the tally says `tally`; never negative. */
uint64_t aq_allowance_in_use(const aq_allowance *allowance, uint64_t tally);

/* The largest tally with which `bytes` are in use; never negative. */
uint64_t aq_allowance_tally(const aq_allowance *allowance, uint64_t bytes);

#endif
