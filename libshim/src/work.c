/* A process writes its own line only, and only while the slot is its own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "work.h"

#include "core_limit.h"
#include "quota.h"
#include "robust_list.h"

static uint32_t published[AQ_MAX_CARDS]; /* under the lock of compute.c */
static bool seen;                        /* relaxed: a hint of an instant ago */

static uint32_t word_of(uint32_t state, uint64_t ends_ns) {
  return state ? (uint32_t)(ends_ns >> AQ_WORK_END_UNIT_SHIFT) << AQ_WORK_END_SHIFT | state : 0;
}

static bool write(int card, uint32_t word) {
  int slot = aq_quota_enter();
  if (slot >= 0) aq_robust_list_mark(slot);
  if (slot >= 0) __atomic_store_n(&aq_slice.annex->works[slot].cards[card], word, __ATOMIC_SEQ_CST);
  aq_quota_exit();
  return slot >= 0;
}

void aq_work_publish(int card, uint32_t state, uint64_t ends_ns) {
  bool leasable = aq_core_leasable(card);
  if (!aq_slice.annex || (!leasable && !published[card])) return;
  published[card] = word_of(leasable ? state : 0, ends_ns);
  __atomic_store_n(&seen, write(card, published[card]), __ATOMIC_RELAXED);
}

bool aq_work_is_seen(void) { return __atomic_load_n(&seen, __ATOMIC_RELAXED); }

void aq_work_clear(int slot) {
  for (int card = 0; aq_slice.annex && card < AQ_MAX_CARDS; card++)
    __atomic_store_n(&aq_slice.annex->works[slot].cards[card], 0, __ATOMIC_RELAXED);
  aq_robust_list_unmark();
}

void aq_work_forget(void) {
  for (int card = 0; card < AQ_MAX_CARDS; card++) published[card] = 0;
  seen = false;
  aq_robust_list_forget();
}
