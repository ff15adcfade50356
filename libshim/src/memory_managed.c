/* Prefetching managed memory, and advising where it shall be.
 *
 * It is charged in full, to the device that was current when it was allocated: wherever it goes on that card, it is paid for.
 * To another card of the tenant's it goes only when that card's slice holds the whole allocation as well; from then on it is
 * charged there too, until it is freed. Prefetching and advice are hints, so one that does not fit is not taken, and the
 * program is told nothing: its memory stays where it is, and is reached from there.
 *
 * What has overflowed to the host is, as far as the program knows, no managed memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "location.h"
#include "memory.h"
#include "overflow.h"

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

/* ---- single ranges ---- */

static CUmemLocation place_of(CUdevice device) {
  if (device == CU_DEVICE_CPU) return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
  return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

/* The answer to a hint that is not taken. */
static CUresult untaken(verdict why) { return why == NOT_MANAGED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }

#define HINT(symbol, to, ...)                             \
  do {                                                    \
    if (!AQ_CUDA(symbol)) return CUDA_ERROR_NOT_FOUND;    \
    verdict found = may_go(address, to);                  \
    return found == FITS ? AQ_CUDA(symbol)(__VA_ARGS__) : untaken(found); \
  } while (0)

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
  HINT(cuMemPrefetchAsync, place_of(device), address, bytes, device, stream);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
  HINT(cuMemPrefetchAsync_ptsz, place_of(device), address, bytes, device, stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream) {
  HINT(cuMemPrefetchAsync_v2, location, address, bytes, location, flags, stream);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,
                                    CUstream stream) {
  HINT(cuMemPrefetchAsync_v2_ptsz, location, address, bytes, location, flags, stream);
}

/* Only a preferred location brings memory to a card by and by. */
static CUmemLocation goes_to(int advice, CUmemLocation location) {
  return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ? location : place_of(CU_DEVICE_CPU);
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device) {
  HINT(cuMemAdvise, goes_to(advice, place_of(device)), address, bytes, advice, device);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation location) {
  HINT(cuMemAdvise_v2, goes_to(advice, location), address, bytes, advice, location);
}

/* ---- batches: ranges, and from which of them on which location is meant ---- */

typedef CUresult (*batch_function)(CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t, unsigned long long,
                                   CUstream);

typedef struct {
  CUdeviceptr *addresses;
  size_t *sizes, count;
  CUmemLocation *locations;
  size_t *starts, location_count;
  unsigned long long flags;
  CUstream stream;
} batch;

static CUmemLocation *location_of(const batch *b, size_t range) {
  size_t at = 0;
  while (at + 1 < b->location_count && b->starts[at + 1] <= range) at++;
  return &b->locations[at];
}

/* One range after the other, without those that are not taken. */
static CUresult prefetch_each(batch_function driver, const batch *b) {
  size_t start = 0;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < b->count && result == CUDA_SUCCESS; i++) {
    CUmemLocation *to = location_of(b, i);
    verdict found = may_go(b->addresses[i], *to);
    result = found == FITS ? driver(&b->addresses[i], &b->sizes[i], 1, to, &start, 1, b->flags, b->stream) : untaken(found);
  }
  return result;
}

/* What is malformed is the driver's to refuse. */
static CUresult prefetch_batch(batch_function driver, const batch *b) {
  if (!driver) return CUDA_ERROR_NOT_FOUND;
  bool whole = b->addresses && b->sizes && b->locations && b->starts && b->location_count;
  bool fits = true;
  for (size_t i = 0; whole && i < b->count; i++) fits &= may_go(b->addresses[i], *location_of(b, i)) == FITS;
  if (!fits) return prefetch_each(driver, b);
  return driver(b->addresses, b->sizes, b->count, b->locations, b->starts, b->location_count, b->flags, b->stream);
}

#define BATCH(symbol)                                                                                                    \
  CUresult symbol(CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *locations, size_t *starts,         \
                  size_t location_count, unsigned long long flags, CUstream stream) {                                    \
    batch b = {addresses, sizes, count, locations, starts, location_count, flags, stream};                               \
    return prefetch_batch(AQ_CUDA(symbol), &b);                                                                          \
  }

BATCH(cuMemPrefetchBatchAsync)
BATCH(cuMemPrefetchBatchAsync_ptsz)
BATCH(cuMemDiscardAndPrefetchBatchAsync)
BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz)
