/* Hooks of what NVML says about processes. NVML knows them by numbers of the host, which mean nothing in a container, and
 * knows the neighbours' too; so the list is made from the usage page: this container's processes, by its own numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "aliquot_usage.h"
#include "ledger.h"
#include "loader.h"
#include "nvml_cards.h"

#define SPARE_SAMPLES 64 /* processes that start between two questions */

typedef struct {
  unsigned int pid;
  unsigned long long used;
} entry;

/* Whether a slot is a living process of this pid namespace. */
static bool is_own(int slot, unsigned int *pid) {
  const aq_usage_slot *from = &aq_slice.usage->slots[slot];
  uint64_t owner = __atomic_load_n(&from->owner, __ATOMIC_ACQUIRE);
  if (!owner || __atomic_load_n(&from->pid_namespace, __ATOMIC_RELAXED) != aq_slice.self.pid_namespace) return false;
  *pid = __atomic_load_n(&from->pid, __ATOMIC_RELAXED);
  return !aq_process_is_dead(owner, &aq_slice.self);
}

/* Whether it also has memory on the cards. */
static bool is_shown(int slot, const int *cards, int count, entry *out) {
  out->used = 0;
  for (int i = 0; i < count; i++) out->used += aq_usage_used_by(aq_slice.usage, slot, cards[i]);
  return out->used && is_own(slot, &out->pid);
}

/* What is listed: the driver's own answer, or ours. */
static bool is_replaced(void) {
  aq_mode mode = aq_tenant_mode();
  return mode == AQ_DENY || (mode == AQ_GUARD && aq_enforcement() != AQ_ENFORCE_OFF);
}

static int list(nvmlDevice_t device, entry *entries) {
  int cards[AQ_MAX_CARDS], count = 0;
  int card_count = aq_tenant_mode() == AQ_GUARD ? aq_nvml_cards(device, cards) : 0;
  for (int slot = 0; card_count && slot < AQ_MAX_SLOTS; slot++) count += is_shown(slot, cards, card_count, &entries[count]);
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

static nvmlReturn_t list_details(nvmlDevice_t device, nvmlProcessDetailList_v1_t *out) {
  entry entries[AQ_MAX_SLOTS + 1];
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  if (out->version != NVML_PROCESS_DETAIL_LIST_V1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  int count = out->mode == NVML_PROCESS_MODE_COMPUTE ? list(device, entries) : 0;
  nvmlReturn_t result = make_room(&out->count, count);
  if (result != NVML_SUCCESS || !out->processes) return result;
  for (int i = 0; i < count; i++)
    out->processes[i] = (nvmlProcessDetail_v1_t){entries[i].pid, entries[i].used, NVML_NO_INSTANCE, NVML_NO_INSTANCE, 0};
  return result;
}

/* Who draws, or computes through MPS, is not known: nobody is shown. */
static nvmlReturn_t list_none(unsigned int *room) {
  if (!room) return NVML_ERROR_INVALID_ARGUMENT;
  *room = 0;
  return NVML_SUCCESS;
}

/* ---- utilisation: NVML's own samples, of this container's processes only ---- */

static bool is_own_pid(unsigned int pid) {
  unsigned int own;
  for (int slot = 0; aq_tenant_mode() == AQ_GUARD && slot < AQ_MAX_SLOTS; slot++)
    if (is_own(slot, &own) && own == pid) return true;
  return false;
}

static unsigned int keep_own(nvmlProcessUtilizationSample_t *samples, unsigned int count) {
  unsigned int kept = 0;
  for (unsigned int i = 0; i < count; i++)
    if (is_own_pid(samples[i].pid)) samples[kept++] = samples[i];
  return kept;
}

/* All samples of the card, in memory of our own; the caller frees it. */
static nvmlReturn_t sample_all(nvmlDevice_t device, unsigned long long since, nvmlProcessUtilizationSample_t **samples,
                               unsigned int *count) {
  *count = 0;
  *samples = NULL;
  nvmlReturn_t result = AQ_NVML(nvmlDeviceGetProcessUtilization)(device, NULL, count, since);
  if (result != NVML_ERROR_INSUFFICIENT_SIZE) return result;
  *count += SPARE_SAMPLES;
  *samples = calloc(*count, sizeof **samples);
  return *samples ? AQ_NVML(nvmlDeviceGetProcessUtilization)(device, *samples, count, since) : NVML_ERROR_MEMORY;
}

static nvmlReturn_t sample_own(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned int *room,
                               unsigned long long since) {
  nvmlProcessUtilizationSample_t *samples;
  unsigned int count;
  if (!room) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = sample_all(device, since, &samples, &count);
  count = result == NVML_SUCCESS && samples ? keep_own(samples, count) : 0;
  if (result == NVML_SUCCESS && !count) result = NVML_ERROR_NOT_FOUND;
  if (!out) *room = 0;
  if (result == NVML_SUCCESS) result = make_room(room, (int)count);
  for (unsigned int i = 0; result == NVML_SUCCESS && i < count; i++) out[i] = samples[i];
  free(samples);
  return result;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count,
                                             unsigned long long since) {
  if (!AQ_NVML(nvmlDeviceGetProcessUtilization)) return NVML_ERROR_FUNCTION_NOT_FOUND;
  if (!is_replaced()) return AQ_NVML(nvmlDeviceGetProcessUtilization)(device, samples, count, since);
  return sample_own(device, samples, count, since);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *processes) {
  if (!AQ_NVML(nvmlDeviceGetRunningProcessDetailList)) return NVML_ERROR_FUNCTION_NOT_FOUND;
  return is_replaced() ? list_details(device, processes) : AQ_NVML(nvmlDeviceGetRunningProcessDetailList)(device, processes);
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

/* The same samples in a newer form, and NVML's accounting of everybody who ever ran: as on a driver without them. */
#define HIDE(symbol, parameters, ...)                                                               \
  nvmlReturn_t symbol parameters {                                                                  \
    if (!AQ_NVML(symbol)) return NVML_ERROR_FUNCTION_NOT_FOUND;                                     \
    return is_replaced() ? NVML_ERROR_NOT_SUPPORTED : AQ_NVML(symbol)(__VA_ARGS__);                 \
  }

HIDE(nvmlDeviceGetProcessesUtilizationInfo, (nvmlDevice_t device, void *samples), device, samples)
HIDE(nvmlDeviceGetAccountingPids, (nvmlDevice_t device, unsigned int *count, unsigned int *pids), device, count, pids)
HIDE(nvmlDeviceGetAccountingStats, (nvmlDevice_t device, unsigned int pid, void *stats), device, pid, stats)
HIDE(nvmlDeviceGetAccountingStats_v2, (nvmlDevice_t device, void *stats), device, stats)
