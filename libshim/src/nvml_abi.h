/* The few NVML types that our hooks see, declared by their binary layout. Handles stay opaque.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_NVML_ABI_H
#define AQ_NVML_ABI_H

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;

enum {
  NVML_SUCCESS = 0,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
};

#endif
