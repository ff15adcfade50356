/* Stream-ordered memory, and that of graphs, is charged by what a pool has reserved from the card, not by what the
 * program holds of it: a pool keeps freed memory, and nobody else can use it meanwhile.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_POOL_H
#define AQ_POOL_H

#include <stdbool.h>

#include "cuda_abi.h"
#include "quota.h"

typedef struct aq_pool aq_pool;

/* Where a pool's memory lies, if not on a device known from the start. */
#define AQ_POOL_FREE_OF_CHARGE (-1) /* on the host, or another process's */
#define AQ_POOL_ANYWHERE (-2)       /* managed memory: on the device that allocates from it first */

/* The account of a pool, made on first sight. NULL: no account can be had. `device`: where an allocation from it is
 * about to be made; unless the driver or the pool's maker has said where it lies, it lies there. */
aq_pool *aq_pool_of(CUmemoryPool handle, CUdevice device);

/* The account of what a device has reserved for graphs. NULL: no account can be had, or the driver does not tell. */
aq_pool *aq_pool_of_graphs(CUdevice device);

/* The program made a pool on a device or anywhere, or imported one that is free of charge. */
void aq_pool_made(CUmemoryPool handle, CUdevice device);

/* The program may use it no more. */
bool aq_pool_is_condemned(const aq_pool *pool);

/* The device that is charged for the pool, or one of the above. */
CUdevice aq_pool_device(const aq_pool *pool);
bool aq_pool_is_free_of_charge(const aq_pool *pool);

/* Whether the driver tells what the pool has reserved. */
bool aq_pool_is_readable(const aq_pool *pool);

/* What a call is about to need of a pool, in bytes. */
typedef struct {
  uint64_t most;  /* the pool grows by no more, in whole steps, even if nothing in it is idle */
  uint64_t least; /* what will be in use, besides what is */
  /* The most that can be in use of the device's pool with all calls under way, this one among them. Asked under the account's
   * lock, when the answer counts. NULL: what is in use and what those calls ask for. */
  uint64_t (*all)(CUdevice device);
} aq_demand;

/* Nothing of the pool is in use, and no call is under way that may change that. */
bool aq_pool_is_idle(aq_pool *pool);

/* A call under way that may make the pool grow. */
typedef struct {
  aq_pool *pool;
  uint64_t bytes; /* asked for */
  uint64_t bound; /* charged for what the pool may grow by */
  bool tight;     /* counts on the pool's idle room */
} aq_growth;

/* Before an allocation: charges the most that the pool can grow by, or, where the slice does not hold that, makes sure
 * that the pool's idle room is enough. False: it does not fit, and nothing was changed. */
bool aq_pool_may_grow(aq_pool *pool, const aq_demand *demand, aq_growth *growth);

/* The most that an allocation of `bytes` can make a pool grow by. */
uint64_t aq_pool_whole_steps(uint64_t bytes);

/* After it, whatever came of it: charges what the pool has reserved now. False: it grew beyond the slice, by more than any
 * pool was known to, and the allocation must be undone. */
bool aq_pool_grown(const aq_growth *growth);

/* What the program has of a pool: `bytes` more, or less. */
void aq_pool_keep(aq_pool *pool, uint64_t bytes);
void aq_pool_return(aq_pool *pool, uint64_t bytes);

/* Bytes that the program has freed in stream order and the driver not yet. */
uint64_t aq_pools_pending(void);

/* Charges what a pool, or all of them, have reserved now. Cheap where no pool was ever used. */
void aq_pool_settle(aq_pool *pool);
void aq_pools_settle(void);

/* Makes all pools give back what they hold idle. True when there are any. */
bool aq_pools_trim(void);

/* The program destroys a pool. The driver is told when nothing of it is in use any more, because until then it must tell
 * us what the pool still holds. The program's answer. */
CUresult aq_pool_destroy(CUmemoryPool handle);

/* In the child of a fork. */
void aq_pools_forget(void);

#endif
