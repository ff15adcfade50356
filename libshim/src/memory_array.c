/* CUDA arrays and mipmapped arrays: charged by their descriptor, which says how many texels of which size there are, with rows
 * padded as for pitched memory.
 *
 * Drivers tell an array's true size for the kinds whose memory the program brings itself (sparse, deferred); those cost
 * nothing here, their memory is charged where it is created. Where one tells it of others, too, that is charged.
 * SPDX-License-Identifier: Apache-2.0 */
#include "array_size.h"
#include "binding.h"
#include "memory.h"

static void destroy_array(uint64_t key) { AQ_CUDA(cuArrayDestroy)((CUarray)(uintptr_t)key); }
static void destroy_mipmap(uint64_t key) { AQ_CUDA(cuMipmappedArrayDestroy)((CUmipmappedArray)(uintptr_t)key); }

/* What the driver says an array takes, where it says it. Blocks that it packs small arrays into are nobody's alone: as with
 * cuMemAlloc, such rounding is not charged. */
typedef struct {
  uint64_t bytes, alignment;
} told;

static told told_of_array(CUarray array, CUdevice device) {
  CUDA_ARRAY_MEMORY_REQUIREMENTS r;
  bool answers = AQ_CUDA(cuArrayGetMemoryRequirements) && !AQ_CUDA(cuArrayGetMemoryRequirements)(&r, array, device);
  return answers ? (told){r.size, r.alignment} : (told){0, 0};
}

static told told_of_mipmap(CUmipmappedArray array, CUdevice device) {
  CUDA_ARRAY_MEMORY_REQUIREMENTS r;
  bool answers = AQ_CUDA(cuMipmappedArrayGetMemoryRequirements) &&
                 !AQ_CUDA(cuMipmappedArrayGetMemoryRequirements)(&r, array, device);
  return answers ? (told){r.size, r.alignment} : (told){0, 0};
}

/* Charges the true size where it is known to be another. False: it does not fit, which was counted as a refusal. */
static bool true_up(CUdevice device, aq_charge *charge, told size) {
  bool rounded = size.bytes >= charge->bytes && size.bytes - charge->bytes < size.alignment;
  if (!size.bytes || !charge->bytes || rounded || aq_quota_resize(charge, size.bytes)) return true;
  aq_quota_refused_growth(device, charge, size.bytes);
  return false;
}

static CUresult keep_array(CUresult result, CUarray *array, aq_charge *charge) {
  CUdevice device = 0;
  uint64_t key = result == CUDA_SUCCESS ? (uintptr_t)*array : 0;
  if (key && charge->card != AQ_NO_CARD && !aq_current_device(&device) &&
      !true_up(device, charge, told_of_array(*array, device))) {
    destroy_array(key);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return aq_memory_keep(result, &(aq_block){.key = key, .charge = *charge, .kind = AQ_BLOCK_ARRAY}, destroy_array);
}

static CUresult keep_mipmap(CUresult result, CUmipmappedArray *array, CUdevice device, aq_charge *charge) {
  uint64_t key = result == CUDA_SUCCESS ? (uintptr_t)*array : 0;
  if (key && charge->card != AQ_NO_CARD && !true_up(device, charge, told_of_mipmap(*array, device))) {
    destroy_mipmap(key);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return aq_memory_keep(result, &(aq_block){.key = key, .charge = *charge, .kind = AQ_BLOCK_MIPMAP}, destroy_mipmap);
}

/* Takes what the array needs. False: `answer` is the program's. */
static bool take(const CUDA_ARRAY3D_DESCRIPTOR *wanted, aq_charge *charge) {
  CUdevice device;
  *charge = (aq_charge){.card = AQ_NO_CARD};
  if (aq_tenant_mode() == AQ_PASS || aq_current_device(&device)) return true;
  return aq_memory_take(device, aq_array_bytes(wanted), charge);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *wanted) {
  aq_charge charge;
  if (!AQ_CUDA(cuArrayCreate_v2)) return CUDA_ERROR_NOT_FOUND;
  if (!wanted) return AQ_CUDA(cuArrayCreate_v2)(array, wanted);
  CUDA_ARRAY3D_DESCRIPTOR d = {wanted->Width, wanted->Height, 0, wanted->Format, wanted->NumChannels, 0};
  if (!take(&d, &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  return keep_array(AQ_CUDA(cuArrayCreate_v2)(array, wanted), array, &charge);
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *wanted) {
  aq_charge charge;
  if (!AQ_CUDA(cuArrayCreate)) return CUDA_ERROR_NOT_FOUND;
  if (!wanted) return AQ_CUDA(cuArrayCreate)(array, wanted);
  CUDA_ARRAY3D_DESCRIPTOR d = {wanted->Width, wanted->Height, 0, wanted->Format, wanted->NumChannels, 0};
  if (!take(&d, &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  return keep_array(AQ_CUDA(cuArrayCreate)(array, wanted), array, &charge);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted) {
  aq_charge charge;
  if (!AQ_CUDA(cuArray3DCreate_v2)) return CUDA_ERROR_NOT_FOUND;
  if (!wanted) return AQ_CUDA(cuArray3DCreate_v2)(array, wanted);
  if (!take(wanted, &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  return keep_array(AQ_CUDA(cuArray3DCreate_v2)(array, wanted), array, &charge);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *wanted) {
  aq_charge charge;
  if (!AQ_CUDA(cuArray3DCreate)) return CUDA_ERROR_NOT_FOUND;
  if (!wanted) return AQ_CUDA(cuArray3DCreate)(array, wanted);
  CUDA_ARRAY3D_DESCRIPTOR d = {wanted->Width,  wanted->Height,      wanted->Depth,
                               wanted->Format, wanted->NumChannels, wanted->Flags};
  if (!take(&d, &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  return keep_array(AQ_CUDA(cuArray3DCreate)(array, wanted), array, &charge);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted, unsigned int levels) {
  CUdevice device;
  aq_charge charge;
  if (!AQ_CUDA(cuMipmappedArrayCreate)) return CUDA_ERROR_NOT_FOUND;
  if (!wanted || aq_tenant_mode() == AQ_PASS || aq_current_device(&device))
    return AQ_CUDA(cuMipmappedArrayCreate)(array, wanted, levels);
  if (!aq_memory_take(device, aq_mipmap_bytes(wanted, levels), &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = AQ_CUDA(cuMipmappedArrayCreate)(array, wanted, levels);
  return keep_mipmap(result, array, device, &charge);
}

CUresult cuArrayDestroy(CUarray array) {
  if (!AQ_CUDA(cuArrayDestroy)) return CUDA_ERROR_NOT_FOUND;
  aq_bindings_end(AQ_BOUND_TO_ARRAY, (uintptr_t)array);
  aq_freeing freeing = aq_memory_freeing(AQ_BLOCK_ARRAY, (uintptr_t)array);
  return aq_memory_freed(AQ_CUDA(cuArrayDestroy)(array), &freeing);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  if (!AQ_CUDA(cuMipmappedArrayDestroy)) return CUDA_ERROR_NOT_FOUND;
  aq_bindings_end(AQ_BOUND_TO_ARRAY, (uintptr_t)array);
  aq_freeing freeing = aq_memory_freeing(AQ_BLOCK_MIPMAP, (uintptr_t)array);
  return aq_memory_freed(AQ_CUDA(cuMipmappedArrayDestroy)(array), &freeing);
}
