/* One lock over all allocations, held while the driver moves blocks, so that nobody frees what is being moved.
 * SPDX-License-Identifier: Apache-2.0 */
#include "resident.h"

#include <stdlib.h>

#include "advice.h"
#include "allowance.h"
#include "cards.h"
#include "ledger.h"
#include "location.h"
#include "lock.h"
#include "memory.h"
#include "prefetches.h"
#include "stream.h"

#define BLOCK (UINT64_C(2) << 20)
#define PAGE (UINT64_C(64) << 10) /* the last block takes so many of these as it needs */
#define ON_HOST 0
#define UNWANTED 1 /* the first to go */
#define EVER UINT64_MAX

struct aq_resident {
  aq_resident *next;
  CUdeviceptr base;
  uint64_t bytes;
  size_t count; /* of blocks */
  CUdevice device;
  aq_charge charge;
  void *context; /* with whose end the driver frees it, by its handle or, while that ends, by its name */
  bool ending;
  bool freeing; /* the driver has been asked to: until it has, blocks are what they were */
  uint64_t asked[]; /* by block: when the program asked for it last, by `moments`; ON_HOST: it is kept there */
};

static aq_lock moving;
static aq_resident *all;
static uint64_t moments = UNWANTED;

bool aq_residents_any;

static bool any(void) { return __atomic_load_n(&aq_residents_any, __ATOMIC_RELAXED); }

/* ---- blocks ---- */

static CUdeviceptr address_of(const aq_resident *one, size_t block) { return one->base + block * BLOCK; }

/* What some blocks take of a card. */
static uint64_t size_of(const aq_resident *one, size_t first, size_t count) {
  uint64_t last = (one->bytes - (one->count - 1) * BLOCK + PAGE - 1) / PAGE * PAGE;
  return first + count < one->count ? count * BLOCK : (count - 1) * BLOCK + last;
}

/* What of them the program has. */
static uint64_t bytes_of(const aq_resident *one, size_t first, size_t count) {
  uint64_t rest = one->bytes - first * BLOCK;
  return rest < count * BLOCK ? rest : count * BLOCK;
}

static bool is_on_host(const aq_resident *one, size_t block) { return one->asked[block] == ON_HOST; }

/* How many blocks from one on, and before another, are alike. */
static size_t alike(const aq_resident *one, size_t first, size_t end) {
  size_t at = first + 1;
  while (at < end && is_on_host(one, at) == is_on_host(one, first)) at++;
  return at - first;
}

static void mark(aq_resident *one, size_t first, size_t count, uint64_t moment) {
  for (size_t i = first; i < first + count; i++) one->asked[i] = moment;
}

/* ---- to the host ---- */

typedef struct {
  aq_resident *one; /* NULL: there is none */
  size_t first, count;
} blocks;

static bool may_leave(const aq_resident *one, size_t block, uint64_t before) {
  return !is_on_host(one, block) && one->asked[block] < before && !aq_prefetches_name(one, block);
}

static bool has_leavers(const aq_resident *one, int card) { return one->charge.card == card && !one->ending && !one->freeing; }

/* Of a card's blocks that may leave the last one of those that were asked for before all others. */
static blocks longest_unasked(int card, uint64_t before) {
  blocks found = {.one = NULL};
  for (aq_resident *one = all; one; one = one->next) {
    if (!has_leavers(one, card)) continue;
    for (size_t i = one->count; i-- > 0;) {
      if (!may_leave(one, i, before)) continue;
      found = (blocks){.one = one, .first = i, .count = 1};
      before = one->asked[i];
    }
  }
  return found;
}

/* The same, with as many before it that were asked for at the same time as are needed. */
static blocks next_to_leave(int card, uint64_t before, uint64_t bytes) {
  blocks b = longest_unasked(card, before);
  if (!b.one) return b;
  uint64_t moment = b.one->asked[b.first];
  while (b.first && size_of(b.one, b.first, b.count) < bytes && b.one->asked[b.first - 1] == moment &&
         may_leave(b.one, b.first - 1, EVER)) {
    b.first--;
    b.count++;
  }
  return b;
}

static uint64_t leave(const blocks *b) {
  aq_resident *one = b->one;
  CUdeviceptr address = address_of(one, b->first);
  uint64_t bytes = bytes_of(one, b->first, b->count), size = size_of(one, b->first, b->count);
  if (!aq_advise_host(address, bytes, one->device) || !aq_bring_to_host(address, bytes)) return 0;
  aq_charge given = {.bytes = size < one->charge.bytes ? size : one->charge.bytes, .card = one->charge.card};
  mark(one, b->first, b->count, ON_HOST);
  one->charge.bytes -= given.bytes; /* where limits are only observed, the account may not hold all */
  aq_quota_give(&given);
  return size;
}

static uint64_t can_leave(int card, uint64_t before) {
  uint64_t sum = 0;
  for (const aq_resident *one = all; one; one = one->next)
    for (size_t i = 0; has_leavers(one, card) && i < one->count; i++)
      if (may_leave(one, i, before)) sum += size_of(one, i, 1);
  return sum;
}

/* How much has to leave before so many bytes fit; EVER: they never do. */
static uint64_t shortage(int card, uint64_t bytes) {
  aq_allowance terms = aq_allowance_of(card);
  uint64_t used = aq_allowance_in_use(&terms, aq_ledger_used(aq_slice.usage, card));
  if (bytes > terms.usable) return EVER;
  return used > terms.usable - bytes ? used - (terms.usable - bytes) : 0;
}

/* Has blocks leave that were asked for before a moment, if that is enough. */
static bool make_room(int card, uint64_t bytes, uint64_t before) {
  aq_prefetches_look(NULL);
  uint64_t missing = shortage(card, bytes);
  if (!missing || can_leave(card, before) < missing) return false;
  while (missing) {
    blocks b = next_to_leave(card, before, missing);
    uint64_t left = b.one ? leave(&b) : 0;
    if (!left) return false;
    missing -= left < missing ? left : missing;
  }
  return true;
}

bool aq_residents_yield(CUdevice device, uint64_t bytes) {
  if (!any()) return false;
  int card = aq_card_of_device(device);
  aq_lock_acquire(&moving);
  bool made = card != AQ_NO_CARD && make_room(card, bytes, EVER);
  aq_lock_release(&moving);
  return made;
}

/* ---- to the card ---- */

static bool take(aq_resident *one, uint64_t bytes, uint64_t before) {
  aq_charge charge;
  bool fits = aq_quota_take(one->device, bytes, &charge) ||
              (make_room(one->charge.card, bytes, before) && aq_quota_take(one->device, bytes, &charge));
  return fits && charge.card != AQ_NO_CARD;
}

static bool enter(aq_resident *one, size_t first, size_t count, uint64_t moment) {
  uint64_t size = size_of(one, first, count);
  if (!take(one, size, moment)) return false;
  if (!aq_advise_nowhere(address_of(one, first), bytes_of(one, first, count), one->device)) {
    aq_quota_give(&(aq_charge){.bytes = size, .card = one->charge.card});
    return false;
  }
  one->charge.bytes += size;
  mark(one, first, count, moment);
  return true;
}

/* The program asks for some blocks: as many as fit may come, those among them that may already in any case. */
static void ask_for(aq_resident *one, size_t first, size_t end) {
  uint64_t moment = ++moments;
  for (size_t i = first; i < end; i++)
    if (!is_on_host(one, i)) one->asked[i] = moment;
  for (size_t i = first, count; i < end; i += count) {
    count = alike(one, i, end);
    while (is_on_host(one, i) && count && !enter(one, i, count, moment)) count /= 2;
    if (!count) return;
  }
}

/* ---- allocating ---- */

bool aq_resident_may(CUdevice device, uint64_t bytes) {
  if (aq_tenant_mode() != AQ_GUARD || bytes <= BLOCK || bytes > AQ_MEMORY_MAX) return false;
  int card = aq_card_of_device(device);
  return card != AQ_NO_CARD &&
         __atomic_load_n(&aq_slice.control->cards[card].flags, __ATOMIC_RELAXED) & AQ_CARD_MANAGED_RESIDENT;
}

static aq_resident *new_resident(CUdevice device, uint64_t bytes) {
  size_t count = (bytes + BLOCK - 1) / BLOCK;
  aq_resident *one = calloc(1, sizeof *one + count * sizeof one->asked[0]);
  if (!one) return NULL;
  one->bytes = bytes;
  one->count = count;
  one->device = device;
  one->charge.card = aq_card_of_device(device);
  return one;
}

/* How many of its blocks the slice holds besides what is in use. */
static size_t fitting(const aq_resident *one) {
  aq_allowance terms = aq_allowance_of(one->charge.card);
  uint64_t used = aq_allowance_in_use(&terms, aq_ledger_used(aq_slice.usage, one->charge.card));
  uint64_t left = used < terms.limit ? terms.limit - used : 0;
  if (size_of(one, 0, one->count) <= left || aq_enforcement() != AQ_ENFORCE_ENFORCE) return one->count;
  return left / BLOCK < one->count ? left / BLOCK : one->count - 1;
}

/* Charges the first blocks, as many as fit; a grant is waited for. Returns how many. */
static size_t charge_first(aq_resident *one) {
  size_t count = fitting(one);
  aq_charge charge = {.bytes = 0};
  if (count < one->count && aq_pools_trim()) count = fitting(one);
  if (count && !aq_memory_fits(one->device, size_of(one, 0, count), &charge)) count = 0;
  one->charge.bytes = count ? charge.bytes : 0;
  return count;
}

static void free_memory(uint64_t key) { AQ_CUDA(cuMemFree_v2)(key); }

static CUresult allocate(aq_resident *one, size_t count, unsigned int flags, CUdeviceptr *dptr) {
  CUresult result = AQ_CUDA(cuMemAllocManaged)(dptr, one->bytes, flags);
  if (result != CUDA_SUCCESS) return result;
  one->base = *dptr;
  bool settled = count == one->count ||
                 aq_advise_host(address_of(one, count), bytes_of(one, count, one->count - count), one->device);
  aq_block block = {.key = *dptr, .charge = {.bytes = 0, .card = one->charge.card}, .kind = AQ_BLOCK_MEMORY};
  if (settled) return aq_memory_keep(CUDA_SUCCESS, &block, free_memory);
  free_memory(*dptr);
  aq_quota_refused(one->device, one->bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static void add(aq_resident *one, size_t count) {
  if (AQ_CUDA(cuCtxGetCurrent)) AQ_CUDA(cuCtxGetCurrent)((CUcontext *)&one->context);
  mark(one, 0, count, ++moments);
  one->next = all;
  all = one;
  __atomic_store_n(&aq_residents_any, true, __ATOMIC_RELAXED);
}

CUresult aq_resident_allocate(CUdevice device, uint64_t bytes, unsigned int flags, CUdeviceptr *dptr) {
  aq_resident *one = AQ_CUDA(cuMemFree_v2) && dptr ? new_resident(device, bytes) : NULL;
  if (!one) return CUDA_ERROR_OUT_OF_MEMORY;
  size_t count = charge_first(one);
  aq_lock_acquire(&moving); /* another thread may guess the address, and advise on it */
  CUresult result = allocate(one, count, flags, dptr);
  if (result == CUDA_SUCCESS) add(one, count);
  aq_lock_release(&moving);
  if (result != CUDA_SUCCESS) {
    aq_quota_give(&one->charge);
    free(one);
  }
  return result;
}

/* ---- freeing ---- */

aq_resident *aq_resident_take(CUdeviceptr base) {
  aq_lock_acquire(&moving);
  aq_resident *one = all;
  while (one && (one->freeing || one->base != base)) one = one->next;
  if (one) one->freeing = true;
  aq_lock_release(&moving);
  return one;
}

aq_charge aq_resident_charge(const aq_resident *one) { return one->charge; }

void aq_resident_keep(aq_resident *one) {
  aq_lock_acquire(&moving);
  one->freeing = false;
  aq_lock_release(&moving);
}

void aq_resident_end(aq_resident *one) {
  aq_lock_acquire(&moving);
  aq_resident **at = &all;
  while (*at != one) at = &(*at)->next;
  *at = one->next;
  aq_prefetches_look(one);
  aq_lock_release(&moving);
  free(one);
}

/* ---- hints ---- */

/* At an address; the newest, where the driver has given it out again before it was seen to be free. */
static aq_resident *find(CUdeviceptr address) {
  aq_resident *one = all;
  while (one && address - one->base >= one->bytes) one = one->next;
  return one;
}

static uint64_t reach(const aq_resident *own, CUdeviceptr address, uint64_t bytes) {
  uint64_t end = own ? own->bytes - (address - own->base) : bytes;
  for (const aq_resident *one = all; one && !own; one = one->next)
    if (one->base - address < end) end = one->base - address;
  return end < bytes ? end : bytes;
}

uint64_t aq_resident_reach(CUdeviceptr address, uint64_t bytes) {
  if (!any()) return bytes;
  aq_lock_acquire(&moving);
  uint64_t found = reach(find(address), address, bytes);
  aq_lock_release(&moving);
  return found;
}

static bool names(const aq_hint *hint, const aq_resident *one) {
  return aq_location_is_device(hint->to) && aq_location_device(hint->to) == one->device;
}

static bool brings(const aq_hint *hint, const aq_resident *one) {
  return names(hint, one) && (hint->advice == AQ_PREFETCH || hint->advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION);
}

/* Whether a hint changes nothing of what keeps a block on the host. */
static bool leaves_on_host(const aq_hint *hint, const aq_resident *one) {
  if (hint->advice == AQ_PREFETCH) return !names(hint, one);
  return hint->advice == CU_MEM_ADVISE_SET_ACCESSED_BY || (hint->advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY && !names(hint, one));
}

/* A part of the hint's range, in blocks that are alike. */
static CUresult pass_part(const aq_hint *hint, const aq_resident *one, size_t first, size_t count) {
  CUdeviceptr from = address_of(one, first), to = from + bytes_of(one, first, count);
  if (from < hint->address) from = hint->address;
  if (to > hint->address + hint->bytes) to = hint->address + hint->bytes;
  if (is_on_host(one, first) && !leaves_on_host(hint, one)) return CUDA_SUCCESS;
  return hint->pass(hint, from, to - from);
}

static CUresult take_hint(const aq_hint *hint, aq_resident *one) {
  size_t first = (hint->address - one->base) / BLOCK, end = (hint->address + hint->bytes - one->base + BLOCK - 1) / BLOCK;
  bool captured = hint->advice == AQ_PREFETCH && aq_stream_is_capturing(hint->stream);
  CUresult result = CUDA_SUCCESS;
  if (brings(hint, one) && !captured && !one->freeing) ask_for(one, first, end);
  for (size_t i = first, count; i < end && result == CUDA_SUCCESS; i += count) {
    count = alike(one, i, end);
    result = pass_part(hint, one, i, count);
  }
  if (captured || hint->advice != AQ_PREFETCH) return result;
  if (names(hint, one)) aq_prefetches_note(one, first, end - first, hint->stream);
  for (size_t i = first; i < end && !names(hint, one); i++)
    if (!is_on_host(one, i)) one->asked[i] = UNWANTED;
  return result;
}

static CUresult take_or_pass(const aq_hint *hint) {
  aq_resident *one = find(hint->address);
  if (reach(one, hint->address, hint->bytes) < hint->bytes) return CUDA_ERROR_INVALID_VALUE;
  return one && hint->bytes ? take_hint(hint, one) : hint->pass(hint, hint->address, hint->bytes);
}

CUresult aq_resident_hint(const aq_hint *hint) {
  aq_lock_acquire(&moving);
  CUresult result = take_or_pass(hint);
  aq_lock_release(&moving);
  return result;
}

/* ---- the ends of contexts and processes ---- */

static void rename_context(void *from, void *to, bool ending) {
  for (aq_resident *one = all; one && from; one = one->next) {
    if (one->context != from || one->freeing) continue;
    one->context = to;
    one->ending = ending;
  }
  if (from) aq_prefetches_rename_context(from, to, ending);
}

void aq_residents_pause_context(CUcontext context, void *name) {
  if (!any()) return;
  aq_lock_acquire(&moving);
  aq_prefetches_look(NULL);
  rename_context(context, name, true);
  aq_lock_release(&moving);
}

void aq_residents_resume_context(void *name, CUcontext context) {
  if (!any()) return;
  aq_lock_acquire(&moving);
  rename_context(name, context, false);
  aq_lock_release(&moving);
}

void aq_residents_end_context(void *name) {
  if (!any() || !name) return;
  aq_lock_acquire(&moving);
  aq_prefetches_end_context(name);
  for (aq_resident **at = &all; *at;) {
    aq_resident *one = *at;
    if (one->context != name || one->freeing) {
      at = &one->next;
      continue;
    }
    *at = one->next;
    aq_prefetches_look(one);
    aq_quota_give(&one->charge);
    free(one);
  }
  aq_lock_release(&moving);
}

void aq_residents_forget(void) {
  aq_lock_reset(&moving);
  all = NULL;
  aq_prefetches_forget();
}
