/* Memory of the slice: taken before the driver is asked, given back when it refuses or frees.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_QUOTA_H
#define AQ_QUOTA_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda_abi.h"
#include "grant.h"
#include "tenant.h"

/* What was taken from the slice for one thing. card == AQ_NO_CARD: nothing. */
typedef struct {
  uint64_t bytes;
  int card;
} aq_charge;

/* Takes `bytes` of a device's slice. False: they do not fit (or nothing may be taken at all); nothing was changed.
 * True with an empty charge: this device's memory is not counted here. */
bool aq_quota_take(CUdevice device, uint64_t bytes, aq_charge *charge);

/* The same of one entry of the pages, under that entry's own limit: AQ_OVERFLOW_CARDS + i is the host's memory in which
 * card i's tenant may have what the grant does not hold. False in every mode but AQ_GUARD. */
bool aq_quota_take_entry(int entry, uint64_t bytes, aq_charge *charge);

/* After a refusal, with no lock held and never while a stream is captured: where only the grant is too small, waits for
 * the agent to raise it. True: try again. `wait` is all zero at the first call, and ends it, see grant.h. */
bool aq_quota_await(CUdevice device, uint64_t bytes, aq_grant_wait *wait);

/* Gives a charge back. */
void aq_quota_give(const aq_charge *charge);

/* Changes a charge to `bytes`, now that the true size is known. False: the rest does not fit; nothing was changed. */
bool aq_quota_resize(aq_charge *charge, uint64_t bytes);

/* Counts a refusal of `bytes` more on a device, and tells the user of a run (refusal.h). */
void aq_quota_refused(CUdevice device, uint64_t bytes);

/* The same of a charge that could not be changed to `bytes`. */
void aq_quota_refused_growth(CUdevice device, const aq_charge *charge, uint64_t bytes);

/* The slice as the program may see it: the part of `total` and `available` (the driver's words) that is its own. Of a card,
 * returns the part of `total` that is in use: what is neither that nor available is its neighbours'. */
void aq_quota_show(CUdevice device, size_t *available, size_t *total);
uint64_t aq_quota_show_card(int card, size_t *available, size_t *total);

/* At the end of the process: gives back all that it holds. What it still does is counted anew. */
void aq_quota_leave(void);

/* Around what only one thread of the process may do with its slot. Returns the slot, or a negative number. */
int aq_quota_enter(void);
void aq_quota_exit(void);

/* In the child of a fork. */
void aq_quota_forget(void);

#endif
