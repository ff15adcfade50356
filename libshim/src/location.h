/* Where memory is asked to lie.
 *
 * A location that is none of the host's is a device's: what a newer driver adds is charged to somebody.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_LOCATION_H
#define AQ_LOCATION_H

#include <stdbool.h>

#include "cuda_abi.h"

static inline bool aq_location_is_host(CUmemLocation at) {
  return at.type >= CU_MEM_LOCATION_TYPE_HOST && at.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/* Whether the location names a device, whole or in part. */
static inline bool aq_location_is_device(CUmemLocation at) {
  return at.type == CU_MEM_LOCATION_TYPE_DEVICE || at.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN;
}

/* The device that it names. A locality domain is a part of a device, named by a byte, as the device is. */
static inline CUdevice aq_location_device(CUmemLocation at) {
  return at.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN ? at.id & 0xff : at.id;
}

#endif
