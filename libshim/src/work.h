/* What this process has to do with each card, for an arbiter to see: its line of the usage page's annex.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_WORK_H
#define AQ_WORK_H

#include <stdbool.h>
#include <stdint.h>

/* Publishes AQ_WORK_… of a card that may be leased, and when what is in flight is expected to be over. Under the lock of
 * compute.c; sequentially consistent, see lease.h. */
void aq_work_publish(int card, uint32_t state, uint64_t ends_ns);

/* Whether what was last published has a place: not in a page without an annex, nor without a slot. */
bool aq_work_is_seen(void);

/* The process has just taken this slot, or is about to leave it. */
void aq_work_clear(int slot);

/* In the child of a fork. */
void aq_work_forget(void);

#endif
