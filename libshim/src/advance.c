/* Orders: `next` is written before the swap of the card's tally (release), so whoever reads that tally (acquire) and a count
 * which it has moved on reads that `next`. `now` is written after the slot's tally, by the owner or by a helper,
 * whichever swap wins; both leave the same bytes. A helper that slept through 65,536 changes would be taken in.
 * SPDX-License-Identifier: Apache-2.0 */
#include "advance.h"

#include <assert.h>
#include <stddef.h>

#define LEAST (UINT64_C(64) << 10) /* less would soon be used up */
#define MOST (UINT64_C(32) << 20)  /* whoever takes more at once waits for the driver anyway */
#define PART_OF_ROOM 64

static uint64_t pack(uint64_t bytes, bool open, unsigned count) {
  assert(bytes <= UINT64_MAX >> AQ_ADVANCE_SHIFT);
  return bytes << AQ_ADVANCE_SHIFT | (open ? AQ_ADVANCE_OPEN : 0) | (count & 0xffff);
}

static bool is_open(uint64_t word) { return word & AQ_ADVANCE_OPEN; }

static bool swap(uint64_t *word, uint64_t from, uint64_t to) {
  return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static aq_advance *words_of(aq_usage_page *page, int slot, int card) {
  bool room = slot < AQ_ADVANCE_SLOTS && card < AQ_ADVANCE_CARDS && aq_usage_has_advances(page);
  return room ? &aq_usage_advances_of(page, slot)->cards[card] : NULL;
}

bool aq_advance_take(aq_usage_page *page, int slot, int card, uint64_t bytes, uint64_t limit) {
  aq_advance *own = words_of(page, slot, card);
  if (!own) return false;
  for (uint64_t word = aq_usage_load(&own->now);; word = aq_usage_load(&own->now)) {
    if (!is_open(word) || aq_advance_bytes(word) < bytes) return false;
    if (aq_tally_bytes(aq_usage_load(&page->cards[card].memory)) > limit) return false;
    if (swap(&own->now, word, word - (bytes << AQ_ADVANCE_SHIFT))) return true;
  }
}

/* Twice what it began with, and then half of it goes back to the slice. */
bool aq_advance_give(aq_usage_page *page, int slot, int card, uint64_t bytes) {
  aq_advance *own = words_of(page, slot, card);
  if (!own) return false;
  uint64_t charged = aq_tally_bytes(aq_usage_load(&page->slots[slot].memory[card]));
  uint64_t most = 2 * aq_advance_bytes(__atomic_load_n(&own->next, __ATOMIC_RELAXED));
  if (most > charged) most = charged; /* a program may give back what it was collected with */
  for (uint64_t word = aq_usage_load(&own->now);; word = aq_usage_load(&own->now)) {
    if (!is_open(word) || bytes > most || aq_advance_bytes(word) > most - bytes) return false;
    if (swap(&own->now, word, word + (bytes << AQ_ADVANCE_SHIFT))) return true;
  }
}

bool aq_advance_fell(aq_usage_page *page, int slot, int card) {
  aq_advance *own = words_of(page, slot, card);
  uint64_t bytes = aq_advance_bytes(aq_usage_load(&own->now));
  if (bytes >= __atomic_load_n(&own->lowest, __ATOMIC_RELAXED)) return false;
  __atomic_store_n(&own->lowest, bytes, __ATOMIC_RELAXED);
  return true;
}

/* Closes an advance whose slot's last change is number `count`. Returns the word; another count: there is none. */
static uint64_t shut(aq_advance *words, unsigned count) {
  for (;;) {
    uint64_t word = aq_usage_load(&words->now), closed = word & ~(uint64_t)AQ_ADVANCE_OPEN;
    if (aq_advance_count(word) != count) {
      closed = aq_usage_load(&words->next);
      if (!closed || aq_advance_count(closed) != count) return word;
    }
    if (closed == word || swap(&words->now, word, closed)) return closed;
  }
}

static uint64_t bytes_at(uint64_t word, unsigned count) { return aq_advance_count(word) == count ? aq_advance_bytes(word) : 0; }

uint64_t aq_advance_close_others(aq_usage_page *page, int but, int card, uint64_t wanted) {
  uint64_t slots = aq_usage_has_advances(page) ? aq_usage_load(&page->cards[card].advanced) : 0, sum = 0;
  for (; slots && sum < wanted; slots &= slots - 1) {
    int slot = __builtin_ctzll(slots);
    if (slot == but || !aq_usage_is_advanced(page, slot, card)) continue;
    uint64_t charged = aq_usage_load(&page->slots[slot].memory[card]);
    unsigned count = aq_tally_count(charged);
    uint64_t bytes = bytes_at(shut(&aq_usage_advances_of(page, slot)->cards[card], count), count);
    sum += bytes < aq_tally_bytes(charged) ? bytes : aq_tally_bytes(charged); /* a page can be damaged */
  }
  return sum;
}

aq_advance_turn aq_advance_begin(aq_usage_page *page, int slot, int card, unsigned count) {
  aq_advance_turn turn = {.words = words_of(page, slot, card), .count = count};
  if (!turn.words) return turn;
  uint64_t now = aq_usage_load(&turn.words->now), next = aq_usage_load(&turn.words->next);
  turn.exists = now || next;
  if (!turn.exists) return turn;
  turn.was_open = is_open(now) && aq_advance_count(now) == count;
  turn.size = aq_advance_bytes(next);
  uint64_t word = shut(turn.words, count);
  turn.bytes = aq_usage_is_advanced(page, slot, card) ? bytes_at(word, count) : 0;
  turn.word = pack(turn.bytes, false, count);
  if (word != turn.word) __atomic_store_n(&turn.words->now, turn.word, __ATOMIC_RELEASE);
  return turn;
}

/* The first advance of a slot's owner. */
static void introduce(aq_usage_page *page, int slot, int card, aq_advance_turn *turn) {
  aq_advance_slot *own = aq_usage_advances_of(page, slot);
  turn->word = pack(0, false, turn->count);
  __atomic_store_n(&turn->words->now, turn->word, __ATOMIC_RELAXED);
  __atomic_store_n(&own->pid, __atomic_load_n(&page->slots[slot].pid, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  __atomic_store_n(&own->image, __atomic_load_n(&page->slots[slot].image, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  __atomic_fetch_or(&page->cards[card].advanced, UINT64_C(1) << slot, __ATOMIC_RELEASE);
  turn->exists = true;
}

void aq_advance_propose(aq_usage_page *page, int slot, int card, aq_advance_turn *turn, uint64_t bytes) {
  if (!turn->words || (!turn->exists && !bytes)) return;
  if (!turn->exists) introduce(page, slot, card, turn);
  __atomic_store_n(&turn->words->next, bytes ? pack(bytes, false, turn->count + 1) : 0, __ATOMIC_RELAXED);
}

void aq_advance_settle(const aq_advance_turn *turn, uint64_t bytes) {
  if (!turn->exists) return;
  __atomic_store_n(&turn->words->lowest, bytes, __ATOMIC_RELAXED);
  swap(&turn->words->now, turn->word, bytes ? pack(bytes, true, turn->count + 1) : 0); /* fails when a helper has closed it */
}

uint64_t aq_advance_size(uint64_t room) {
  uint64_t size = room / PART_OF_ROOM;
  if (size < LEAST) return 0;
  return size < MOST ? size : MOST;
}

void aq_advance_forget(aq_usage_page *page, int slot) {
  for (int card = 0; slot < AQ_ADVANCE_SLOTS && card < AQ_ADVANCE_CARDS && aq_usage_has_advances(page); card++) {
    aq_advance *words = words_of(page, slot, card);
    __atomic_store_n(&words->next, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&words->now, 0, __ATOMIC_RELEASE);
    __atomic_fetch_and(&page->cards[card].advanced, ~(UINT64_C(1) << slot), __ATOMIC_RELEASE);
  }
}
