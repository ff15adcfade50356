/* cuMemCreate, cuMemMap and their like: physical memory by handle.
 *
 * It lives until every handle was released and every mapping unmapped, so both are counted. A handle's number may be
 * given out again while the old memory is still mapped: the account hangs on neither, but on both.
 * Imported handles have no account: the exporter is charged.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "lock.h"
#include "memory.h"

typedef struct {
  aq_charge charge;
  unsigned references; /* handles and mappings, under `counting` */
} aq_allocation;

/* Over references, and over looking a handle up and putting it back changed. */
static aq_lock counting;

static void drop_reference(aq_allocation *allocation) {
  aq_lock_acquire(&counting);
  bool last = --allocation->references == 0;
  aq_lock_release(&counting);
  if (!last) return;
  aq_quota_give(&allocation->charge);
  free(allocation);
}

/* A handle or mapping of the allocation; the charge is the allocation's. `bytes`: of a mapping. */
static bool put(aq_block_kind kind, uint64_t key, uint64_t bytes, aq_allocation *allocation) {
  aq_block block = {.key = key, .charge = {bytes, AQ_NO_CARD}, .kind = (int)kind, .detail = allocation};
  return aq_blocks_put(&block);
}

/* Makes the account of memory just created, or undoes the creation. */
static CUresult keep(CUmemGenericAllocationHandle handle, const aq_charge *charge) {
  aq_allocation *allocation = malloc(sizeof *allocation);
  if (allocation) *allocation = (aq_allocation){.charge = *charge, .references = 1};
  if (allocation && put(AQ_BLOCK_HANDLE, handle, 1, allocation)) return CUDA_SUCCESS;
  free(allocation);
  AQ_CUDA(cuMemRelease)(handle);
  aq_quota_give(charge);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
  aq_charge charge;
  if (!AQ_CUDA(cuMemCreate)) return CUDA_ERROR_NOT_FOUND;
  bool on_card = prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (aq_tenant_mode() == AQ_PASS || !on_card) return AQ_CUDA(cuMemCreate)(handle, bytes, prop, flags);
  if (!aq_memory_take(prop->location.id, bytes, &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = AQ_CUDA(cuMemCreate)(handle, bytes, prop, flags);
  if (charge.card == AQ_NO_CARD) return result;
  if (result == CUDA_SUCCESS) return keep(*handle, &charge);
  aq_quota_give(&charge);
  return result;
}

/* A handle that was given out n times (cuMemRetainAllocationHandle) is one block whose charge.bytes is n. One time less:
 * returns its allocation, whose reference the caller then has; NULL when the handle is not ours. */
static aq_allocation *take_handle(CUmemGenericAllocationHandle handle) {
  aq_block block;
  aq_lock_acquire(&counting);
  bool known = aq_blocks_take(AQ_BLOCK_HANDLE, handle, &block);
  if (known && block.charge.bytes > 1) put(AQ_BLOCK_HANDLE, handle, block.charge.bytes - 1, block.detail);
  aq_lock_release(&counting);
  return known ? block.detail : NULL;
}

/* One time more: the caller's reference becomes the handle's. */
static bool add_handle(CUmemGenericAllocationHandle handle, aq_allocation *allocation) {
  aq_block block = {.charge.bytes = 0};
  aq_lock_acquire(&counting);
  aq_blocks_get(AQ_BLOCK_HANDLE, handle, &block);
  bool kept = put(AQ_BLOCK_HANDLE, handle, block.charge.bytes + 1, allocation);
  aq_lock_release(&counting);
  return kept;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (!AQ_CUDA(cuMemRelease)) return CUDA_ERROR_NOT_FOUND;
  aq_allocation *allocation = aq_tenant_mode() == AQ_GUARD ? take_handle(handle) : NULL;
  CUresult result = AQ_CUDA(cuMemRelease)(handle);
  if (!allocation) return result;
  if (result == CUDA_SUCCESS) drop_reference(allocation);
  else add_handle(handle, allocation);
  return result;
}

typedef struct {
  uint64_t address;
  aq_allocation *found;
} search;

static bool is_mapped_here(const aq_block *block, void *data) {
  search *s = data;
  if (s->address - block->key < block->charge.bytes) s->found = block->detail;
  return !s->found;
}

/* A new reference to the allocation of a handle, or of what is mapped at an address; NULL when neither is ours. */
static aq_allocation *refer_to(CUmemGenericAllocationHandle handle, uint64_t address) {
  aq_block block;
  search s = {.address = address};
  aq_lock_acquire(&counting);
  if (aq_blocks_get(AQ_BLOCK_HANDLE, handle, &block)) s.found = block.detail;
  else if (address) aq_blocks_each(AQ_BLOCK_MAPPING, is_mapped_here, &s);
  if (s.found) s.found->references++;
  aq_lock_release(&counting);
  return s.found;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
  if (!AQ_CUDA(cuMemRetainAllocationHandle)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuMemRetainAllocationHandle)(handle, address);
  if (result != CUDA_SUCCESS || aq_tenant_mode() != AQ_GUARD) return result;
  aq_allocation *allocation = refer_to(*handle, (uintptr_t)address);
  if (!allocation || add_handle(*handle, allocation)) return result;
  AQ_CUDA(cuMemRelease)(*handle);
  drop_reference(allocation);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemMap(CUdeviceptr dptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  if (!AQ_CUDA(cuMemMap)) return CUDA_ERROR_NOT_FOUND;
  aq_allocation *allocation = aq_tenant_mode() == AQ_GUARD ? refer_to(handle, 0) : NULL;
  CUresult result = AQ_CUDA(cuMemMap)(dptr, bytes, offset, handle, flags);
  if (!allocation) return result;
  if (result == CUDA_SUCCESS && put(AQ_BLOCK_MAPPING, dptr, bytes, allocation)) return result;
  if (result == CUDA_SUCCESS) {
    AQ_CUDA(cuMemUnmap)(dptr, bytes);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  drop_reference(allocation);
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
  for (CUdeviceptr at = dptr; take_mapping(&at, dptr + bytes, &block); at += block.charge.bytes) drop_reference(block.detail);
  return result;
}
