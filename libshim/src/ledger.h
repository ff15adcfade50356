/* The memory account that all processes of a tenant share: tallies on the usage page.
 *
 * Per card there is one tally of the tenant and one per process (slot). A change is written to the slot's intent word,
 * then made in the card's tally by compare-and-swap, then in the slot's. The card's tally names slot and number of the
 * change that made it, so whoever comes next, or collects the dead, can see whether the last change has reached its
 * slot, and completes it if not. So there is no lock, a process stopped at any instruction blocks nobody, and one
 * killed at any instruction loses nothing.
 *
 * Where several processes change a card at the same time, each is charged in advance and serves itself from that, and
 * whoever is short takes it back (advance.h). The tallies hold advances; what this header calls in use, or held, does not.
 *
 * Within a process changes are serial: the caller holds a lock of its own process.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_LEDGER_H
#define AQ_LEDGER_H

#include <stdbool.h>

#include "aliquot_pages.h"
#include "process.h"

#define AQ_NO_SLOT (-1)

/* Collects the dead, and what this process had before an exec, and takes a slot for it. Returns the slot's index, or
 * AQ_NO_SLOT when the table is full of the living. Once per copy of us in a program: each has a slot. */
int aq_ledger_join(aq_usage_page *page, const aq_process *self);

/* Adds `bytes` if they fit under `limit` with what is in use; a request that does not fit changes nothing, not even for a moment. */
bool aq_ledger_add(aq_usage_page *page, int slot, int card, uint64_t bytes, uint64_t limit);

/* Takes `bytes` off, or as many as the slot holds. */
void aq_ledger_subtract(aq_usage_page *page, int slot, int card, uint64_t bytes);

/* Whether the slot is still the owner's of this word. It is, unless the process closed the file that proves its presence. */
static inline bool aq_ledger_owns(const aq_usage_page *page, int slot, uint64_t word) {
  return __atomic_load_n(&page->slots[slot].owner, __ATOMIC_RELAXED) == word;
}

/* Gives back all that a slot holds, and the slot. */
void aq_ledger_leave(aq_usage_page *page, int slot, const aq_process *self);

/* Gives back what was held by processes that have ended or run another program by now; also by this one's own former
 * programs, in slots other than `own_slot`. Returns how many slots became free. */
int aq_ledger_collect(aq_usage_page *page, const aq_process *self, int own_slot);

/* Bytes in use on a card: by the tenant, or by one process. */
uint64_t aq_ledger_used(const aq_usage_page *page, int card);
uint64_t aq_ledger_held(const aq_usage_page *page, int slot, int card);

#endif
