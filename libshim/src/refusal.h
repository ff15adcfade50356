/* Tells on stderr that it was the slice, not the card, that had no room, and how to have more: in `aliquot run`, and under
 * HAMi-core's environment. Nothing is said in a container with a control page: its stderr belongs to the program.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_REFUSAL_H
#define AQ_REFUSAL_H

#include <stdint.h>

#include "cuda_abi.h"

/* `bytes` more of a device, which is this card, were refused: says so once in a process for each limit that it has. It takes
 * no lock, allocates nothing and asks the driver only how large the card is, so it may be called wherever memory is refused. */
void aq_refusal_tell(CUdevice device, int card, uint64_t bytes);

#endif
