/* How much of a card a block of plain memory takes: the driver hands out whole granules (2 MiB), which small blocks share.
 *
 * The granule is learnt from the driver once for each device: it is that of cuMemCreate. A block of more than half of one is expected
 * to have granules of its own; where the driver has put it between others, as its address tells, it is charged what was asked for.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ROUNDING_H
#define AQ_ROUNDING_H

#include <stdbool.h>
#include <stdint.h>

#include "cards.h"

/* The granule's binary logarithm + 2 by device; 1: none is known; 0: not asked yet. Relaxed: the same whoever asks. */
extern uint8_t aq_known_granules[AQ_KNOWN_DEVICES];

uint64_t aq_granule_ask(CUdevice device);

/* A power of two, or 1 where the driver tells none. */
static inline uint64_t aq_granule(CUdevice device) {
  bool small = device >= 0 && device < AQ_KNOWN_DEVICES;
  int known = small ? __atomic_load_n(&aq_known_granules[device], __ATOMIC_RELAXED) : 0;
  return __builtin_expect(known > 1, 1) ? UINT64_C(1) << (known - 2) : known ? 1 : aq_granule_ask(device);
}

/* What is charged before the driver is asked for `bytes`. What overflows fits no slice. */
static inline uint64_t aq_rounded(CUdevice device, uint64_t bytes) {
  uint64_t granule = aq_granule(device), rest = granule - 1;
  if (bytes <= granule / 2 || bytes > UINT64_MAX - rest) return bytes;
  return (bytes + rest) & ~rest;
}

/* Whether a block at this address may share granules with others. */
static inline bool aq_is_between_others(CUdevice device, uint64_t address) { return address & (aq_granule(device) - 1); }

#endif
