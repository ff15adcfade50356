/* CUDA numbers the devices that a process may see, in an order of its own; the control page names cards by UUID.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cards.h"

#include <string.h>

#include "loader.h"

uint8_t aq_known_cards[AQ_KNOWN_DEVICES];

static int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The 16 bytes of "GPU-8d7a6b9c-…": the prefix and the dashes are for people. */
static bool parse_uuid(const char *text, uint8_t out[16]) {
  int digits = 0;
  if (!strncmp(text, "GPU-", 4) || !strncmp(text, "MIG-", 4)) text += 4;
  for (; *text && digits < 32; text++) {
    if (*text == '-') continue;
    int value = hex_value(*text);
    if (value < 0) return false;
    out[digits / 2] = (uint8_t)(digits & 1 ? out[digits / 2] << 4 | value : value);
    digits++;
  }
  return digits == 32 && !*text;
}

static int card_of_bytes(const uint8_t wanted[16]) {
  for (uint32_t card = 0; card < aq_slice.control->card_count && card < AQ_MAX_CARDS; card++) {
    uint8_t bytes[16];
    char text[AQ_UUID_SIZE];
    memcpy(text, aq_slice.control->cards[card].uuid, sizeof text);
    text[sizeof text - 1] = '\0';
    if (parse_uuid(text, bytes) && !memcmp(bytes, wanted, sizeof bytes)) return (int)card;
  }
  return AQ_NO_CARD;
}

int aq_card_of_uuid(const char *uuid) {
  uint8_t bytes[16];
  return parse_uuid(uuid, bytes) ? card_of_bytes(bytes) : AQ_NO_CARD;
}

static bool is_limited(int card) { return aq_slice.control->cards[card].memory_limit != AQ_MEMORY_MAX; }
static bool is_capped(int card) { return aq_slice.control->cards[card].core_percent != 0; }

/* A limit for a card that is not there was meant for another one: for this one, where it has none. `count`: how many are. */
static void end_where_misnumbered(int card, int count, bool (*has)(int card), const char *variable) {
  int lost = count;
  if (has(card)) return;
  for (; lost < AQ_MAX_CARDS && !has(lost); lost++) continue;
  if (lost < AQ_MAX_CARDS)
    aq_tenant_end("%s_%d names no card: this program sees %d, counted from 0; write %s_%d, or %s for all of them", variable, lost,
                  count, variable, card, variable);
}

static int card_of_ordinal(CUdevice device) {
  static uint32_t checked; /* a bit for each card; the environment's limits do not change */
  int count = 0;
  if (device < 0 || device >= AQ_MAX_CARDS) return AQ_NO_CARD;
  uint32_t bit = UINT32_C(1) << device;
  if (__atomic_load_n(&checked, __ATOMIC_RELAXED) & bit) return device;
  if (!AQ_CUDA(cuDeviceGetCount) || AQ_CUDA(cuDeviceGetCount)(&count)) return device;
  end_where_misnumbered(device, count, is_limited, "CUDA_DEVICE_MEMORY_LIMIT");
  end_where_misnumbered(device, count, is_capped, "CUDA_DEVICE_SM_LIMIT");
  __atomic_fetch_or(&checked, bit, __ATOMIC_RELAXED);
  return device;
}

/* A MIG instance has a UUID of its own, which only the newer question tells. */
static int ask(CUdevice device) {
  CUuuid uuid;
  int card = AQ_NO_CARD;
  if (aq_slice.hami) return card_of_ordinal(device);
  if (AQ_CUDA(cuDeviceGetUuid_v2) && AQ_CUDA(cuDeviceGetUuid_v2)(&uuid, device) == CUDA_SUCCESS)
    card = card_of_bytes((const uint8_t *)uuid.bytes);
  if (card == AQ_NO_CARD && AQ_CUDA(cuDeviceGetUuid) && AQ_CUDA(cuDeviceGetUuid)(&uuid, device) == CUDA_SUCCESS)
    card = card_of_bytes((const uint8_t *)uuid.bytes);
  return card;
}

int aq_card_look_up(CUdevice device) {
  int card = ask(device);
  if (device >= 0 && device < AQ_KNOWN_DEVICES) __atomic_store_n(&aq_known_cards[device], (uint8_t)(card + 2), __ATOMIC_RELAXED);
  return card;
}

CUresult aq_current_device(CUdevice *device) {
  return AQ_CUDA(cuCtxGetDevice) ? AQ_CUDA(cuCtxGetDevice)(device) : CUDA_ERROR_NOT_FOUND;
}

void aq_cards_forget(void) { memset(aq_known_cards, 0, sizeof aq_known_cards); }
