/* Between the hooks, which know what the driver was asked, and the ledger, which knows what the tenant holds.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quota.h"

#include <time.h>
#include <unistd.h>

#include "aliquot_usage.h"
#include "allowance.h"
#include "cards.h"
#include "grant.h"
#include "ledger.h"
#include "lock.h"
#include "refusal.h"
#include "work.h"

#define COLLECT_EVERY_NS UINT64_C(1000000000)

/* Makes this process's changes of the ledger serial; no other process can hold it. */
static aq_lock changing;
static int slot = AQ_NO_SLOT;    /* written under `changing`; read without it, a hint (relaxed) */
static uint64_t word;            /* the slot's owner; likewise */
static uint64_t collected_at_ns; /* relaxed: a hint */

static const aq_charge nothing = {.bytes = 0, .card = AQ_NO_CARD};

static bool enforced(void) { return aq_enforcement() == AQ_ENFORCE_ENFORCE; }

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void set_slot(int index) { __atomic_store_n(&slot, index, __ATOMIC_RELAXED); }

/* Under `changing`: the slot, unless a neighbour has taken it for that of a dead process. */
static int own_slot(void) { return slot != AQ_NO_SLOT && aq_ledger_owns(aq_slice.usage, slot, word) ? slot : AQ_NO_SLOT; }

/* Under `changing`. */
static bool have_slot(void) {
  if (own_slot() != AQ_NO_SLOT) return true;
  aq_presence_open(&aq_slice.usage_file);
  __atomic_store_n(&word, aq_process_word(&aq_slice.self), __ATOMIC_RELAXED);
  set_slot(aq_ledger_join(aq_slice.usage, &aq_slice.self));
  if (slot != AQ_NO_SLOT) aq_work_clear(slot);
  return slot != AQ_NO_SLOT;
}

/* Under `changing`: takes the bytes, after what the dead held was given back if need be. */
static bool add(int card, uint64_t bytes, uint64_t limit) {
  if (aq_ledger_add(aq_slice.usage, slot, card, bytes, limit)) return true;
  return aq_ledger_collect(aq_slice.usage, &aq_slice.self, slot) &&
         aq_ledger_add(aq_slice.usage, slot, card, bytes, limit);
}

static void count_refusal(int card) {
  __atomic_fetch_add(&aq_slice.usage->cards[card].denied, 1, __ATOMIC_RELAXED);
}

/* Where limits are only observed, what they would have refused is counted; a grant would have been raised. */
static void observe(int card) {
  aq_allowance terms = aq_allowance_of(card);
  bool over = aq_allowance_in_use(&terms, aq_ledger_used(aq_slice.usage, card)) > terms.limit;
  if (over && aq_enforcement() == AQ_ENFORCE_OBSERVE) count_refusal(card);
}

/* The highest tally that a request of `bytes` may make. What the tally says too much is no reason to hand out more than
 * there is: a request that is larger than all that may be had fits under no tally. */
static uint64_t ceiling(int card, uint64_t bytes) {
  aq_allowance terms = aq_allowance_of(card);
  return bytes <= terms.usable ? aq_allowance_tally(&terms, terms.usable) : 0;
}

/* Takes bytes of a card; where limits are not enforced, whatever the ledger cannot hold goes uncounted. */
static bool take(int card, uint64_t bytes, bool *counted) {
  bool strict = enforced();
  aq_lock_acquire(&changing);
  bool in_table = have_slot();
  *counted = in_table && add(card, bytes, strict ? ceiling(card, bytes) : AQ_MEMORY_MAX);
  aq_lock_release(&changing);
  if (!strict) observe(card);
  if (!in_table) aq_tenant_note("more processes than the usage page has slots: the newest get no device memory");
  return *counted || !strict;
}

static bool take_as_charge(int card, uint64_t bytes, aq_charge *charge) {
  bool counted = false;
  if (!take(card, bytes, &counted)) return false;
  if (counted) *charge = (aq_charge){.bytes = bytes, .card = card};
  return true;
}

bool aq_quota_take(CUdevice device, uint64_t bytes, aq_charge *charge) {
  aq_mode mode = aq_tenant_mode();
  *charge = nothing;
  if (mode != AQ_GUARD) return mode == AQ_PASS;
  int card = aq_card_of_device(device);
  if (card == AQ_NO_CARD) return !enforced();
  return take_as_charge(card, bytes, charge);
}

bool aq_quota_take_entry(int entry, uint64_t bytes, aq_charge *charge) {
  *charge = nothing;
  return aq_tenant_mode() == AQ_GUARD && take_as_charge(entry, bytes, charge);
}

bool aq_quota_await(CUdevice device, uint64_t bytes, aq_grant_wait *wait) {
  if (aq_tenant_mode() != AQ_GUARD || !enforced()) return false;
  int card = aq_card_of_device(device);
  return card != AQ_NO_CARD && aq_grant_await(card, bytes, wait);
}

void aq_quota_give(const aq_charge *charge) {
  if (charge->card == AQ_NO_CARD) return;
  aq_lock_acquire(&changing);
  if (own_slot() != AQ_NO_SLOT) aq_ledger_subtract(aq_slice.usage, slot, charge->card, charge->bytes);
  aq_lock_release(&changing);
}

bool aq_quota_resize(aq_charge *charge, uint64_t bytes) {
  bool counted = true;
  if (charge->card == AQ_NO_CARD || charge->bytes == bytes) return true;
  if (bytes < charge->bytes) {
    aq_quota_give(&(aq_charge){.bytes = charge->bytes - bytes, .card = charge->card});
  } else if (!take(charge->card, bytes - charge->bytes, &counted)) {
    return false;
  }
  if (counted) charge->bytes = bytes;
  return true;
}

void aq_quota_refused(CUdevice device, uint64_t bytes) {
  if (aq_tenant_mode() != AQ_GUARD) return;
  int card = aq_card_of_device(device);
  if (card == AQ_NO_CARD) return;
  count_refusal(card);
  if (enforced()) aq_refusal_tell(device, card, bytes);
}

void aq_quota_refused_growth(CUdevice device, const aq_charge *charge, uint64_t bytes) {
  uint64_t had = charge->card == AQ_NO_CARD ? 0 : charge->bytes;
  aq_quota_refused(device, bytes > had ? bytes - had : 0);
}

/* Gives back what others left behind, at most once a second: a program that waits for memory asks for it here. It takes no
 * slot: a process that only asks needs none. */
static void collect_sometimes(void) {
  uint64_t now = now_ns();
  if (now - __atomic_load_n(&collected_at_ns, __ATOMIC_RELAXED) < COLLECT_EVERY_NS) return;
  __atomic_store_n(&collected_at_ns, now, __ATOMIC_RELAXED);
  aq_lock_acquire(&changing);
  aq_presence_open(&aq_slice.usage_file);
  aq_ledger_collect(aq_slice.usage, &aq_slice.self, own_slot());
  aq_lock_release(&changing);
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* A card as it stands. */
typedef struct {
  aq_allowance terms;
  uint64_t tally; /* in use, as far as it was charged */
} balance;

/* Whether this process is charged for all that is charged on the card, so that nobody else can have left anything there. */
static inline bool is_all_ours(int card, uint64_t charged) {
  int own = __atomic_load_n(&slot, __ATOMIC_RELAXED);
  if (own == AQ_NO_SLOT) return !charged;
  return charged == aq_tally_bytes(aq_usage_load(&aq_slice.usage->slots[own].memory[card])) &&
         aq_ledger_owns(aq_slice.usage, own, __atomic_load_n(&word, __ATOMIC_RELAXED));
}

/* The plain case, which costs some loads: all is ours, nothing is granted or charged in advance. False: it is another. */
static inline bool glance(int card, balance *out) {
  const aq_usage_card *words = &aq_slice.usage->cards[card];
  out->tally = aq_tally_bytes(aq_usage_load(&words->memory));
  return !aq_usage_load(&words->advanced) && is_all_ours(card, out->tally) && aq_allowance_glance(card, &out->terms);
}

static balance look(int card) {
  collect_sometimes();
  aq_allowance terms = aq_allowance_of(card);
  return (balance){terms, aq_ledger_used(aq_slice.usage, card)};
}

static inline uint64_t tell(const balance *now, size_t *available, size_t *total) {
  uint64_t used = aq_allowance_in_use(&now->terms, now->tally);
  *available = smaller(*available, used < now->terms.limit ? now->terms.limit - used : 0);
  *total = smaller(*total, now->terms.slice);
  return smaller(used + (now->terms.slice - now->terms.limit), *total);
}

static __attribute__((noinline)) uint64_t look_and_tell(int card, size_t *available, size_t *total) {
  balance now = look(card);
  return tell(&now, available, total);
}

/* Where there is nothing to be had, and where nothing is hidden. */
static uint64_t tell_none(size_t *available) { return *available = 0; }
static uint64_t tell_all(const size_t *available, const size_t *total) { return *total - smaller(*available, *total); }

static inline uint64_t show(aq_mode mode, int card, size_t *available, size_t *total) {
  balance now;
  if (mode == AQ_PASS || (mode == AQ_GUARD && !enforced())) return tell_all(available, total);
  if (mode == AQ_DENY || card == AQ_NO_CARD) return tell_none(available);
  return glance(card, &now) ? tell(&now, available, total) : look_and_tell(card, available, total);
}

uint64_t aq_quota_show_card(int card, size_t *available, size_t *total) {
  return show(aq_tenant_mode(), card, available, total);
}

void aq_quota_show(CUdevice device, size_t *available, size_t *total) {
  aq_mode mode = aq_tenant_mode();
  show(mode, mode == AQ_GUARD ? aq_card_of_device(device) : AQ_NO_CARD, available, total);
}

/* A child made without our seeing it (_Fork, clone) ends with its parent's words in memory. */
void aq_quota_leave(void) {
  bool guarded = __atomic_load_n(&aq_tenant_decided, __ATOMIC_ACQUIRE) == AQ_GUARD;
  if (!guarded || aq_slice.self.pid != (uint32_t)getpid()) return;
  aq_lock_acquire(&changing);
  int own = own_slot();
  if (own != AQ_NO_SLOT) {
    aq_work_clear(own);
    aq_ledger_leave(aq_slice.usage, own, &aq_slice.self);
  }
  set_slot(AQ_NO_SLOT);
  aq_lock_release(&changing);
}

int aq_quota_enter(void) {
  aq_lock_acquire(&changing);
  return have_slot() ? slot : AQ_NO_SLOT;
}

void aq_quota_exit(void) { aq_lock_release(&changing); }

void aq_quota_forget(void) {
  aq_lock_reset(&changing);
  aq_presence_forget();
  set_slot(AQ_NO_SLOT);
}
