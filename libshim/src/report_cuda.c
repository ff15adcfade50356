/* cuMemGetInfo and cuDeviceTotalMem: the program sees its slice as if it were the card.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cards.h"
#include "loader.h"
#include "quota.h"

/* What the driver has answered with success, narrowed to the slice. A driver may take NULL for either; then the other is shown
 * all the same. */
static inline CUresult narrowed(size_t *available, size_t *total) {
  size_t unseen_available = 0, unseen_total = 0;
  CUdevice device;
  if (aq_tenant_mode() == AQ_PASS || aq_current_device(&device)) return CUDA_SUCCESS;
  aq_quota_show(device, available ? available : &unseen_available, total ? total : &unseen_total);
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
  CUresult (*ask)(size_t *, size_t *) = AQ_CUDA(cuMemGetInfo_v2);
  if (!ask) return CUDA_ERROR_NOT_FOUND;
  CUresult result = ask(available, total);
  return result == CUDA_SUCCESS ? narrowed(available, total) : result;
}

/* The 32-bit forms show what fits in them. */
static unsigned int narrow(size_t bytes) { return bytes < UINT32_MAX ? (unsigned int)bytes : UINT32_MAX; }

CUresult cuMemGetInfo(unsigned int *available, unsigned int *total) {
  if (!AQ_CUDA(cuMemGetInfo)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuMemGetInfo)(available, total);
  if (result != CUDA_SUCCESS) return result;
  size_t wide_available = available ? *available : 0, wide_total = total ? *total : 0;
  narrowed(&wide_available, &wide_total);
  if (available) *available = narrow(wide_available);
  if (total) *total = narrow(wide_total);
  return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  size_t available = 0;
  if (!AQ_CUDA(cuDeviceTotalMem_v2)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuDeviceTotalMem_v2)(bytes, device);
  if (result == CUDA_SUCCESS && bytes) aq_quota_show(device, &available, bytes);
  return result;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device) {
  size_t available = 0, wide;
  if (!AQ_CUDA(cuDeviceTotalMem)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuDeviceTotalMem)(bytes, device);
  if (result != CUDA_SUCCESS || !bytes) return result;
  wide = *bytes;
  aq_quota_show(device, &available, &wide);
  *bytes = narrow(wide);
  return result;
}
