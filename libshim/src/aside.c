/* The entries of what is put aside. One is claimed by its owner's word and counts from when its second word is written; it is let
 * go the other way round. Whoever is killed in between leaves the process charged, never more room than there is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "aside.h"

#include "aliquot_usage.h"

#define ENTRIES ((int)(sizeof((aq_usage_file *)0)->asides / sizeof(aq_usage_aside)))

static_assert(ENTRIES == 64, "a card's word has a bit for each");

static aq_usage_aside *entry_at(int index) { return &((aq_usage_file *)aq_slice.usage)->asides[index]; }

static uint64_t owner_of(int slot) { return aq_usage_load(&aq_slice.usage->slots[slot].owner); }

static uint64_t pack(uint64_t bytes, int slot, int card) { return bytes << 16 | (uint64_t)slot << 8 | (uint64_t)card; }

/* Whether a slot is of a process of this number; one that runs in several copies of us has several. */
static bool is_of(int slot, int pid) {
  const aq_usage_slot *s = &aq_slice.usage->slots[slot];
  return owner_of(slot) && __atomic_load_n(&s->pid, __ATOMIC_RELAXED) == (uint32_t)pid &&
         __atomic_load_n(&s->pid_namespace, __ATOMIC_RELAXED) == aq_slice.self.pid_namespace;
}

/* ---- putting ---- */

static bool owns_any_slot(uint64_t owner) {
  for (int slot = 0; slot < AQ_MAX_SLOTS; slot++)
    if (owner_of(slot) == owner) return true;
  return false;
}

/* Takes an entry that is free, or of a process that has ended: no other will ever have that one's word. */
static bool claim(aq_usage_aside *aside, uint64_t owner) {
  uint64_t former = aq_usage_load(&aside->owner), word = aq_usage_load(&aside->word);
  if (former && owns_any_slot(former)) return false;
  if (word && !__atomic_compare_exchange_n(&aside->word, &word, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return false;
  return __atomic_compare_exchange_n(&aside->owner, &former, owner, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Where all entries are taken the process stays charged. */
static void put(int slot, int card, uint64_t bytes) {
  uint64_t owner = owner_of(slot);
  for (int index = 0; index < ENTRIES; index++) {
    if (!claim(entry_at(index), owner)) continue;
    __atomic_fetch_or(&aq_slice.usage->cards[card].aside, UINT64_C(1) << index, __ATOMIC_RELAXED);
    __atomic_store_n(&entry_at(index)->word, pack(bytes, slot, card), __ATOMIC_RELEASE);
    return;
  }
}

void aq_aside_put(int pid) {
  uint32_t cards = aq_slice.control->card_count;
  if (!aq_usage_has_parts(aq_slice.usage)) return; /* nobody else would know */
  for (int slot = 0; slot < AQ_MAX_SLOTS; slot++) {
    for (uint32_t card = 0; is_of(slot, pid) && card < cards; card++) {
      uint64_t bytes = aq_usage_used_by(aq_slice.usage, slot, (int)card);
      if (bytes) put(slot, (int)card, bytes);
    }
  }
}

/* ---- taking ---- */

/* The entry's bytes and card, if it is of a slot of this process. */
static uint64_t look(int index, int pid, int *card, bool take) {
  aq_usage_aside *aside = entry_at(index);
  uint64_t word = aq_usage_load(&aside->word);
  int slot = (int)(word >> 8 & 0xff);
  *card = (int)(word & 0xff) % AQ_MAX_CARDS;
  if (!word || !is_of(slot, pid) || aq_usage_load(&aside->owner) != owner_of(slot)) return 0;
  if (!take) return word >> 16;
  if (!__atomic_compare_exchange_n(&aside->word, &word, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 0;
  __atomic_fetch_and(&aq_slice.usage->cards[*card].aside, ~(UINT64_C(1) << index), __ATOMIC_RELAXED);
  __atomic_store_n(&aside->owner, 0, __ATOMIC_RELEASE);
  return word >> 16;
}

static aq_aside_sums sums_of(int pid, bool take) {
  aq_aside_sums sums = {{0}};
  for (int index = 0, card; index < ENTRIES && aq_usage_has_parts(aq_slice.usage); index++) {
    uint64_t bytes = look(index, pid, &card, take);
    sums.bytes[card] += bytes;
  }
  return sums;
}

aq_aside_sums aq_aside_of(int pid) { return sums_of(pid, false); }
aq_aside_sums aq_aside_take(int pid) { return sums_of(pid, true); }
