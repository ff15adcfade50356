/* Sizes are written as `aliquot` writes and reads them: whole MiB with the largest suffix that needs no fraction.
 * SPDX-License-Identifier: Apache-2.0 */
#include "refusal.h"

#include <stdio.h>

#include "allowance.h"
#include "ledger.h"
#include "loader.h"
#include "say.h"

#define MIB (UINT64_C(1) << 20)
#define BLOCK (32 * MIB) /* drivers take memory from the card in blocks of up to so much, those of pools */

typedef struct {
  char text[24];
} written;

static written write_size(uint64_t mib) {
  static const char suffixes[] = "MGTP";
  written out = {.text = "0"};
  int step = 0;
  for (; mib && mib % 1024 == 0 && suffixes[step + 1]; step++) mib /= 1024;
  if (mib) snprintf(out.text, sizeof out.text, "%llu%ci", (unsigned long long)mib, suffixes[step]);
  return out;
}

static written rounded_down(uint64_t bytes) { return write_size(bytes / MIB); }
static written rounded_up(uint64_t bytes) { return write_size(bytes / MIB + (bytes % MIB != 0)); }

/* What the whole card has; more than any, where the driver does not say. */
static uint64_t card_bytes(CUdevice device) {
  size_t total = 0;
  bool told = AQ_CUDA(cuDeviceTotalMem_v2) && !AQ_CUDA(cuDeviceTotalMem_v2)(&total, device);
  return told ? total : UINT64_MAX;
}

/* How much larger than `limit` the slice has to be for `bytes` more, of which the card has `on_card` beside what is used. */
static uint64_t lacking(uint64_t bytes, uint64_t used, uint64_t limit, uint64_t on_card) {
  uint64_t blocks = (bytes + BLOCK - 1) / BLOCK * BLOCK;
  return used + (blocks < on_card ? blocks : on_card) - limit;
}

/* Where it would fit by now, it was refused for another reason; a size that no card can have is a mistake of the program's. */
void aq_refusal_tell(CUdevice device, int card, uint64_t bytes) {
  static uint64_t told; /* of this limit */
  if (!aq_slice.run[0] || bytes > AQ_MEMORY_MAX) return;
  aq_allowance terms = aq_allowance_of(card);
  uint64_t used = aq_allowance_in_use(&terms, aq_ledger_used(aq_slice.usage, card));
  uint64_t left = used < terms.limit ? terms.limit - used : 0;
  if (bytes <= left || __atomic_exchange_n(&told, terms.limit, __ATOMIC_RELAXED) == terms.limit) return;
  uint64_t whole = card_bytes(device);
  if (used + bytes > whole) {
    aq_say("run %s: refused %s: %s of %s left, and the whole card has %s", aq_slice.run, rounded_up(bytes).text,
           rounded_down(left).text, rounded_down(terms.limit).text, rounded_down(whole).text);
    return;
  }
  aq_say("run %s: the slice, not the card, refused %s: %s of %s left; to enlarge it: aliquot resize %s --mem +%s",
         aq_slice.run, rounded_up(bytes).text, rounded_down(left).text, rounded_down(terms.limit).text, aq_slice.run,
         rounded_up(lacking(bytes, used, terms.limit, whole - used)).text);
}
