/* Which of NVML's devices are the slice's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_NVML_CARDS_H
#define AQ_NVML_CARDS_H

#include <stdbool.h>

#include "nvml_abi.h"
#include "tenant.h"

/* Whether this process sees the slice's cards alone: only where a control page names whole cards. A MIG instance is no
 * device of NVML's list; its card stays visible. */
bool aq_nvml_is_narrowed(void);

/* The slice's card that a device is, or AQ_NO_CARD. AQ_GUARD only. */
int aq_nvml_card(nvmlDevice_t device);

#endif
