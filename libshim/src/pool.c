/* Accounts of pools: charge = max(reserved by the pool, allocated from it).
 *
 * The second counts because the reservation happens before the driver's call; the first because a pool grows by more
 * than it is asked for and keeps what is freed. Attributes are read without a lock held: the driver is never called
 * under one. A pool whose memory lies on the host has no account on any card and charges nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <stdlib.h>

#include "loader.h"
#include "lock.h"

struct aq_pool {
  aq_pool *next; /* never removed, because blocks point here; but used again */
  CUmemoryPool handle;
  CUdevice device;
  aq_lock lock;       /* over the words below */
  uint64_t allocated; /* by the program, including calls under way */
  unsigned calls;     /* allocations under way: the pool may be about to grow */
  bool destroyed;
  aq_charge charge;
};

static aq_lock listing; /* over adding to the list */
static aq_pool *pools;  /* release: a pool is complete when it is listed */

static aq_pool *find(CUmemoryPool handle) {
  aq_pool *pool = __atomic_load_n(&pools, __ATOMIC_ACQUIRE);
  while (pool && (pool->handle != handle || __atomic_load_n(&pool->destroyed, __ATOMIC_ACQUIRE))) pool = pool->next;
  return pool;
}

/* A destroyed pool's account, once nothing of it is allocated any more. Under `listing`. */
static aq_pool *find_unused(void) {
  aq_pool *pool = pools;
  while (pool && !(pool->destroyed && !pool->allocated && !pool->calls)) pool = pool->next;
  return pool;
}

static aq_pool *make(void) {
  aq_pool *pool = calloc(1, sizeof *pool);
  if (!pool) return NULL;
  pool->charge.card = AQ_NO_CARD;
  pool->destroyed = true; /* so that nobody finds it yet */
  pool->next = pools;
  __atomic_store_n(&pools, pool, __ATOMIC_RELEASE);
  return pool;
}

/* Newer drivers say where a pool's memory lies; with others it is where the caller thinks. */
static CUdevice device_of(CUmemoryPool handle, CUdevice otherwise) {
  int type = CU_MEM_LOCATION_TYPE_DEVICE, id = otherwise;
  if (!AQ_CUDA(cuMemPoolGetAttribute)) return otherwise;
  if (AQ_CUDA(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE, &type)) return otherwise;
  if (type != CU_MEM_LOCATION_TYPE_DEVICE) return AQ_ON_HOST;
  return AQ_CUDA(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_LOCATION_ID, &id) ? otherwise : id;
}

static aq_pool *add(CUmemoryPool handle, CUdevice device) {
  aq_pool *pool = find_unused();
  if (!pool) pool = make();
  if (!pool) return NULL;
  aq_quota_give(&pool->charge); /* of its former life, which may have been on another card */
  pool->charge = (aq_charge){.card = AQ_NO_CARD};
  pool->handle = handle;
  pool->device = device_of(handle, device);
  __atomic_store_n(&pool->destroyed, false, __ATOMIC_RELEASE);
  return pool;
}

aq_pool *aq_pool_of(CUmemoryPool handle, CUdevice device) {
  aq_pool *pool = find(handle);
  if (pool) return pool;
  aq_lock_acquire(&listing);
  pool = find(handle);
  if (!pool) pool = add(handle, device);
  aq_lock_release(&listing);
  return pool;
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Under the lock: charges at least `bytes`. An account whose charge is empty starts one. */
static bool charge_up_to(aq_pool *pool, uint64_t bytes) {
  if (pool->device == AQ_ON_HOST) return true;
  if (pool->charge.card == AQ_NO_CARD) return aq_quota_take(pool->device, bytes, &pool->charge);
  return bytes <= pool->charge.bytes || aq_quota_resize(&pool->charge, bytes);
}

static uint64_t reserved(const aq_pool *pool) {
  uint64_t bytes = 0;
  if (pool->destroyed || !AQ_CUDA(cuMemPoolGetAttribute)) return 0;
  if (AQ_CUDA(cuMemPoolGetAttribute)(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes)) return UINT64_MAX;
  return bytes;
}

/* Brings the charge to what the pool has reserved now; down only while nothing is under way. */
static bool settle(aq_pool *pool) {
  uint64_t now = reserved(pool);
  if (now == UINT64_MAX) return true;
  aq_lock_acquire(&pool->lock);
  uint64_t wanted = larger(now, pool->allocated);
  bool fits = charge_up_to(pool, wanted);
  if (wanted < pool->charge.bytes && !pool->calls) aq_quota_resize(&pool->charge, wanted);
  aq_lock_release(&pool->lock);
  return fits;
}

bool aq_pool_take(aq_pool *pool, uint64_t bytes) {
  aq_lock_acquire(&pool->lock);
  bool fits = bytes <= AQ_MEMORY_MAX && charge_up_to(pool, pool->allocated + bytes);
  if (fits) {
    pool->allocated += bytes;
    pool->calls++;
  }
  aq_lock_release(&pool->lock);
  return fits;
}

bool aq_pool_grown(aq_pool *pool, uint64_t bytes) {
  bool fits = settle(pool);
  aq_lock_acquire(&pool->lock);
  pool->calls--;
  if (!fits) pool->allocated -= bytes;
  aq_lock_release(&pool->lock);
  return fits;
}

void aq_pool_returned(aq_pool *pool, uint64_t bytes) {
  aq_lock_acquire(&pool->lock);
  pool->allocated -= bytes < pool->allocated ? bytes : pool->allocated;
  aq_lock_release(&pool->lock);
  settle(pool);
}

aq_pool *aq_pool_destroyed(CUmemoryPool handle) {
  aq_pool *pool = find(handle);
  if (!pool) return NULL;
  __atomic_store_n(&pool->destroyed, true, __ATOMIC_RELAXED);
  settle(pool);
  return pool;
}

void aq_pool_survived(aq_pool *pool) {
  __atomic_store_n(&pool->destroyed, false, __ATOMIC_RELEASE);
  settle(pool);
}

void aq_pools_settle(void) {
  for (aq_pool *pool = __atomic_load_n(&pools, __ATOMIC_ACQUIRE); pool; pool = pool->next) settle(pool);
}

bool aq_pools_trim(void) {
  aq_pool *pool = __atomic_load_n(&pools, __ATOMIC_ACQUIRE);
  bool any = pool != NULL;
  for (; pool; pool = pool->next) {
    if (!pool->destroyed && AQ_CUDA(cuMemPoolTrimTo)) AQ_CUDA(cuMemPoolTrimTo)(pool->handle, 0);
    settle(pool);
  }
  return any;
}

void aq_pools_forget(void) {
  aq_lock_reset(&listing);
  pools = NULL;
}
