/* What a process has on a card without having asked for memory: contexts, the code of modules, what limits reserve.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_OVERHEAD_H
#define AQ_OVERHEAD_H

#include "blocks.h"
#include "memory.h"

/* What the driver said was free on the current context's device, and what the tenant had in use there by its own account. */
typedef struct {
  CUdevice device;
  uint64_t available, used;
  bool known;
} aq_gauge;

/* Asks the driver; `device`: the one that matters, or AQ_ANY_DEVICE. Never invalidates a capture. */
aq_gauge aq_gauge_read(CUdevice device);
#define AQ_ANY_DEVICE (-1)

/* How much less is free at `now` that the tenant was not charged meanwhile, by whichever of its threads and processes; at most
 * `most`. What others have allocated of the card is in it: hence the bound. */
uint64_t aq_gauge_drop(const aq_gauge *before, const aq_gauge *now, uint64_t most);

/* Reads the tenant's own account once more. */
void aq_gauge_update(aq_gauge *gauge);

/* A context that is about to be made, or perhaps is there already (a primary one). */
typedef enum { AQ_CONTEXT_CREATED, AQ_CONTEXT_PRIMARY, AQ_CONTEXT_GREEN } aq_context_kind;

typedef struct {
  CUdevice device;
  int card;        /* AQ_NO_CARD: nothing is charged for it */
  aq_charge extra; /* of one that is not the process's first on its card */
  aq_gauge before;
} aq_context_cost;

/* Before: takes the estimate for the process's first context on the card, and as much for a further one, except for a green
 * one, which shares what the primary one has. False: it does not fit. */
bool aq_context_enter(CUdevice device, aq_context_kind kind, aq_context_cost *cost);

/* After success: a further context is charged what the driver took for it. False: that does not fit. */
bool aq_context_entered(aq_context_cost *cost);

/* It was made: what it cost stays charged until one context of the process on this card ends. */
void aq_context_lives(aq_context_cost *cost);

/* After failure, and when the context has ended. */
void aq_context_leave(const aq_context_cost *cost);

/* The same for the primary context of a device, which may have lived before: then it cost nothing. */
void aq_primary_lives(const aq_context_cost *cost);

/* Around asking the driver whether it still lives: an answer that others have overtaken counts for nothing. */
uint64_t aq_primary_asked(CUdevice device);
void aq_primary_ended(CUdevice device, uint64_t asked);

/* In the child of a fork. */
void aq_overhead_forget(void);
void aq_code_forget(void);

#endif
