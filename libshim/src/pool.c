/* Accounts of pools: charge >= reserved by the pool + what calls under way may still make it reserve.
 *
 * A pool grows in steps and keeps what is freed, so the size of a request says little about what the call will cost.
 * Before a call the most it can cost is charged: the request rounded up to whole steps, as if nothing in the pool were
 * idle. After it the charge is brought to what the pool has reserved then. Where the slice does not hold that much, a
 * call may count on the pool's idle room: used + what calls under way have asked for, in whole steps, must lie within the
 * charge; and as long as such a call is under way, the charge is not lowered, though the pool may shrink.
 *
 * Why no pool is given a maximum size: it is fixed when a pool is made, and can follow neither a limit that changes nor what
 * the tenant's other processes and other memory leave.
 *
 * Readings are taken without the lock held, because the driver is never called under one; `ends` tells stale ones. A
 * reading that is older than the end of a call may have missed its growth while its bound is gone, and one that is older
 * than a lowering of the charge is from before the pool shrank: they are taken again. Of the calls that began since, the
 * bounds are counted; what they have made of them already only makes the charge too high, until the last of them ends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <errno.h>
#include <time.h>

#include "capture.h"
#include "cards.h"
#include "loader.h"
#include "pool_list.h"
#include "returning.h"

#define FIRST_STEP (UINT64_C(32) << 20) /* what drivers are known to grow pools by */
#define LARGEST_STEP (UINT64_C(1) << 40)
#define UNIT 512 /* what allocations are rounded up to within a pool */
#define TURNS 64 /* readings overtaken by other calls, before the last of those is left to settle the account */
#define WAIT_NS 10000000

static uint64_t step = FIRST_STEP; /* what pools grow by; relaxed: grows until it is right */

static uint64_t whole(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }
static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t whole_steps(uint64_t bytes) { return whole(bytes, __atomic_load_n(&step, __ATOMIC_RELAXED)); }

uint64_t aq_pool_whole_steps(uint64_t bytes) { return bytes <= AQ_MEMORY_MAX / 2 ? whole_steps(bytes) : bytes; }

/* ---- under the account's lock ---- */

static void outdate_readings(aq_pool *pool) { __atomic_store_n(&pool->ends, pool->ends + 1, __ATOMIC_RELEASE); }

/* Charges `bytes` or more. False: they do not fit, and nothing was changed. */
static bool charge_up_to(aq_pool *pool, uint64_t bytes) {
  if (aq_pool_device(pool) < 0 || bytes <= pool->charge.bytes) return true;
  if (pool->charge.card == AQ_NO_CARD) return aq_quota_take(aq_pool_device(pool), bytes, &pool->charge);
  return aq_quota_resize(&pool->charge, bytes);
}

/* Charges no more than `bytes`, unless calls count on it. */
static void lower_to(aq_pool *pool, uint64_t bytes) {
  if (bytes >= pool->charge.bytes || pool->tight) return;
  aq_quota_resize(&pool->charge, bytes);
  outdate_readings(pool);
}

static void begin(aq_growth *growth, uint64_t bound, bool tight) {
  aq_pool *pool = growth->pool;
  growth->bound = bound;
  growth->tight = tight;
  pool->promised += bound;
  pool->asked += growth->bytes;
  pool->tight += tight;
  pool->calls++;
}

static void end(const aq_growth *growth) {
  aq_pool *pool = growth->pool;
  pool->promised -= growth->bound;
  pool->asked -= growth->bytes;
  pool->tight -= growth->tight;
  pool->calls--;
  outdate_readings(pool);
}

/* Lets a call begin that fits into what is charged already, or into a little more. */
static bool begin_in_idle_room(aq_growth *growth, uint64_t in_use, const aq_demand *demand) {
  aq_pool *pool = growth->pool;
  uint64_t all = demand->all ? demand->all(aq_pool_device(pool)) : UINT64_MAX;
  uint64_t needed = whole_steps(smaller(in_use + pool->asked + growth->bytes, all)), charged = pool->charge.bytes;
  if (!charge_up_to(pool, needed)) return false;
  begin(growth, needed > charged ? needed - charged : 0, true);
  return true;
}

/* ---- before a call ---- */

static bool promise(aq_growth *growth, uint64_t most) {
  aq_pool *pool = growth->pool;
  uint64_t bound = whole_steps(most);
  aq_lock_acquire(&pool->lock);
  bool fits = charge_up_to(pool, pool->charge.bytes + bound);
  if (fits) begin(growth, bound, false);
  aq_lock_release(&pool->lock);
  return fits;
}

/* Until a call under way has ended that had not when `ends` was read, but not for long. */
static void wait_for_end(aq_pool *pool, uint32_t ends) {
  struct timespec time = {.tv_nsec = WAIT_NS};
  int saved = errno;
  __atomic_fetch_add(&pool->waiting, 1, __ATOMIC_SEQ_CST); /* before the futex looks at `ends`, as its waker after it */
  syscall(SYS_futex, &pool->ends, FUTEX_WAIT_PRIVATE, ends, &time, NULL, 0);
  __atomic_fetch_sub(&pool->waiting, 1, __ATOMIC_RELAXED);
  errno = saved;
}

/* Calls under way may be about to make room, or their memory may be counted twice: where there are any, it waits. */
static bool use_idle_room(aq_growth *growth, const aq_demand *demand) {
  aq_pool *pool = growth->pool;
  for (int turn = 0; turn < TURNS; turn++) {
    uint32_t ends = __atomic_load_n(&pool->ends, __ATOMIC_ACQUIRE);
    uint64_t in_use = aq_pool_used(pool);
    if (in_use == AQ_POOL_UNREADABLE) return false;
    aq_lock_acquire(&pool->lock);
    bool fresh = pool->ends == ends, alone = !pool->calls;
    bool fits = fresh && begin_in_idle_room(growth, in_use, demand);
    aq_lock_release(&pool->lock);
    if (fits || (fresh && alone)) return fits;
    if (fresh) wait_for_end(pool, ends);
  }
  return false;
}

bool aq_pool_may_grow(aq_pool *pool, const aq_demand *demand, aq_growth *growth) {
  if (demand->most > AQ_MEMORY_MAX / 2) return false;
  *growth = (aq_growth){.pool = pool, .bytes = whole(demand->least, UNIT)};
  /* What idle room serves would not have been refused, so it must not count as that where limits are only observed. */
  bool observed = aq_tenant_mode() == AQ_GUARD && aq_enforcement() == AQ_ENFORCE_OBSERVE;
  if (observed && use_idle_room(growth, demand)) return true;
  return promise(growth, demand->most) || use_idle_room(growth, demand);
}

/* ---- after it ---- */

/* Under the lock, after the only call under way: it grew by `missing` more than its bound. */
static void learn(const aq_growth *growth, uint64_t missing) {
  uint64_t unit = __atomic_load_n(&step, __ATOMIC_RELAXED);
  while (whole(growth->bytes, unit) < growth->bound + missing && unit < LARGEST_STEP) unit *= 2;
  __atomic_store_n(&step, unit, __ATOMIC_RELAXED);
}

/* Under the lock: the pool has reserved `now`. While calls are under way this may have part of their bounds in it, and tells
 * only that the charge is high enough. False: a call grew by more than its bound, and the slice does not hold that. */
static bool settle_at(aq_pool *pool, uint64_t now, const aq_growth *growth) {
  uint64_t charged = pool->charge.bytes;
  lower_to(pool, now + pool->promised);
  if (pool->calls || now <= charged) return true;
  if (growth && !growth->tight && pool->charge.card != AQ_NO_CARD) learn(growth, now - charged);
  return charge_up_to(pool, now);
}

static bool settle(aq_pool *pool, const aq_growth *growth) {
  for (int turn = 0; turn < TURNS; turn++) {
    uint32_t ends = __atomic_load_n(&pool->ends, __ATOMIC_ACQUIRE);
    uint64_t now = aq_pool_reserved(pool);
    if (now == AQ_POOL_UNREADABLE) return true;
    aq_lock_acquire(&pool->lock);
    bool fresh = pool->ends == ends;
    bool fits = !fresh || settle_at(pool, now, growth);
    aq_lock_release(&pool->lock);
    if (fresh) return fits;
  }
  return true;
}

bool aq_pool_grown(const aq_growth *growth) {
  aq_pool *pool = growth->pool;
  aq_lock_acquire(&pool->lock);
  end(growth);
  aq_lock_release(&pool->lock);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (__atomic_load_n(&pool->waiting, __ATOMIC_RELAXED))
    syscall(SYS_futex, &pool->ends, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
  return settle(pool, growth);
}

bool aq_pool_is_idle(aq_pool *pool) {
  uint32_t ends = __atomic_load_n(&pool->ends, __ATOMIC_ACQUIRE);
  uint64_t in_use = aq_pool_used(pool);
  aq_lock_acquire(&pool->lock);
  bool idle = !in_use && !pool->calls && pool->ends == ends;
  aq_lock_release(&pool->lock);
  return idle;
}

/* ---- what the program has ---- */

void aq_pool_keep(aq_pool *pool, uint64_t bytes) {
  __atomic_fetch_add(&pool->kept, whole(bytes, UNIT), __ATOMIC_RELAXED);
}

void aq_pool_return(aq_pool *pool, uint64_t bytes) {
  __atomic_fetch_sub(&pool->kept, whole(bytes, UNIT), __ATOMIC_RELAXED);
  if (aq_pool_is_condemned(pool)) aq_pool_settle(pool);
}

uint64_t aq_pools_pending(void) {
  uint64_t pending = 0;
  for (aq_pool *pool = aq_pool_next(NULL); pool; pool = aq_pool_next(pool)) {
    uint64_t in_use = aq_pool_is_readable(pool) && !aq_pool_is_of_graphs(pool) ? aq_pool_used(pool) : AQ_POOL_UNREADABLE;
    uint64_t kept = __atomic_load_n(&pool->kept, __ATOMIC_RELAXED);
    if (in_use != AQ_POOL_UNREADABLE && in_use > kept) pending += in_use - kept;
  }
  return pending;
}

/* ---- all pools ---- */

void aq_pool_settle(aq_pool *pool) {
  if (aq_pool_device(pool) < 0) return;
  settle(pool, NULL);
  aq_pool_bury(pool);
}

void aq_pools_settle(void) {
  aq_returns_collect();
  for (aq_pool *pool = aq_pool_next(NULL); pool; pool = aq_pool_next(pool)) aq_pool_settle(pool);
}

bool aq_pools_trim(void) {
  bool any = aq_returns_collect();
  int mode = aq_captures_relax();
  for (aq_pool *pool = aq_pool_next(NULL); pool; pool = aq_pool_next(pool)) {
    if (aq_pool_device(pool) < 0) continue;
    any = true;
    aq_pool_trim(pool);
    aq_pool_settle(pool);
  }
  aq_captures_restore(mode);
  return any;
}
