/* The few NVML types that our hooks see, declared by their binary layout. Handles stay opaque.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_NVML_ABI_H
#define AQ_NVML_ABI_H

#include <assert.h>

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;

enum {
  NVML_SUCCESS = 0,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_MEMORY = 20,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
};

enum { NVML_UUID_SIZE = 96 };

/* Of a process that runs on no MIG instance. */
#define NVML_NO_INSTANCE 0xffffffffu

typedef struct {
  unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
  unsigned int version;
  unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
  unsigned int pid;
  unsigned long long used;
} nvmlProcessInfo_v1_t;

/* Of the second and third version of the calls. */
typedef struct {
  unsigned int pid;
  unsigned long long used;
  unsigned int gpu_instance, compute_instance;
} nvmlProcessInfo_t;

typedef struct {
  unsigned int pid;
  unsigned long long used;
  unsigned int gpu_instance, compute_instance;
  unsigned long long used_protected;
} nvmlProcessDetail_v1_t;

enum { NVML_PROCESS_DETAIL_LIST_V1 = 0x1000018, NVML_PROCESS_MODE_COMPUTE = 0 };

typedef struct {
  unsigned int version, mode, count;
  nvmlProcessDetail_v1_t *processes;
} nvmlProcessDetailList_v1_t;

typedef struct {
  unsigned int pid;
  unsigned long long time_stamp;
  unsigned int sm, memory, encoder, decoder;
} nvmlProcessUtilizationSample_t;

static_assert(sizeof(nvmlMemory_v2_t) == 40, "NVML's ABI");
static_assert(sizeof(nvmlProcessInfo_v1_t) == 16, "NVML's ABI");
static_assert(sizeof(nvmlProcessInfo_t) == 24, "NVML's ABI");
static_assert(sizeof(nvmlProcessDetail_v1_t) == 32, "NVML's ABI");
static_assert(sizeof(nvmlProcessDetailList_v1_t) == 24, "NVML's ABI");
static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "NVML's ABI");

#endif
