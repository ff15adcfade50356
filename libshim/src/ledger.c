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

#include "presence.h"

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
  change c = {.bytes = bytes < held ? bytes : held, .card = card, .subtract = true};
  if (c.bytes) make(page, slot, &c, 0);
}

uint64_t aq_ledger_used(const aq_usage_page *page, int card) {
  return bytes_of(__atomic_load_n(&page->cards[card].memory, __ATOMIC_ACQUIRE));
}

uint64_t aq_ledger_held(const aq_usage_page *page, int slot, int card) {
  return bytes_of(__atomic_load_n(&page->slots[slot].memory[card], __ATOMIC_ACQUIRE));
}

/* Bytes that the slot's owner has exported. */
static uint64_t exported(const aq_usage_page *page, int index, int card) {
  return card < AQ_OVERFLOW_CARDS ? __atomic_load_n(&page->slots[index].exported[card], __ATOMIC_RELAXED) : 0;
}

/* Whether another process has what the slot's owner has exported. */
static bool is_shared(const aq_usage_page *page, int index) {
  bool any = false;
  for (int card = 0; card < AQ_OVERFLOW_CARDS; card++) any |= exported(page, index, card) != 0;
  return any && aq_presence_is_shared(index, 0, AQ_SHARE_BUCKETS);
}

/* Gives back all that a slot holds, except what `shared` says others have. The caller owns it by its owner word. */
static void empty(aq_usage_page *page, int index, bool shared) {
  for (int card = 0; card < AQ_MAX_CARDS; card++) {
    uint64_t tally = __atomic_load_n(&page->cards[card].memory, __ATOMIC_ACQUIRE);
    if (slot_of(tally) == (unsigned)index) complete(page, card, tally);
    uint64_t kept = shared ? exported(page, index, card) : 0;
    aq_ledger_subtract(page, index, card, less(aq_ledger_held(page, index, card), kept));
    if (!kept && card < AQ_OVERFLOW_CARDS) __atomic_store_n(&page->slots[index].exported[card], 0, __ATOMIC_RELAXED);
  }
  if (!shared) __atomic_store_n(&page->slots[index].exports, 0, __ATOMIC_RELAXED);
}

/* Forgets the handles that stood for what a slot has exported. */
static void withdraw(aq_usage_page *page, int index) {
  for (size_t i = 0; i < sizeof page->shares / sizeof *page->shares; i++) {
    uint64_t word = __atomic_load_n(&page->shares[i], __ATOMIC_RELAXED);
    if (word && (word >> 8 & 0xff) == (uint64_t)index) swap(&page->shares[i], word, 0);
  }
}

static void introduce(aq_usage_slot *slot, const aq_process *self) {
  __atomic_store_n(&slot->pid_namespace, self->pid_namespace, __ATOMIC_RELAXED);
  __atomic_store_n(&slot->start_time, self->start_time, __ATOMIC_RELAXED);
  __atomic_store_n(&slot->image, self->image, __ATOMIC_RELAXED);
  __atomic_store_n(&slot->pid, self->pid, __ATOMIC_RELAXED);
}

/* Makes a slot free, or nobody's while others have what its owner has exported. The caller owns it by its owner word. */
static void free_slot(aq_usage_page *page, int index) {
  aq_usage_slot *slot = &page->slots[index];
  bool shared = is_shared(page, index);
  empty(page, index, shared);
  if (!shared) withdraw(page, index);
  introduce(slot, &(aq_process){0});
  __atomic_store_n(&slot->presence, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&slot->collector, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&slot->owner, shared ? AQ_OWNER_SHARED : 0, __ATOMIC_RELEASE);
}

void aq_ledger_leave(aq_usage_page *page, int slot, const aq_process *self) {
  assert(slot >= 0 && slot < AQ_MAX_SLOTS);
  if (aq_ledger_owns(page, slot, aq_process_word(self))) free_slot(page, slot);
  aq_presence_unlock(slot);
}

/* The lock comes before the slot, so that nobody who sees the owner finds it without its lock. */
static bool take_if_free(aq_usage_page *page, int index, const aq_process *self) {
  aq_usage_slot *slot = &page->slots[index];
  if (__atomic_load_n(&slot->owner, __ATOMIC_ACQUIRE) || !aq_presence_lock(index)) return false;
  if (!swap(&slot->owner, 0, aq_process_word(self))) {
    aq_presence_unlock(index);
    return false;
  }
  empty(page, index, false); /* a page can be damaged */
  introduce(slot, self);
  aq_presence_announce(page, index);
  return true;
}

/* Whether a slot under our word is of the program that this process runs now: another copy of us in it (dlmopen) has it,
 * or is just taking it. */
static bool is_present(const aq_usage_slot *slot, const aq_process *self) {
  uint32_t image = __atomic_load_n(&slot->image, __ATOMIC_RELAXED);
  return self->image && (!image || image == self->image);
}

/* Whether a slot is now ours to free: its owner is gone, or we had it before an exec. */
static bool take_over(aq_usage_page *page, int index, const aq_process *self) {
  aq_usage_slot *slot = &page->slots[index];
  uint64_t ours = aq_process_word(self), owner = __atomic_load_n(&slot->owner, __ATOMIC_ACQUIRE);
  if (!owner) return false;
  if (owner == AQ_OWNER_SHARED) return !is_shared(page, index) && swap(&slot->owner, owner, ours);
  bool told = aq_presence_is_told(page, index, owner), claimed = aq_presence_claim(page, index, owner, ours);
  if (owner == ours) /* where locks tell, a neighbour may be collecting what we had before the exec: then it is not for us */
    return (told ? claimed : !is_present(slot, self)) && swap(&slot->owner, owner, ours);
  return (claimed || aq_process_is_dead(owner, self)) && swap(&slot->owner, owner, ours);
}

int aq_ledger_collect(aq_usage_page *page, const aq_process *self, int own_slot) {
  int collected = 0;
  for (int index = 0; index < AQ_MAX_SLOTS; index++) {
    if (index == own_slot) continue;
    if (take_over(page, index, self)) free_slot(page, index), collected++;
    aq_presence_unlock(index);
  }
  return collected;
}

int aq_ledger_join(aq_usage_page *page, const aq_process *self) {
  aq_ledger_collect(page, self, AQ_NO_SLOT);
  for (int index = 0; index < AQ_MAX_SLOTS; index++)
    if (take_if_free(page, index, self)) return index;
  return AQ_NO_SLOT;
}
