/* cuMemCreate, cuMemMap and their like: physical memory by handle, wherever it is; on the host it costs nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include "location.h"
#include "physical.h"

/* The device whose memory is asked for, or AQ_ON_HOST. */
static CUdevice device_of(const CUmemAllocationProp *prop) {
  CUdevice device = AQ_ON_HOST;
  if (aq_location_is_device(prop->location)) return aq_location_device(prop->location);
  if (!aq_location_is_host(prop->location)) aq_current_device(&device);
  return device;
}

/* Makes the account of memory just created, or undoes the creation. */
static CUresult keep(CUmemGenericAllocationHandle handle, CUdevice device, const aq_charge *charge) {
  aq_physical *physical = aq_physical_new(device, charge);
  if (physical && aq_physical_add_handle(handle, physical)) return CUDA_SUCCESS;
  AQ_CUDA(cuMemRelease)(handle);
  if (physical) aq_physical_drop(physical);
  else aq_quota_give(charge);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
  aq_charge charge;
  if (!AQ_CUDA(cuMemCreate)) return CUDA_ERROR_NOT_FOUND;
  CUdevice device = prop ? device_of(prop) : AQ_ON_HOST;
  if (aq_tenant_mode() == AQ_PASS || device == AQ_ON_HOST) return AQ_CUDA(cuMemCreate)(handle, bytes, prop, flags);
  if (!aq_memory_take(device, bytes, &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = AQ_CUDA(cuMemCreate)(handle, bytes, prop, flags);
  if (charge.card == AQ_NO_CARD) return result;
  if (result == CUDA_SUCCESS) return keep(*handle, device, &charge);
  aq_quota_give(&charge);
  return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (!AQ_CUDA(cuMemRelease)) return CUDA_ERROR_NOT_FOUND;
  aq_physical *physical = aq_tenant_mode() == AQ_GUARD ? aq_physical_take_handle(handle) : NULL;
  CUresult result = AQ_CUDA(cuMemRelease)(handle);
  if (!physical) return result;
  if (result == CUDA_SUCCESS) aq_physical_drop(physical);
  else aq_physical_add_handle(handle, physical);
  return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
  if (!AQ_CUDA(cuMemRetainAllocationHandle)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuMemRetainAllocationHandle)(handle, address);
  if (result != CUDA_SUCCESS || aq_tenant_mode() != AQ_GUARD) return result;
  aq_physical *physical = aq_physical_of_handle(*handle);
  if (!physical) physical = aq_physical_at((uintptr_t)address);
  if (!physical || aq_physical_add_handle(*handle, physical)) return result;
  AQ_CUDA(cuMemRelease)(*handle);
  aq_physical_drop(physical);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static bool put_mapping(CUdeviceptr address, size_t bytes, aq_physical *physical) {
  aq_block block = {.key = address, .charge = {bytes, AQ_NO_CARD}, .kind = AQ_BLOCK_MAPPING, .detail = physical};
  return aq_blocks_put(&block);
}

CUresult cuMemMap(CUdeviceptr dptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  if (!AQ_CUDA(cuMemMap)) return CUDA_ERROR_NOT_FOUND;
  aq_physical *physical = aq_tenant_mode() == AQ_GUARD ? aq_physical_of_handle(handle) : NULL;
  if (!physical) return AQ_CUDA(cuMemMap)(dptr, bytes, offset, handle, flags);
  bool fits = aq_physical_reach(physical, (uint64_t)offset + bytes);
  CUresult result = fits ? AQ_CUDA(cuMemMap)(dptr, bytes, offset, handle, flags) : CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS && put_mapping(dptr, bytes, physical)) return result;
  if (result == CUDA_SUCCESS) {
    AQ_CUDA(cuMemUnmap)(dptr, bytes);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  aq_physical_drop(physical);
  return result;
}

/* The lowest mapping of ours in [address, address + bytes). */
typedef struct {
  CUdeviceptr address;
  size_t bytes;
  CUdeviceptr lowest;
  bool found;
} range;

static bool is_lowest(const aq_block *block, void *data) {
  range *in = data;
  bool inside = block->key - in->address < in->bytes;
  if (inside && (!in->found || block->key < in->lowest)) in->lowest = block->key;
  in->found |= inside;
  return true;
}

/* Takes the next mapping in [*at, end), which begins at *at unless something that costs nothing lies before it. */
static bool take_mapping(CUdeviceptr *at, CUdeviceptr end, aq_block *block) {
  range in = {.address = *at, .bytes = end - *at};
  if (*at == end) return false;
  if (aq_blocks_take(AQ_BLOCK_MAPPING, *at, block)) return true;
  aq_blocks_each(AQ_BLOCK_MAPPING, is_lowest, &in);
  *at = in.lowest;
  return in.found && aq_blocks_take(AQ_BLOCK_MAPPING, in.lowest, block);
}

/* One call may unmap several neighbours. They are forgotten only after the driver has agreed, and looked at in order
 * of address; a range that is being mapped anew meanwhile is the program's own race. */
CUresult cuMemUnmap(CUdeviceptr dptr, size_t bytes) {
  if (!AQ_CUDA(cuMemUnmap)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuMemUnmap)(dptr, bytes);
  if (result != CUDA_SUCCESS || aq_tenant_mode() != AQ_GUARD) return result;
  aq_block block;
  for (CUdeviceptr at = dptr; take_mapping(&at, dptr + bytes, &block); at += block.charge.bytes)
    aq_physical_drop(block.detail);
  return result;
}
