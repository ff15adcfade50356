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

#include "advance.h"
#include "presence.h"

#define INTENT_SET 1u
#define INTENT_SUBTRACT 2u

typedef struct {
  uint64_t bytes;
  int card;
  bool subtract;
} change;

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
  uint64_t bytes = aq_tally_bytes(slot_tally);
  bytes = c->subtract ? less(bytes, c->bytes) : (bytes + c->bytes) & AQ_MEMORY_MAX;
  return bytes << AQ_TALLY_SHIFT | ((aq_tally_count(slot_tally) + 1) & 0xffff);
}

static bool swap(uint64_t *word, uint64_t from, uint64_t to) {
  return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Brings the change that made `tally` into its slot, if its owner has not done so yet.
 * The order of the reads matters, because numbers come again after 256 changes: while the slot's tally stays `held`
 * there is only one change that the card's tally can mean, and the intent read after both is that one's. */
static void complete(aq_usage_page *page, int card, uint64_t tally) {
  aq_usage_slot *slot = &page->slots[aq_tally_slot(tally)];
  uint64_t held = __atomic_load_n(&slot->memory[card], __ATOMIC_ACQUIRE);
  if (((aq_tally_count(held) + 1) & 0xff) != aq_tally_number(tally)) return; /* it is there */
  if (__atomic_load_n(&page->cards[card].memory, __ATOMIC_ACQUIRE) != tally) return; /* old news */
  uint64_t intent = __atomic_load_n(&slot->intent, __ATOMIC_ACQUIRE);
  change c = {.bytes = intent >> AQ_TALLY_SHIFT, .card = (intent >> 4) & 0xf, .subtract = intent & INTENT_SUBTRACT};
  if (!(intent & INTENT_SET) || c.card != card || ((intent >> 8) & 0xff) != aq_tally_number(tally)) return;
  swap(&slot->memory[card], held, applied(held, &c));
}

static bool fits(uint64_t used, uint64_t bytes, uint64_t limit) { return bytes <= limit && used <= limit - bytes; }

/* A change as it was asked for, and how it goes. */
typedef struct {
  change asked;
  uint64_t limit;       /* of an addition */
  bool ahead;           /* may leave an advance */
  uint64_t credit;      /* of neighbours' closed advances, which the limit is exceeded by */
  aq_advance_turn turn; /* the slot's own advance */
} request;

/* Whether an addition fits on top of `rest`, the card's tally without the own advance. */
static bool is_room(aq_usage_page *page, int index, request *r, uint64_t rest) {
  uint64_t bytes = r->asked.bytes;
  r->credit = 0;
  if (fits(rest, bytes, r->limit)) return true;
  if (bytes > r->limit) return false;
  r->credit = aq_advance_close_others(page, index, r->asked.card, rest - (r->limit - bytes));
  return rest - (r->limit - bytes) <= r->credit && fits(rest, bytes, AQ_MEMORY_MAX);
}

/* The advance that a change leaves. A subtraction that an open one has not taken keeps its size: that is less than is given
 * back and taken in, so the tally grows no larger. */
static uint64_t advance_after(const request *r, uint64_t in_use, bool contended) {
  const aq_advance_turn *turn = &r->turn;
  if (!r->ahead || !turn->words || r->credit) return 0;
  if (!r->asked.subtract) return turn->exists || contended ? aq_advance_size(r->limit - in_use) : 0;
  assert(!turn->was_open || turn->size <= r->asked.bytes + turn->bytes);
  return turn->was_open ? turn->size : 0;
}

static change difference(uint64_t from, uint64_t to, int card) {
  return (change){.bytes = from > to ? from - to : to - from, .card = card, .subtract = from > to};
}

/* The three steps of a change that takes the card's tally from `seen` to `after` bytes and the slot's on from `held`. False:
 * the card's is another by now, and nothing was changed. */
static inline bool commit(aq_usage_page *page, int index, const change *c, uint64_t held, uint64_t seen, uint64_t after) {
  aq_usage_slot *slot = &page->slots[index];
  unsigned number = aq_tally_count(held) + 1;
  __atomic_store_n(&slot->intent, pack_intent(c, number), __ATOMIC_RELEASE);
  if (!swap(&page->cards[c->card].memory, seen, card_tally(after, index, number))) return false;
  swap(&slot->memory[c->card], held, applied(held, c)); /* fails when a helper was faster: the same result */
  return true;
}

/* Whether others than the slot's owner have advances: they read the card's line at every turn. */
static inline bool others_are_ahead(const aq_usage_page *page, int index, int card) {
  uint64_t own = index < AQ_ADVANCE_SLOTS ? UINT64_C(1) << index : 0;
  return __atomic_load_n(&page->cards[card].advanced, __ATOMIC_RELAXED) & ~own;
}

/* Whether other processes change this card too. */
static bool is_contended(const aq_usage_page *page, int index, int card, uint64_t tally) {
  unsigned last = aq_tally_slot(tally);
  bool by_another = last != (unsigned)index && __atomic_load_n(&page->slots[last].owner, __ATOMIC_RELAXED);
  return by_another || others_are_ahead(page, index, card);
}

/* Makes a change that is nobody's business but the slot's: without an advance, and after a change of its own. */
static inline bool make_alone(aq_usage_page *page, int index, const change *c, uint64_t limit) {
  uint64_t held = __atomic_load_n(&page->slots[index].memory[c->card], __ATOMIC_ACQUIRE);
  uint64_t seen = __atomic_load_n(&page->cards[c->card].memory, __ATOMIC_ACQUIRE), used = aq_tally_bytes(seen);
  bool good = c->subtract ? c->bytes <= aq_tally_bytes(held) : fits(used, c->bytes, limit);
  if (!good || aq_tally_slot(seen) != (unsigned)index || others_are_ahead(page, index, c->card)) return false;
  return commit(page, index, c, held, seen, c->subtract ? less(used, c->bytes) : used + c->bytes);
}

/* Makes a change; an addition only under its limit. Serial per slot. The own advance is taken in and the next one out with it. */
static bool make(aq_usage_page *page, int index, request *r) {
  int card = r->asked.card;
  uint64_t *tally = &page->cards[card].memory;
  uint64_t held = __atomic_load_n(&page->slots[index].memory[card], __ATOMIC_ACQUIRE), in_use, ahead;
  r->turn = aq_advance_begin(page, index, card, aq_tally_count(held));
  for (;;) {
    uint64_t seen = __atomic_load_n(tally, __ATOMIC_ACQUIRE), rest = less(aq_tally_bytes(seen), r->turn.bytes);
    if (aq_tally_slot(seen) != (unsigned)index) complete(page, card, seen);
    if (!r->asked.subtract && !is_room(page, index, r, rest)) {
      if (__atomic_load_n(tally, __ATOMIC_ACQUIRE) != seen) continue; /* what was closed was of another moment */
      return false;
    }
    in_use = r->asked.subtract ? less(rest, r->asked.bytes) : rest + r->asked.bytes;
    ahead = advance_after(r, in_use, is_contended(page, index, card, seen));
    aq_advance_propose(page, index, card, &r->turn, ahead);
    change whole = difference(aq_tally_bytes(seen), in_use + ahead, card);
    if (commit(page, index, &whole, held, seen, in_use + ahead)) break;
  }
  aq_advance_settle(&r->turn, ahead);
  return true;
}

static __attribute__((noinline)) void raise_peak_from(aq_usage_page *page, int index, uint64_t peak) {
  aq_usage_card *card = &page->cards[index];
  uint64_t used = aq_ledger_used(page, index);
  while (used > peak &&
         !__atomic_compare_exchange_n(&card->memory_peak, &peak, used, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

static inline void raise_peak(aq_usage_page *page, int index) {
  const aq_usage_card *card = &page->cards[index];
  uint64_t peak = __atomic_load_n(&card->memory_peak, __ATOMIC_RELAXED);
  if (aq_tally_bytes(__atomic_load_n(&card->memory, __ATOMIC_ACQUIRE)) > peak) raise_peak_from(page, index, peak);
}

/* Whether more is in use than `limit`. */
static bool is_over(aq_usage_page *page, int card, uint64_t limit) {
  for (;;) {
    uint64_t seen = __atomic_load_n(&page->cards[card].memory, __ATOMIC_ACQUIRE), bytes = aq_tally_bytes(seen);
    complete(page, card, seen);
    bool over = bytes > limit && aq_advance_close_others(page, AQ_NO_SLOT, card, bytes - limit) < bytes - limit;
    if (__atomic_load_n(&page->cards[card].memory, __ATOMIC_ACQUIRE) == seen) return over;
  }
}

/* An addition that neighbours' advances made room for is looked at again: it may have slept while the tally went through 256
 * changes, came back to the same word, and the advances ended. */
static bool add(aq_usage_page *page, int slot, const change *c, uint64_t limit) {
  for (;;) {
    request more = {.asked = *c, .limit = limit, .ahead = true};
    if (!make(page, slot, &more)) return false;
    if (!more.credit || !is_over(page, c->card, limit)) return true;
    make(page, slot, &(request){.asked = {.bytes = c->bytes, .card = c->card, .subtract = true}});
  }
}

bool aq_ledger_add(aq_usage_page *page, int slot, int card, uint64_t bytes, uint64_t limit) {
  assert(slot >= 0 && slot < AQ_MAX_SLOTS && card >= 0 && card < AQ_MAX_CARDS);
  if (limit > AQ_MEMORY_MAX) limit = AQ_MEMORY_MAX;
  change c = {.bytes = bytes, .card = card};
  bool alone = aq_advance_is_none(page, slot, card);
  if (!alone && aq_advance_take(page, slot, card, bytes, limit)) {
    if (aq_advance_fell(page, slot, card)) raise_peak(page, card);
    return true;
  }
  bool added = (alone && make_alone(page, slot, &c, limit)) || add(page, slot, &c, limit);
  if (added) raise_peak(page, card);
  return added;
}

void aq_ledger_subtract(aq_usage_page *page, int slot, int card, uint64_t bytes) {
  assert(slot >= 0 && slot < AQ_MAX_SLOTS && card >= 0 && card < AQ_MAX_CARDS);
  change c = {.bytes = bytes, .card = card, .subtract = true};
  bool alone = aq_advance_is_none(page, slot, card);
  if (alone ? make_alone(page, slot, &c, 0) : aq_advance_give(page, slot, card, bytes)) return;
  uint64_t held = aq_ledger_held(page, slot, card);
  if (c.bytes > held) c.bytes = held;
  if (c.bytes) make(page, slot, &(request){.asked = c, .ahead = true});
}

uint64_t aq_ledger_used(const aq_usage_page *page, int card) { return aq_usage_in_use(page, card); }

uint64_t aq_ledger_held(const aq_usage_page *page, int slot, int card) { return aq_usage_held(page, slot, card); }

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
    if (aq_tally_slot(tally) == (unsigned)index) complete(page, card, tally);
    uint64_t kept = shared ? exported(page, index, card) : 0, held = aq_ledger_held(page, index, card);
    request rest = {.asked = {.bytes = less(held, kept), .card = card, .subtract = true}};
    if (aq_tally_bytes(__atomic_load_n(&page->slots[index].memory[card], __ATOMIC_ACQUIRE)) > held - rest.asked.bytes)
      make(page, index, &rest);
    if (!kept && card < AQ_OVERFLOW_CARDS) __atomic_store_n(&page->slots[index].exported[card], 0, __ATOMIC_RELAXED);
    if (card < AQ_OVERFLOW_CARDS && aq_usage_has_parts(page))
      __atomic_store_n(&aq_usage_parts_of(page, index)->estimated[card], 0, __ATOMIC_RELAXED);
  }
  if (!shared) __atomic_store_n(&page->slots[index].exports, 0, __ATOMIC_RELAXED);
  aq_advance_forget(page, index);
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
  if (aq_usage_has_monitors(page)) __atomic_store_n(aq_usage_monitor_of(page, index), 0, __ATOMIC_RELAXED);
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
