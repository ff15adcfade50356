/* Tells the user of `aliquot run` that it was the slice, not the card, that had no room, and which command makes it larger.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_REFUSAL_H
#define AQ_REFUSAL_H

#include <stdint.h>

#include "cuda_abi.h"

/* `bytes` more of a device, which is this card, were refused: says so where the slice is a run's (aq_slice.run), once
 * in a process for each limit that it has. Takes no lock, allocates nothing and asks the driver only how large the card is, so it may be called
 * wherever memory may be refused. */
void aq_refusal_tell(CUdevice device, int card, uint64_t bytes);

#endif
