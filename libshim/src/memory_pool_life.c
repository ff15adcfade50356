/* How pools begin, shrink and end.
 *
 * Which pool a device uses, and what a pool answers about itself, is the driver's business: its pools are the program's own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "location.h"
#include "memory.h"

static CUdevice place_of(const CUmemPoolProps *props) {
  if (aq_location_is_device(props->location)) return aq_location_device(props->location);
  bool managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
  return managed || !aq_location_is_host(props->location) ? AQ_POOL_ANYWHERE : AQ_POOL_FREE_OF_CHARGE;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
  if (!AQ_CUDA(cuMemPoolCreate)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuMemPoolCreate)(pool, props);
  if (result == CUDA_SUCCESS && aq_tenant_mode() != AQ_PASS) aq_pool_made(*pool, place_of(props));
  return result;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, int type, unsigned long long flags) {
  if (!AQ_CUDA(cuMemPoolImportFromShareableHandle)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuMemPoolImportFromShareableHandle)(pool, handle, type, flags);
  if (result == CUDA_SUCCESS && aq_tenant_mode() != AQ_PASS) aq_pool_made(*pool, AQ_POOL_FREE_OF_CHARGE);
  return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  if (!AQ_CUDA(cuMemPoolTrimTo)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuMemPoolTrimTo)(pool, keep);
  aq_pools_settle();
  return result;
}

/* A lower release threshold may make it shrink. */
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value) {
  if (!AQ_CUDA(cuMemPoolSetAttribute)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuMemPoolSetAttribute)(pool, attribute, value);
  aq_pools_settle();
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return AQ_CUDA(cuMemPoolDestroy) ? aq_pool_destroy(pool) : CUDA_ERROR_NOT_FOUND;
}
