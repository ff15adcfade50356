/* Hooks of what NVML says about processes. NVML knows them by numbers of the host, which mean nothing in a container, and
 * knows the neighbours' too; so the list is made from the usage page: this container's processes, by its own numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"
#include "loader.h"
#include "nvml_cards.h"

typedef struct {
  unsigned int pid;
  unsigned long long used;
} entry;

/* Whether a slot is a living process of this pid namespace that has memory on the card. */
static bool is_shown(int slot, int card, entry *out) {
  const aq_usage_slot *from = &aq_slice.usage->slots[slot];
  uint64_t owner = __atomic_load_n(&from->owner, __ATOMIC_ACQUIRE);
  if (!owner || __atomic_load_n(&from->pid_namespace, __ATOMIC_RELAXED) != aq_slice.self.pid_namespace) return false;
  *out = (entry){.pid = __atomic_load_n(&from->pid, __ATOMIC_RELAXED), .used = aq_ledger_held(aq_slice.usage, slot, card)};
  return out->used && !aq_process_is_dead(owner, &aq_slice.self);
}

/* What is listed: the driver's own answer, or ours. */
static bool is_replaced(void) {
  aq_mode mode = aq_tenant_mode();
  return mode == AQ_DENY || (mode == AQ_GUARD && aq_enforcement() != AQ_ENFORCE_OFF);
}

static int list(nvmlDevice_t device, entry *entries) {
  int count = 0;
  int card = aq_tenant_mode() == AQ_GUARD ? aq_nvml_card(device) : AQ_NO_CARD;
  for (int slot = 0; card != AQ_NO_CARD && slot < AQ_MAX_SLOTS; slot++) count += is_shown(slot, card, &entries[count]);
  return count;
}

/* NVML's protocol: with too little room the caller learns how much is needed. */
static nvmlReturn_t make_room(unsigned int *room, int count) {
  unsigned int had = *room;
  *room = (unsigned int)count;
  return had < (unsigned int)count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t list_v1(nvmlDevice_t device, unsigned int *room, nvmlProcessInfo_v1_t *out) {
  entry entries[AQ_MAX_SLOTS + 1];
  if (!room) return NVML_ERROR_INVALID_ARGUMENT;
  int count = list(device, entries);
  nvmlReturn_t result = make_room(room, count);
  if (result != NVML_SUCCESS || !out) return result;
  for (int i = 0; i < count; i++) out[i] = (nvmlProcessInfo_v1_t){entries[i].pid, entries[i].used};
  return result;
}

static nvmlReturn_t list_v2(nvmlDevice_t device, unsigned int *room, nvmlProcessInfo_t *out) {
  entry entries[AQ_MAX_SLOTS + 1];
  if (!room) return NVML_ERROR_INVALID_ARGUMENT;
  int count = list(device, entries);
  nvmlReturn_t result = make_room(room, count);
  if (result != NVML_SUCCESS || !out) return result;
  for (int i = 0; i < count; i++)
    out[i] = (nvmlProcessInfo_t){entries[i].pid, entries[i].used, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
  return result;
}

/* Who draws, or computes through MPS, is not known: nobody is shown. */
static nvmlReturn_t list_none(unsigned int *room) {
  if (!room) return NVML_ERROR_INVALID_ARGUMENT;
  *room = 0;
  return NVML_SUCCESS;
}

#define HOOK(symbol, type, answer)                                                             \
  nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, type *processes) {             \
    if (!AQ_NVML(symbol)) return NVML_ERROR_FUNCTION_NOT_FOUND;                                \
    return is_replaced() ? answer : AQ_NVML(symbol)(device, count, processes);                 \
  }

HOOK(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, list_v1(device, count, processes))
HOOK(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t, list_v2(device, count, processes))
HOOK(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, list_v2(device, count, processes))
HOOK(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, list_none(count))
HOOK(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t, list_none(count))
HOOK(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, list_none(count))
HOOK(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, list_none(count))
HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t, list_none(count))
HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, list_none(count))
