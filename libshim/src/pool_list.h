/* The list of pools seen, what the driver says of each, and their ends.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_POOL_LIST_H
#define AQ_POOL_LIST_H

#include "lock.h"
#include "pool.h"

#define AQ_POOL_UNREADABLE UINT64_MAX

struct aq_pool {
  aq_pool *next;       /* never removed, but used again */
  CUmemoryPool handle; /* NULL: what a device holds for graphs. Release, after the words below; changes only with `ends` */
  uint32_t asking;     /* the driver about it, now; sequentially consistent with `handle` (pool_list.c) */
  CUdevice device;     /* or AQ_POOL_FREE_OF_CHARGE, AQ_POOL_ANYWHERE. Relaxed: becomes known once */
  bool live;           /* release: the account is somebody's; when false, any pool may become its */
  bool readable;       /* the driver tells what it has reserved; relaxed */
  bool made;           /* by the program: not a default pool, nor an imported one */
  bool condemned;      /* by the program, and the driver does not know yet. Relaxed: its calls are the program's to order */
  uint64_t kept;       /* what the program has of it; relaxed. The last free of a former pool may still be on its way here */
  aq_lock lock;        /* over the words below */
  aq_charge charge;
  uint64_t promised; /* of the charge: what calls under way may still make the pool grow by */
  uint64_t asked;    /* by calls under way */
  unsigned tight;    /* of them, those that count on idle room */
  unsigned calls;
  uint32_t ends;    /* counts calls that ended, and whatever else makes readings stale; release. A futex */
  uint32_t waiting; /* on it. Not under the lock */
};

/* The live account after one, or the first. */
aq_pool *aq_pool_next(const aq_pool *pool);

static inline bool aq_pool_is_of_graphs(const aq_pool *pool) { return !__atomic_load_n(&pool->handle, __ATOMIC_RELAXED); }

/* What the driver says, or AQ_POOL_UNREADABLE. */
uint64_t aq_pool_reserved(aq_pool *pool);
uint64_t aq_pool_used(aq_pool *pool);

/* Makes a pool give back what it holds idle. */
void aq_pool_trim(aq_pool *pool);

/* Tells the driver of a condemned pool's end once nothing of it is in use. */
void aq_pool_bury(aq_pool *pool);

#endif
