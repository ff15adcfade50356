/* Stream-ordered memory is charged by what a pool has reserved from the card, not by what the program holds of it:
 * a pool keeps freed memory, and nobody else can use it meanwhile.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_POOL_H
#define AQ_POOL_H

#include <stdbool.h>

#include "cuda_abi.h"
#include "quota.h"

typedef struct aq_pool aq_pool;

#define AQ_ON_HOST (-1)

/* The account of a pool on a device (or AQ_ON_HOST), made on first sight. NULL: no account can be had. */
aq_pool *aq_pool_of(CUmemoryPool handle, CUdevice device);

/* Before an allocation of `bytes`: takes what the pool has not reserved yet. False: it does not fit. */
bool aq_pool_take(aq_pool *pool, uint64_t bytes);

/* After it. False: the pool grew beyond the slice and the allocation must be undone. */
bool aq_pool_grown(aq_pool *pool, uint64_t bytes);

/* An allocation that took `bytes` was freed, or failed. */
void aq_pool_returned(aq_pool *pool, uint64_t bytes);

/* The program destroys the pool: from now on it is charged by what is still allocated from it. Before the driver does,
 * because another thread may be given the same handle as soon as it has. Returns the account, or NULL. */
aq_pool *aq_pool_destroyed(CUmemoryPool handle);

/* The driver refused to. */
void aq_pool_survived(aq_pool *pool);

/* Charges what the pools have reserved now. Cheap where no pool was ever used. */
void aq_pools_settle(void);

/* Makes all pools give back what they hold idle. True when there are any. */
bool aq_pools_trim(void);

/* In the child of a fork. */
void aq_pools_forget(void);

#endif
