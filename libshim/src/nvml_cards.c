/* NVML's devices and the slice's cards: by UUID where a control page names them, by CUDA's order of the devices under
 * HAMi-core's environment, where CUDA_VISIBLE_DEVICES says which those are. CUDA itself is not asked: a program that
 * watches cards need not load it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nvml_cards.h"

#include <stdlib.h>
#include <string.h>

#include "cards.h"
#include "loader.h"

bool aq_nvml_is_narrowed(void) { return aq_tenant_mode() == AQ_GUARD && !aq_slice.hami; }

/* Whether an entry of CUDA_VISIBLE_DEVICES is this device: its index, or its UUID as far as it is written. */
static bool names_device(const char *entry, size_t length, unsigned int index, const char *uuid) {
  char *end;
  unsigned long number = strtoul(entry, &end, 10);
  if (end == entry + length && length) return number == index;
  return length > 4 && !strncmp(entry, uuid, length);
}

static int ordinal(unsigned int index, const char *uuid) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return index < AQ_MAX_CARDS ? (int)index : AQ_NO_CARD;
  for (int card = 0; card < AQ_MAX_CARDS; card++) {
    size_t length = strcspn(visible, ",");
    if (names_device(visible, length, index, uuid)) return card;
    if (!visible[length]) break;
    visible += length + 1;
  }
  return AQ_NO_CARD;
}

int aq_nvml_card(nvmlDevice_t device) {
  char uuid[NVML_UUID_SIZE];
  unsigned int index;
  if (!AQ_NVML(nvmlDeviceGetUUID) || AQ_NVML(nvmlDeviceGetUUID)(device, uuid, sizeof uuid)) return AQ_NO_CARD;
  if (!aq_slice.hami) return aq_card_of_uuid(uuid);
  if (!AQ_NVML(nvmlDeviceGetIndex) || AQ_NVML(nvmlDeviceGetIndex)(device, &index)) return AQ_NO_CARD;
  return ordinal(index, uuid);
}

static int instances(nvmlDevice_t device, int cards[AQ_MAX_CARDS]) {
  unsigned int most = 0;
  int count = 0;
  nvmlDevice_t instance;
  if (!AQ_NVML(nvmlDeviceGetMaxMigDeviceCount) || AQ_NVML(nvmlDeviceGetMaxMigDeviceCount)(device, &most)) return 0;
  for (unsigned int i = 0; i < most && count < AQ_MAX_CARDS && AQ_NVML(nvmlDeviceGetMigDeviceHandleByIndex); i++) {
    if (AQ_NVML(nvmlDeviceGetMigDeviceHandleByIndex)(device, i, &instance)) continue;
    cards[count] = aq_nvml_card(instance);
    count += cards[count] != AQ_NO_CARD;
  }
  return count;
}

int aq_nvml_cards(nvmlDevice_t device, int cards[AQ_MAX_CARDS]) {
  cards[0] = aq_nvml_card(device);
  if (cards[0] != AQ_NO_CARD) return 1;
  return aq_slice.hami ? 0 : instances(device, cards);
}
