/* Managed memory of a slice whose page says `resident`: it may be larger than the slice, and only what may come to the card is charged.
 *
 * A driver brings pages to the card when a kernel touches them, and nobody is asked. So the slice is kept by advice: blocks of 2 MiB
 * are either charged and free to come, or prefer the host and are accessed from there. Blocks that the program prefetches become
 * charged; those it has not asked for for the longest time go back to the host, when these or another allocation need the room.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_RESIDENT_H
#define AQ_RESIDENT_H

#include <stdbool.h>

#include "hint.h"
#include "quota.h"

/* One allocation. */
typedef struct aq_resident aq_resident;

extern bool aq_residents_any; /* relaxed: whoever asks about an address was given it first */

/* Whether an allocation of so many bytes may be larger than what is left of the slice. One that lies in a single block may not. */
bool aq_resident_may(CUdevice device, uint64_t bytes);

/* Allocates, and charges as much as fits. The program's answer. */
CUresult aq_resident_allocate(CUdevice device, uint64_t bytes, unsigned int flags, CUdeviceptr *dptr);

/* Around a call that frees: the allocation at an address, or NULL; what it is charged from then on; and either it is kept, or gone,
 * and its charge is the caller's to give back. Until then hints are held to what its blocks are. */
aq_resident *aq_resident_take(CUdeviceptr base);
aq_charge aq_resident_charge(const aq_resident *one);
void aq_resident_keep(aq_resident *one);
void aq_resident_end(aq_resident *one);

/* How many of the bytes from an address on belong together: to one such allocation, or to none. */
uint64_t aq_resident_reach(CUdeviceptr address, uint64_t bytes);

/* Takes a hint about a range that belongs together, as far as the slice holds it, or passes it where it is none of ours. Meanwhile no
 * other thread is given such an allocation there. The driver's answer. */
CUresult aq_resident_hint(const aq_hint *hint);

/* After a refusal of `bytes` on a device: brings blocks to the host until they fit, in the current context. False: nothing was
 * changed, because that is not enough, or not all of it came there. */
bool aq_residents_yield(CUdevice device, uint64_t bytes);

/* A context is about to end under this name, or goes on after all; and it has ended: what was in it, and all events of its own. */
void aq_residents_pause_context(CUcontext context, void *name);
void aq_residents_resume_context(void *name, CUcontext context);
void aq_residents_end_context(void *name);

/* In the child of a fork. */
void aq_residents_forget(void);

#endif
