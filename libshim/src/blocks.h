/* Remembers what was charged for which pointer or handle. Private to the process; as fast with 10,000 blocks as with
 * one: stripes of open-addressing tables, each under a lock that is held for a few loads and stores.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_BLOCKS_H
#define AQ_BLOCKS_H

#include <stdbool.h>

#include "quota.h"

typedef enum {
  AQ_BLOCK_NONE,
  AQ_BLOCK_MEMORY,  /* a device pointer; detail: the aq_pool it came from, which is charged as a whole, or NULL */
  AQ_BLOCK_OVERFLOW, /* the address of memory that has overflowed, until the driver frees it; charged as AQ_BLOCK_MEMORY */
  AQ_BLOCK_GUEST,   /* managed memory on a card that it was not allocated on; the address + the device's number */
  AQ_BLOCK_ARRAY,   /* CUarray */
  AQ_BLOCK_MIPMAP,  /* CUmipmappedArray */
  AQ_BLOCK_HANDLE,  /* physical memory; detail: its aq_physical */
  AQ_BLOCK_EXEC,    /* CUgraphExec; detail: what it needs of the pools of graphs */
  AQ_BLOCK_MAPPING, /* an address where physical memory is mapped; detail: its aq_physical */
  AQ_BLOCK_IMAGE,   /* a module or library; detail: the most that its image can need */
  AQ_BLOCK_CODE,    /* a module or library in a context; detail: which */
  AQ_BLOCK_EXPORT,  /* plain memory with a name for other processes (cuIpcGetMemHandle); detail: its names */
  AQ_BLOCK_IMPORT,  /* memory of another process: what cuIpcOpenMemHandle gave; detail: its aq_import */
  AQ_BLOCK_EXTERNAL, /* CUexternalMemory; detail: its aq_import */
  AQ_BLOCK_LIMIT,   /* what a context's limit reserves; detail: the value it began with */
} aq_block_kind;

typedef struct {
  uint64_t key;
  aq_charge charge;
  int kind;
  void *detail;
  void *context; /* the CUcontext with whose end the driver frees it; NULL: none */
} aq_block;

/* Remembers a block. One of the same kind and key is forgotten and its charge given back: the driver has freed it
 * without our seeing it. False: the process has no memory left for the table. */
bool aq_blocks_put(const aq_block *block);

/* Gives back what a block that is no longer remembered was charged. */
void aq_blocks_give(const aq_block *block);

/* Looks a block up; with `take` also forgets it, so that of two threads only one gets it. */
bool aq_blocks_get(aq_block_kind kind, uint64_t key, aq_block *out);
bool aq_blocks_take(aq_block_kind kind, uint64_t key, aq_block *out);

/* Calls `visit` for every block of a kind, one stripe locked at a time, until it returns false. `visit` must not come
 * back here. */
void aq_blocks_each(aq_block_kind kind, bool (*visit)(const aq_block *block, void *data), void *data);

/* Forgets every block that ended with a context and gives its charge back. */
void aq_blocks_end_context(void *context);

/* What hangs on one context hangs on another from now on. */
void aq_blocks_move_context(void *from, void *to);

/* In the child of a fork: the parent's blocks are not the child's. */
void aq_blocks_forget(void);

#endif
