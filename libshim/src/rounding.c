/* The granules of devices, as the driver tells them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rounding.h"

#include "loader.h"

uint8_t aq_known_granules[AQ_KNOWN_DEVICES];

static uint64_t ask(CUdevice device) {
  const CUmemAllocationProp plain = {
      .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
  size_t granule = 1;
  CUresult (*get)(size_t *, const CUmemAllocationProp *, int) = AQ_CUDA(cuMemGetAllocationGranularity);
  if (!get || get(&granule, &plain, CU_MEM_ALLOC_GRANULARITY_MINIMUM)) return 1;
  return granule && !(granule & (granule - 1)) ? granule : 1;
}

uint64_t aq_granule_ask(CUdevice device) {
  uint64_t granule = ask(device);
  uint8_t known = granule == 1 ? 1 : (uint8_t)(__builtin_ctzll(granule) + 2);
  if (device >= 0 && device < AQ_KNOWN_DEVICES) __atomic_store_n(&aq_known_granules[device], known, __ATOMIC_RELAXED);
  return granule;
}
