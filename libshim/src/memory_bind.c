/* Multicast objects, logical endpoints and tiles of sparse arrays: what is bound to them lives on when its handle was released.
 * SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

static bool guarded(void) { return aq_tenant_mode() == AQ_GUARD; }

/* After a call that bound `physical` (NULL: memory that has no account here). A binding that cannot be remembered leaves the
 * memory charged for good, which is the lesser evil: undoing it is no business of ours. */
static CUresult bound(CUresult result, const aq_place *place, aq_physical *physical) {
  if (!physical) return result;
  if (result == CUDA_SUCCESS) aq_bind(place, physical);
  else aq_physical_drop(physical);
  return result;
}

/* ---- multicast objects ---- */

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const void *prop) {
  if (!AQ_CUDA(cuMulticastCreate)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuMulticastCreate)(handle, prop);
  if (result != CUDA_SUCCESS || !guarded()) return result;
  aq_physical *object = aq_physical_new(AQ_ON_HOST, &(aq_charge){.card = AQ_NO_CARD});
  if (object && aq_physical_add_handle(*handle, object)) return result;
  AQ_CUDA(cuMemRelease)(*handle);
  if (object) aq_physical_drop(object);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

typedef struct {
  CUmemGenericAllocationHandle object;
  CUdevice device; /* AQ_ON_HOST: that of the memory */
  uint64_t offset, bytes;
} multicast_range;

/* Remembers what was bound to a multicast object, by the object's account: its handle may be released before it is unbound. */
static CUresult bound_to_multicast(CUresult result, const multicast_range *range, aq_physical *physical) {
  aq_physical *object = physical ? aq_physical_of_handle(range->object) : NULL;
  if (!object) return bound(CUDA_ERROR_NOT_FOUND, NULL, physical), result;
  CUdevice device = range->device == AQ_ON_HOST ? aq_physical_device(physical) : range->device;
  aq_place place = {AQ_BOUND_TO_MULTICAST, (uintptr_t)object, device, range->offset, range->bytes};
  bound(result, &place, physical);
  aq_physical_drop(object);
  return result;
}

#define BIND(symbol, range, physical, ...)                                               \
  do {                                                                                   \
    if (!AQ_CUDA(symbol)) return CUDA_ERROR_NOT_FOUND;                                   \
    aq_physical *memory = guarded() ? (physical) : NULL;                                 \
    return bound_to_multicast(AQ_CUDA(symbol)(__VA_ARGS__), &(multicast_range)range, memory); \
  } while (0)
#define RANGE(...) {__VA_ARGS__}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset, CUmemGenericAllocationHandle handle,
                            size_t from, size_t bytes, unsigned long long flags) {
  BIND(cuMulticastBindMem, RANGE(object, AQ_ON_HOST, offset, bytes), aq_physical_of_handle(handle), object, offset, handle,
       from, bytes, flags);
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                               CUmemGenericAllocationHandle handle, size_t from, size_t bytes, unsigned long long flags) {
  BIND(cuMulticastBindMem_v2, RANGE(object, device, offset, bytes), aq_physical_of_handle(handle), object, device, offset,
       handle, from, bytes, flags);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr dptr, size_t bytes,
                             unsigned long long flags) {
  BIND(cuMulticastBindAddr, RANGE(object, AQ_ON_HOST, offset, bytes), aq_physical_at(dptr), object, offset, dptr, bytes,
       flags);
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset, CUdeviceptr dptr,
                                size_t bytes, unsigned long long flags) {
  BIND(cuMulticastBindAddr_v2, RANGE(object, device, offset, bytes), aq_physical_at(dptr), object, device, offset, dptr,
       bytes, flags);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes) {
  if (!AQ_CUDA(cuMulticastUnbind)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuMulticastUnbind)(handle, device, offset, bytes);
  aq_physical *object = result == CUDA_SUCCESS && guarded() ? aq_physical_of_handle(handle) : NULL;
  if (!object) return result;
  aq_unbind(&(aq_place){AQ_BOUND_TO_MULTICAST, (uintptr_t)object, device, offset, bytes});
  aq_physical_drop(object);
  return result;
}

/* ---- logical endpoints ---- */

CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId endpoint, CUdevice device, uint64_t offset,
                                  CUmemGenericAllocationHandle handle, uint64_t from, uint64_t bytes,
                                  unsigned long long flags) {
  if (!AQ_CUDA(cuLogicalEndpointBindMem)) return CUDA_ERROR_NOT_FOUND;
  aq_physical *physical = guarded() ? aq_physical_of_handle(handle) : NULL;
  CUresult result = AQ_CUDA(cuLogicalEndpointBindMem)(endpoint, device, offset, handle, from, bytes, flags);
  return bound(result, &(aq_place){AQ_BOUND_TO_ENDPOINT, endpoint, device, offset, bytes}, physical);
}

CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId endpoint, CUdevice device, uint64_t offset, void *address,
                                   uint64_t bytes, unsigned long long flags) {
  if (!AQ_CUDA(cuLogicalEndpointBindAddr)) return CUDA_ERROR_NOT_FOUND;
  aq_physical *physical = guarded() ? aq_physical_at((uintptr_t)address) : NULL;
  CUresult result = AQ_CUDA(cuLogicalEndpointBindAddr)(endpoint, device, offset, address, bytes, flags);
  return bound(result, &(aq_place){AQ_BOUND_TO_ENDPOINT, endpoint, device, offset, bytes}, physical);
}

CUresult cuLogicalEndpointUnbind(CUlogicalEndpointId endpoint, CUdevice device, uint64_t offset, uint64_t bytes) {
  if (!AQ_CUDA(cuLogicalEndpointUnbind)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuLogicalEndpointUnbind)(endpoint, device, offset, bytes);
  if (result == CUDA_SUCCESS) aq_unbind(&(aq_place){AQ_BOUND_TO_ENDPOINT, endpoint, device, offset, bytes});
  return result;
}

CUresult cuLogicalEndpointDestroy(CUlogicalEndpointId endpoint) {
  if (!AQ_CUDA(cuLogicalEndpointDestroy)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuLogicalEndpointDestroy)(endpoint);
  if (result == CUDA_SUCCESS) aq_bindings_end(AQ_BOUND_TO_ENDPOINT, endpoint);
  return result;
}

/* ---- tiles of sparse arrays ---- */

/* A tile is known by all that names it. Tiles overlap only where a program maps one twice. */
static aq_place tile(const CUarrayMapInfo *info) {
  const unsigned char *bytes = (const unsigned char *)&info->subresourceType;
  uint64_t hash = UINT64_C(14695981039346656037);
  for (size_t i = 0; i < offsetof(CUarrayMapInfo, memOperationType) - offsetof(CUarrayMapInfo, subresourceType); i++)
    hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
  return (aq_place){AQ_BOUND_TO_ARRAY, (uintptr_t)info->resource, AQ_ON_HOST, hash, 1};
}

static void mapped(const CUarrayMapInfo *info) {
  aq_place place = tile(info);
  aq_physical *physical =
      info->memOperationType == CU_MEM_OPERATION_TYPE_MAP ? aq_physical_of_handle(info->memHandle) : NULL;
  aq_unbind(&place); /* after the new one was referred to: it may be the same */
  bound(CUDA_SUCCESS, &place, physical);
}

static CUresult map_array(CUresult (*map)(CUarrayMapInfo *, unsigned int, CUstream), CUarrayMapInfo *list, unsigned int count,
                          CUstream stream) {
  if (!map) return CUDA_ERROR_NOT_FOUND;
  CUresult result = map(list, count, stream);
  for (unsigned int i = 0; result == CUDA_SUCCESS && guarded() && i < count; i++) mapped(&list[i]);
  return result;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream stream) {
  return map_array(AQ_CUDA(cuMemMapArrayAsync), list, count, stream);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned int count, CUstream stream) {
  return map_array(AQ_CUDA(cuMemMapArrayAsync_ptsz), list, count, stream);
}
