/* Pools are seen when they are made or first allocated from. Accounts are never freed, because any thread may be looking at
 * one; the account of a pool that is no more becomes another's.
 *
 * A pool that the program destroys lives on, unseen, until nothing of it is in use: a destroyed pool's memory stays on the
 * card for as long as allocations do, and only a living one can be asked how much it is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool_list.h"

#include <sched.h>
#include <stdlib.h>

#include "cards.h"
#include "loader.h"
#include "location.h"

/* The handle of an account whose pool is being destroyed: no pool's. */
#define BURIED ((CUmemoryPool)UINTPTR_MAX)

static aq_lock listing; /* over adding to the list */
static aq_pool *pools;  /* release: a pool is complete when it is listed */

/* ---- what the driver says ---- */

/* No driver may be asked about a pool that it has ended. Whoever asks says so first and then reads the pool's name, and whoever
 * ends it takes the name away first and then waits for those who are asking. */
static CUmemoryPool begin_asking(aq_pool *pool) {
  __atomic_fetch_add(&pool->asking, 1, __ATOMIC_SEQ_CST);
  return __atomic_load_n(&pool->handle, __ATOMIC_SEQ_CST);
}

static void end_asking(aq_pool *pool) { __atomic_fetch_sub(&pool->asking, 1, __ATOMIC_RELEASE); }

static CUmemoryPool take_name(aq_pool *pool) {
  CUmemoryPool handle = __atomic_exchange_n(&pool->handle, BURIED, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&pool->asking, __ATOMIC_SEQ_CST)) sched_yield();
  return handle;
}

static CUresult read_pool(CUmemoryPool handle, int attribute, uint64_t *bytes) {
  return AQ_CUDA(cuMemPoolGetAttribute) ? AQ_CUDA(cuMemPoolGetAttribute)(handle, attribute, bytes) : CUDA_ERROR_NOT_FOUND;
}

static CUresult read_graphs(CUdevice device, int attribute, uint64_t *bytes) {
  CUresult (*get)(CUdevice, int, void *) = AQ_CUDA(cuDeviceGetGraphMemAttribute);
  return get ? get(device, attribute, bytes) : CUDA_ERROR_NOT_FOUND;
}

static uint64_t ask(aq_pool *pool, int of_pool, int of_graphs) {
  uint64_t bytes = 0;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  CUmemoryPool handle = begin_asking(pool);
  if (!handle) result = read_graphs(aq_pool_device(pool), of_graphs, &bytes);
  else if (handle != BURIED) result = read_pool(handle, of_pool, &bytes);
  end_asking(pool);
  return result == CUDA_SUCCESS ? bytes : AQ_POOL_UNREADABLE;
}

uint64_t aq_pool_reserved(aq_pool *pool) {
  return ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
}

uint64_t aq_pool_used(aq_pool *pool) {
  return ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
}

CUdevice aq_pool_device(const aq_pool *pool) { return __atomic_load_n(&pool->device, __ATOMIC_RELAXED); }

bool aq_pool_is_readable(const aq_pool *pool) { return __atomic_load_n(&pool->readable, __ATOMIC_RELAXED); }

bool aq_pool_is_free_of_charge(const aq_pool *pool) { return aq_pool_device(pool) == AQ_POOL_FREE_OF_CHARGE; }

void aq_pool_trim(aq_pool *pool) {
  CUmemoryPool handle = begin_asking(pool);
  if (handle && handle != BURIED && AQ_CUDA(cuMemPoolTrimTo)) AQ_CUDA(cuMemPoolTrimTo)(handle, 0);
  if (!handle && AQ_CUDA(cuDeviceGraphMemTrim)) AQ_CUDA(cuDeviceGraphMemTrim)(aq_pool_device(pool));
  end_asking(pool);
}

/* Newer drivers say where a pool's memory lies; with others it is where the caller thinks. */
static CUdevice device_of(CUmemoryPool handle, CUdevice otherwise) {
  int kind = CU_MEM_ALLOCATION_TYPE_PINNED;
  CUmemLocation at = {CU_MEM_LOCATION_TYPE_DEVICE, otherwise};
  CUresult (*get)(CUmemoryPool, int, void *) = AQ_CUDA(cuMemPoolGetAttribute);
  if (!get || get(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE, &at.type)) return otherwise;
  if (aq_location_is_device(at)) return get(handle, CU_MEMPOOL_ATTR_LOCATION_ID, &at.id) ? otherwise : aq_location_device(at);
  bool managed = !get(handle, CU_MEMPOOL_ATTR_ALLOCATION_TYPE, &kind) && kind == CU_MEM_ALLOCATION_TYPE_MANAGED;
  return managed || !aq_location_is_host(at) ? otherwise : AQ_POOL_FREE_OF_CHARGE;
}

/* ---- the list ---- */

static bool is_live(const aq_pool *pool) { return __atomic_load_n(&pool->live, __ATOMIC_ACQUIRE); }

aq_pool *aq_pool_next(const aq_pool *pool) {
  aq_pool *next = pool ? pool->next : __atomic_load_n(&pools, __ATOMIC_ACQUIRE);
  while (next && !is_live(next)) next = next->next;
  return next;
}

static bool is(const aq_pool *pool, CUmemoryPool handle, CUdevice device) {
  return __atomic_load_n(&pool->handle, __ATOMIC_RELAXED) == handle && (handle || aq_pool_device(pool) == device);
}

static aq_pool *find(CUmemoryPool handle, CUdevice device) {
  aq_pool *pool = aq_pool_next(NULL);
  while (pool && !is(pool, handle, device)) pool = aq_pool_next(pool);
  return pool;
}

/* Under `listing`. */
static aq_pool *unused(void) {
  aq_pool *pool = pools;
  while (pool && is_live(pool)) pool = pool->next;
  if (pool || !(pool = calloc(1, sizeof *pool))) return pool;
  pool->charge.card = AQ_NO_CARD;
  pool->next = pools;
  __atomic_store_n(&pools, pool, __ATOMIC_RELEASE);
  return pool;
}

static aq_pool *add(const aq_pool *like) {
  aq_pool *pool = unused();
  if (!pool) return NULL;
  __atomic_store_n(&pool->device, like->device, __ATOMIC_RELAXED);
  __atomic_store_n(&pool->readable, like->readable, __ATOMIC_RELAXED);
  pool->made = false;
  __atomic_store_n(&pool->handle, like->handle, __ATOMIC_RELEASE);
  __atomic_store_n(&pool->live, true, __ATOMIC_RELEASE);
  return pool;
}

/* What asks the driver comes first: never under a lock. */
static aq_pool *find_or_add(CUmemoryPool handle, CUdevice device) {
  aq_pool like = {.handle = handle, .device = device};
  like.readable = device != AQ_POOL_FREE_OF_CHARGE && aq_pool_reserved(&like) != AQ_POOL_UNREADABLE;
  if (aq_tenant_mode() == AQ_GUARD && device >= 0) aq_card_of_device(device);
  aq_lock_acquire(&listing);
  aq_pool *pool = find(handle, device);
  if (!pool) pool = add(&like);
  aq_lock_release(&listing);
  return pool;
}

aq_pool *aq_pool_of(CUmemoryPool handle, CUdevice device) {
  CUdevice anywhere = AQ_POOL_ANYWHERE;
  aq_pool *pool = find(handle, 0);
  if (!pool) pool = find_or_add(handle, device_of(handle, device));
  if (pool) __atomic_compare_exchange_n(&pool->device, &anywhere, device, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return pool;
}

aq_pool *aq_pool_of_graphs(CUdevice device) {
  aq_pool *pool = find(NULL, device);
  if (!pool) pool = find_or_add(NULL, device);
  return pool && aq_pool_is_readable(pool) ? pool : NULL;
}

void aq_pool_made(CUmemoryPool handle, CUdevice device) {
  aq_pool *pool = find_or_add(handle, device);
  if (!pool) return;
  __atomic_store_n(&pool->device, device, __ATOMIC_RELAXED);
  pool->made = device != AQ_POOL_FREE_OF_CHARGE;
}

/* ---- the end of a pool ---- */

bool aq_pool_is_condemned(const aq_pool *pool) { return __atomic_load_n(&pool->condemned, __ATOMIC_RELAXED); }

/* The driver was told of the pool's end. */
static void forget(aq_pool *pool) {
  aq_lock_acquire(&pool->lock);
  aq_charge rest = pool->charge;
  pool->charge = (aq_charge){.card = AQ_NO_CARD};
  __atomic_store_n(&pool->ends, pool->ends + 1, __ATOMIC_RELEASE);
  aq_lock_release(&pool->lock);
  aq_quota_give(&rest);
  __atomic_store_n(&pool->live, false, __ATOMIC_RELEASE);
}

/* Of the threads that have seen it idle one buries it; none, if it has become another pool's account since. */
static bool is_to_bury(aq_pool *pool, uint32_t ends) {
  aq_lock_acquire(&pool->lock);
  bool mine = pool->ends == ends && aq_pool_is_condemned(pool);
  if (mine) __atomic_store_n(&pool->condemned, false, __ATOMIC_RELAXED);
  aq_lock_release(&pool->lock);
  return mine;
}

void aq_pool_bury(aq_pool *pool) {
  uint32_t ends = __atomic_load_n(&pool->ends, __ATOMIC_ACQUIRE);
  if (!aq_pool_is_condemned(pool) || aq_pool_used(pool) || !is_to_bury(pool, ends)) return;
  AQ_CUDA(cuMemPoolDestroy)(take_name(pool)); /* which may be another pool's at once */
  forget(pool);
}

/* A device's current pool is its default one again when it is destroyed. */
static void replace_current(CUmemoryPool handle, CUdevice device) {
  CUmemoryPool current, standard;
  if (device < 0 || !AQ_CUDA(cuDeviceGetMemPool) || !AQ_CUDA(cuDeviceGetDefaultMemPool) || !AQ_CUDA(cuDeviceSetMemPool)) return;
  if (AQ_CUDA(cuDeviceGetMemPool)(&current, device) || current != handle) return;
  if (!AQ_CUDA(cuDeviceGetDefaultMemPool)(&standard, device)) AQ_CUDA(cuDeviceSetMemPool)(device, standard);
}

/* Not ours to keep alive: a default pool, which the driver will refuse, an imported one, or one that tells nothing. */
static CUresult destroy_at_once(CUmemoryPool handle, aq_pool *pool) {
  bool ends = pool && (pool->made || aq_pool_is_free_of_charge(pool));
  if (ends) take_name(pool);
  CUresult result = AQ_CUDA(cuMemPoolDestroy)(handle);
  if (pool && result == CUDA_SUCCESS) forget(pool);
  else if (ends) __atomic_store_n(&pool->handle, handle, __ATOMIC_RELEASE);
  return result;
}

CUresult aq_pool_destroy(CUmemoryPool handle) {
  aq_pool *pool = handle ? find(handle, 0) : NULL;
  if (!pool || !pool->made || !aq_pool_is_readable(pool)) return destroy_at_once(handle, pool);
  if (aq_pool_is_condemned(pool)) return CUDA_ERROR_INVALID_VALUE;
  replace_current(handle, aq_pool_device(pool));
  aq_pool_trim(pool);
  __atomic_store_n(&pool->condemned, true, __ATOMIC_RELEASE);
  aq_pool_settle(pool);
  return CUDA_SUCCESS;
}

void aq_pools_forget(void) {
  aq_lock_reset(&listing);
  pools = NULL;
}
