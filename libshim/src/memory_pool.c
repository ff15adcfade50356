/* cuMemAllocAsync, cuMemAllocFromPoolAsync, cuMemFreeAsync, pools, and the calls at which pools shrink.
 *
 * While a stream is captured an allocation becomes a node of a graph and no pool grows: it is charged by what was
 * asked for, until it is freed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "compute.h"
#include "memory.h"

#define LAST_SPECIAL_STREAM 2 /* NULL, legacy and per-thread default streams have no device of their own */

/* One flavour of the default stream. */
typedef struct {
  CUresult (*allocate)(CUdeviceptr *dptr, size_t bytes, CUstream stream);
  CUresult (*allocate_from)(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream);
  CUresult (*release)(CUdeviceptr dptr, CUstream stream);
  CUresult (*is_capturing)(CUstream stream, int *status);
} flavour;

static flavour legacy(void) {
  return (flavour){AQ_CUDA(cuMemAllocAsync), AQ_CUDA(cuMemAllocFromPoolAsync), AQ_CUDA(cuMemFreeAsync),
                   AQ_CUDA(cuStreamIsCapturing)};
}

static flavour per_thread(void) {
  return (flavour){AQ_CUDA(cuMemAllocAsync_ptsz), AQ_CUDA(cuMemAllocFromPoolAsync_ptsz), AQ_CUDA(cuMemFreeAsync_ptsz),
                   AQ_CUDA(cuStreamIsCapturing_ptsz)};
}

static CUresult call(const flavour *f, CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream) {
  if (pool) return f->allocate_from ? f->allocate_from(dptr, bytes, pool, stream) : CUDA_ERROR_NOT_FOUND;
  return f->allocate ? f->allocate(dptr, bytes, stream) : CUDA_ERROR_NOT_FOUND;
}

static void undo(uint64_t key) {
  if (AQ_CUDA(cuMemFreeAsync)) AQ_CUDA(cuMemFreeAsync)(key, NULL);
}

static bool is_capturing(const flavour *f, CUstream stream) {
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (f->is_capturing && f->is_capturing(stream, &status) != CUDA_SUCCESS) return false;
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult device_of_stream(CUstream stream, CUdevice *device) {
  bool own = (uintptr_t)stream > LAST_SPECIAL_STREAM && AQ_CUDA(cuStreamGetDevice);
  if (own && AQ_CUDA(cuStreamGetDevice)(stream, device) == CUDA_SUCCESS) return CUDA_SUCCESS;
  return aq_current_device(device);
}

static CUresult allocate_in_graph(const flavour *f, CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream,
                                  CUdevice device) {
  aq_charge charge;
  if (!aq_memory_take(device, bytes, &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = call(f, dptr, bytes, pool, stream);
  aq_block block = {.key = result == CUDA_SUCCESS ? *dptr : 0, .charge = charge, .kind = AQ_BLOCK_MEMORY};
  return aq_memory_keep(result, &block, undo);
}

/* The block's own charge is empty: the pool is charged. Its bytes are what the pool's account is told on free. */
static CUresult keep(CUresult result, CUdeviceptr *dptr, size_t bytes, aq_pool *account) {
  if (result == CUDA_SUCCESS) {
    aq_block block = {.key = *dptr, .charge = {bytes, AQ_NO_CARD}, .kind = AQ_BLOCK_MEMORY, .detail = account};
    if (aq_blocks_put(&block)) return result;
    undo(*dptr);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  aq_pool_returned(account, bytes);
  return result;
}

static bool take(aq_pool *account, size_t bytes) {
  return aq_pool_take(account, bytes) || (aq_pools_trim() && aq_pool_take(account, bytes));
}

static CUresult allocate_in_pool(const flavour *f, CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream,
                                 CUdevice device, aq_pool *account) {
  if (!account || !take(account, bytes)) {
    aq_quota_refused(device);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = call(f, dptr, bytes, pool, stream);
  if (aq_pool_grown(account, bytes)) return keep(result, dptr, bytes, account);
  if (result == CUDA_SUCCESS) f->release(*dptr, stream);
  aq_pools_trim();
  aq_quota_refused(device);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocate(const flavour *f, CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream) {
  CUdevice device;
  if (aq_tenant_mode() == AQ_PASS || device_of_stream(stream, &device)) return call(f, dptr, bytes, pool, stream);
  if (is_capturing(f, stream)) return allocate_in_graph(f, dptr, bytes, pool, stream, device);
  CUmemoryPool used = pool;
  if (!used && (!AQ_CUDA(cuDeviceGetMemPool) || AQ_CUDA(cuDeviceGetMemPool)(&used, device) != CUDA_SUCCESS))
    return allocate_in_graph(f, dptr, bytes, pool, stream, device); /* no such pool to look at: by request */
  return allocate_in_pool(f, dptr, bytes, pool, stream, device, aq_pool_of(used, device));
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytes, CUstream stream) {
  flavour f = legacy();
  return allocate(&f, dptr, bytes, NULL, stream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUstream stream) {
  flavour f = per_thread();
  return allocate(&f, dptr, bytes, NULL, stream);
}

/* No pool is for the driver to refuse. */
static CUresult allocate_from(const flavour *f, CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream) {
  if (!f->allocate_from) return CUDA_ERROR_NOT_FOUND;
  return pool ? allocate(f, dptr, bytes, pool, stream) : f->allocate_from(dptr, bytes, pool, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream) {
  flavour f = legacy();
  return allocate_from(&f, dptr, bytes, pool, stream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream) {
  flavour f = per_thread();
  return allocate_from(&f, dptr, bytes, pool, stream);
}

static CUresult release(const flavour *f, CUdeviceptr dptr, CUstream stream) {
  if (!f->release) return CUDA_ERROR_NOT_FOUND;
  aq_freeing freeing = aq_memory_freeing(AQ_BLOCK_MEMORY, dptr);
  return aq_memory_freed(f->release(dptr, stream), &freeing);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream) {
  flavour f = legacy();
  return release(&f, dptr, stream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream) {
  flavour f = per_thread();
  return release(&f, dptr, stream);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
  if (!AQ_CUDA(cuMemPoolCreate)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuMemPoolCreate)(pool, props);
  if (result != CUDA_SUCCESS || aq_tenant_mode() == AQ_PASS) return result;
  aq_pool_of(*pool, props->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? props->location.id : AQ_ON_HOST);
  return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes) {
  if (!AQ_CUDA(cuMemPoolTrimTo)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuMemPoolTrimTo)(pool, keep_bytes);
  aq_pools_settle();
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  if (!AQ_CUDA(cuMemPoolDestroy)) return CUDA_ERROR_NOT_FOUND;
  aq_pool *account = aq_pool_destroyed(pool);
  CUresult result = AQ_CUDA(cuMemPoolDestroy)(pool);
  if (result != CUDA_SUCCESS && account) aq_pool_survived(account);
  return result;
}

/* Calls that wait: before them what was submitted last is bracketed (compute.c), after them pools have shrunk. */
#define WAIT(symbol, ...)                             \
  do {                                                \
    if (!AQ_CUDA(symbol)) return CUDA_ERROR_NOT_FOUND; \
    aq_submit_flush();                                \
    CUresult result = AQ_CUDA(symbol)(__VA_ARGS__);   \
    aq_pools_settle();                                \
    return result;                                    \
  } while (0)

CUresult cuCtxSynchronize(void) { WAIT(cuCtxSynchronize); }
CUresult cuCtxSynchronize_v2(CUcontext context) { WAIT(cuCtxSynchronize_v2, context); }
CUresult cuStreamSynchronize(CUstream stream) { WAIT(cuStreamSynchronize, stream); }
CUresult cuStreamSynchronize_ptsz(CUstream stream) { WAIT(cuStreamSynchronize_ptsz, stream); }
CUresult cuEventSynchronize(CUevent event) { WAIT(cuEventSynchronize, event); }
