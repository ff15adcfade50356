/* A process's first context on a card costs the estimate of the control page, until its last one there ends: what the driver
 * sets up for it serves all. A further one costs what the driver takes for it, which is no more than the first one took.
 *
 * The driver knows what is free on the card, not who took it: a neighbour's allocation of the same moment looks like ours.
 * So whatever is measured has a bound; what lies beyond it is seen by the node agent, which knows processes apart.
 * SPDX-License-Identifier: Apache-2.0 */
#include "overhead.h"

#include "capture.h"
#include "ledger.h"
#include "lock.h"

#define KNOWN_DEVICES 64

/* Contexts are as good as each other: when one ends, whichever, what is given back is a further one's share. */
typedef struct {
  uint32_t contexts, further; /* living or being made; of these with a share in `extras` */
  aq_charge estimate;
  uint64_t extras; /* bytes */
} card_account;

typedef struct {
  bool lives;
  uint64_t changes; /* so that an answer of the driver which others have overtaken is known to be old */
} primary;

/* Over the words below. The ledger is asked under it, the driver never. */
static aq_lock counting;
static card_account accounts[AQ_MAX_CARDS];
static primary primaries[KNOWN_DEVICES];

static uint64_t context_bytes(int card) {
  return __atomic_load_n(&aq_slice.control->cards[card].context_bytes, __ATOMIC_RELAXED);
}

/* ---- what is free ---- */

static CUresult ask(uint64_t *available) {
  size_t now = 0, total;
  int mode = aq_captures_relax();
  CUresult result = AQ_CUDA(cuMemGetInfo_v2)(&now, &total);
  aq_captures_restore(mode);
  *available = now;
  return result;
}

void aq_gauge_update(aq_gauge *gauge) {
  int card = aq_card_of_device(gauge->device);
  gauge->used = card == AQ_NO_CARD ? 0 : aq_ledger_used(aq_slice.usage, card);
}

aq_gauge aq_gauge_read(CUdevice device) {
  aq_gauge gauge = {.known = false};
  if (!AQ_CUDA(cuMemGetInfo_v2) || aq_current_device(&gauge.device) != CUDA_SUCCESS) return gauge;
  if (device != AQ_ANY_DEVICE && device != gauge.device) return gauge;
  gauge.known = ask(&gauge.available) == CUDA_SUCCESS;
  aq_gauge_update(&gauge);
  return gauge;
}

uint64_t aq_gauge_drop(const aq_gauge *before, const aq_gauge *now, uint64_t most) {
  uint64_t lost = before->available + before->used, left = now->available + now->used;
  if (left >= lost) return 0;
  return lost - left < most ? lost - left : most;
}

/* ---- contexts ---- */

/* Under the lock. */
static bool join(card_account *account, CUdevice device, int card, bool *first) {
  uint64_t bytes = context_bytes(card);
  *first = account->contexts == 0;
  if (*first && bytes && !aq_quota_take(device, bytes, &account->estimate)) return false;
  account->contexts++;
  return true;
}

typedef struct {
  CUdevice device;
  int card;
  bool first;
} joining;

static bool join_card(void *data) {
  joining *j = data;
  aq_lock_acquire(&counting);
  bool fits = join(&accounts[j->card], j->device, j->card, &j->first);
  aq_lock_release(&counting);
  return fits;
}

static bool join_or_wait(CUdevice device, int card, bool *first) {
  joining j = {device, card, false};
  aq_attempt attempt = {.fits = join_card, .request = &j, .device = device, .bytes = context_bytes(card)};
  bool fits = join_card(&j) || aq_memory_insist(&attempt);
  if (!fits) aq_quota_refused(device, attempt.bytes);
  *first = j.first;
  return fits;
}

/* Under the lock: what is given back when one context fewer is on the card. */
static uint64_t part(card_account *account) {
  account->contexts--;
  if (account->further < account->contexts || !account->further) return 0;
  uint64_t bytes = account->extras / account->further--;
  account->extras -= bytes;
  return bytes;
}

static void leave_card(int card) {
  card_account *account = &accounts[card];
  aq_charge estimate = {.card = AQ_NO_CARD};
  aq_lock_acquire(&counting);
  uint64_t bytes = part(account);
  if (account->contexts == 0) {
    estimate = account->estimate;
    account->estimate = (aq_charge){.card = AQ_NO_CARD};
  }
  aq_lock_release(&counting);
  if (bytes) aq_quota_give(&(aq_charge){.bytes = bytes, .card = card});
  aq_quota_give(&estimate);
}

/* Under the lock: a further context is there for good. */
static void share_extra(const aq_context_cost *cost) {
  if (cost->extra.card == AQ_NO_CARD) return;
  accounts[cost->card].extras += cost->extra.bytes;
  accounts[cost->card].further++;
}

static bool is_known(CUdevice device) { return device >= 0 && device < KNOWN_DEVICES; }

/* Somebody is about to make the primary context, perhaps: whether it lives as far as we know. */
static bool touch_primary(CUdevice device) {
  aq_lock_acquire(&counting);
  primaries[device].changes++;
  bool lives = primaries[device].lives;
  aq_lock_release(&counting);
  return lives;
}

bool aq_context_enter(CUdevice device, aq_context_kind kind, aq_context_cost *cost) {
  bool first;
  *cost = (aq_context_cost){.device = device, .card = AQ_NO_CARD, .extra.card = AQ_NO_CARD};
  if (aq_tenant_mode() != AQ_GUARD || !is_known(device)) return true;
  int card = aq_card_of_device(device);
  bool there = kind != AQ_CONTEXT_CREATED && touch_primary(device) && kind == AQ_CONTEXT_PRIMARY;
  if (card == AQ_NO_CARD) return true;
  if (!join_or_wait(device, card, &first)) return false;
  cost->card = card;
  if (first || there || !context_bytes(card)) return true;
  bool fits = kind == AQ_CONTEXT_GREEN || aq_memory_take(device, context_bytes(card), &cost->extra);
  if (fits) cost->before = aq_gauge_read(device);
  else leave_card(card);
  return fits;
}

/* The bound is what a context costs, so nothing that was charged meanwhile is taken off: another thread's may not be on the card
 * yet, and this context would cost nothing. */
bool aq_context_entered(aq_context_cost *cost) {
  if (!cost->before.known) return true;
  aq_gauge now = aq_gauge_read(cost->device);
  if (!now.known) return true;
  now.used = cost->before.used;
  uint64_t taken = aq_gauge_drop(&cost->before, &now, context_bytes(cost->card));
  if (cost->extra.card != AQ_NO_CARD) return aq_quota_resize(&cost->extra, taken);
  return !taken || aq_memory_take(cost->device, taken, &cost->extra);
}

void aq_context_lives(aq_context_cost *cost) {
  aq_lock_acquire(&counting);
  share_extra(cost);
  aq_lock_release(&counting);
  cost->extra.card = AQ_NO_CARD;
}

void aq_context_leave(const aq_context_cost *cost) {
  aq_quota_give(&cost->extra);
  if (cost->card != AQ_NO_CARD) leave_card(cost->card);
}

/* ---- primary contexts ---- */

void aq_primary_lives(const aq_context_cost *cost) {
  if (cost->card == AQ_NO_CARD) return;
  primary *p = &primaries[cost->device];
  aq_lock_acquire(&counting);
  bool lived = p->lives;
  if (!lived) share_extra(cost);
  p->lives = true;
  p->changes++;
  aq_lock_release(&counting);
  if (lived) aq_context_leave(cost);
}

uint64_t aq_primary_asked(CUdevice device) {
  aq_lock_acquire(&counting);
  uint64_t changes = is_known(device) ? primaries[device].changes : 0;
  aq_lock_release(&counting);
  return changes;
}

void aq_primary_ended(CUdevice device, uint64_t asked) {
  if (!is_known(device)) return;
  primary *p = &primaries[device];
  aq_lock_acquire(&counting);
  bool ends = p->lives && p->changes == asked;
  if (ends) p->lives = false;
  aq_lock_release(&counting);
  if (ends) leave_card(aq_card_of_device(device));
}

void aq_overhead_forget(void) {
  aq_lock_reset(&counting);
  for (int card = 0; card < AQ_MAX_CARDS; card++) accounts[card] = (card_account){.estimate.card = AQ_NO_CARD};
  for (int device = 0; device < KNOWN_DEVICES; device++) primaries[device] = (primary){.lives = false};
}
