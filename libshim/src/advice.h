/* What the driver is told about where managed memory shall be. It takes no advice where devices cannot share managed memory with
 * the host while they work; then its pages are on the card.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ADVICE_H
#define AQ_ADVICE_H

#include <stdbool.h>

#include "cuda_abi.h"

/* A location as the older entries name it: a device, or CU_DEVICE_CPU. */
CUmemLocation aq_place_of(CUdevice device);

/* Keeps a range on the host, within reach of the device. What of it is on a card stays there until it is brought away. False: the
 * driver takes no such advice. */
bool aq_advise_host(CUdeviceptr address, uint64_t bytes, CUdevice device);

/* Takes that back: the range comes to the device that uses it. */
bool aq_advise_nowhere(CUdeviceptr address, uint64_t bytes, CUdevice device);

/* Brings a range to the host, without copies on cards, and waits until it is there; in the current context. False: it is not, or
 * not soon. No capture is disturbed. */
bool aq_bring_to_host(CUdeviceptr address, uint64_t bytes);

#endif
