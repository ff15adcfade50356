/* Which entry of the control page a CUDA device is.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CARDS_H
#define AQ_CARDS_H

#include "cuda_abi.h"
#include "tenant.h"

/* The card's index in the control page, or AQ_NO_CARD when the page does not name it. AQ_GUARD only. */
int aq_card_of_device(CUdevice device);

/* The device of the calling thread's context. Returns the driver's status. */
CUresult aq_current_device(CUdevice *device);

/* The entry with this UUID ("GPU-…", "MIG-…", with or without prefix), or AQ_NO_CARD. AQ_GUARD only. */
int aq_card_of_uuid(const char *uuid);

void aq_cards_forget(void);

#endif
