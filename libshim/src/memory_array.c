/* CUDA arrays and mipmapped arrays: charged by their descriptor, which says how many texels of which size there are.
 *
 * The driver tells an array's true size only for the kinds whose memory the program brings itself (sparse, deferred);
 * those cost nothing here, their memory is charged where it is created.
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

/* Bytes of one texel's channel by format, from the low byte of CUarray_format on. */
static unsigned channel_bytes(int format) {
  switch (format) {
    case 0x01: case 0x08: return 1;                                               /* 8-bit integers */
    case 0x02: case 0x09: case 0x10: return 2;                                    /* 16-bit, half */
    case 0x03: case 0x0a: case 0x20: return 4;                                    /* 32-bit, float */
    default: return 0;
  }
}

/* Bytes of one texel. Normalised formats say their channels themselves; video and packed formats need at most 8 bytes
 * a texel; block-compressed ones at most 1 (16 bytes for 4×4 texels). */
static unsigned texel_bytes(int format, unsigned channels) {
  if (channel_bytes(format)) return channel_bytes(format) * channels;
  if (format >= 0xc0 && format <= 0xcb) return (1u << (format - 0xc0) % 3) * ((format - 0xc0) % 6 < 3 ? 1 : 2);
  if (format >= 0x91 && format <= 0x9e) return 1;
  return 8;
}

static uint64_t times(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t at_least_one(uint64_t n) { return n ? n : 1; }

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d) {
  if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) return 0;
  uint64_t texels = times(times(d->Width, at_least_one(d->Height)), at_least_one(d->Depth));
  return times(texels, texel_bytes(d->Format, d->NumChannels));
}

/* Halves each side; layers (and a cube's faces) are not a side. False: there was nothing to halve. */
static bool halve(CUDA_ARRAY3D_DESCRIPTOR *d) {
  bool layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
  bool deep = d->Depth > 1 && !layered;
  if (d->Width <= 1 && d->Height <= 1 && !deep) return false;
  if (d->Width > 1) d->Width /= 2;
  if (d->Height > 1) d->Height /= 2;
  if (deep) d->Depth /= 2;
  return true;
}

/* The driver takes `levels` for no less than 1 and no more than there can be. */
static uint64_t mipmap_bytes(CUDA_ARRAY3D_DESCRIPTOR d, unsigned levels) {
  uint64_t bytes = array_bytes(&d);
  while (levels-- > 1 && halve(&d))
    if (__builtin_add_overflow(bytes, array_bytes(&d), &bytes)) return UINT64_MAX;
  return bytes;
}

static void destroy_array(uint64_t key) { AQ_CUDA(cuArrayDestroy)((CUarray)(uintptr_t)key); }
static void destroy_mipmap(uint64_t key) { AQ_CUDA(cuMipmappedArrayDestroy)((CUmipmappedArray)(uintptr_t)key); }

static CUresult keep_array(CUresult result, CUarray *array, const aq_charge *charge) {
  uint64_t key = result == CUDA_SUCCESS ? (uintptr_t)*array : 0;
  return aq_memory_keep(result, &(aq_block){.key = key, .charge = *charge, .kind = AQ_BLOCK_ARRAY}, destroy_array);
}

/* Takes what the array needs. False: `answer` is the program's. */
static bool take(const CUDA_ARRAY3D_DESCRIPTOR *wanted, aq_charge *charge) {
  CUdevice device;
  *charge = (aq_charge){.card = AQ_NO_CARD};
  if (aq_tenant_mode() == AQ_PASS || aq_current_device(&device)) return true;
  return aq_memory_take(device, array_bytes(wanted), charge);
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
  if (!aq_memory_take(device, mipmap_bytes(*wanted, levels), &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = AQ_CUDA(cuMipmappedArrayCreate)(array, wanted, levels);
  uint64_t key = result == CUDA_SUCCESS ? (uintptr_t)*array : 0;
  return aq_memory_keep(result, &(aq_block){.key = key, .charge = charge, .kind = AQ_BLOCK_MIPMAP}, destroy_mipmap);
}

CUresult cuArrayDestroy(CUarray array) {
  if (!AQ_CUDA(cuArrayDestroy)) return CUDA_ERROR_NOT_FOUND;
  aq_freeing freeing = aq_memory_freeing(AQ_BLOCK_ARRAY, (uintptr_t)array);
  return aq_memory_freed(AQ_CUDA(cuArrayDestroy)(array), &freeing);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  if (!AQ_CUDA(cuMipmappedArrayDestroy)) return CUDA_ERROR_NOT_FOUND;
  aq_freeing freeing = aq_memory_freeing(AQ_BLOCK_MIPMAP, (uintptr_t)array);
  return aq_memory_freed(AQ_CUDA(cuMipmappedArrayDestroy)(array), &freeing);
}
