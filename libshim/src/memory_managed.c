/* Prefetching managed memory, and advising where it shall be.
 *
 * It is charged in full, to the device that was current when it was allocated: wherever it goes on that card, it is paid for.
 * To another card of the tenant's it goes only when that card's slice holds the whole allocation as well; from then on it is
 * charged there too, until it is freed. Prefetching and advice are hints, so one that does not fit is not taken, and the
 * program is told nothing: its memory stays where it is, and is reached from there.
 *
 * What has overflowed to the host is, as far as the program knows, no managed memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "advice.h"
#include "hint.h"
#include "location.h"
#include "memory.h"
#include "overflow.h"
#include "stream.h"

#define MAX_DEVICES 64 /* fits below the alignment of allocations */

typedef enum { FITS, DOES_NOT_FIT, NOT_MANAGED } verdict;

static bool any_guest; /* relaxed: whoever frees memory knows what was done with it */

/* The charge for an allocation on another device than its own. */
static uint64_t guest_key(CUdeviceptr base, CUdevice device) { return base + (uint64_t)device; }

static verdict add_guest(CUdeviceptr base, size_t bytes, CUdevice device, CUcontext context) {
  aq_block guest;
  aq_charge charge;
  if (aq_blocks_get(AQ_BLOCK_GUEST, guest_key(base, device), &guest)) return FITS;
  if (!aq_memory_take(device, bytes, &charge)) return DOES_NOT_FIT;
  guest = (aq_block){.key = guest_key(base, device), .charge = charge, .kind = AQ_BLOCK_GUEST, .context = context};
  __atomic_store_n(&any_guest, true, __ATOMIC_RELAXED);
  if (charge.card == AQ_NO_CARD || aq_blocks_put(&guest)) return FITS;
  aq_quota_give(&charge);
  return DOES_NOT_FIT;
}

static bool is_managed(CUdeviceptr address) {
  unsigned int managed = 0;
  CUresult (*ask)(void *, int, CUdeviceptr) = AQ_CUDA(cuPointerGetAttribute);
  return ask && ask(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == CUDA_SUCCESS && managed;
}

/* A managed variable of a module ends with its context; what was allocated, when it is freed. */
static CUcontext context_of(const aq_block *block, bool known) {
  CUcontext context = known ? block->context : NULL;
  if (!known && AQ_CUDA(cuCtxGetCurrent)) AQ_CUDA(cuCtxGetCurrent)(&context);
  return context;
}

static verdict may_go(CUdeviceptr address, CUmemLocation to) {
  aq_block block = {.charge.card = AQ_NO_CARD};
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (aq_tenant_mode() != AQ_GUARD) return FITS;
  if (aq_overflow_has(address)) return NOT_MANAGED;
  CUdevice device = aq_location_device(to);
  if (!aq_location_is_device(to) || device < 0 || device >= MAX_DEVICES) return FITS;
  if (!is_managed(address) || !AQ_CUDA(cuMemGetAddressRange_v2) || AQ_CUDA(cuMemGetAddressRange_v2)(&base, &bytes, address)) return FITS;
  bool known = aq_blocks_get(AQ_BLOCK_MEMORY, base, &block);
  if (known && block.charge.card == aq_card_of_device(device)) return FITS;
  return add_guest(base, bytes, device, context_of(&block, known));
}

void aq_managed_freed(CUdeviceptr base) {
  aq_block guest;
  if (!__atomic_load_n(&any_guest, __ATOMIC_RELAXED)) return;
  for (CUdevice device = 0; device < MAX_DEVICES; device++)
    if (aq_blocks_take(AQ_BLOCK_GUEST, guest_key(base, device), &guest)) aq_quota_give(&guest.charge);
}

/* Whether there is managed memory that may be larger than the slice, or another thread may be about to allocate some. */
static bool residents_may_come(void) {
  bool may = __atomic_load_n(&aq_residents_any, __ATOMIC_RELAXED);
  for (int card = 0; !may && aq_tenant_mode() == AQ_GUARD && card < AQ_MAX_CARDS; card++)
    may = __atomic_load_n(&aq_slice.control->cards[card].flags, __ATOMIC_RELAXED) & AQ_CARD_MANAGED_RESIDENT;
  return may;
}

/* ---- single ranges ---- */

/* Only a preferred location brings memory to a card by and by. */
static CUmemLocation goes_to(const aq_hint *hint) {
  bool goes = hint->advice == AQ_PREFETCH || hint->advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
  return goes ? hint->to : aq_place_of(CU_DEVICE_CPU);
}

/* The answer to a hint that is not taken. */
static CUresult untaken(verdict why) { return why == NOT_MANAGED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }

/* Within one allocation that may be larger than the slice, or outside of all of them. */
static CUresult take_part(const aq_hint *hint) {
  verdict found = may_go(hint->address, goes_to(hint));
  if (found != FITS) return untaken(found);
  return residents_may_come() ? aq_resident_hint(hint) : hint->pass(hint, hint->address, hint->bytes);
}

static CUresult take_hint(const aq_hint *hint) {
  aq_hint part = *hint;
  uint64_t rest = hint->bytes;
  CUresult result;
  do {
    part.bytes = aq_resident_reach(part.address, rest);
    result = take_part(&part);
    rest -= part.bytes;
    part.address += part.bytes;
  } while (rest && result == CUDA_SUCCESS);
  return result;
}

static aq_hint prefetch_to(CUdeviceptr address, size_t bytes, CUmemLocation to, unsigned long long flags, CUstream stream) {
  return (aq_hint){.address = address, .bytes = bytes, .advice = AQ_PREFETCH, .to = to, .flags = flags, .stream = stream};
}

static aq_hint advice_for(CUdeviceptr address, size_t bytes, int advice, CUmemLocation to) {
  return (aq_hint){.address = address, .bytes = bytes, .advice = advice, .to = to};
}

static CUdevice device_of(CUmemLocation place) { return aq_location_is_host(place) ? CU_DEVICE_CPU : place.id; }
static CUstream threads_own(CUstream stream) { return aq_stream_named(stream, AQ_STREAM_PER_THREAD); }

/* The hook of a driver function that takes a range, and then what the hint says. */
#define HINT(symbol, parameters, given, ...)                                            \
  static CUresult pass_##symbol(const aq_hint *hint, CUdeviceptr at, size_t length) {   \
    return AQ_CUDA(symbol)(at, length, __VA_ARGS__);                                    \
  }                                                                                     \
  CUresult symbol parameters {                                                          \
    aq_hint hint = given;                                                               \
    hint.pass = pass_##symbol;                                                          \
    return AQ_CUDA(symbol) ? take_hint(&hint) : CUDA_ERROR_NOT_FOUND;                   \
  }

HINT(cuMemPrefetchAsync, (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
     prefetch_to(address, bytes, aq_place_of(device), 0, stream), device_of(hint->to), hint->stream)

HINT(cuMemPrefetchAsync_ptsz, (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
     prefetch_to(address, bytes, aq_place_of(device), 0, threads_own(stream)), device_of(hint->to), hint->stream)

HINT(cuMemPrefetchAsync_v2, (CUdeviceptr address, size_t bytes, CUmemLocation to, unsigned int flags, CUstream stream),
     prefetch_to(address, bytes, to, flags, stream), hint->to, (unsigned int)hint->flags, hint->stream)

HINT(cuMemPrefetchAsync_v2_ptsz, (CUdeviceptr address, size_t bytes, CUmemLocation to, unsigned int flags, CUstream stream),
     prefetch_to(address, bytes, to, flags, threads_own(stream)), hint->to, (unsigned int)hint->flags, hint->stream)

HINT(cuMemAdvise, (CUdeviceptr address, size_t bytes, int advice, CUdevice device),
     advice_for(address, bytes, advice, aq_place_of(device)), hint->advice, device_of(hint->to))

HINT(cuMemAdvise_v2, (CUdeviceptr address, size_t bytes, int advice, CUmemLocation to),
     advice_for(address, bytes, advice, to), hint->advice, hint->to)

/* ---- batches: ranges, and from which of them on which location is meant ---- */

typedef struct {
  CUdeviceptr *addresses;
  size_t *sizes, count;
  CUmemLocation *locations;
  size_t *starts, location_count;
  unsigned long long flags;
  CUstream stream;
  CUresult (*pass)(const aq_hint *hint, CUdeviceptr address, size_t bytes); /* a single range */
} batch;

static CUmemLocation location_of(const batch *b, size_t range) {
  size_t at = 0;
  while (at + 1 < b->location_count && b->starts[at + 1] <= range) at++;
  return b->locations[at];
}

/* One range after the other, without what is not taken. */
static CUresult prefetch_each(const batch *b) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < b->count && result == CUDA_SUCCESS; i++) {
    aq_hint hint = prefetch_to(b->addresses[i], b->sizes[i], location_of(b, i), b->flags, b->stream);
    hint.pass = b->pass;
    result = take_hint(&hint);
  }
  return result;
}

/* What is malformed is the driver's to refuse. Another thread may change the ranges, so what is looked at is passed singly where
 * managed memory may be larger than the slice. */
static bool is_for_driver(const batch *b) {
  bool whole = b->addresses && b->sizes && b->locations && b->starts && b->location_count && b->count;
  if (whole && residents_may_come()) return false;
  for (size_t i = 0; whole && i < b->count; i++)
    if (may_go(b->addresses[i], location_of(b, i)) != FITS) return false;
  return true;
}

#define BATCH(symbol, own_stream)                                                                                        \
  static CUresult pass_##symbol(const aq_hint *hint, CUdeviceptr at, size_t length) {                                    \
    CUmemLocation to = hint->to;                                                                                         \
    size_t start = 0;                                                                                                    \
    return AQ_CUDA(symbol)(&at, &length, 1, &to, &start, 1, hint->flags, hint->stream);                                  \
  }                                                                                                                      \
  CUresult symbol(CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *locations, size_t *starts,         \
                  size_t location_count, unsigned long long flags, CUstream stream) {                                    \
    const batch b = {addresses, sizes, count, locations, starts, location_count, flags, own_stream, pass_##symbol};      \
    if (!AQ_CUDA(symbol)) return CUDA_ERROR_NOT_FOUND;                                                                   \
    if (!is_for_driver(&b)) return prefetch_each(&b);                                                                    \
    return AQ_CUDA(symbol)(addresses, sizes, count, locations, starts, location_count, flags, stream);                   \
  }

BATCH(cuMemPrefetchBatchAsync, stream)
BATCH(cuMemPrefetchBatchAsync_ptsz, threads_own(stream))
BATCH(cuMemDiscardAndPrefetchBatchAsync, stream)
BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz, threads_own(stream))
