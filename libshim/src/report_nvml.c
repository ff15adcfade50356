/* Hooks of what NVML says about memory: the slice is the card. Of a card that is not ours nothing is free.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader.h"
#include "nvml_cards.h"
#include "quota.h"

/* Replaces the driver's figures of a device, in bytes; `total` without what the driver keeps for itself. */
static bool show(nvmlDevice_t device, unsigned long long *total, unsigned long long *available, unsigned long long *used) {
  aq_mode mode = aq_tenant_mode();
  if (mode == AQ_PASS || (mode == AQ_GUARD && aq_enforcement() != AQ_ENFORCE_ENFORCE)) return false;
  size_t free_bytes = *available, total_bytes = *total;
  aq_quota_show_card(mode == AQ_GUARD ? aq_nvml_card(device) : AQ_NO_CARD, &free_bytes, &total_bytes);
  *total = total_bytes;
  *available = free_bytes;
  *used = total_bytes - free_bytes;
  return true;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  if (!AQ_NVML(nvmlDeviceGetMemoryInfo)) return NVML_ERROR_FUNCTION_NOT_FOUND;
  nvmlReturn_t result = AQ_NVML(nvmlDeviceGetMemoryInfo)(device, memory);
  if (result == NVML_SUCCESS) show(device, &memory->total, &memory->free, &memory->used);
  return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  if (!AQ_NVML(nvmlDeviceGetMemoryInfo_v2)) return NVML_ERROR_FUNCTION_NOT_FOUND;
  nvmlReturn_t result = AQ_NVML(nvmlDeviceGetMemoryInfo_v2)(device, memory);
  if (result == NVML_SUCCESS && show(device, &memory->total, &memory->free, &memory->used)) memory->reserved = 0;
  return result;
}
