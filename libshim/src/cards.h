/* Which entry of the control page a CUDA device is.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CARDS_H
#define AQ_CARDS_H

#include <stdbool.h>

#include "cuda_abi.h"
#include "tenant.h"

#define AQ_KNOWN_DEVICES 64

/* Card + 2 by device; 0: not looked up yet. Relaxed: a number that is the same whoever looks it up. */
extern uint8_t aq_known_cards[AQ_KNOWN_DEVICES];

int aq_card_look_up(CUdevice device);

/* The card's index in the control page, or AQ_NO_CARD when the page does not name it. AQ_GUARD only. */
static inline int aq_card_of_device(CUdevice device) {
  bool small = device >= 0 && device < AQ_KNOWN_DEVICES;
  int known = small ? __atomic_load_n(&aq_known_cards[device], __ATOMIC_RELAXED) : 0;
  return __builtin_expect(known != 0, 1) ? known - 2 : aq_card_look_up(device);
}

/* The device of the calling thread's context. Returns the driver's status. */
CUresult aq_current_device(CUdevice *device);

/* The entry with this UUID ("GPU-…", "MIG-…", with or without prefix), or AQ_NO_CARD. AQ_GUARD only. */
int aq_card_of_uuid(const char *uuid);

void aq_cards_forget(void);

#endif
