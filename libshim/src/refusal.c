/* Sizes are written as `aliquot` writes and reads them: whole MiB with the largest suffix that needs no fraction.
 * SPDX-License-Identifier: Apache-2.0 */
#include "refusal.h"

#include <stdio.h>

#include "allowance.h"
#include "ledger.h"
#include "loader.h"
#include "say.h"

#define MIB (UINT64_C(1) << 20)
#define MEMORY "CUDA_DEVICE_MEMORY_LIMIT"
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

/* One refusal: the slice's terms and the card's size, in bytes. */
typedef struct {
  uint64_t asked, used, left, limit, whole;
} refusal;

/* How much larger the slice has to be: drivers take whole blocks, as far as the card has them beside what is used. */
static uint64_t lacking(const refusal *r) {
  uint64_t blocks = (r->asked + BLOCK - 1) / BLOCK * BLOCK, on_card = r->whole - r->used;
  return r->used + (blocks < on_card ? blocks : on_card) - r->limit;
}

static bool is_beyond_the_card(const refusal *r) { return r->used + r->asked > r->whole; }

static void tell_beyond_the_card(const refusal *r, const char *limiter) {
  aq_say("%s refused %s: %s of %s left, and the whole card has %s", limiter, rounded_up(r->asked).text,
         rounded_down(r->left).text, rounded_down(r->limit).text, rounded_down(r->whole).text);
}

static void tell_run(const refusal *r) {
  char run[AQ_RUN_ID_SIZE + sizeof "run :"];
  snprintf(run, sizeof run, "run %s:", aq_slice.run);
  if (is_beyond_the_card(r)) {
    tell_beyond_the_card(r, run);
    return;
  }
  aq_say("%s the slice, not the card, refused %s: %s of %s left; to enlarge it: aliquot resize %s --mem +%s", run,
         rounded_up(r->asked).text, rounded_down(r->left).text, rounded_down(r->limit).text, aq_slice.run,
         rounded_up(lacking(r)).text);
}

/* A program that runs keeps the limit of its environment: only one that is started anew can have more. */
static void tell_environment(const refusal *r, int card) {
  char variable[sizeof MEMORY + sizeof "_-2147483648"] = MEMORY;
  if (aq_slice.hami->memory_of_card[card]) snprintf(variable, sizeof variable, MEMORY "_%d", card);
  if (is_beyond_the_card(r)) {
    tell_beyond_the_card(r, variable);
    return;
  }
  uint64_t enough = r->limit + lacking(r);
  aq_say("%s, not the card, refused %s: %s of %s left; for more, start the program anew with %s=%llum", variable,
         rounded_up(r->asked).text, rounded_down(r->left).text, rounded_down(r->limit).text, variable,
         (unsigned long long)(enough / MIB + (enough % MIB != 0)));
}

/* Where it would fit by now, it was refused for another reason; a size that no card can have is a mistake of the program's. */
void aq_refusal_tell(CUdevice device, int card, uint64_t bytes) {
  static uint64_t told; /* of this limit */
  if (aq_slice.quiet || (!aq_slice.run[0] && !aq_slice.hami) || bytes > AQ_MEMORY_MAX) return;
  aq_allowance terms = aq_allowance_of(card);
  refusal r = {.asked = bytes, .limit = terms.limit, .whole = card_bytes(device)};
  r.used = aq_allowance_in_use(&terms, aq_ledger_used(aq_slice.usage, card));
  r.left = r.used < r.limit ? r.limit - r.used : 0;
  if (bytes <= r.left || __atomic_exchange_n(&told, r.limit, __ATOMIC_RELAXED) == r.limit) return;
  if (aq_slice.hami) tell_environment(&r, card);
  else tell_run(&r);
}
