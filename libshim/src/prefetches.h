/* Prefetches to a card to which their streams have perhaps not come: what they name could come there after it was brought away. All
 * of this is under the lock of the allocations (resident.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_PREFETCHES_H
#define AQ_PREFETCHES_H

#include <stdbool.h>

#include "resident.h"

/* Behind a prefetch of some blocks of an allocation. Where there is no memory to note it, it is waited for. */
void aq_prefetches_note(const aq_resident *one, size_t first, size_t count, CUstream stream);

/* Whether one that is under way names a block. */
bool aq_prefetches_name(const aq_resident *one, size_t block);

/* Forgets those that are over, and those of an allocation that is gone, or NULL. */
void aq_prefetches_look(const aq_resident *gone);

/* A context ends, under another name, or goes on after all; it has ended, and with it what is in its streams. */
void aq_prefetches_rename_context(const void *from, void *to, bool ending);
void aq_prefetches_end_context(const void *name);

/* In the child of a fork. */
void aq_prefetches_forget(void);

#endif
