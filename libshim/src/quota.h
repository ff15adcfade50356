/* Memory of the slice: taken before the driver is asked, given back when it refuses or frees.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_QUOTA_H
#define AQ_QUOTA_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda_abi.h"
#include "tenant.h"

/* What was taken from the slice for one thing. card == AQ_NO_CARD: nothing. */
typedef struct {
  uint64_t bytes;
  int card;
} aq_charge;

/* Takes `bytes` of a device's slice. False: they do not fit (or nothing may be taken at all); nothing was changed.
 * True with an empty charge: this device's memory is not counted here. */
bool aq_quota_take(CUdevice device, uint64_t bytes, aq_charge *charge);

/* Gives a charge back. */
void aq_quota_give(const aq_charge *charge);

/* Changes a charge to `bytes`, now that the true size is known. False: the rest does not fit; nothing was changed. */
bool aq_quota_resize(aq_charge *charge, uint64_t bytes);

/* Counts a refusal on a device. */
void aq_quota_refused(CUdevice device);

/* The slice as the program may see it: the part of `total` and `available` (the driver's words) that is its own. */
void aq_quota_show(CUdevice device, size_t *available, size_t *total);
void aq_quota_show_card(int card, size_t *available, size_t *total);

/* In the child of a fork. */
void aq_quota_forget(void);

#endif
