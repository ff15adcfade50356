/* What the driver says of a pointer, where that is memory that has overflowed to the host: what the program asked for was
 * no managed memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader.h"
#include "overflow.h"

static bool is_told(int attribute) {
  return attribute != CU_POINTER_ATTRIBUTE_IS_MANAGED && attribute != CU_POINTER_ATTRIBUTE_HOST_POINTER;
}

CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr pointer) {
  if (!AQ_CUDA(cuPointerGetAttribute)) return CUDA_ERROR_NOT_FOUND;
  bool hidden = !is_told(attribute) && aq_overflow_has(pointer);
  if (hidden && attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = AQ_CUDA(cuPointerGetAttribute)(data, attribute, pointer);
  if (hidden && result == CUDA_SUCCESS) *(unsigned int *)data = 0;
  return result;
}

CUresult cuPointerGetAttributes(unsigned int count, int *attributes, void **data, CUdeviceptr pointer) {
  if (!AQ_CUDA(cuPointerGetAttributes)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuPointerGetAttributes)(count, attributes, data, pointer);
  if (result != CUDA_SUCCESS || !aq_overflow_has(pointer)) return result;
  for (unsigned int i = 0; i < count; i++) {
    if (attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED) *(unsigned int *)data[i] = 0;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER) *(void **)data[i] = NULL;
  }
  return result;
}
