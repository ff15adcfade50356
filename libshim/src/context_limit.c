/* cuCtxSetLimit: a stack for every thread the card can run at once, the queue of printf, the heap of malloc. The driver
 * reserves them when it pleases, now or at the next launch that needs them, so they are charged when they are asked for. What
 * a context begins with is part of its own cost.
 * SPDX-License-Identifier: Apache-2.0 */
#include "overhead.h"

/* Bytes that one more of a limit reserves at most; 0: it reserves nothing. */
static uint64_t bytes_each(int limit, CUdevice device) {
  int cores = 0, threads = 0;
  switch (limit) {
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE: return 1;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH: return 150u << 20;            /* state of a grid that waits for its children */
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT: return 4096;        /* parameters of a launch */
    case CU_LIMIT_STACK_SIZE: break;
    default: return 0;
  }
  if (!AQ_CUDA(cuDeviceGetAttribute)) return 0;
  AQ_CUDA(cuDeviceGetAttribute)(&cores, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  AQ_CUDA(cuDeviceGetAttribute)(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
  return (uint64_t)cores * (uint64_t)threads;
}

static uint64_t reserved(uint64_t value, uint64_t began, uint64_t each) {
  uint64_t bytes;
  if (value <= began) return 0;
  return __builtin_mul_overflow(value - began, each, &bytes) ? UINT64_MAX : bytes;
}

typedef struct {
  CUdevice device;
  uint64_t each;
  aq_block block;
} request;

/* The limit as it is charged now, taken out of the blocks; false where none of it counts. */
static bool take_out(int limit, request *r) {
  CUcontext context = NULL;
  size_t began;
  if (aq_tenant_mode() != AQ_GUARD || aq_current_device(&r->device) || AQ_CUDA(cuCtxGetCurrent)(&context)) return false;
  r->each = bytes_each(limit, r->device);
  if (!r->each || !AQ_CUDA(cuCtxGetLimit) || AQ_CUDA(cuCtxGetLimit)(&began, limit)) return false;
  uint64_t key = (uintptr_t)context + (unsigned)limit; /* contexts lie further apart than there are limits */
  if (aq_blocks_take(AQ_BLOCK_LIMIT, key, &r->block)) return true;
  r->block = (aq_block){.key = key, .charge.card = AQ_NO_CARD, .kind = AQ_BLOCK_LIMIT, .detail = (void *)(uintptr_t)began};
  r->block.context = context;
  return true;
}

static bool resize(request *r, size_t value) {
  uint64_t bytes = reserved(value, (uintptr_t)r->block.detail, r->each);
  if (r->block.charge.card != AQ_NO_CARD) return aq_quota_resize(&r->block.charge, bytes);
  return !bytes || aq_memory_fits(r->device, bytes, &r->block.charge);
}

static CUresult set(request *r, int limit, size_t value) {
  size_t actual = value;
  aq_charge before = r->block.charge;
  bool more = reserved(value, (uintptr_t)r->block.detail, r->each) > before.bytes;
  if (more && !resize(r, value)) {
    aq_quota_refused_growth(r->device, &before, reserved(value, (uintptr_t)r->block.detail, r->each));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = AQ_CUDA(cuCtxSetLimit)(limit, value);
  AQ_CUDA(cuCtxGetLimit)(&actual, limit); /* the driver may have its own idea; after a failure it is the old value */
  resize(r, actual);
  return result;
}

CUresult cuCtxSetLimit(int limit, size_t value) {
  request r;
  if (!AQ_CUDA(cuCtxSetLimit)) return CUDA_ERROR_NOT_FOUND;
  if (!take_out(limit, &r)) return AQ_CUDA(cuCtxSetLimit)(limit, value);
  CUresult result = set(&r, limit, value);
  aq_blocks_put(&r.block); /* where it cannot be remembered it stays charged */
  return result;
}
