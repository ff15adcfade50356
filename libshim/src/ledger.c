/* How the shared account works is told in ledger.h; here are the words.
 *
 *   card tally    bytes:48 | slot:8 | number:8     the change that made it
 *   slot tally    bytes:48 | number:16             the slot's changes on this card, counted
 *   intent        bytes:48 | number:8 | card:4 | subtract:1 | set:1
 *
 * Orders: the intent is written before the card's tally (release by its CAS), so whoever reads a tally (acquire) also
 * reads the intent behind it. The slot's tally is written after it, by the owner or by a helper, whichever CAS wins.
 * A slot keeps its numbers when it changes hands.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"

#include <assert.h>

#define INTENT_SET 1u
#define INTENT_SUBTRACT 2u

typedef struct {
  uint64_t bytes;
  int card;
  bool subtract;
} change;

static uint64_t bytes_of(uint64_t tally) { return tally >> AQ_TALLY_SHIFT; }
static unsigned slot_of(uint64_t card_tally) { return (card_tally >> 8) & 0xff; }
static unsigned number_of(uint64_t card_tally) { return card_tally & 0xff; }
static unsigned count_of(uint64_t slot_tally) { return slot_tally & 0xffff; }

static uint64_t card_tally(uint64_t bytes, int slot, unsigned number) {
  assert(bytes <= AQ_MEMORY_MAX);
  return bytes << AQ_TALLY_SHIFT | (uint64_t)slot << 8 | (number & 0xff);
}

static uint64_t pack_intent(const change *c, unsigned number) {
  return c->bytes << AQ_TALLY_SHIFT | (uint64_t)(number & 0xff) << 8 | (uint64_t)c->card << 4 |
         (c->subtract ? INTENT_SUBTRACT : 0) | INTENT_SET;
}

static uint64_t less(uint64_t from, uint64_t bytes) { return from > bytes ? from - bytes : 0; }

/* The slot's tally after `c`: bytes changed, count one up. Clamped, because a page can be damaged. */
static uint64_t applied(uint64_t slot_tally, const change *c) {
  uint64_t bytes = bytes_of(slot_tally);
  bytes = c->subtract ? less(bytes, c->bytes) : (bytes + c->bytes) & AQ_MEMORY_MAX;
  return bytes << AQ_TALLY_SHIFT | ((count_of(slot_tally) + 1) & 0xffff);
}

static bool swap(uint64_t *word, uint64_t from, uint64_t to) {
  return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Brings the change that made `tally` into its slot, if its owner has not done so yet.
 * The order of the reads matters, because numbers come again after 256 changes: while the slot's tally stays `held`
 * there is only one change that the card's tally can mean, and the intent read after both is that one's. */
static void complete(aq_usage_page *page, int card, uint64_t tally) {
  aq_usage_slot *slot = &page->slots[slot_of(tally)];
  uint64_t held = __atomic_load_n(&slot->memory[card], __ATOMIC_ACQUIRE);
  if (((count_of(held) + 1) & 0xff) != number_of(tally)) return; /* it is there */
  if (__atomic_load_n(&page->cards[card].memory, __ATOMIC_ACQUIRE) != tally) return; /* old news */
  uint64_t intent = __atomic_load_n(&slot->intent, __ATOMIC_ACQUIRE);
  change c = {.bytes = intent >> AQ_TALLY_SHIFT, .card = (intent >> 4) & 0xf, .subtract = intent & INTENT_SUBTRACT};
  if (!(intent & INTENT_SET) || c.card != card || ((intent >> 8) & 0xff) != number_of(tally)) return;
  swap(&slot->memory[card], held, applied(held, &c));
}

static bool fits(uint64_t used, uint64_t bytes, uint64_t limit) { return bytes <= limit && used <= limit - bytes; }

/* Makes a change; an addition only under `limit`. Serial per slot. */
static bool make(aq_usage_page *page, int index, const change *c, uint64_t limit) {
  aq_usage_slot *slot = &page->slots[index];
  uint64_t *tally = &page->cards[c->card].memory;
  uint64_t held = __atomic_load_n(&slot->memory[c->card], __ATOMIC_ACQUIRE);
  unsigned number = count_of(held) + 1;
  __atomic_store_n(&slot->intent, pack_intent(c, number), __ATOMIC_RELEASE);
  for (uint64_t seen = __atomic_load_n(tally, __ATOMIC_ACQUIRE);; seen = __atomic_load_n(tally, __ATOMIC_ACQUIRE)) {
    uint64_t used = bytes_of(seen);
    if (!c->subtract && !fits(used, c->bytes, limit)) return false;
    if (slot_of(seen) != (unsigned)index) complete(page, c->card, seen);
    if (swap(tally, seen, card_tally(c->subtract ? less(used, c->bytes) : used + c->bytes, index, number))) break;
  }
  swap(&slot->memory[c->card], held, applied(held, c)); /* fails when a helper was faster: the same result */
  return true;
}

static void raise_peak(aq_usage_card *card, uint64_t used) {
  uint64_t peak = __atomic_load_n(&card->memory_peak, __ATOMIC_RELAXED);
  while (used > peak &&
         !__atomic_compare_exchange_n(&card->memory_peak, &peak, used, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

bool aq_ledger_add(aq_usage_page *page, int slot, int card, uint64_t bytes, uint64_t limit) {
  assert(slot >= 0 && slot < AQ_MAX_SLOTS && card >= 0 && card < AQ_MAX_CARDS);
  change c = {.bytes = bytes, .card = card};
  if (limit > AQ_MEMORY_MAX) limit = AQ_MEMORY_MAX;
  if (!make(page, slot, &c, limit)) return false;
  raise_peak(&page->cards[card], aq_ledger_used(page, card));
  return true;
}

void aq_ledger_subtract(aq_usage_page *page, int slot, int card, uint64_t bytes) {
  assert(slot >= 0 && slot < AQ_MAX_SLOTS && card >= 0 && card < AQ_MAX_CARDS);
  uint64_t held = aq_ledger_held(page, slot, card);
  assert(bytes <= held);
  change c = {.bytes = bytes < held ? bytes : held, .card = card, .subtract = true};
  if (c.bytes) make(page, slot, &c, 0);
}

uint64_t aq_ledger_used(const aq_usage_page *page, int card) {
  return bytes_of(__atomic_load_n(&page->cards[card].memory, __ATOMIC_ACQUIRE));
}

uint64_t aq_ledger_held(const aq_usage_page *page, int slot, int card) {
  return bytes_of(__atomic_load_n(&page->slots[slot].memory[card], __ATOMIC_ACQUIRE));
}

/* Gives back all that a slot holds. The caller owns it by its owner word. */
static void empty(aq_usage_page *page, int index) {
  for (int card = 0; card < AQ_MAX_CARDS; card++) {
    uint64_t tally = __atomic_load_n(&page->cards[card].memory, __ATOMIC_ACQUIRE);
    if (slot_of(tally) == (unsigned)index) complete(page, card, tally);
    aq_ledger_subtract(page, index, card, aq_ledger_held(page, index, card));
  }
}

static void introduce(aq_usage_slot *slot, const aq_process *self) {
  __atomic_store_n(&slot->pid_namespace, self->pid_namespace, __ATOMIC_RELAXED);
  __atomic_store_n(&slot->start_time, self->start_time, __ATOMIC_RELAXED);
  __atomic_store_n(&slot->pid, self->pid, __ATOMIC_RELAXED);
}

/* Takes a slot over from `owner` (0: nobody) and empties it. */
static bool take(aq_usage_page *page, int index, uint64_t owner, uint64_t word) {
  if (!swap(&page->slots[index].owner, owner, word)) return false;
  empty(page, index);
  return true;
}

static void leave(aq_usage_slot *slot) {
  introduce(slot, &(aq_process){0});
  __atomic_store_n(&slot->owner, 0, __ATOMIC_RELEASE);
}

/* Frees the slots that this process had before an exec: its memory went with the old program. */
static void forget_past_life(aq_usage_page *page, uint64_t word) {
  for (int index = 0; index < AQ_MAX_SLOTS; index++) {
    if (__atomic_load_n(&page->slots[index].owner, __ATOMIC_ACQUIRE) != word) continue;
    empty(page, index);
    leave(&page->slots[index]);
  }
}

static int take_free(aq_usage_page *page, const aq_process *self) {
  for (int index = 0; index < AQ_MAX_SLOTS; index++) {
    aq_usage_slot *slot = &page->slots[index];
    if (__atomic_load_n(&slot->owner, __ATOMIC_ACQUIRE) || !take(page, index, 0, aq_process_word(self))) continue;
    introduce(slot, self);
    return index;
  }
  return AQ_NO_SLOT;
}

int aq_ledger_join(aq_usage_page *page, const aq_process *self) {
  forget_past_life(page, aq_process_word(self));
  aq_ledger_collect(page, self);
  return take_free(page, self);
}

int aq_ledger_collect(aq_usage_page *page, const aq_process *self) {
  uint64_t word = aq_process_word(self);
  int collected = 0;
  for (int index = 0; index < AQ_MAX_SLOTS; index++) {
    aq_usage_slot *slot = &page->slots[index];
    uint64_t owner = __atomic_load_n(&slot->owner, __ATOMIC_ACQUIRE);
    if (!owner || !aq_process_is_dead(owner, self) || !take(page, index, owner, word)) continue;
    leave(slot);
    collected++;
  }
  return collected;
}
