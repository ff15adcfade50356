/* Hooks of what NVML says about memory: the slice is the card. Of a card that is not ours nothing is free.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader.h"
#include "nvml_cards.h"
#include "quota.h"

/* One device's memory in bytes; `total` without what the driver keeps for itself. */
typedef struct {
  unsigned long long total, available, used;
} view;

static void add_card(int card, const view *driver, view *sum) {
  size_t available = driver->available, total = driver->total;
  sum->used += aq_quota_show_card(card, &available, &total);
  sum->available += available;
  sum->total += total;
}

/* Replaces the driver's figures. A card on which the slice has several MIG instances shows their sum. */
static bool show(nvmlDevice_t device, view *shown) {
  int cards[AQ_MAX_CARDS];
  view driver = *shown;
  aq_mode mode = aq_tenant_mode();
  if (mode == AQ_PASS || (mode == AQ_GUARD && aq_enforcement() != AQ_ENFORCE_ENFORCE)) return false;
  int count = mode == AQ_GUARD ? aq_nvml_cards(device, cards) : 0;
  *shown = (view){0};
  for (int i = 0; i < count; i++) add_card(cards[i], &driver, shown);
  if (!count) add_card(AQ_NO_CARD, &driver, shown);
  return true;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  if (!AQ_NVML(nvmlDeviceGetMemoryInfo)) return NVML_ERROR_FUNCTION_NOT_FOUND;
  nvmlReturn_t result = AQ_NVML(nvmlDeviceGetMemoryInfo)(device, memory);
  if (result != NVML_SUCCESS) return result;
  view shown = {memory->total, memory->free, memory->used};
  if (show(device, &shown)) *memory = (nvmlMemory_t){.total = shown.total, .free = shown.available, .used = shown.used};
  return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  if (!AQ_NVML(nvmlDeviceGetMemoryInfo_v2)) return NVML_ERROR_FUNCTION_NOT_FOUND;
  nvmlReturn_t result = AQ_NVML(nvmlDeviceGetMemoryInfo_v2)(device, memory);
  if (result != NVML_SUCCESS) return result;
  view shown = {memory->total, memory->free, memory->used};
  if (!show(device, &shown)) return result;
  *memory = (nvmlMemory_v2_t){.version = memory->version, .total = shown.total, .free = shown.available, .used = shown.used};
  memory->reserved = shown.total - shown.available - shown.used; /* the neighbours' */
  return result;
}
