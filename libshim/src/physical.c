/* A handle's number may be given out again while the old memory is still mapped: an account hangs on neither, but on both,
 * and on what it is bound to.
 * SPDX-License-Identifier: Apache-2.0 */
#include "physical.h"

#include <stdlib.h>

#include "binding.h"
#include "lock.h"

struct aq_physical {
  aq_charge charge;
  CUdevice device;
  unsigned references; /* handles, mappings, bindings, calls under way */
  bool of_nobody;      /* imported, and no process of this tenant is charged for it */
  aq_share origin;     /* imported from a process of this tenant */
  aq_share share;      /* exported to others */
  uint64_t published;
  aq_physical *next;   /* in `lingering` */
};

/* Over references, over looking a handle up and putting it back changed, and over the list. */
static aq_lock counting;
static aq_physical *lingering; /* without a reference here, but held by another process of the tenant */

static aq_physical *make(CUdevice device, const aq_charge *charge) {
  aq_physical *physical = malloc(sizeof *physical);
  if (!physical) return NULL;
  *physical = (aq_physical){
      .charge = *charge, .device = device, .references = 1, .origin = AQ_NO_SHARE, .share = AQ_NO_SHARE};
  return physical;
}

aq_physical *aq_physical_new(CUdevice device, const aq_charge *charge) { return make(device, charge); }

aq_physical *aq_physical_imported(CUdevice device, aq_share origin) {
  aq_physical *physical = make(device, &(aq_charge){.card = AQ_NO_CARD});
  if (!physical) return NULL;
  physical->of_nobody = !aq_share_open(origin);
  physical->origin = physical->of_nobody ? AQ_NO_SHARE : origin;
  return physical;
}

/* Its export is over. */
static void end(aq_physical *physical) {
  aq_share_withdraw(physical->published);
  aq_share_close(physical->origin);
  aq_quota_give(&physical->charge);
  free(physical);
}

static void linger(aq_physical *physical) {
  aq_lock_acquire(&counting);
  physical->next = lingering;
  lingering = physical;
  aq_lock_release(&counting);
}

void aq_physical_drop(aq_physical *physical) {
  aq_lock_acquire(&counting);
  bool last = --physical->references == 0;
  aq_lock_release(&counting);
  if (!last) return;
  aq_bindings_end(AQ_BOUND_TO_MULTICAST, (uintptr_t)physical);
  if (aq_share_end_unless_open(physical->share, &physical->charge)) end(physical);
  else linger(physical);
  aq_physical_settle();
}

bool aq_physical_settle(void) {
  bool any = false;
  if (!__atomic_load_n(&lingering, __ATOMIC_RELAXED)) return false;
  aq_lock_acquire(&counting);
  aq_physical *all = lingering;
  lingering = NULL;
  aq_lock_release(&counting);
  while (all) {
    aq_physical *next = all->next;
    bool ended = aq_share_end_unless_open(all->share, &all->charge);
    if (ended) end(all);
    else linger(all);
    any |= ended;
    all = next;
  }
  return any;
}

/* ---- finding ---- */

static bool put_handle(CUmemGenericAllocationHandle handle, uint64_t count, aq_physical *physical) {
  aq_block block = {.key = handle, .charge = {count, AQ_NO_CARD}, .kind = AQ_BLOCK_HANDLE, .detail = physical};
  return aq_blocks_put(&block);
}

/* A handle that was given out n times (cuMemRetainAllocationHandle) is one block whose charge.bytes is n. */
bool aq_physical_add_handle(CUmemGenericAllocationHandle handle, aq_physical *physical) {
  aq_block block = {.charge.bytes = 0};
  aq_lock_acquire(&counting);
  bool known = aq_blocks_get(AQ_BLOCK_HANDLE, handle, &block) && block.detail == physical;
  bool kept = put_handle(handle, known ? block.charge.bytes + 1 : 1, physical);
  aq_lock_release(&counting);
  return kept;
}

aq_physical *aq_physical_take_handle(CUmemGenericAllocationHandle handle) {
  aq_block block;
  aq_lock_acquire(&counting);
  bool known = aq_blocks_take(AQ_BLOCK_HANDLE, handle, &block);
  if (known && block.charge.bytes > 1) put_handle(handle, block.charge.bytes - 1, block.detail);
  aq_lock_release(&counting);
  return known ? block.detail : NULL;
}

aq_physical *aq_physical_of_handle(CUmemGenericAllocationHandle handle) {
  aq_block block = {.detail = NULL};
  aq_lock_acquire(&counting);
  if (!aq_blocks_get(AQ_BLOCK_HANDLE, handle, &block)) block.detail = NULL;
  aq_physical *found = block.detail;
  if (found) found->references++;
  aq_lock_release(&counting);
  return found;
}

typedef struct {
  uint64_t address;
  aq_physical *found;
} search;

static bool is_mapped_here(const aq_block *block, void *data) {
  search *s = data;
  if (s->address - block->key < block->charge.bytes) s->found = block->detail;
  return !s->found;
}

aq_physical *aq_physical_at(CUdeviceptr address) {
  search s = {.address = address};
  aq_lock_acquire(&counting);
  aq_blocks_each(AQ_BLOCK_MAPPING, is_mapped_here, &s);
  if (s.found) s.found->references++;
  aq_lock_release(&counting);
  return s.found;
}

/* ---- sharing ---- */

static aq_lock growing;

/* Growing is serial: another thread may map another part of the same memory. */
bool aq_physical_reach(aq_physical *physical, uint64_t bytes) {
  bool fits = true;
  if (!physical->of_nobody) return true;
  int card = aq_card_of_device(physical->device); /* asks the driver once, so not under the lock */
  aq_lock_acquire(&growing);
  if (physical->charge.card == AQ_NO_CARD && card != AQ_NO_CARD)
    fits = aq_quota_take(physical->device, bytes, &physical->charge);
  else if (bytes > physical->charge.bytes)
    fits = aq_quota_resize(&physical->charge, bytes);
  aq_lock_release(&growing);
  if (!fits) aq_quota_refused_growth(physical->device, &physical->charge, bytes);
  return fits;
}

CUdevice aq_physical_device(const aq_physical *physical) { return physical->device; }

static aq_share share_of(aq_physical *physical) {
  aq_lock_acquire(&counting);
  aq_share share = physical->share;
  aq_lock_release(&counting);
  return share;
}

aq_share aq_physical_share(aq_physical *physical) {
  if (aq_share_is_ours(physical->origin)) return physical->origin; /* passes on what it was given */
  if (aq_share_is_ours(share_of(physical))) return share_of(physical);
  aq_share fresh = aq_share_export(&physical->charge);
  aq_lock_acquire(&counting);
  bool first = !aq_share_is_ours(physical->share);
  if (first) physical->share = fresh;
  aq_lock_release(&counting);
  if (!first) aq_share_end(fresh, &physical->charge);
  return share_of(physical);
}

void aq_physical_published(aq_physical *physical, uint64_t word) { physical->published = word; }

void aq_physical_forget(void) {
  aq_lock_reset(&counting);
  aq_lock_reset(&growing);
  lingering = NULL;
}
