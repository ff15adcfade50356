/* cuMemAllocAsync, cuMemAllocFromPoolAsync, cuMemFreeAsync, pools, and the calls at which pools shrink.
 *
 * While a stream is captured an allocation becomes a node of a graph (graph_memory.c), and no pool grows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "compute.h"
#include "graph_memory.h"
#include "memory.h"
#include "overflow.h"
#include "returning.h"
#include "stream.h"

/* One flavour of the default stream. */
typedef struct {
  CUresult (*allocate)(CUdeviceptr *dptr, size_t bytes, CUstream stream);
  CUresult (*allocate_from)(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream);
  CUresult (*release)(CUdeviceptr dptr, CUstream stream);
  int of; /* AQ_STREAM_… */
} flavour;

static flavour legacy(void) {
  return (flavour){AQ_CUDA(cuMemAllocAsync), AQ_CUDA(cuMemAllocFromPoolAsync), AQ_CUDA(cuMemFreeAsync),
                   AQ_STREAM_LEGACY};
}

static flavour per_thread(void) {
  return (flavour){AQ_CUDA(cuMemAllocAsync_ptsz), AQ_CUDA(cuMemAllocFromPoolAsync_ptsz), AQ_CUDA(cuMemFreeAsync_ptsz),
                   AQ_STREAM_PER_THREAD};
}

static CUresult call(const flavour *f, CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream) {
  if (pool) return f->allocate_from ? f->allocate_from(dptr, bytes, pool, stream) : CUDA_ERROR_NOT_FOUND;
  return f->allocate ? f->allocate(dptr, bytes, stream) : CUDA_ERROR_NOT_FOUND;
}

static void undo(uint64_t key) {
  if (AQ_CUDA(cuMemFreeAsync)) AQ_CUDA(cuMemFreeAsync)(key, NULL);
}

static CUresult allocate_by_request(const flavour *f, CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream,
                                    CUdevice device) {
  aq_charge charge;
  if (!aq_memory_take(device, bytes, &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = call(f, dptr, bytes, pool, stream);
  aq_block block = {.key = result == CUDA_SUCCESS ? *dptr : 0, .charge = charge, .kind = AQ_BLOCK_MEMORY};
  return aq_memory_keep(result, &block, undo);
}

typedef struct {
  aq_pool *account;
  aq_demand demand;
  aq_growth *growth;
} request;

static bool fits(void *data) {
  const request *r = data;
  return aq_pool_may_grow(r->account, &r->demand, r->growth);
}

/* As the driver does, waits for memory that is freed already, when the streams get there. */
static bool may_grow(aq_pool *account, size_t bytes, CUstream stream, CUdevice device, aq_growth *growth) {
  request r = {account, {.most = bytes, .least = bytes}, growth};
  aq_attempt attempt = {fits, &r, device, aq_pool_whole_steps(bytes), {.stream = stream, .has_stream = true}};
  return fits(&r) || aq_memory_insist(&attempt);
}

/* The block's own charge is empty: the pool is charged. */
static CUresult keep(CUdeviceptr dptr, size_t bytes, aq_pool *account) {
  aq_block block = {.key = dptr, .charge = {bytes, AQ_NO_CARD}, .kind = AQ_BLOCK_MEMORY, .detail = account};
  if (!aq_blocks_put(&block)) return CUDA_ERROR_OUT_OF_MEMORY;
  aq_pool_keep(account, bytes);
  return CUDA_SUCCESS;
}

/* The pool is named, because the device's may be exchanged at any moment. */
static CUresult allocate_in_pool(const flavour *f, CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream,
                                 CUdevice device, aq_pool *account) {
  aq_growth growth;
  if (!account || !may_grow(account, bytes, aq_stream_named(stream, f->of), device, &growth))
    return aq_overflow_allocate(device, bytes, dptr);
  CUresult result = call(f, dptr, bytes, pool, stream);
  bool grown = aq_pool_grown(&growth);
  if (result != CUDA_SUCCESS || (grown && keep(*dptr, bytes, account) == CUDA_SUCCESS)) return result;
  f->release(*dptr, stream);
  aq_pools_trim();
  aq_quota_refused(device, bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* A node of a graph: memory comes when that is launched. */
static CUresult allocate_in_graph(const flavour *f, CUdeviceptr *dptr, size_t bytes, CUmemoryPool named, CUstream stream,
                                  CUdevice device) {
  CUresult result = call(f, dptr, bytes, named, stream);
  if (result == CUDA_SUCCESS) aq_graph_memory_seen(device);
  return result;
}

static CUmemoryPool current_pool(CUdevice device) {
  CUmemoryPool pool = NULL;
  if (!AQ_CUDA(cuDeviceGetMemPool) || AQ_CUDA(cuDeviceGetMemPool)(&pool, device)) return NULL;
  return pool;
}

static CUresult allocate(const flavour *f, CUdeviceptr *dptr, size_t bytes, CUmemoryPool named, CUstream stream) {
  CUdevice device;
  CUstream name = aq_stream_named(stream, f->of);
  if (aq_tenant_mode() == AQ_PASS || aq_stream_device(name, &device)) return call(f, dptr, bytes, named, stream);
  if (aq_stream_is_capturing(name)) return allocate_in_graph(f, dptr, bytes, named, stream, device);
  CUmemoryPool pool = named ? named : current_pool(device);
  aq_pool *account = pool ? aq_pool_of(pool, device) : NULL;
  if (account && aq_pool_is_condemned(account)) return CUDA_ERROR_INVALID_VALUE;
  if (account && aq_pool_is_free_of_charge(account)) return call(f, dptr, bytes, named, stream);
  if (account && aq_pool_device(account) >= 0) device = aq_pool_device(account); /* not that of the stream */
  if (!pool || (account && !aq_pool_is_readable(account))) /* nothing to look at: by request */
    return allocate_by_request(f, dptr, bytes, named, stream, device);
  return allocate_in_pool(f, dptr, bytes, f->allocate_from ? pool : named, stream, device, account);
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
  if (freeing.known && aq_overflow_is(&freeing.block)) return aq_overflow_free_in_order(&freeing.block, aq_stream_named(stream, f->of));
  return aq_memory_freed_in_order(f->release(dptr, stream), &freeing, aq_stream_named(stream, f->of));
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream) {
  flavour f = legacy();
  return release(&f, dptr, stream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream) {
  flavour f = per_thread();
  return release(&f, dptr, stream);
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
