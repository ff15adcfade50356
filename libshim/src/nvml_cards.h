/* Which of NVML's devices are the slice's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_NVML_CARDS_H
#define AQ_NVML_CARDS_H

#include <stdbool.h>

#include "nvml_abi.h"
#include "tenant.h"

/* Whether this process sees the slice's cards alone: wherever a control page names them. */
bool aq_nvml_is_narrowed(void);

/* The slice's card that a device is, or AQ_NO_CARD. AQ_GUARD only. */
int aq_nvml_card(nvmlDevice_t device);

/* The slice's cards that a device stands for: the one it is, or the slice's MIG instances on it. Returns how many.
 * AQ_GUARD only. */
int aq_nvml_cards(nvmlDevice_t device, int cards[AQ_MAX_CARDS]);

#endif
