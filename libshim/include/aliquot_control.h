/* The sequence lock of the control page: one writer (the node agent), any number of readers that never wait for it.
 *
 * The writer makes `sequence` odd, writes, and makes it even again. A reader copies and looks whether the number
 * stayed the same; one that waits for a change waits on the number (FUTEX_WAIT, not private). A writer killed half-way
 * leaves it odd: readers refuse the page until an agent writes it again.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef ALIQUOT_CONTROL_H
#define ALIQUOT_CONTROL_H

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "aliquot_pages.h"

#define AQ_CONTROL_TRIES 1000

/* Writes the limits of `wanted` into `page` in place; the arbiter's words are left alone. */
static inline void aq_control_publish(aq_control_page *page, const aq_control_page *wanted) {
  uint32_t odd = __atomic_load_n(&page->sequence, __ATOMIC_RELAXED) | 1;
  __atomic_store_n(&page->sequence, odd, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE); /* no write below becomes visible before the odd number */
  __atomic_store_n(&page->enforcement, wanted->enforcement, __ATOMIC_RELAXED);
  memcpy(page->tenant, wanted->tenant, sizeof page->tenant);
  for (uint32_t i = 0; i < AQ_MAX_CARDS; i++) {
    __atomic_store_n(&page->cards[i].memory_limit, wanted->cards[i].memory_limit, __ATOMIC_RELAXED);
    __atomic_store_n(&page->cards[i].core_percent, wanted->cards[i].core_percent, __ATOMIC_RELAXED);
    __atomic_store_n(&page->cards[i].flags, wanted->cards[i].flags, __ATOMIC_RELAXED);
    __atomic_store_n(&page->cards[i].memory_grant, wanted->cards[i].memory_grant, __ATOMIC_RELAXED);
    __atomic_store_n(&page->cards[i].memory_adjust, wanted->cards[i].memory_adjust, __ATOMIC_RELAXED);
    __atomic_store_n(&page->cards[i].context_bytes, wanted->cards[i].context_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&page->cards[i].core_share, wanted->cards[i].core_share, __ATOMIC_RELAXED);
    __atomic_store_n(&page->cards[i].core_most, wanted->cards[i].core_most, __ATOMIC_RELAXED);
    __atomic_store_n(&page->cards[i].priority, wanted->cards[i].priority, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&page->sequence, odd + 1, __ATOMIC_RELEASE);
  syscall(SYS_futex, &page->sequence, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Copies a page that no writer touched meanwhile into `out`. Returns 0, or -1 when it never held still. */
static inline int aq_control_snapshot(const aq_control_page *page, aq_control_page *out) {
  for (int i = 0; i < AQ_CONTROL_TRIES; i++) {
    uint32_t before = __atomic_load_n(&page->sequence, __ATOMIC_ACQUIRE);
    if (before & 1) continue;
    memcpy(out, page, sizeof *out);
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* the copy is complete before the number is read again */
    if (__atomic_load_n(&page->sequence, __ATOMIC_RELAXED) == before) return 0;
  }
  return -1;
}

#endif
