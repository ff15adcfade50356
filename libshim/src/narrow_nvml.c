/* Hooks of which cards NVML lists: the slice's, numbered from 0 in NVML's order. Other cards are not found.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader.h"
#include "nvml_cards.h"

typedef nvmlReturn_t (*count_function)(unsigned int *count);
typedef nvmlReturn_t (*index_function)(unsigned int index, nvmlDevice_t *device);

/* A card counts as ours, too, where only MIG instances on it are. */
static bool is_ours(nvmlDevice_t device) {
  int cards[AQ_MAX_CARDS];
  return aq_nvml_cards(device, cards) > 0;
}

/* Calls `visit` with the slice's devices in order until it returns true. */
static nvmlReturn_t each(bool (*visit)(nvmlDevice_t device, unsigned int index, void *data), void *data) {
  count_function count = AQ_NVML(nvmlDeviceGetCount_v2);
  index_function by_index = AQ_NVML(nvmlDeviceGetHandleByIndex_v2);
  unsigned int all, index = 0;
  nvmlDevice_t device;
  if (!count || !by_index) return NVML_ERROR_FUNCTION_NOT_FOUND;
  nvmlReturn_t result = count(&all);
  for (unsigned int i = 0; result == NVML_SUCCESS && i < all; i++) {
    if (by_index(i, &device) != NVML_SUCCESS || !is_ours(device)) continue;
    if (visit(device, index++, data)) break;
  }
  return result;
}

static bool count_one(nvmlDevice_t device, unsigned int index, void *data) {
  (void)device;
  *(unsigned int *)data = index + 1;
  return false;
}

static nvmlReturn_t count_cards(unsigned int *count) {
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned int found = 0;
  nvmlReturn_t result = each(count_one, &found);
  if (result == NVML_SUCCESS) *count = found;
  return result;
}

/* A device and its number among the slice's cards: either is looked for by the other. */
typedef struct {
  nvmlDevice_t device;
  unsigned int index;
  bool found;
} place;

static bool at_index(nvmlDevice_t device, unsigned int index, void *data) {
  place *wanted = data;
  if (index != wanted->index) return false;
  wanted->device = device;
  return wanted->found = true;
}

static bool at_device(nvmlDevice_t device, unsigned int index, void *data) {
  place *wanted = data;
  if (device != wanted->device) return false;
  wanted->index = index;
  return wanted->found = true;
}

static nvmlReturn_t card_at(unsigned int index, nvmlDevice_t *device) {
  place wanted = {.index = index};
  if (!device) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = each(at_index, &wanted);
  if (result == NVML_SUCCESS && !wanted.found) return NVML_ERROR_INVALID_ARGUMENT; /* as NVML says of an index too high */
  if (result == NVML_SUCCESS) *device = wanted.device;
  return result;
}

/* A device that was found some other way stays found only if it is the slice's. */
static nvmlReturn_t ours_only(nvmlReturn_t result, nvmlDevice_t *device) {
  if (result != NVML_SUCCESS || !aq_nvml_is_narrowed() || is_ours(*device)) return result;
  *device = NULL;
  return NVML_ERROR_NOT_FOUND;
}

#define COUNT(symbol)                                              \
  nvmlReturn_t symbol(unsigned int *count) {                       \
    if (!AQ_NVML(symbol)) return NVML_ERROR_FUNCTION_NOT_FOUND;    \
    return aq_nvml_is_narrowed() ? count_cards(count) : AQ_NVML(symbol)(count); \
  }

#define BY_INDEX(symbol)                                           \
  nvmlReturn_t symbol(unsigned int index, nvmlDevice_t *device) {  \
    if (!AQ_NVML(symbol)) return NVML_ERROR_FUNCTION_NOT_FOUND;    \
    return aq_nvml_is_narrowed() ? card_at(index, device) : AQ_NVML(symbol)(index, device); \
  }

#define BY_NAME(symbol, type)                                      \
  nvmlReturn_t symbol(const type *name, nvmlDevice_t *device) {    \
    if (!AQ_NVML(symbol)) return NVML_ERROR_FUNCTION_NOT_FOUND;    \
    return ours_only(AQ_NVML(symbol)(name, device), device);       \
  }

COUNT(nvmlDeviceGetCount)
COUNT(nvmlDeviceGetCount_v2)
BY_INDEX(nvmlDeviceGetHandleByIndex)
BY_INDEX(nvmlDeviceGetHandleByIndex_v2)
BY_NAME(nvmlDeviceGetHandleByUUID, char)
BY_NAME(nvmlDeviceGetHandleByUUIDV, void)
BY_NAME(nvmlDeviceGetHandleBySerial, char)
BY_NAME(nvmlDeviceGetHandleByPciBusId, char)
BY_NAME(nvmlDeviceGetHandleByPciBusId_v2, char)

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
  if (!AQ_NVML(nvmlDeviceGetIndex)) return NVML_ERROR_FUNCTION_NOT_FOUND;
  nvmlReturn_t result = AQ_NVML(nvmlDeviceGetIndex)(device, index);
  place wanted = {.device = device};
  if (result != NVML_SUCCESS || !aq_nvml_is_narrowed()) return result;
  result = each(at_device, &wanted);
  if (result == NVML_SUCCESS && wanted.found) *index = wanted.index;
  return result;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance) {
  if (!AQ_NVML(nvmlDeviceGetMigDeviceHandleByIndex)) return NVML_ERROR_FUNCTION_NOT_FOUND;
  return ours_only(AQ_NVML(nvmlDeviceGetMigDeviceHandleByIndex)(device, index, instance), instance);
}
