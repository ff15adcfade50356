/* How the usage page is read, by the interceptor and by the agent: what is in use is what is charged without the advances and
 * without what checkpoints have put aside.
 *
 * A charge may be ahead of use: a process takes an advance on the slice and allocates from it without touching a word that
 * its neighbours write (src/advance.h). The tallies hold advances, what anybody is told does not.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef ALIQUOT_USAGE_H
#define ALIQUOT_USAGE_H

#include <stdbool.h>

#include "aliquot_pages.h"

#define AQ_USAGE_TRIES 100

static inline uint64_t aq_tally_bytes(uint64_t tally) { return tally >> AQ_TALLY_SHIFT; }
static inline unsigned aq_tally_slot(uint64_t card_tally) { return (card_tally >> 8) & 0xff; }
static inline unsigned aq_tally_number(uint64_t card_tally) { return card_tally & 0xff; }
static inline unsigned aq_tally_count(uint64_t slot_tally) { return slot_tally & 0xffff; }

static inline uint64_t aq_advance_bytes(uint64_t word) { return word >> AQ_ADVANCE_SHIFT; }
static inline unsigned aq_advance_count(uint64_t word) { return word & 0xffff; }

static inline bool aq_usage_has_advances(const aq_usage_page *page) { return page->size >= AQ_USAGE_ADVANCED_SIZE; }

static inline bool aq_usage_has_monitors(const aq_usage_page *page) { return page->size >= AQ_USAGE_MONITORED_SIZE; }

static inline bool aq_usage_has_parts(const aq_usage_page *page) { return page->size >= AQ_USAGE_FILE_SIZE; }

/* In a process's mapping they are always there: where the file ends before them, in memory of its own. */
static inline aq_usage_parts *aq_usage_parts_of(const aq_usage_page *page, int slot) {
  return &((aq_usage_file *)page)->parts[slot];
}

/* Where there are any. */
static inline uint32_t *aq_usage_monitor_of(const aq_usage_page *page, int slot) {
  return &((aq_usage_file *)page)->monitors.threads[slot];
}

/* Where there are any. */
static inline aq_advance_slot *aq_usage_advances_of(const aq_usage_page *page, int slot) {
  return &((aq_usage_file *)page)->advances[slot];
}

static inline uint64_t aq_usage_load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

/* Whether the words at a slot's index are its owner's: an interceptor that knows of none leaves a former owner's there. */
static inline bool aq_usage_is_advanced(const aq_usage_page *page, int slot, int card) {
  if (slot >= AQ_ADVANCE_SLOTS || card >= AQ_ADVANCE_CARDS || !aq_usage_has_advances(page)) return false;
  const aq_usage_slot *owner = &page->slots[slot];
  const aq_advance_slot *own = aq_usage_advances_of(page, slot);
  return aq_usage_load(&page->cards[card].advanced) >> slot & 1 &&
         __atomic_load_n(&own->pid, __ATOMIC_RELAXED) == __atomic_load_n(&owner->pid, __ATOMIC_RELAXED) &&
         __atomic_load_n(&own->image, __ATOMIC_RELAXED) == __atomic_load_n(&owner->image, __ATOMIC_RELAXED);
}

/* A slot's advance while its last change is number `count`. */
static inline uint64_t aq_usage_advance(const aq_usage_page *page, int slot, int card, unsigned count) {
  if (!aq_usage_is_advanced(page, slot, card)) return 0;
  const aq_advance *words = &aq_usage_advances_of(page, slot)->cards[card];
  uint64_t word = aq_usage_load(&words->now);
  if (aq_advance_count(word) != count) word = aq_usage_load(&words->next);
  return aq_advance_count(word) == count ? aq_advance_bytes(word) : 0;
}

/* The number of a slot's last change, which `card_tally` may have and the slot's own tally not yet. */
static inline unsigned aq_usage_count(const aq_usage_page *page, int slot, int card, uint64_t card_tally) {
  unsigned count = aq_tally_count(aq_usage_load(&page->slots[slot].memory[card])), next = (count + 1) & 0xffff;
  bool under_way = aq_tally_slot(card_tally) == (unsigned)slot && aq_tally_number(card_tally) == (next & 0xff);
  return under_way ? next : count;
}

static inline uint64_t aq_usage_advances(const aq_usage_page *page, int card, uint64_t card_tally, uint64_t slots) {
  uint64_t sum = 0;
  for (; slots; slots &= slots - 1) {
    int slot = __builtin_ctzll(slots);
    sum += aq_usage_advance(page, slot, card, aq_usage_count(page, slot, card, card_tally));
  }
  return sum;
}

/* Bytes that an entry says are put aside of a card's memory; of one slot's, or with -1 of whosever. */
static inline uint64_t aq_usage_aside_in(const aq_usage_page *page, int entry, int card, int slot) {
  const aq_usage_aside *aside = &((const aq_usage_file *)page)->asides[entry];
  uint64_t word = aq_usage_load(&aside->word), bytes = word >> 16;
  int of = (int)(word >> 8 & 0xff);
  if (!bytes || (int)(word & 0xff) != card || (slot >= 0 && slot != of)) return 0;
  return aq_usage_load(&aside->owner) == aq_usage_load(&page->slots[of].owner) ? bytes : 0;
}

static __attribute__((noinline, unused)) uint64_t aq_usage_aside_sum(const aq_usage_page *page, int card, int slot) {
  uint64_t sum = 0, entries = aq_usage_has_parts(page) ? aq_usage_load(&page->cards[card].aside) : 0;
  for (; entries; entries &= entries - 1) sum += aq_usage_aside_in(page, __builtin_ctzll(entries), card, slot);
  return sum;
}

/* Bytes that checkpoints have put aside. Mostly there are none. */
static inline uint64_t aq_usage_aside_of(const aq_usage_page *page, int card, int slot) {
  return __builtin_expect(aq_usage_load(&page->cards[card].aside) != 0, 0) ? aq_usage_aside_sum(page, card, slot) : 0;
}

/* Bytes that the tenant is charged on a card, without the advances, at one moment; where the tally never stays for as long as a
 * look takes, the least that was seen. */
static inline uint64_t aq_usage_charged(const aq_usage_page *page, int card) {
  const aq_usage_card *words = &page->cards[card];
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < AQ_USAGE_TRIES; i++) {
    uint64_t tally = aq_usage_load(&words->memory), slots = aq_usage_load(&words->advanced), used = aq_tally_bytes(tally);
    if (!slots) return used;
    uint64_t sum = aq_usage_advances(page, card, tally, slots);
    used = used > sum ? used - sum : 0;
    if (aq_usage_load(&words->memory) == tally) return used;
    if (used < least) least = used;
  }
  return least;
}

static inline uint64_t aq_usage_less(uint64_t from, uint64_t bytes) { return from > bytes ? from - bytes : 0; }

/* Bytes that the tenant has in use on a card. */
static inline uint64_t aq_usage_in_use(const aq_usage_page *page, int card) {
  uint64_t aside = aq_usage_aside_of(page, card, -1);
  return aq_usage_less(aq_usage_charged(page, card), aside);
}

/* Bytes that one process is charged, without its advance. */
static inline uint64_t aq_usage_held(const aq_usage_page *page, int slot, int card) {
  const uint64_t *tally = &page->slots[slot].memory[card];
  uint64_t held = 0, advance = 0;
  for (int i = 0; i < AQ_USAGE_TRIES; i++) {
    held = aq_usage_load(tally);
    advance = aq_usage_advance(page, slot, card, aq_tally_count(held));
    if (aq_usage_load(tally) == held) break;
  }
  return aq_usage_less(aq_tally_bytes(held), advance);
}

/* Bytes that one process has in use. */
static inline uint64_t aq_usage_used_by(const aq_usage_page *page, int slot, int card) {
  uint64_t aside = aq_usage_aside_of(page, card, slot);
  return aq_usage_less(aq_usage_held(page, slot, card), aside);
}

#endif
