/* cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, cuMemFree.
 *
 * Charged is what the block takes of the card: whole granules, where it has its own; else what was asked for, and what small
 * blocks leave unused of the granules that they share counts, like contexts, as overhead of the slice. Managed memory is charged in
 * full as it was asked for, wherever its pages happen to be, unless the slice says otherwise (resident.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "array_size.h"
#include "memory.h"
#include "overflow.h"
#include "rounding.h"

static void free_memory(uint64_t key) {
  if (AQ_CUDA(cuMemFree_v2)) AQ_CUDA(cuMemFree_v2)(key);
}

static CUresult keep(CUresult result, uint64_t key, const aq_charge *charge) {
  return aq_memory_keep(result, &(aq_block){.key = key, .charge = *charge, .kind = AQ_BLOCK_MEMORY}, free_memory);
}

/* A block that shares its granules after all takes what was asked for. */
static inline __attribute__((always_inline)) CUresult keep_block(CUresult result, uint64_t key, uint64_t bytes, CUdevice device, aq_charge *charge) {
  if (charge->bytes > bytes && result == CUDA_SUCCESS && aq_is_between_others(device, key)) aq_quota_resize(charge, bytes);
  return keep(result, key, charge);
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes) {
  CUdevice device;
  aq_charge charge;
  if (!AQ_CUDA(cuMemAlloc_v2)) return CUDA_ERROR_NOT_FOUND;
  if (aq_tenant_mode() == AQ_PASS || aq_current_device(&device)) return AQ_CUDA(cuMemAlloc_v2)(dptr, bytes);
  if (!aq_memory_fits(device, aq_rounded(device, bytes), &charge)) return aq_overflow_allocate(device, bytes, dptr);
  CUresult result = AQ_CUDA(cuMemAlloc_v2)(dptr, bytes);
  return keep_block(result, result == CUDA_SUCCESS ? *dptr : 0, bytes, device, &charge);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytes) {
  CUdevice device;
  aq_charge charge;
  if (!AQ_CUDA(cuMemAlloc)) return CUDA_ERROR_NOT_FOUND;
  if (aq_tenant_mode() == AQ_PASS || aq_current_device(&device)) return AQ_CUDA(cuMemAlloc)(dptr, bytes);
  if (!aq_memory_take(device, aq_rounded(device, bytes), &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = AQ_CUDA(cuMemAlloc)(dptr, bytes);
  return keep_block(result, result == CUDA_SUCCESS ? *dptr : 0, bytes, device, &charge);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned int flags) {
  CUdevice device;
  aq_charge charge;
  if (!AQ_CUDA(cuMemAllocManaged)) return CUDA_ERROR_NOT_FOUND;
  if (aq_tenant_mode() == AQ_PASS || aq_current_device(&device)) return AQ_CUDA(cuMemAllocManaged)(dptr, bytes, flags);
  if (aq_resident_may(device, bytes)) return aq_resident_allocate(device, bytes, flags, dptr);
  if (!aq_memory_take(device, bytes, &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = AQ_CUDA(cuMemAllocManaged)(dptr, bytes, flags);
  return keep(result, result == CUDA_SUCCESS ? *dptr : 0, &charge);
}

static uint64_t whole_pitch(uint64_t width) {
  uint64_t pitch;
  if (__builtin_add_overflow(width, AQ_PITCH - 1, &pitch)) return UINT64_MAX;
  return pitch - pitch % AQ_PITCH;
}

/* rows × width rounded up to the pitch, or a guess at it that is settled after the call; what overflows fits no slice. */
static uint64_t pitched_bytes(uint64_t width, uint64_t height) {
  uint64_t bytes;
  return __builtin_mul_overflow(whole_pitch(width), height, &bytes) ? UINT64_MAX : bytes;
}

/* Now the pitch is known: charges the true size, or undoes the call where that does not fit. */
static CUresult keep_pitched(CUresult result, uint64_t key, uint64_t bytes, CUdevice device, aq_charge *charge) {
  uint64_t taken = aq_is_between_others(device, key) ? bytes : aq_rounded(device, bytes);
  if (result == CUDA_SUCCESS && !aq_quota_resize(charge, taken)) {
    free_memory(key);
    aq_quota_refused_growth(device, charge, taken);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return keep(result, key, charge);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned int element) {
  CUdevice device;
  aq_charge charge;
  if (!AQ_CUDA(cuMemAllocPitch_v2)) return CUDA_ERROR_NOT_FOUND;
  if (aq_tenant_mode() == AQ_PASS || aq_current_device(&device))
    return AQ_CUDA(cuMemAllocPitch_v2)(dptr, pitch, width, height, element);
  if (!aq_memory_fits(device, aq_rounded(device, pitched_bytes(width, height)), &charge)) {
    if (pitch) *pitch = whole_pitch(width);
    return aq_overflow_allocate(device, pitched_bytes(width, height), pitch ? dptr : NULL);
  }
  CUresult result = AQ_CUDA(cuMemAllocPitch_v2)(dptr, pitch, width, height, element);
  bool made = result == CUDA_SUCCESS;
  return keep_pitched(result, made ? *dptr : 0, made ? *pitch * height : 0, device, &charge);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pitch, unsigned int width, unsigned int height,
                         unsigned int element) {
  CUdevice device;
  aq_charge charge;
  if (!AQ_CUDA(cuMemAllocPitch)) return CUDA_ERROR_NOT_FOUND;
  if (aq_tenant_mode() == AQ_PASS || aq_current_device(&device))
    return AQ_CUDA(cuMemAllocPitch)(dptr, pitch, width, height, element);
  if (!aq_memory_take(device, aq_rounded(device, pitched_bytes(width, height)), &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = AQ_CUDA(cuMemAllocPitch)(dptr, pitch, width, height, element);
  bool made = result == CUDA_SUCCESS;
  return keep_pitched(result, made ? *dptr : 0, made ? (uint64_t)*pitch * height : 0, device, &charge);
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  if (!AQ_CUDA(cuMemFree_v2)) return CUDA_ERROR_NOT_FOUND;
  aq_freeing freeing = aq_memory_freeing(AQ_BLOCK_MEMORY, dptr);
  if (freeing.known && aq_overflow_is(&freeing.block)) return aq_overflow_free(&freeing.block);
  return aq_memory_freed(AQ_CUDA(cuMemFree_v2)(dptr), &freeing);
}

CUresult cuMemFree(CUdeviceptr_v1 dptr) {
  if (!AQ_CUDA(cuMemFree)) return CUDA_ERROR_NOT_FOUND;
  aq_freeing freeing = aq_memory_freeing(AQ_BLOCK_MEMORY, dptr);
  return aq_memory_freed(AQ_CUDA(cuMemFree)(dptr), &freeing);
}
